"""Is a stream that brings nothing at rest, or stuck? Pure: told every few seconds how things are, it answers.

A RocketMQ master that lacks the byte that a slave asked for sends heartbeats for ever, as does one that has nothing new. What
tells them apart is the length of its log, which it says on its remoting port, or that it does not send what the slave has
already.
"""

from attrs import define, field, frozen

from twinlog.ha.compare.finding import Finding
from twinlog.ha.peer import PeerLog

LOOK_SECONDS = 5.0  # Between two looks.
STALL_SECONDS = 8.0  # For so long a longer log may bring nothing.
DISPATCH_SECONDS = 30.0  # For so long the queues may stand still behind the log.


@frozen(kw_only=True)
class Look:
    """How things are at `now`, monotonic seconds. `position` is the next byte that should arrive; `comparing_to`: up to there
    the slave has it and compares. `peer` is None when it was not asked, or gave no answer; `position` was noted before.
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
    is_level: bool = field(default=False, init=False)  # The last time that the master was asked nothing was missing.
    _moved_at: float = field(init=False)
    _frames: int = field(default=0, init=False)  # When it moved last.
    _longer_since: float | None = field(default=None, init=False)
    _boot_ms: int = field(default=0, init=False)
    _dispatched: int = field(default=-1, init=False)
    _dispatched_at: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._moved_at = self._dispatched_at = self.since

    def wants_peer(self, position: int) -> bool:
        """Whether it is worth to ask the master: nothing came since the last look."""
        return position == self.position

    def look(self, look: Look) -> Finding | None:
        """Why the connection has to be made anew; None while all is well, or cannot be told."""
        if look.position != self.position:
            self.position, self._moved_at, self._frames = look.position, look.now, look.frames
            self._longer_since = None
        if look.peer is not None:
            return self._compare(look, look.peer)
        return self._without_answer(look)

    def _compare(self, look: Look, peer: PeerLog) -> Finding | None:
        at = look.position
        self.is_level = peer.max_offset == at
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
            self._longer_since = look.now
        if look.now - self._longer_since < STALL_SECONDS:
            return None
        silent = look.now - look.last_read
        what = "nothing at all" if silent > 2 * self.heartbeat_seconds else "heartbeats only"
        return _stalled(at, f"the master's log goes on, but for {STALL_SECONDS:g} s or more it has sent {what}")

    def _without_answer(self, look: Look) -> Finding | None:
        waited = look.now - self._moved_at > self.heartbeat_seconds + STALL_SECONDS
        if look.comparing_to is not None and waited and look.frames - self._frames >= 2:
            return _stalled(
                look.position,
                f"this log goes on to {look.comparing_to}, but the master sends nothing from here on: its log ends here, or "
                "begins behind it. Its remoting port, which would tell, does not answer",
            )
        return None

    def dispatch(self, look: Look) -> Finding | None:
        """What is to be said of the slave's own queues."""
        if look.dispatched_offset != self._dispatched or look.dispatched_offset >= look.max_offset:
            self._dispatched, self._dispatched_at = look.dispatched_offset, look.now
        if look.now - self._dispatched_at < DISPATCH_SECONDS:
            return None
        return Finding(
            "dispatch",
            look.dispatched_offset,
            f"the queues stand still at offset {look.dispatched_offset} of the log: what came since is stored, but cannot be "
            "consumed here. Look at this member's log and its disk; a restart makes them from the log",
        )


def _stalled(offset: int, why: str) -> Finding:
    return Finding(
        "stalled", offset, f"nothing arrives at offset {offset}: {why}. Connecting again, and comparing first"
    )
