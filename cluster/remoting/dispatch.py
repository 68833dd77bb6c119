"""Dispatcher of requests: finds the handler by the request code, and sends its reply.

Sources: NettyRemotingAbstract.processRequestCommand, RocketMQ 4.9.7, which answers code 2, [OVERLOAD] when the queue of a
thread pool is full; here that is the answer when too many asynchronous handlers run. RequestCode.java (4.9.8 and 5.3.3).
"""

import inspect
from collections.abc import Collection, Coroutine, Iterable, Mapping
from time import monotonic
from typing import Any

import structlog
import trio
from attrs import define, field, frozen

from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand, decode
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.header_fields import decode_header
from twinlog.cluster.remoting.request import BatchHandler, Check, Handler, Reply, Request, explain, failure

log = structlog.get_logger()

OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
SLICE_SECONDS = 0.01  # Then other tasks run: an event loop that is blocked for long costs a master its lease.


@define(eq=False)
class Dispatcher:
    """Hands the requests of one port to their handlers. `run` carries the handlers that are asynchronous.

    batch: takes all requests of one read whose code is in `batch_codes`, as one call.
    check: called before any request is carried out. What it returns is the answer; None lets the request through. It may
    raise RequestError. The command's body is good until it returns, so it must not keep it.
    """

    table: Mapping[int, Handler]
    config: ServerConfig = field(factory=ServerConfig)
    batch: BatchHandler | None = None
    batch_codes: Collection[int] = ()
    check: Check | None = None
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
        batch: list[RemotingCommand] = []
        check, batch_codes = self.check, self.batch_codes
        left, slice_ends = iter(frames), 0.0
        try:
            for frame in left:
                command = decode(frame)
                if command.flag & 1:
                    command.body = bytes(command.body)
                    connection.take_response(command)
                    continue
                if check is not None and self._stopped(check, Request(connection, command)):
                    pass
                elif command.code in batch_codes:
                    batch.append(command)
                    continue
                else:
                    command.body = bytes(command.body)  # The frame is in a buffer that is used again.
                    self._dispatch(Request(connection, command))
                now = monotonic()
                slice_ends = slice_ends or now + SLICE_SECONDS
                if connection.is_behind or now >= slice_ends:
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
        """Run the check; True when it has answered the request."""
        try:
            reply = check(request.connection, request.command)
        except Exception as error:  # A check that fails admits nothing.
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


@frozen
class NotServed:
    """A request code of RocketMQ that twinlog does not serve. `reason` ends the remark of the response."""

    name: str
    reason: str


_CONTROLLER = "there is no controller; roles change with twinlog switchover"
_POP = "there is no pop consumption; consume by push or pull"
_QUEUES = "clients assign queues to themselves"
_TIMER = "there are no timer messages; there are delay levels"
_COLD = "cold data is not limited by group"
_ACL_2 = "there is no ACL 2.0; users and rights are in plain_acl.yml"
_ROCKSDB = "there is no RocksDB"
_ACTING_MASTER = "slaves do not act as masters"
_UNUSED = "no RocketMQ 4.9 or 5.3 serves it, either"  # Defined by the releases; no client sends them.
_FILTER_SERVER = "there are no filter servers; filter by tags or SQL92"
_REASONS = {
    _CONTROLLER: {
        1001: "CONTROLLER_ALTER_SYNC_STATE_SET",
        1002: "CONTROLLER_ELECT_MASTER",
        1003: "CONTROLLER_REGISTER_BROKER",
        1004: "CONTROLLER_GET_REPLICA_INFO",
        1005: "CONTROLLER_GET_METADATA_INFO",
        1006: "CONTROLLER_GET_SYNC_STATE_DATA",
        1008: "NOTIFY_BROKER_ROLE_CHANGED",
        1009: "UPDATE_CONTROLLER_CONFIG",
        1010: "GET_CONTROLLER_CONFIG",
        1011: "CLEAN_BROKER_DATA",
        1012: "CONTROLLER_GET_NEXT_BROKER_ID",
        1013: "CONTROLLER_APPLY_BROKER_ID",
        1014: "BROKER_CLOSE_CHANNEL_REQUEST",
        1015: "CHECK_NOT_ACTIVE_BROKER_REQUEST",
        1016: "GET_BROKER_LIVE_INFO_REQUEST",
        1017: "GET_SYNC_STATE_DATA_REQUEST",
        1018: "RAFT_BROKER_HEART_BEAT_EVENT_REQUEST",
    },
    _POP: {
        200050: "POP_MESSAGE",
        200051: "ACK_MESSAGE",
        200052: "PEEK_MESSAGE",
        200053: "CHANGE_MESSAGE_INVISIBLETIME",
        200054: "NOTIFICATION",
        200055: "POLLING_INFO",
        200056: "POP_ROLLBACK",
        200151: "BATCH_ACK_MESSAGE",
    },
    _QUEUES: {400: "QUERY_ASSIGNMENT", 401: "SET_MESSAGE_REQUEST_MODE", 402: "GET_ALL_MESSAGE_REQUEST_MODE"},
    _TIMER: {60: "GET_TIMER_CHECK_POINT", 61: "GET_TIMER_METRICS", 370: "RECALL_MESSAGE"},
    _COLD: {
        2001: "UPDATE_COLD_DATA_FLOW_CTR_CONFIG",
        2002: "REMOVE_COLD_DATA_FLOW_CTR_CONFIG",
        2003: "GET_COLD_DATA_FLOW_CTR_INFO",
        2004: "SET_COMMITLOG_READ_MODE",
    },
    _ACL_2: {
        3001: "AUTH_CREATE_USER",
        3002: "AUTH_UPDATE_USER",
        3003: "AUTH_DELETE_USER",
        3004: "AUTH_GET_USER",
        3005: "AUTH_LIST_USER",
        3006: "AUTH_CREATE_ACL",
        3007: "AUTH_UPDATE_ACL",
        3008: "AUTH_DELETE_ACL",
        3009: "AUTH_GET_ACL",
        3010: "AUTH_LIST_ACL",
    },
    _ROCKSDB: {354: "CHECK_ROCKSDB_CQ_WRITE_PROGRESS", 355: "EXPORT_ROCKSDB_CONFIG_TO_JSON"},
    _ACTING_MASTER: {
        905: "NOTIFY_MIN_BROKER_ID_CHANGE",
        906: "EXCHANGE_BROKER_HA_INFO",
        908: "RESET_MASTER_FLUSH_OFFSET",
    },
    _UNUSED: {
        13: "QUERY_BROKER_OFFSET",
        22: "GET_TOPIC_CONFIG_LIST",
        23: "GET_TOPIC_NAME_LIST",
        27: "TRIGGER_DELETE_FILES",
        47: "GET_CLIENT_CONFIG",
        209: "SUSPEND_CONSUMER",
        210: "RESUME_CONSUMER",
        211: "RESET_CONSUMER_OFFSET_IN_CONSUMER",
        212: "RESET_CONSUMER_OFFSET_IN_BROKER",
        213: "ADJUST_CONSUMER_THREAD_POOL",
        214: "WHO_CONSUME_THE_MESSAGE",
    },
    _FILTER_SERVER: {301: "REGISTER_FILTER_SERVER", 302: "REGISTER_MESSAGE_FILTER_CLASS"},
    "use 300 (groups of a topic) or 203 (connections of a group)": {
        343: "QUERY_TOPICS_BY_CONSUMER",
        345: "QUERY_SUBSCRIPTION_BY_CONSUMER",
    },
    "a group is closed with consumeEnable (200)": {353: "UPDATE_AND_GET_GROUP_FORBIDDEN"},
    "there are no static topics": {513: "UPDATE_AND_CREATE_STATIC_TOPIC"},
    "a process is one broker": {902: "ADD_BROKER", 903: "REMOVE_BROKER"},
}

NOT_SERVED: Mapping[int, NotServed] = {
    code: NotServed(name, reason) for reason, codes in _REASONS.items() for code, name in codes.items()
}


def refusal(code: int) -> str:
    """The remark of code 3: RocketMQ's text, and the reason where one is known."""
    known = NOT_SERVED.get(code)
    return f" request type {code} not supported{f': {known.reason}' if known else ''}"
