"""Serves an ASGI application on one port, with hypercorn's HTTP over trio's sockets; the only module that imports hypercorn.

Hypercorn's own accept loop is not used: it accepts any number of connections, and waits without end, shielded, for a peer that
reads nothing, which delays a stop, too (its issue 106). Here both have limits, and the sockets are always closed.
"""

import socket
from typing import Any, cast

import structlog
import trio
from attrs import define, field, frozen
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ConnectionState
from hypercorn.utils import wrap_app
from starlette.types import ASGIApp, Receive, Scope, Send

from twinlog.cluster.http.server.guard import HEADER_BYTES_MAX

log = structlog.get_logger(__name__)


@frozen(kw_only=True)
class ServerLimits:
    """Limits of one port. Times in seconds."""

    connections_max: int = 256
    # From the start of a connection, or the last answer, to the end of a request's header.
    idle_seconds_max: float = 10.0
    send_seconds_max: float = 10.0  # A peer that takes nothing for so long is gone.


class _Log:
    """Hypercorn's logger: errors become log lines of ours; the rest is dropped."""

    def __init__(self, _config: Config) -> None:
        pass

    async def access(self, *_args: Any) -> None:
        """No line for a request: probes come every second."""

    debug = info = log = access

    async def error(self, message: str, *_args: Any, **_more: Any) -> None:
        log.error("HTTP server", what=message)

    warning = critical = error

    async def exception(self, message: str, *_args: Any, **_more: Any) -> None:
        log.exception("HTTP request failed", what=message)


@define(eq=False)
class _Stream:
    """A stream for hypercorn, with time limits for peers that read nothing, or send nothing.

    Hypercorn stops its own idle timer once a header is there, also of HTTP/2 or a web socket, of which nothing more may come.
    """

    stream: trio.SocketStream
    limits: ServerLimits
    _requests: int = field(default=0, init=False)
    _idle_since: float = field(factory=trio.current_time, init=False)

    @property
    def socket(self) -> trio.socket.SocketType:
        return self.stream.socket

    async def receive_some(self, size_max: int) -> bytes | bytearray:
        return await self.stream.receive_some(size_max)

    async def send_all(self, data: bytes) -> None:
        with trio.move_on_after(self.limits.send_seconds_max) as scope:
            await self.stream.send_all(data)
        if scope.cancelled_caught:
            self.close()
            raise trio.BrokenResourceError("the peer takes nothing")

    async def send_eof(self) -> None:
        await self.stream.send_eof()

    async def aclose(self) -> None:
        await self.stream.aclose()

    def close(self) -> None:
        """Close at once; pending reads and writes end."""
        self.stream.socket.close()

    def around(self, app: ASGIApp) -> ASGIApp:
        """The application, so that its requests on this connection are known."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            self._requests += 1
            try:
                await app(scope, receive, send)
            finally:
                self._requests -= 1
                self._idle_since = trio.current_time()

        return counted

    @property
    def is_idle(self) -> bool:
        return not self._requests

    async def close_when_idle(self) -> None:
        """A connection without a request for twice the idle time, whatever hypercorn waits for."""
        seconds = self.limits.idle_seconds_max
        while True:
            await trio.sleep(seconds)
            if self.is_idle and trio.current_time() - self._idle_since >= 2 * seconds:
                self.close()
                return


@define(eq=False)
class _Server:
    app: ASGIApp
    limits: ServerLimits
    _config: Config = field(init=False)
    _context: WorkerContext = field(factory=lambda: WorkerContext(None), init=False)
    _streams: dict[_Stream, None] = field(factory=dict, init=False)  # The oldest first.

    @_config.default
    def _hypercorn_config(self) -> Config:
        config = Config()
        config.logger_class = cast(Any, _Log)
        config.h11_max_incomplete_size = HEADER_BYTES_MAX
        config.h2_max_concurrent_streams = 8
        config.h2_max_header_list_size = HEADER_BYTES_MAX
        config.keep_alive_timeout = self.limits.idle_seconds_max
        config.include_server_header = False
        config.websocket_max_message_size = 1024
        return config

    async def connection(self, accepted: trio.SocketStream) -> None:
        stream = _Stream(accepted, self.limits)
        if len(self._streams) >= self.limits.connections_max and not self._make_room():
            stream.close()
            return
        self._streams[stream] = None
        try:
            app = wrap_app(cast(ASGIFramework, stream.around(self.app)), 0, "asgi")
            # The application may close a connection that it has given up; hypercorn copies this into each request's scope.
            state = ConnectionState({"close": stream.close})
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.close_when_idle)
                await TCPServer(app, self._config, self._context, cast(Any, state), cast(Any, stream))
                nursery.cancel_scope.cancel()
        except Exception:
            log.exception("HTTP connection failed")
        finally:
            self._streams.pop(stream, None)
            stream.close()

    def _make_room(self) -> bool:
        """Close the oldest connection that asks nothing: many silent ones must not keep a probe out."""
        for stream in self._streams:
            if stream.is_idle:
                del self._streams[stream]
                stream.close()
                return True
        return False

    def close(self) -> None:
        for stream in self._streams:
            stream.close()


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    limits: ServerLimits,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled, then close the listener and all connections; started() gives the port."""
    server = _Server(app, limits)
    with trio.socket.from_stdlib_socket(listener) as sock:
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(_accept, server, trio.SocketListener(sock))
                task_status.started(sock.getsockname()[1])
        finally:
            server.close()


async def _accept(
    server: _Server, listener: trio.SocketListener, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Connections die with the nursery: a cancellation closes their sockets first, since hypercorn's sends are shielded."""
    async with trio.open_nursery() as nursery:
        task_status.started()
        try:
            await trio.serve_listeners(server.connection, [listener], handler_nursery=nursery)
        finally:
            server.close()
