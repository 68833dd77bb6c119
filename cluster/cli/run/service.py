"""Process of a name server, broker or dashboard: limits, memory, signals, ready line.

SIGTERM, SIGINT or the end of the parent process stop the service cleanly; a second signal ends the process at once.
"""

import ctypes
import errno
import gc
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from types import FrameType
from typing import Protocol

import trio

from twinlog.cluster.cli.common.errors import CliError, UserError, innermost
from twinlog.cluster.cli.common.logging_setup import raise_file_limit
from twinlog.cluster.cli.run.notify import Notifier
from twinlog.cluster.cli.run.ports import busy_ports, in_use
from twinlog.cluster.cli.run.up_plan import Port
from twinlog.store.errors import StoreError
from twinlog.store.util.sync import is_no_space

CLEAN_STOP_SECONDS_MAX = 60  # After the end of the parent nothing can send a second signal.
# Until the first collection: messages in flight are hundreds to thousands of objects, and no garbage.
_YOUNG_OBJECTS = 20_000
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class SayReady(Protocol):
    """Prints the ready line; `describe` returns the status line for systemd from then on."""

    def __call__(self, words: str, describe: Callable[[], str] | None = None) -> None: ...


Service = Callable[[SayReady], Awaitable[None]]


def run_service(service: Service, host: str, ports: Sequence[Port], *, until_stdin_closes: bool) -> None:
    """Run `service`, which receives a function that prints its ready line, and is cancelled by the first signal.

    Raises CliError for problems that the user can solve: a port in use, a locked or damaged store, a full disk.
    """
    raise_file_limit()
    share_one_heap()
    notifier = Notifier.from_environment()
    stop = _Stop(notifier)
    ready = trio.Event()

    def say_ready(words: str, describe: Callable[[], str] | None = None) -> None:
        ready.set()
        print(f"ready {words}", flush=True)
        if notifier is not None:
            notifier.ready(words, describe)
        gc.freeze()  # Else a collection under load would visit all that was imported.
        gc.set_threshold(_YOUNG_OBJECTS)

    async def tidy_up() -> None:
        await ready.wait()
        await collect_when_quiet()

    for number in _STOP_SIGNALS:
        signal.signal(number, stop.on_signal)

    async def main() -> None:
        stop.arm(trio.lowlevel.current_trio_token())
        async with trio.open_nursery() as beside:
            beside.start_soon(give_memory_back)
            beside.start_soon(tidy_up)
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
        told = _told(group, host, ports, is_starting=not ready.is_set())
        if told is None:
            raise
        raise told from group


def _told(
    group: BaseExceptionGroup[BaseException], host: str, ports: Sequence[Port], *, is_starting: bool
) -> CliError | None:
    """Convert the first error if the user can solve it; a ValueError only at start, where it means an unreadable file."""
    error = innermost(group)
    if isinstance(error, UserError):
        return CliError(str(error), report=error.report())
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        busy = busy_ports([port for port in ports if port.number > 0], host)
        what, why = in_use(busy) if busy else (f"{error}.", "")
        return CliError(what, why, "Stop it, or choose another port in the configuration.")
    what = "could not start" if is_starting else "had to stop"
    if isinstance(error, OSError) and is_no_space(error):
        where = f"{error.filename}: " if error.filename is not None else ""
        step = "Make room there, then start again: what was acknowledged is in the log."
        return CliError(f"The program {what}: the disk is full.", f"{where}{error.strerror}", step)
    if isinstance(error, OSError) and error.filename is not None:
        reason = f"{error.filename}: {error.strerror}"
        return CliError(f"The program {what}: the disk failed.", reason, "Check the disk, then start again.")
    if isinstance(error, (OSError, StoreError)) or (is_starting and isinstance(error, ValueError)):
        return CliError(f"{str(error).rstrip('.')}.")
    return None


class _Stop:
    """Turns the first signal into a cancellation, the second one into an exit."""

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
        """Stop, in the loop, where logging is possible."""
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


EVERY_S = 60.0
LOOK_S, LOOK_MAX_S, QUIET_SHARE = 0.02, 5.0, 0.1
M_ARENA_MAX = -8  # malloc.h


def share_one_heap() -> None:
    """Make all threads that start from now on share one heap; no effect without glibc.

    glibc gives each thread a heap with free memory of its own. Only one thread at a time runs Python, so one heap will do.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(M_ARENA_MAX, 1)


async def collect_when_quiet(cpu_seconds: Callable[[], float] = time.thread_time) -> None:
    """Collect the garbage of the imports, once: 5 MiB, the classes that attrs made anew. What is left is never looked at again.

    That takes 70 ms, in which nobody gets an answer. So it waits until those who were waiting for the start have theirs: for a
    moment in which this thread does little.
    """
    before, pause = cpu_seconds(), LOOK_S
    while True:
        await trio.sleep(pause)
        now = cpu_seconds()
        if now - before < pause * QUIET_SHARE:
            break
        before, pause = now, min(2 * pause, LOOK_MAX_S)  # Under a steady load looks must not cost.
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def trimmer() -> Callable[[], object] | None:
    """Return a function that gives free pages back to the system; None without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return None if trim is None else lambda: trim(0)


async def give_memory_back() -> None:
    """Give free memory back once a minute, in a thread: the loop waits at most 1 ms for the same arena.

    glibc keeps the pages between two blocks in use. After a catch-up or a role change that is as much as the blocks themselves:
    in a fault test a member of 80 MiB grew to 130 MiB within an hour, with nothing of it in use.
    """
    trim = trimmer()
    while trim is not None:
        await trio.sleep(EVERY_S)
        await trio.to_thread.run_sync(trim)
