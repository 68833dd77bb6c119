"""Notices when the event loop stands still, and says where, while it does.

Everything a broker does for its clients and replicas happens on one thread. When a system call on it hangs (a disk that takes
nothing), or a computation takes long, all of them see a broker that does not answer, and nobody on that thread could say why. So
another thread looks. A sync that hangs in a thread of its own stalls no loop, but producers: that is told, too.
"""

import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType

import structlog
import trio
from attrs import define, field, frozen

log = structlog.get_logger(__name__)

BEAT_SECONDS, STALL_SECONDS = 0.25, 1.0
_FRAMES_MAX = 12  # The innermost ones say it.


@frozen
class WatchdogStatistics:
    """Since the start. `stalled_ms`: how long the stall has lasted that is under way, 0 for none."""

    stalls: int
    longest_ms: int
    stalled_ms: int


@define(eq=False)
class Watchdog:
    """`busy_since` tells since when (time.monotonic()) a sync has been under way in a thread, None for none."""

    busy_since: Callable[[], float | None]
    clock: Callable[[], float] = time.monotonic
    on_stall: Callable[[str], None] = lambda _why: None  # On the watchdog's thread.
    _beat: float = field(default=0.0, init=False)  # When the loop was last seen alive.
    _seen: float = field(default=0.0, init=False)  # When this watchdog last looked.
    _stalls: int = field(default=0, init=False)
    _longest: float = field(default=0.0, init=False)
    _stalled_since: float | None = field(default=None, init=False)
    _slow_since: float | None = field(default=None, init=False)
    _ended: threading.Event = field(factory=threading.Event, init=False)

    async def run(self) -> None:
        """Watch until cancelled."""
        self._beat = self._seen = self.clock()
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
        since = self._stalled_since
        lasted = self.clock() - since if since is not None else 0.0
        return WatchdogStatistics(self._stalls, round(max(self._longest, lasted) * 1000), round(lasted * 1000))

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
        while not self._ended.wait(BEAT_SECONDS):
            self.look(sys._current_frames().get(loop_thread))

    def look(self, frame: FrameType | None) -> None:
        """Compare the time with the loop's last sign of life."""
        now, before, beat = self.clock(), self._seen, self._beat
        self._seen = now
        if now - before > STALL_SECONDS:  # This thread did not run either: stopped by a signal, or no CPU to be had.
            self.on_stall("this process did not run")
            if self._stalled_since is None:
                log.warning("this process did not run", seconds=round(now - before, 1))
            self._beat = max(beat, now)
            return
        if self._stalled_since is None and now - beat > STALL_SECONDS:
            self._stalled_since = beat
            self._stalls += 1
            self.on_stall("the event loop stalls")
            log.error("the event loop stalls", seconds=round(now - beat, 1), stack=_stack(frame))
        elif self._stalled_since is not None and beat > self._stalled_since:
            lasted = beat - self._stalled_since
            self._longest, self._stalled_since = max(self._longest, lasted), None
            log.warning("the event loop goes on", seconds=round(lasted, 1))


def _stack(frame: FrameType | None) -> str:
    """Where it stands, innermost call last, in one line."""
    if frame is None:
        return "unknown"
    frames = traceback.extract_stack(frame)[-_FRAMES_MAX:]
    return " > ".join(f"{each.name} ({each.filename.rpartition('/')[2]}:{each.lineno})" for each in frames)
