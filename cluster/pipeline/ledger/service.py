"""Audits that go on: a run, a line about it, and a sleep until the next one, until it is told to stop.

A run that fails says why, and the next one is tried at its time. A stop ends a run early; what it compared until then is kept.
"""

import signal
import threading
from collections.abc import Awaitable, Callable

import trio
from attrs import define, field

PAUSE_MIN = 1.0  # Seconds between two runs, where one takes longer than the interval.


@define(eq=False)
class AuditService:
    """`run` makes one run and returns its line. Errors of `passing` kinds are told, others end the service.

    `is_stopped` may be asked from any thread.
    """

    every_seconds: float
    run: Callable[[], Awaitable[str]]
    say: Callable[[str], None]
    passing: tuple[type[Exception], ...]
    _stop: trio.Event = field(factory=trio.Event, init=False)
    _is_stopped: threading.Event = field(factory=threading.Event, init=False)

    def is_stopped(self) -> bool:
        """True after stop()."""
        return self._is_stopped.is_set()

    def stop(self) -> None:
        """End after the run that is under way, which ends early."""
        self._is_stopped.set()
        self._stop.set()

    async def serve(self) -> None:
        """Run until it is stopped, also by SIGTERM or SIGINT."""
        async with trio.open_nursery() as nursery:
            if threading.current_thread() is threading.main_thread():  # Only this one receives signals.
                await nursery.start(self._stop_at_signal)
            while not self.is_stopped():
                began = trio.current_time()
                try:
                    self.say(await self.run())
                except self.passing as error:
                    self.say(f"failed, and tried again in {self.every_seconds:g} s: {error}")
                with trio.move_on_at(max(began + self.every_seconds, trio.current_time() + PAUSE_MIN)):
                    await self._stop.wait()
            nursery.cancel_scope.cancel()

    async def _stop_at_signal(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                self.stop()
