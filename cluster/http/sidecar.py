"""HTTP beside a service: the port is taken before the service starts, and answered from when it is ready, or starts for long.

So imports for HTTP do not slow a start, and a service that recovers for minutes shows that it lives.
"""

import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
import trio

from twinlog.cluster.http.config import HttpConfig
from twinlog.cluster.http.source import Source
from twinlog.cluster.http.thread import HttpThread
from twinlog.cluster.remoting.server import open_listener

log = structlog.get_logger(__name__)

LONG_START_SECONDS = 2.0
PORT_MAX = 65_535


@asynccontextmanager
async def http_beside(source: Source, config: HttpConfig, port: int) -> AsyncIterator[None]:
    """HTTP at `port` for the service that runs in the block, to its very end. Raises OSError for a port that was asked for."""
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


async def _begin(thread: HttpThread, source: Source) -> None:
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
