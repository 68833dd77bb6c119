"""Serves the remoting protocol: reads frames, hands requests to handlers, sends their replies.

A handler is a function `(owner, header, request) -> Reply | None`, plain or async; the class of `header` says which request code
it serves. Requests that come in great numbers go to a batch handler instead, all that one read brought at once.
Sources: NettyRemotingAbstract, NettyRemotingServer; RocketMQ 4.9.8.
"""

import inspect
import resource
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

import structlog
import trio
from attrs import define, field, frozen

from cluster.remoting.codes import ResponseCode
from cluster.remoting.command import FrameReader, RemotingCommand, decode, encode_header
from cluster.remoting.config import ServerConfig
from cluster.remoting.connection import Connection
from cluster.remoting.errors import RemotingError, RequestError
from cluster.remoting.header_fields import RequestHeader, decode_header
from cluster.remoting.not_served import refusal
from ha.accept import OUT_OF_RESOURCES

log = structlog.get_logger()

_RECEIVE_BYTES = 1 << 20
_BACKLOG = 1024
_IDLE_SCAN_SECONDS = 5
_DESCRIPTORS_KEPT = 256  # For log files, queues and tables: a store that cannot open one takes no more messages.
_REFUSED_LOG_SECONDS = 60


@frozen
class Reply:
    """What a handler answers. A body may be several views, which are sent without being copied together."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    ext: dict[str, str] | None = None
    body: bytes | Sequence[bytes | memoryview] = b""

    @classmethod
    def success(cls, body: bytes | Sequence[bytes | memoryview] = b"", **fields: object) -> "Reply":
        """Code 0 with these header fields; None is left out."""
        return cls(ext={name: _text(value) for name, value in fields.items() if value is not None}, body=body)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@frozen(eq=False)
class Request:
    """A request under way: who asked, and how to answer later."""

    connection: Connection
    command: RemotingCommand

    @property
    def body(self) -> bytes | memoryview:
        """The body as it came."""
        return self.command.body

    def reply(self, reply: Reply) -> None:
        """Answer; nothing is sent for a oneway request. Raises RemotingProtocolError when no peer would take it."""
        if self.command.is_oneway:
            return
        body = [reply.body] if isinstance(reply.body, bytes) else reply.body
        response = RemotingCommand.response_to(self.command, reply.code, remark=reply.remark, ext=reply.ext)
        header = encode_header(response, sum(map(len, body)))
        self.connection.write(header, *(part for part in body if len(part)))

    def answer_with(self, handler: "Callable[[], Reply | None]") -> None:
        """Carry out a request that was put off, as if it had come now."""
        try:
            reply = handler()
        except Exception as error:
            reply = _explain(error, self)
        if reply is not None:
            self.reply(reply)


class Handler(NamedTuple):
    """An entry of the dispatch table."""

    function: Callable[..., Any]
    header: type[RequestHeader]
    owner: Any


BatchHandler = Callable[[Connection, list[RemotingCommand]], None]
Check = Callable[[Connection, RemotingCommand], Reply | None]


def dispatch_table(owner: object, *handlers: Sequence[Callable[..., Any]]) -> dict[int, Handler]:
    """Request code to handler, read from the annotations of the handlers' second parameters."""
    table: dict[int, Handler] = {}
    for function in (function for group in handlers for function in group):
        name = list(inspect.signature(function).parameters)[1]
        header = get_type_hints(function)[name]
        assert header.code not in table, f"two handlers for {header.code!r}"
        table[header.code] = Handler(function, header, owner)
    return table


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket, at any free port for port 0. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


@define(eq=False)
class RemotingServer:
    """One or more listening sockets that serve one dispatch table.

    check: asked before any request is carried out. What it returns is the answer; None lets the request through. It may
    raise RequestError. The command's body is good until it returns, so it must not keep it.
    """

    table: Mapping[int, Handler]
    config: ServerConfig = field(factory=ServerConfig)
    batch: BatchHandler | None = None
    batch_codes: Collection[int] = ()
    check: Check | None = None
    on_connect: list[Callable[[Connection], None]] = field(factory=list)
    connections: set[Connection] = field(factory=set, init=False)
    _received: memoryview = field(init=False)  # One for all: a read is worked off before the next one.
    _readers: dict[Connection, FrameReader] = field(factory=dict, init=False)
    _nursery: trio.Nursery = field(init=False)
    _refused_logged_at: float = field(default=float("-inf"), init=False)

    def __attrs_post_init__(self) -> None:
        self._received = memoryview(bytearray(_RECEIVE_BYTES))

    async def serve(
        self, *listeners: socket.socket, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Accept and serve until cancelled; then all connections and listeners are closed."""
        try:
            async with trio.open_nursery() as self._nursery:
                for listener in listeners:
                    self._nursery.start_soon(self._accept, listener)
                self._nursery.start_soon(self._close_idle)
                task_status.started()
        finally:
            for connection in list(self.connections):
                connection.close()
            for listener in listeners:
                trio.lowlevel.notify_closing(listener)
                listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            await trio.lowlevel.wait_readable(listener)
            try:
                peer, _ = listener.accept()
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno in OUT_OF_RESOURCES:
                    log.error("nothing left to take connections with", error=str(error))
                    await trio.sleep(0.5)
                continue  # Else: that one was gone before we looked.
            if len(self.connections) >= self.config.connections_max or _is_among_the_last(peer.fileno()):
                peer.close()
                self._log_refused()
                continue
            self._nursery.start_soon(self._serve_connection, peer)

    def _log_refused(self) -> None:
        now = trio.current_time()
        if now >= self._refused_logged_at + _REFUSED_LOG_SECONDS:
            self._refused_logged_at = now
            log.warning(
                "connections are refused, there are too many",
                connections=len(self.connections),
                serverMaxConnections=self.config.connections_max,
                descriptors=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            )

    async def _serve_connection(self, peer: socket.socket) -> None:
        try:
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(peer, self._nursery.start_soon, self.config.unsent_bytes_max)
        except OSError:  # Gone already.
            peer.close()
            return
        self.connections.add(connection)
        reader = self._readers[connection] = FrameReader()
        try:
            for callback in self.on_connect:
                callback(connection)
            await self._read(connection, peer, reader)
        except RemotingError as error:
            log.warning(
                "connection closed: the peer does not speak the remoting protocol",
                peer=connection.remote_address,
                why=str(error),
            )
        except (OSError, trio.ClosedResourceError):
            pass  # The peer is gone, or somebody here closed the connection.
        finally:
            self.connections.discard(connection)
            del self._readers[connection]
            connection.close()

    async def _read(self, connection: Connection, peer: socket.socket, reader: FrameReader) -> None:
        """One read per wake-up, so that no connection keeps the others waiting."""
        received = self._received
        while not connection.closed:
            await trio.lowlevel.wait_readable(peer)
            try:
                size = peer.recv_into(received)
            except BlockingIOError:
                continue
            if size == 0:
                return
            connection.last_active = trio.current_time()
            connection.cork()
            try:
                self._work_off(connection, reader.feed(received[:size]))
            finally:
                connection.uncork()

    def _work_off(self, connection: Connection, frames: Sequence[bytes | memoryview]) -> None:
        batch: list[RemotingCommand] = []
        check = self.check
        try:
            for frame in frames:
                command = decode(frame)
                if command.flag & 1:
                    command.body = bytes(command.body)
                    connection.answered(command)
                elif check is not None and self._stopped(check, Request(connection, command)):
                    continue
                elif command.code in self.batch_codes:
                    batch.append(command)
                else:
                    command.body = bytes(command.body)  # The frame lives in a buffer that is used again.
                    self._dispatch(Request(connection, command))
        finally:
            if batch:
                self._run_batch(connection, batch)

    def _stopped(self, check: Check, request: Request) -> bool:
        """Whether the check has answered it."""
        try:
            reply = check(request.connection, request.command)
        except Exception as error:  # A check that fails lets nobody in.
            reply = _explain(error, request)
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
                Request(connection, command).reply(_failure(error))

    def _dispatch(self, request: Request) -> None:
        handler = self.table.get(request.command.code)
        if handler is None:
            request.reply(Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, refusal(request.command.code)))
            return
        try:
            header = decode_header(handler.header, request.command.ext)
            reply = handler.function(handler.owner, header, request)
            if inspect.iscoroutine(reply):
                self._nursery.start_soon(self._await_reply, request, reply)
            elif reply is not None:
                request.reply(reply)
        except Exception as error:
            request.reply(_explain(error, request))

    async def _await_reply(self, request: Request, pending: Awaitable[Reply | None]) -> None:
        try:
            reply = await pending
            if reply is not None:
                request.reply(reply)
        except Exception as error:
            request.reply(_explain(error, request))

    async def _close_idle(self) -> None:
        """Close connections without traffic, and those that leave a frame unfinished."""
        while True:
            await trio.sleep(_IDLE_SCAN_SECONDS)
            now = trio.current_time()
            for connection, reader in list(self._readers.items()):
                allowed = self.config.half_frame_seconds_max if reader.buffered else self.config.idle_seconds_max
                if now - connection.last_active > allowed:
                    connection.close()


def _is_among_the_last(descriptor: int) -> bool:
    """Whether this process has few more to give: the kernel hands out the lowest that is free."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit != resource.RLIM_INFINITY and descriptor >= limit - min(_DESCRIPTORS_KEPT, limit // 4)


def _explain(error: Exception, request: Request) -> Reply:
    if isinstance(error, RequestError):
        return Reply(error.code, error.remark)
    log.error(
        "request failed",
        code=request.command.code,
        peer=request.connection.remote_address,
        exc_info=(type(error), error, error.__traceback__),
    )
    return _failure(error)


def _failure(error: Exception) -> Reply:
    return Reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
