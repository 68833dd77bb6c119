"""Stall detector: distinguishes an idle stream from a stuck one. Pure: an observation every few seconds in, a finding out.

A RocketMQ master that lacks the byte that a slave asked for sends heartbeats for ever, as does one that has nothing new. What
distinguishes them is the length of its log, which its remoting port reports, or that it does not send bytes which the slave
already has.
"""

from attrs import define, field, frozen

from twinlog.ha.compare.finding import Finding
from twinlog.ha.peer import PeerLog

CHECK_SECONDS = 5.0  # Between two observations.
STALL_SECONDS = 8.0  # For so long a longer log may bring nothing.
DISPATCH_SECONDS = 30.0  # For so long the queues may stand still behind the log.


@frozen(kw_only=True)
class Observation:
    """The stream at `now`, monotonic seconds. `position`: the next byte that should arrive; `comparing_to`: up to there the slave
    has it and compares. `peer`: None when it was not asked, or gave no answer; `position` was noted before.
    """

    now: float
    position: int
    frames: int
    last_read: float
    max_offset: int
    dispatched_offset: int
    comparing_to: int | None = None
    peer: PeerLog | None = None


@define
class StallDetector:
    """Over one connection, which was made at `since` and begins at `position`."""

    since: float
    position: int
    heartbeat_seconds: float
    has_caught_up: bool = field(default=False, init=False)  # Nothing was missing when the master was asked last.
    _moved_at: float = field(init=False)
    _frames: int = field(default=0, init=False)  # When it moved last.
    _longer_since: float | None = field(default=None, init=False)
    _boot_ms: int = field(default=0, init=False)
    _dispatched: int = field(default=-1, init=False)
    _dispatched_at: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._moved_at = self._dispatched_at = self.since

    def wants_peer(self, position: int) -> bool:
        """True if the master should be asked: nothing came since the last observation."""
        return position == self.position

    def check(self, seen: Observation) -> Finding | None:
        """Finding that requires a new connection; None while there is none."""
        if seen.position != self.position:
            self.position, self._moved_at, self._frames = seen.position, seen.now, seen.frames
            self._longer_since = None
        if seen.peer is not None:
            return self._compare(seen, seen.peer)
        return self._without_answer(seen)

    def _compare(self, seen: Observation, peer: PeerLog) -> Finding | None:
        at = seen.position
        self.has_caught_up = peer.max_offset == at
        if self._boot_ms not in (0, peer.boot_ms):
            return _stalled(at, "the master was started anew, but this connection still stands")
        self._boot_ms = peer.boot_ms
        if peer.min_offset > at:
            return _stalled(at, "the master has deleted the byte that comes next, and sends heartbeats only")
        if peer.max_offset < at:
            return _stalled(at, "the master's log has become shorter than this one")
        if peer.max_offset == at:
            self._longer_since = None
            return None
        if self._longer_since is None:
            self._longer_since = seen.now
        if seen.now - self._longer_since < STALL_SECONDS:
            return None
        silent = seen.now - seen.last_read
        what = "nothing at all" if silent > 2 * self.heartbeat_seconds else "heartbeats only"
        return _stalled(at, f"the master's log goes on, but for {STALL_SECONDS:g} s or more it has sent {what}")

    def _without_answer(self, seen: Observation) -> Finding | None:
        waited = seen.now - self._moved_at > self.heartbeat_seconds + STALL_SECONDS
        if seen.comparing_to is not None and waited and seen.frames - self._frames >= 2:
            return _stalled(
                seen.position,
                f"this log goes on to {seen.comparing_to}, but the master sends nothing from here on: its log ends here, or "
                "begins behind it. Its remoting port, which would tell, does not answer",
            )
        return None

    def dispatch(self, seen: Observation) -> Finding | None:
        """Finding about the slave's own queues."""
        if seen.dispatched_offset != self._dispatched or seen.dispatched_offset >= seen.max_offset:
            self._dispatched, self._dispatched_at = seen.dispatched_offset, seen.now
        if seen.now - self._dispatched_at < DISPATCH_SECONDS:
            return None
        return Finding(
            "dispatch",
            seen.dispatched_offset,
            f"dispatch to the queues is stuck at offset {seen.dispatched_offset} of the log: messages behind it are stored, but "
            "cannot be consumed here. Check this member's log file and its disk; a restart rebuilds the queues from the log",
        )


def _stalled(offset: int, why: str) -> Finding:
    return Finding(
        "stalled", offset, f"nothing arrives at offset {offset}: {why}. Connecting again, and comparing first"
    )
