"""How long a thread was ready to run and had no CPU, from what the kernel says of it. Linux only.

    /proc/self/task/TID/schedstat   ns that it ran, ns that it waited for a CPU, how often it was given one
    /proc/self/task/TID/stat        its state: R runs or is ready, S sleeps, D waits for a disk, T is stopped

The kernel adds a wait when it ends. So a thread that is ready at two readings, and was given no CPU between them, has waited all
that time, whatever the second number says. Sources: Documentation/scheduler/sched-stats.rst (Linux 6.1), proc(5).
"""

from collections.abc import Callable
from pathlib import Path

from attrs import define, field, frozen

_NS = 1e9
_READY = "R"


@frozen
class ThreadTimes:
    """Seconds since the thread began, how often it was given a CPU, and whether it runs or is ready to."""

    ran: float
    waited: float
    turns: int
    ready: bool


Read = Callable[[], ThreadTimes | None]


def read_thread(thread_id: int) -> ThreadTimes | None:
    """Of a thread of this process, by its native id; None where the kernel does not say."""
    directory = Path("/proc/self/task", str(thread_id))
    try:
        ran, waited, turns = (directory / "schedstat").read_text().split()
        state = (directory / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError):
        return None
    return ThreadTimes(int(ran) / _NS, int(waited) / _NS, int(turns), state == _READY)


@define
class CpuWait:
    """Adds up the waits between readings. No clock: the caller says when a reading was made."""

    total: float = field(default=0.0, init=False)  # Seconds without a CPU, of all readings so far.
    _at: float | None = field(default=None, init=False)
    _last: ThreadTimes | None = field(default=None, init=False)

    def take(self, at: float, now: ThreadTimes | None) -> None:
        """A reading at this time, in seconds; None: it could not be made, and nothing is added until the next but one."""
        before, since = self._last, self._at
        self._last, self._at = now, at
        if now is None or before is None or since is None:
            return
        idle = max(at - since - (now.ran - before.ran), 0.0)  # Neither can it have waited longer than this.
        had_none = before.ready and now.ready and before.turns == now.turns
        waited = idle if had_none else now.waited - before.waited
        assert waited >= 0, (before, now)
        self.total += min(waited, idle)
