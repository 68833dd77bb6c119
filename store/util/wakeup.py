"""A wake-up call for one task: set() is a plain function that costs next to nothing and is remembered."""

import trio
from attrs import define, field


@define(eq=False)
class Wakeup:
    """Wakes the one task that waits. A call that comes before the wait is not lost; many calls count as one."""

    _is_set: bool = field(default=False, init=False)
    _task: trio.lowlevel.Task | None = field(default=None, init=False)

    def set(self) -> None:
        """Wake the waiting task, or let the next wait() return at once. Only from the loop's own thread."""
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)
        else:
            self._is_set = True

    async def wait(self) -> None:
        """Return after the next set(); a checkpoint in every case."""
        if self._is_set:
            self._is_set = False
            await trio.lowlevel.checkpoint()
            return
        assert self._task is None, "one Wakeup serves one task"
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED
