"""Runs one name server or broker as the whole of a process: its log, its limits, its signals.

SIGTERM, SIGINT, or the end of whoever started it stop the service cleanly; a second signal ends the process at once.
"""

import ctypes
import errno
import gc
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from types import FrameType
from typing import Protocol

import trio

from twinlog.cluster.cli.common.errors import CliError, innermost
from twinlog.cluster.cli.run.notify import Notifier
from twinlog.cluster.cli.run.ports import busy_ports, in_use
from twinlog.cluster.cli.run.up_plan import Port
from twinlog.store.errors import StoreError

CLEAN_STOP_SECONDS_MAX = 60  # After the parent's end nobody is left who could send a second signal.
_YOUNG_OBJECTS = (
    20_000  # Before the collector looks at them: messages under way are some hundreds to thousands, and no garbage.
)
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class SayReady(Protocol):
    """Prints the ready line; `describe` tells systemd from now on what the service does."""

    def __call__(self, words: str, describe: Callable[[], str] | None = None) -> None: ...


Service = Callable[[SayReady], Awaitable[None]]


def run_service(service: Service, host: str, ports: Sequence[Port], *, until_stdin_closes: bool) -> None:
    """Run `service` to its end; it gets a function that prints its ready line, and is cancelled by the first signal.

    Raises CliError for what a person can mend: a port in use, a store that is locked or broken, a full disk.
    """
    raise_file_limit()
    share_one_heap()
    notifier = Notifier.from_environment()
    stop = _Stop(notifier)
    is_ready = False

    def say_ready(words: str, describe: Callable[[], str] | None = None) -> None:
        nonlocal is_ready
        is_ready = True
        # What start-up made stays for good: without this each full collection looks at all of it, 20 ms at a time.
        gc.collect()
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS)
        print(f"ready {words}", flush=True)
        if notifier is not None:
            notifier.ready(words, describe)

    for number in _STOP_SIGNALS:
        signal.signal(number, stop.on_signal)

    async def main() -> None:
        stop.arm(trio.lowlevel.current_trio_token())
        async with trio.open_nursery() as beside:
            beside.start_soon(give_memory_back)
            if notifier is not None:
                beside.start_soon(notifier.keep_alive)
            with stop.scope:
                async with trio.open_nursery() as nursery:
                    if until_stdin_closes:
                        nursery.start_soon(stop.when_stdin_closes)
                    await service(say_ready)
                    nursery.cancel_scope.cancel()
            beside.cancel_scope.cancel()

    try:
        trio.run(main)
    except BaseExceptionGroup as group:
        told = _told(group, host, ports, is_starting=not is_ready)
        if told is None:
            raise
        raise told from group


def _told(
    group: BaseExceptionGroup[BaseException], host: str, ports: Sequence[Port], *, is_starting: bool
) -> CliError | None:
    """Words for the first error, when it is of the kinds that a person can mend; a ValueError is so at start only,
    where it says that a file cannot be read.
    """
    error = innermost(group)
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        busy = busy_ports([port for port in ports if port.number > 0], host)
        what, why = in_use(busy) if busy else (f"{error}.", "")
        return CliError(what, why, "Stop it, or choose another port in the configuration.")
    if isinstance(error, OSError) and error.filename is not None:
        what = "could not start" if is_starting else "had to stop"
        reason = f"{error.filename}: {error.strerror}"
        return CliError(f"The program {what}: the disk refused.", reason, "Make the disk well, then start again.")
    if isinstance(error, (OSError, StoreError)) or (is_starting and isinstance(error, ValueError)):
        return CliError(f"{str(error).rstrip('.')}.")
    return None


class _Stop:
    """Turns signals into a cancellation, and impatience into an end."""

    def __init__(self, notifier: Notifier | None = None) -> None:
        self.scope = trio.CancelScope()
        self._notifier = notifier
        self._asked = False
        self._token: trio.lowlevel.TrioToken | None = None

    def arm(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        if self._asked:
            self._stop()

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._asked:
            os._exit(128 + number)
        self._asked = True
        if self._token is not None:
            self._token.run_sync_soon(self._stop)

    def _stop(self) -> None:
        """In the loop, where it may log."""
        if self._notifier is not None:
            self._notifier.stopping()
        self.scope.cancel()

    async def when_stdin_closes(self) -> None:
        async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stream:
            while await stream.receive_some():
                pass
        signal.alarm(CLEAN_STOP_SECONDS_MAX)
        self._asked = True
        self._stop()


def raise_file_limit() -> None:
    """Let this process open as many files and connections as it may: every connection and every log file is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


EVERY_S = 60.0
M_ARENA_MAX = -8  # malloc.h


def share_one_heap() -> None:
    """All threads that begin from now on; where the C library is not glibc, nothing happens."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(M_ARENA_MAX, 1)


def trimmer() -> Callable[[], object] | None:
    """What gives the pages of free memory back, where the C library can: glibc can, musl has nothing to give."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return None if trim is None else lambda: trim(0)


async def give_memory_back() -> None:
    """Once a minute, for good. In a thread: the loop waits for it only where it allocates from the very arena, for about 1 ms."""
    trim = trimmer()
    while trim is not None:
        await trio.sleep(EVERY_S)
        await trio.to_thread.run_sync(trim)
