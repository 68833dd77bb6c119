"""Dispatcher of requests: finds the handler by the request code, and sends its reply.

Sources: NettyRemotingAbstract.processRequestCommand, RocketMQ 4.9.7, which answers code 2, [OVERLOAD] when the queue of a
thread pool is full; here that is the answer when too many asynchronous handlers run. RequestCode.java (4.9.8 and 5.3.3).
"""

import inspect
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from time import monotonic
from typing import Any

import structlog
import trio
from attrs import define, field

from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand, decode
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.header_fields import decode_header
from twinlog.cluster.remoting.request import BatchHandler, Check, Handler, QuickReader, Reply, Request, explain, failure

log = structlog.get_logger()

OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
SLICE_SECONDS = 0.01  # Then other tasks run: an event loop that is blocked for long costs a master its lease.


def _set_of(codes: Iterable[int]) -> frozenset[int]:
    return frozenset(codes)


@define(eq=False)
class Dispatcher:
    """Hands the requests of one port to their handlers. `run` carries the handlers that are asynchronous.

    batch: takes all requests of one read whose code is in `batch_codes`, as one call, between before_batch() and after_batch(),
    which is called once answers have been sent.
    quick: what reads frames of a connection for `batch` without decoding them, where no check is due; None: nothing does now.
    check: called before any request is carried out, or those of `check_codes`. What it returns is the answer; None lets the
    request through. It may raise RequestError. The command's body is good until it returns, so it must not keep it.
    """

    table: Mapping[int, Handler]
    config: ServerConfig = field(factory=ServerConfig)
    batch: BatchHandler | None = None
    batch_codes: frozenset[int] = field(default=frozenset(), converter=_set_of)
    before_batch: Callable[[], None] = lambda: None
    after_batch: Callable[[], None] = lambda: None
    quick: Callable[[Connection], QuickReader | None] = lambda _: None
    check: Check | None = None
    check_codes: Collection[int] | None = None  # None: all.
    under_way: int = field(default=0, init=False)  # Requests whose asynchronous handlers have not returned.
    _under_way_bytes: int = field(default=0, init=False)
    _nursery: trio.Nursery = field(init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry asynchronous handlers until cancelled, which cancels them."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def work_off(self, connection: Connection, frames: Iterable[bytes | memoryview]) -> list[bytes]:
        """Carry out requests; returns those that wait for the next time slice, or for the peer to read its responses.

        Requests for the batch handler are handed over together, and do not count for the time slice.
        """
        connection.cork()
        batch: list[Any] = []
        check, check_codes, batch_codes = self.check, self.check_codes, self.batch_codes
        is_checked = check is not None and (check_codes is None or not batch_codes.isdisjoint(check_codes))
        quick = None if is_checked else self.quick(connection)
        left, slice_ends = iter(frames), 0.0
        try:
            for frame in left:
                if quick is not None and (read := quick(frame)) is not None:
                    batch.append(read)
                    continue
                command = decode(frame)
                if command.flag & 1:
                    command.body = bytes(command.body)
                    connection.take_response(command)
                    continue
                request = None
                if check is not None and (check_codes is None or command.code in check_codes):
                    request = Request(connection, command)
                if request is not None and self._stopped(check, request):
                    pass
                elif command.code in batch_codes:
                    batch.append(command)
                    continue
                else:
                    command.body = bytes(command.body)  # The frame is in a buffer that is used again.
                    self._dispatch(request or Request(connection, command))
                now = monotonic()
                slice_ends = slice_ends or now + SLICE_SECONDS
                if connection.is_behind or now >= slice_ends:
                    return [bytes(frame) for frame in left]
                if connection.closed:
                    break
        finally:
            try:
                if batch:
                    self.before_batch()
                    self._run_batch(connection, batch)
            finally:
                connection.uncork()
                if batch:
                    self.after_batch()
        return []

    def _stopped(self, check: Check | None, request: Request) -> bool:
        """Run the check; True when it has answered the request."""
        assert check is not None
        try:
            reply = check(request)
        except Exception as error:  # A check that fails admits nothing.
            reply = explain(error, request)
        if reply is not None:
            request.reply(reply)
        return reply is not None

    def _run_batch(self, connection: Connection, batch: list[Any]) -> None:
        assert self.batch is not None
        try:
            self.batch(connection, batch)
        except Exception as error:
            commands = [each if isinstance(each, RemotingCommand) else each.command for each in batch]
            log.exception("requests failed", code=commands[0].code, count=len(batch), peer=connection.remote_address)
            for command in commands:
                Request(connection, command).reply(failure(error))

    def _dispatch(self, request: Request) -> None:
        handler = self.table.get(request.command.code)
        if handler is None:
            request.reply(Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, refusal(request.command.code)))
            return
        try:
            header = decode_header(handler.header, request.command.ext)
            reply = handler.function(header, request)
            if inspect.iscoroutine(reply):
                self._carry_out(request, reply)
            elif reply is not None:
                request.reply(reply)
        except Exception as error:
            request.reply(explain(error, request))

    def _carry_out(self, request: Request, pending: Coroutine[Any, Any, Reply | None]) -> None:
        """Start an asynchronous handler, or answer [OVERLOAD] when too many run."""
        size = len(request.body)
        too_much = self._under_way_bytes and self._under_way_bytes + size > self.config.request_bytes_max
        if self.under_way >= self.config.requests_max or too_much:
            pending.close()
            request.reply(Reply(ResponseCode.SYSTEM_BUSY, OVERLOAD))
            return
        self.under_way += 1
        self._under_way_bytes += size
        self._nursery.start_soon(self._await_reply, request, pending, size)

    async def _await_reply(self, request: Request, pending: Coroutine[Any, Any, Reply | None], size: int) -> None:
        try:
            reply = await pending
            if reply is not None:
                request.reply(reply)
        except Exception as error:
            request.reply(explain(error, request))
        finally:
            self.under_way -= 1
            self._under_way_bytes -= size
            assert self.under_way >= 0 <= self._under_way_bytes, (self.under_way, self._under_way_bytes)


NO_CONTROLLER = "there is no controller; roles change with twinlog switchover"
_REASONS: Mapping[str, Iterable[int]] = {
    NO_CONTROLLER: (*range(1001, 1005), *range(1008, 1019)),
    "there is no pop consumption; consume by push or pull": (*range(200050, 200057), 200151),
    "clients assign queues to themselves": (400, 401, 402),
    "there are no timer messages; there are delay levels": (60, 61, 370),
    "cold data is not limited by group": (2001, 2002, 2003, 2004),
    "there is no ACL 2.0; users and rights are in plain_acl.yml": range(3001, 3011),
    "there is no RocksDB": (354, 355),
    "slaves do not act as masters": (905, 906, 908),
    # Defined by the releases; no client sends them.
    "no RocketMQ 4.9 or 5.3 serves it, either": (13, 22, 23, 27, 47, *range(209, 215)),
    "there are no filter servers; filter by tags or SQL92": (301, 302),
    "use 300 (groups of a topic) or 203 (connections of a group)": (343, 345),
    "a group is closed with consumeEnable (200)": (353,),
    "there are no static topics": (513,),
    "a process is one broker": (902, 903),
}

# Request codes of RocketMQ that twinlog does not serve, with the end of the remark of the response.
NOT_SERVED: Mapping[int, str] = {code: reason for reason, codes in _REASONS.items() for code in codes}

# Codes that brokers serve in groups whose record etcd keeps, and else nobody.
_ONLY_WITH_ETCD: Mapping[int, str] = dict.fromkeys(
    (RequestCode.CONTROLLER_GET_METADATA_INFO, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA), NO_CONTROLLER
)


def refusal(code: int) -> str:
    """The remark of code 3: RocketMQ's text, and the reason where one is known."""
    reason = NOT_SERVED.get(code) or _ONLY_WITH_ETCD.get(code)
    return f" request type {code} not supported{f': {reason}' if reason else ''}"
