"""The thread in which HTTP lives, with a trio loop of its own. It ends with the service, and never ends it."""

import contextlib
import gc
import socket
import threading
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING

import structlog
import trio
from attrs import define, field

from twinlog.cluster.http.config import HttpConfig

if TYPE_CHECKING:
    from twinlog.cluster.http.source import Source

log = structlog.get_logger(__name__)

STOP_SECONDS_MAX = 2.0
# Each takes some of the 0.2 s; a stop in their midst waits for one of them only.
IMPORTED_FIRST = (
    "starlette.applications",
    "hypercorn.trio.tcp_server",
    "twinlog.cluster.admin.admin",
    "twinlog.cluster.metrics",
)


@define(eq=False)
class HttpThread:
    """HTTP for one service. `listener` listens already: what comes before start() waits in it. stop() closes it."""

    listener: socket.socket
    source: "Source"
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
