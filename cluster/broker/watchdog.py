"""Watchdog of the event loop: a thread that detects stalls and logs the stack while they last. Linux only.

A broker serves all clients and replicas on one thread. When a system call on it hangs (a disk that does not respond), or a
computation takes long, the broker does not answer, and nothing on that thread can report why. A loop that is ready to run without
a CPU is not stalled: the machine is busy, which CpuWait detects. A sync that hangs in a thread of its own stalls producers, not
the loop: it is logged, too. The kernel reports of a thread:

    /proc/self/task/TID/schedstat   ns that it ran, ns that it waited for a CPU, number of times it got one
    /proc/self/task/TID/stat        its state: R runs or is ready, S sleeps, D waits for a disk, T is stopped

The kernel adds a wait when it ends. So a thread that is ready at two readings, and got no CPU between them, has waited all the
time, whatever the second number is. Sources: Documentation/scheduler/sched-stats.rst (Linux 6.1), proc(5).
"""

import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import structlog
import trio
from attrs import define, evolve, field, frozen

_NS = 1e9
_READY = "R"


@frozen
class ThreadTimes:
    """CPU times of a thread since its start, in seconds. `turns`: number of times it got a CPU; `ready`: it runs or is ready."""

    ran: float
    waited: float
    turns: int
    ready: bool


Read = Callable[[], ThreadTimes | None]


def read_thread(thread_id: int) -> ThreadTimes | None:
    """Read the times of a thread of this process, by its native id; None if the kernel does not report them."""
    directory = Path("/proc/self/task", str(thread_id))
    try:
        ran, waited, turns = (directory / "schedstat").read_text().split()
        state = (directory / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError):
        return None
    return ThreadTimes(int(ran) / _NS, int(waited) / _NS, int(turns), state == _READY)


@define
class CpuWait:
    """Sum of the waits for a CPU between readings. No clock: the caller passes the time of a reading."""

    total: float = field(default=0.0, init=False)  # Seconds without a CPU, of all readings so far.
    _at: float | None = field(default=None, init=False)
    _last: ThreadTimes | None = field(default=None, init=False)

    def take(self, at: float, now: ThreadTimes | None) -> None:
        """Add a reading at a time in seconds; after a failed one, None, nothing is added until the next but one."""
        before, since = self._last, self._at
        self._last, self._at = now, at
        if now is None or before is None or since is None:
            return
        idle = max(at - since - (now.ran - before.ran), 0.0)  # Upper bound of the wait.
        had_none = before.ready and now.ready and before.turns == now.turns
        waited = idle if had_none else now.waited - before.waited
        assert waited >= 0, (before, now)
        self.total += min(waited, idle)


log = structlog.get_logger(__name__)

BEAT_SECONDS, STALL_SECONDS = 0.25, 1.0
_FRAMES_MAX = 12  # Innermost calls.


@frozen
class WatchdogStatistics:
    """Numbers since the start. `stalled_ms`: duration of the present stall, 0 for none.

    `cpu_waits`: times that the loop had no CPU for longer than STALL_SECONDS; `cpu_wait_seconds`: its total wait for one.
    """

    stalls: int
    longest_ms: int
    stalled_ms: int
    cpu_waits: int = 0
    cpu_wait_seconds: float = 0.0


@frozen
class _Gap:
    """Time since which the loop has not run. `cpu_wait`: its total wait for a CPU by then, in seconds."""

    since: float
    cpu_wait: float
    is_stall: bool  # Otherwise it had no CPU.


@define(eq=False)
class Watchdog:
    """Watchdog of the loop. `busy_since` returns the start (time.monotonic()) of a running sync in a thread, None for none."""

    busy_since: Callable[[], float | None]
    clock: Callable[[], float] = time.monotonic
    on_stall: Callable[[str], None] = lambda _why: None  # On the watchdog's thread.
    _loop: Read = field(default=lambda: None, init=False)
    _own: Read = field(default=lambda: None, init=False)
    _loop_wait: CpuWait = field(factory=CpuWait, init=False)
    _own_wait: CpuWait = field(factory=CpuWait, init=False)
    _wait_at_beat: tuple[float, float] = field(default=(0.0, 0.0), init=False)  # Last beat seen, and wait until then.
    _cpu_waits: int = field(default=0, init=False)
    _beat: float = field(default=0.0, init=False)  # Last time that the loop ran.
    _seen: float = field(default=0.0, init=False)  # Last check by the watchdog.
    _stalls: int = field(default=0, init=False)
    _longest: float = field(default=0.0, init=False)
    _gap: _Gap | None = field(default=None, init=False)
    _slow_since: float | None = field(default=None, init=False)
    _ended: threading.Event = field(factory=threading.Event, init=False)

    async def run(self) -> None:
        """Watch until cancelled."""
        self._beat = self._seen = self.clock()
        self._loop = partial(read_thread, threading.get_native_id())
        thread = threading.Thread(
            target=self._watch, args=(threading.get_ident(),), name="twinlog watchdog", daemon=True
        )
        thread.start()
        try:
            while True:
                self.beat()
                await trio.sleep(BEAT_SECONDS)
        finally:
            self._ended.set()
            thread.join()

    def statistics(self) -> WatchdogStatistics:
        """A snapshot, from any thread."""
        gap = self._gap
        lasted = self.clock() - gap.since if gap is not None and gap.is_stall else 0.0
        longest = round(max(self._longest, lasted) * 1000)
        return WatchdogStatistics(self._stalls, longest, round(lasted * 1000), self._cpu_waits, self._loop_wait.total)

    # On the loop

    def beat(self) -> None:
        """Note that the loop runs."""
        now = self.clock()
        self._beat = now
        busy = self.busy_since()
        if self._slow_since is not None and busy != self._slow_since:
            log.warning("the sync of the disk finished", seconds=round(now - self._slow_since, 1))
            self._slow_since = None
        if busy is not None and self._slow_since is None and now - busy > STALL_SECONDS:
            self._slow_since = busy
            log.warning("a sync of the disk hangs: producers wait for it", seconds=round(now - busy, 1))

    # On the watchdog's thread

    def _watch(self, loop_thread: int) -> None:
        self._own = partial(read_thread, threading.get_native_id())
        while not self._ended.wait(BEAT_SECONDS):
            self.check(sys._current_frames().get(loop_thread))

    def check(self, frame: FrameType | None) -> None:
        """Compare the time with the loop's last beat; `frame` is what it runs now."""
        now, before, beat = self.clock(), self._seen, self._beat
        self._seen = now
        own_before = self._own_wait.total
        self._loop_wait.take(now, self._loop())
        self._own_wait.take(now, self._own())
        if beat != self._wait_at_beat[0]:
            self._wait_at_beat = beat, self._loop_wait.total
        if now - before > STALL_SECONDS:  # This thread did not run either: stopped by a signal, or without a CPU.
            self.on_stall("this process did not run")
            if self._gap is None:
                without_cpu = round(self._own_wait.total - own_before, 1)
                log.warning("this process did not run", seconds=round(now - before, 1), without_cpu=without_cpu)
            self._beat = max(beat, now)
        elif self._gap is None and now - beat > STALL_SECONDS:
            self._began(_Gap(beat, self._wait_at_beat[1], is_stall=False), now, frame)
        elif self._gap is not None and beat > self._gap.since:
            self._ended_at(self._gap, beat)
        elif self._gap is not None and not self._gap.is_stall and self._without_wait(self._gap, now) > STALL_SECONDS:
            self._stalls_now(self._gap, now, frame)

    def _without_wait(self, gap: _Gap, now: float) -> float:
        """Return the length of a gap without the wait for a CPU."""
        return now - gap.since - (self._loop_wait.total - gap.cpu_wait)

    def _began(self, gap: _Gap, now: float, frame: FrameType | None) -> None:
        lasted = self._without_wait(gap, now)
        if lasted > STALL_SECONDS:
            self._stalls_now(gap, now, frame)
            return
        if lasted > (now - gap.since) / 2:  # Some of each: the next check decides.
            return
        self._gap = gap
        self._cpu_waits += 1
        self.on_stall("the event loop has no CPU")
        log.warning(
            "the event loop has no CPU: the machine is busy",
            seconds=round(now - gap.since, 1),
            without_cpu=round(self._loop_wait.total - gap.cpu_wait, 1),
        )

    def _stalls_now(self, gap: _Gap, now: float, frame: FrameType | None) -> None:
        self._gap = evolve(gap, is_stall=True)
        self._stalls += 1
        self.on_stall("the event loop stalls")
        log.error("the event loop stalls", seconds=round(now - gap.since, 1), stack=_stack(frame))

    def _ended_at(self, gap: _Gap, beat: float) -> None:
        lasted, self._gap = beat - gap.since, None
        if gap.is_stall:
            self._longest = max(self._longest, lasted)
        without_cpu = round(self._loop_wait.total - gap.cpu_wait, 1)
        log.warning("the event loop runs again", seconds=round(lasted, 1), without_cpu=without_cpu)


def _stack(frame: FrameType | None) -> str:
    """Format the stack in one line, innermost call last."""
    if frame is None:
        return "unknown"
    frames = traceback.extract_stack(frame)[-_FRAMES_MAX:]
    return " > ".join(f"{each.name} ({each.filename.rpartition('/')[2]}:{each.lineno})" for each in frames)
