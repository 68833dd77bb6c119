"""Watchdog of the event loop: a thread that detects stalls and logs the stack while they last. Linux only.

A broker serves all clients and replicas on one thread. When a system call on it hangs (a disk that accepts nothing), or a
computation takes long, the broker does not answer, and nothing on that thread can report why. A loop that is ready to run and
has no CPU is not stalled: the machine is busy, which CpuWait finds out. A sync that hangs in a thread of its own stalls
producers, not the loop: it is logged, too. What the kernel says of a thread:

    /proc/self/task/TID/schedstat   ns that it ran, ns that it waited for a CPU, how often it was given one
    /proc/self/task/TID/stat        its state: R runs or is ready, S sleeps, D waits for a disk, T is stopped

The kernel adds a wait when it ends. So a thread that is ready at two readings, and was given no CPU between them, has waited all
that time, whatever the second number says. Sources: Documentation/scheduler/sched-stats.rst (Linux 6.1), proc(5).
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


log = structlog.get_logger(__name__)

BEAT_SECONDS, STALL_SECONDS = 0.25, 1.0
_FRAMES_MAX = 12  # The innermost ones say it.


@frozen
class WatchdogStatistics:
    """Since the start. `stalled_ms`: how long the stall has lasted that is under way, 0 for none.

    `cpu_waits`: how often the loop had no CPU for as long as would be a stall; `cpu_wait_seconds`: all that it waited for one.
    """

    stalls: int
    longest_ms: int
    stalled_ms: int
    cpu_waits: int = 0
    cpu_wait_seconds: float = 0.0


@frozen
class _Absence:
    """The loop did not run since `since`. `cpu_wait`: all that it had waited for a CPU by then, in seconds."""

    since: float
    cpu_wait: float
    is_stall: bool  # Else it had no CPU.


@define(eq=False)
class Watchdog:
    """`busy_since` tells since when (time.monotonic()) a sync has been under way in a thread, None for none."""

    busy_since: Callable[[], float | None]
    clock: Callable[[], float] = time.monotonic
    on_stall: Callable[[str], None] = lambda _why: None  # On the watchdog's thread.
    _loop: Read = field(default=lambda: None, init=False)
    _own: Read = field(default=lambda: None, init=False)
    _loop_wait: CpuWait = field(factory=CpuWait, init=False)
    _own_wait: CpuWait = field(factory=CpuWait, init=False)
    _wait_at_beat: tuple[float, float] = field(
        default=(0.0, 0.0), init=False
    )  # The last beat seen, and the wait until then.
    _cpu_waits: int = field(default=0, init=False)
    _beat: float = field(default=0.0, init=False)  # When the loop was last seen alive.
    _seen: float = field(default=0.0, init=False)  # When this watchdog last looked.
    _stalls: int = field(default=0, init=False)
    _longest: float = field(default=0.0, init=False)
    _absent: _Absence | None = field(default=None, init=False)
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
        absent = self._absent
        lasted = self.clock() - absent.since if absent is not None and absent.is_stall else 0.0
        longest = round(max(self._longest, lasted) * 1000)
        return WatchdogStatistics(self._stalls, longest, round(lasted * 1000), self._cpu_waits, self._loop_wait.total)

    # On the loop

    def beat(self) -> None:
        """The loop is alive."""
        now = self.clock()
        self._beat = now
        busy = self.busy_since()
        if self._slow_since is not None and busy != self._slow_since:
            log.warning("the sync came back", seconds=round(now - self._slow_since, 1))
            self._slow_since = None
        if busy is not None and self._slow_since is None and now - busy > STALL_SECONDS:
            self._slow_since = busy
            log.warning("a sync of the disk hangs: producers who wait for it wait", seconds=round(now - busy, 1))

    # On the watchdog's thread

    def _watch(self, loop_thread: int) -> None:
        self._own = partial(read_thread, threading.get_native_id())
        while not self._ended.wait(BEAT_SECONDS):
            self.look(sys._current_frames().get(loop_thread))

    def look(self, frame: FrameType | None) -> None:
        """Compare the time with the loop's last sign of life."""
        now, before, beat = self.clock(), self._seen, self._beat
        self._seen = now
        own_before = self._own_wait.total
        self._loop_wait.take(now, self._loop())
        self._own_wait.take(now, self._own())
        if beat != self._wait_at_beat[0]:
            self._wait_at_beat = beat, self._loop_wait.total
        if now - before > STALL_SECONDS:  # This thread did not run either: stopped by a signal, or no CPU to be had.
            self.on_stall("this process did not run")
            if self._absent is None:
                without_cpu = round(self._own_wait.total - own_before, 1)
                log.warning("this process did not run", seconds=round(now - before, 1), without_cpu=without_cpu)
            self._beat = max(beat, now)
        elif self._absent is None and now - beat > STALL_SECONDS:
            self._began(_Absence(beat, self._wait_at_beat[1], is_stall=False), now, frame)
        elif self._absent is not None and beat > self._absent.since:
            self._ended_at(self._absent, beat)
        elif self._absent is not None and not self._absent.is_stall and self._stood(self._absent, now) > STALL_SECONDS:
            self._stalls_now(self._absent, now, frame)

    def _stood(self, absent: _Absence, now: float) -> float:
        """For how long it has not run, and could have."""
        return now - absent.since - (self._loop_wait.total - absent.cpu_wait)

    def _began(self, absent: _Absence, now: float, frame: FrameType | None) -> None:
        stood = self._stood(absent, now)
        if stood > STALL_SECONDS:
            self._stalls_now(absent, now, frame)
            return
        if stood > (now - absent.since) / 2:  # Some of each: the next look will tell.
            return
        self._absent = absent
        self._cpu_waits += 1
        self.on_stall("the event loop has no CPU")
        log.warning(
            "the event loop has no CPU: the machine is busy",
            seconds=round(now - absent.since, 1),
            without_cpu=round(self._loop_wait.total - absent.cpu_wait, 1),
        )

    def _stalls_now(self, absent: _Absence, now: float, frame: FrameType | None) -> None:
        self._absent = evolve(absent, is_stall=True)
        self._stalls += 1
        self.on_stall("the event loop stalls")
        log.error("the event loop stalls", seconds=round(now - absent.since, 1), stack=_stack(frame))

    def _ended_at(self, absent: _Absence, beat: float) -> None:
        lasted, self._absent = beat - absent.since, None
        if absent.is_stall:
            self._longest = max(self._longest, lasted)
        without_cpu = round(self._loop_wait.total - absent.cpu_wait, 1)
        log.warning("the event loop goes on", seconds=round(lasted, 1), without_cpu=without_cpu)


def _stack(frame: FrameType | None) -> str:
    """The stack in one line, innermost call last."""
    if frame is None:
        return "unknown"
    frames = traceback.extract_stack(frame)[-_FRAMES_MAX:]
    return " > ".join(f"{each.name} ({each.filename.rpartition('/')[2]}:{each.lineno})" for each in frames)
