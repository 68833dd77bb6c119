"""Hands requests to who carries them out, and sees to their answers.

Sources: NettyRemotingAbstract.processRequestCommand, RocketMQ 4.9.7. There a request that finds the queue of its thread pool full
is answered with code 2, [OVERLOAD]; here one whose handler takes its time, when too many do.
"""

import inspect
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from time import monotonic
from typing import Any

import structlog
from attrs import define, field

from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand, decode
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.header_fields import decode_header
from twinlog.cluster.remoting.not_served import refusal
from twinlog.cluster.remoting.request import BatchHandler, Check, Handler, Reply, Request, explain, failure

log = structlog.get_logger()

OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
TURN_SECONDS = 0.01  # Then other tasks get a chance: a loop that stands still for long costs a master its lease.


@define(eq=False)
class Dispatch:
    """What one server does with requests. `start_soon` starts a task of it.

    check: asked before any request is carried out. What it returns is the answer; None lets the request through. It may
    raise RequestError. The command's body is good until it returns, so it must not keep it.
    """

    table: Mapping[int, Handler]
    config: ServerConfig = field(factory=ServerConfig)
    batch: BatchHandler | None = None
    batch_codes: Collection[int] = ()
    check: Check | None = None
    under_way: int = field(default=0, init=False)  # Requests whose handlers have not come to an end.
    _under_way_bytes: int = field(default=0, init=False)
    start_soon: Callable[..., None] = field(init=False)

    def work_off(self, connection: Connection, frames: Iterable[bytes | memoryview]) -> list[bytes]:
        """Carry out these; returns those that have to wait, for their next turn or until the peer has caught up with its answers.

        Requests that go to the batch handler are appended together, and count for no turn.
        """
        connection.cork()
        batch: list[RemotingCommand] = []
        check, batch_codes = self.check, self.batch_codes
        left, turn_ends = iter(frames), 0.0
        try:
            for frame in left:
                command = decode(frame)
                if command.flag & 1:
                    command.body = bytes(command.body)
                    connection.answered(command)
                    continue
                if check is not None and self._stopped(check, Request(connection, command)):
                    pass
                elif command.code in batch_codes:
                    batch.append(command)
                    continue
                else:
                    command.body = bytes(command.body)  # The frame lives in a buffer that is used again.
                    self._dispatch(Request(connection, command))
                now = monotonic()
                turn_ends = turn_ends or now + TURN_SECONDS
                if connection.is_behind or now >= turn_ends:
                    return [bytes(frame) for frame in left]
                if connection.closed:
                    break
        finally:
            try:
                if batch:
                    self._run_batch(connection, batch)
            finally:
                connection.uncork()
        return []

    def _stopped(self, check: Check, request: Request) -> bool:
        """Whether the check has answered it."""
        try:
            reply = check(request.connection, request.command)
        except Exception as error:  # A check that fails lets nobody in.
            reply = explain(error, request)
        if reply is not None:
            request.reply(reply)
        return reply is not None

    def _run_batch(self, connection: Connection, batch: list[RemotingCommand]) -> None:
        assert self.batch is not None
        try:
            self.batch(connection, batch)
        except Exception as error:
            log.exception("requests failed", code=batch[0].code, count=len(batch), peer=connection.remote_address)
            for command in batch:
                Request(connection, command).reply(failure(error))

    def _dispatch(self, request: Request) -> None:
        handler = self.table.get(request.command.code)
        if handler is None:
            request.reply(Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, refusal(request.command.code)))
            return
        try:
            header = decode_header(handler.header, request.command.ext)
            reply = handler.function(handler.owner, header, request)
            if inspect.iscoroutine(reply):
                self._carry_out(request, reply)
            elif reply is not None:
                request.reply(reply)
        except Exception as error:
            request.reply(explain(error, request))

    def _carry_out(self, request: Request, pending: Coroutine[Any, Any, Reply | None]) -> None:
        """A request that takes its time; refused when too many do."""
        size = len(request.body)
        too_much = self._under_way_bytes and self._under_way_bytes + size > self.config.request_bytes_max
        if self.under_way >= self.config.requests_max or too_much:
            pending.close()
            request.reply(Reply(ResponseCode.SYSTEM_BUSY, OVERLOAD))
            return
        self.under_way += 1
        self._under_way_bytes += size
        self.start_soon(self._await_reply, request, pending, size)

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
