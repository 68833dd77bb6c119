"""HTTP in a thread beside a service: bound before the service starts, served once that is ready or its start takes long.

So imports for HTTP do not slow a start, and a service that recovers for minutes answers /livez.
"""

import contextlib
import errno
import gc
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module

import structlog
import trio
from attrs import define, field

from twinlog.cluster.http.config import HttpConfig
from twinlog.cluster.http.source import Source
from twinlog.cluster.remoting.server import open_listener

log = structlog.get_logger(__name__)

LONG_START_SECONDS = 2.0
PORT_MAX = 65_535
STOP_SECONDS_MAX = 2.0
# Each takes some of the 0.2 s; a stop in their midst waits for one of them only.
IMPORTED_FIRST = (
    "starlette.applications",
    "hypercorn.trio.tcp_server",
    "twinlog.cluster.admin.admin",
    "twinlog.cluster.metrics",
)


@asynccontextmanager
async def http_sidecar(source: Source, config: HttpConfig, port: int) -> AsyncIterator[None]:
    """HTTP at `port` for the service in the block, until the block ends. Raises OSError for a configured port that is taken."""
    listener = _listen(config, port) if config.enable else None
    if listener is None:
        yield
        return
    thread = HttpThread(listener, source, config)
    behind = trio.CancelScope(shield=True)  # A stop takes seconds, in which the service still lives.

    async def carry(*, task_status: trio.TaskStatus[None]) -> None:
        with behind:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(source.tick)
                nursery.start_soon(_begin, thread, source)
                task_status.started()

    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(carry)
            nursery.start_soon(_note_the_stop, source)
            try:
                yield
            finally:
                with trio.CancelScope(shield=True):
                    await thread.stop()
                nursery.cancel_scope.cancel()
                behind.cancel()
    finally:
        listener.close()


async def _begin(thread: "HttpThread", source: Source) -> None:
    with trio.move_on_after(LONG_START_SECONDS):
        await source.ready.wait()
    thread.start()


async def _note_the_stop(source: Source) -> None:
    try:
        await trio.sleep_forever()
    finally:
        source.is_stopping = True


def _listen(config: HttpConfig, port: int) -> socket.socket | None:
    place = f"{config.bind_address}:{port}"
    try:
        if port > PORT_MAX:
            raise OSError(errno.EADDRINUSE, "there is no such port")
        listener = open_listener(config.bind_address, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and not config.is_port_named:
            log.warning(
                "HTTP is off: its port cannot be had", address=place, why=error.strerror, fix="set httpListenPort"
            )
            return None
        raise OSError(error.errno, f"{error.strerror}: {place}, for HTTP (httpBindAddress, httpListenPort)") from error
    log.info("HTTP listens", address="{}:{}".format(*listener.getsockname()))
    return listener


@define(eq=False)
class HttpThread:
    """HTTP for one service. `listener` listens already: what comes before start() waits in it. stop() closes it."""

    listener: socket.socket
    source: Source
    config: HttpConfig
    _thread: threading.Thread | None = field(default=None, init=False)
    _scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    _loop: trio.lowlevel.TrioToken | None = field(default=None, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _stopped: bool = field(default=False, init=False)

    def start(self) -> None:
        """Begin to serve; returns at once. What is imported for it is imported there."""
        self._thread = threading.Thread(target=self._main, name="twinlog http", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Close the port and all connections; waits a moment for the thread."""
        with self._lock:
            self._stopped = True
            loop = self._loop
        if loop is not None:
            with contextlib.suppress(trio.RunFinishedError):
                loop.run_sync_soon(self._scope.cancel)
        if self._thread is None:
            self.listener.close()
        else:
            await trio.to_thread.run_sync(self._thread.join, STOP_SECONDS_MAX)

    # In the thread

    def _main(self) -> None:
        try:
            for module in IMPORTED_FIRST:
                import_module(module)
                if self._stopped:
                    return
            from twinlog.cluster.http.member import run_member

            gc.freeze()  # As at the service's start: what stays is not looked at again.
            trio.run(self._run, run_member)
        except Exception:
            log.exception("HTTP has ended; the service goes on without it")
        finally:
            self.listener.close()

    async def _run(self, run_member: Callable[..., Awaitable[None]]) -> None:
        with self._lock:
            self._loop = trio.lowlevel.current_trio_token()
            if self._stopped:
                return
        with self._scope:
            await run_member(self.source, self.config, self.listener)
