"""Plan of deferred verification: when a slave receives bytes before it verifies them, and its next step meanwhile. Pure.

    caught up    each byte is verified before it is written (ha/slave/replica.py)
    far behind   bytes are received as fast as they come, straight into the log file; one stretch is verified now and then, so
                 that acknowledgements go on
    drying up    the stream is slower than verification: what was received is verified, and the socket checked in between; when
                 nothing is left the slave has caught up

Receiving and verifying alternate, and never run in parallel: in one process the two would wait for each other's GIL, 5 ms at a
time, and on two cores the master needs the other one.
"""

from typing import Literal

from attrs import define, field, frozen

# So often in a row so much must have come at once, in 5 ms: faster than verification. Less will do where the master is known
# to have more than FAR_BYTES yet.
FULL_BYTES, FULL_TIMES = 2 << 20, 4
FULL_BYTES_FAR, FULL_TIMES_FAR, FAR_BYTES = 1 << 20, 2, 64 << 20
# Verified at a time: the event loop is blocked meanwhile. Half as much takes 1.04 us a record instead of 0.74.
STRETCH_BYTES = 8 << 20
RECEIVE_SECONDS, GAP_SECONDS = 0.5, 0.2  # In one time slice, and the gap that ends it.
CHECK_SECONDS, CHECK_GAP_SECONDS = 0.05, 0.005  # The same while the stream dries up,
VERIFY_SECONDS = 0.25  # and how long is verified then before the next check of the socket.
# How many times faster than the stream verification must be for it to go first. Of a slave that is known to be far behind more
# is expected: verification has short turns, and seems faster than it is.
FASTER, FASTER_FAR = 1, 2

Stream = Literal["more", "gap", "ended"]


@frozen
class Receive:
    """Take up to `size_max` bytes, for so long, unless there is a gap of so many seconds."""

    size_max: int
    seconds_max: float
    gap_seconds: float


@frozen
class Verify:
    """One stretch."""


@frozen
class Leave:
    """End: nothing is left that could be verified before more comes."""


Step = Receive | Verify | Leave


@define
class Onset:
    """Detects that the master has so much more that verification may be deferred."""

    _times: int = field(default=0, init=False)

    def took(self, size: int, *, is_far: bool) -> bool:
        """Note the bytes that came at once; True: begin. `is_far`: the master is known to have much more."""
        self._times = self._times + 1 if size >= (FULL_BYTES_FAR if is_far else FULL_BYTES) else 0
        if self._times < (FULL_TIMES_FAR if is_far else FULL_TIMES):
            return False
        self._times = 0
        return True


@define
class DeferredPlan:
    """Takes the results of its steps."""

    is_drying: bool = field(default=False, init=False)
    _has_ended: bool = field(default=False, init=False)
    _may_receive: bool = field(default=True, init=False)  # Else it is time to verify.
    _seconds: float = field(default=0.0, init=False)  # Of verification since something was received last.
    _rate: float = field(default=0.0, init=False)  # Of verification, bytes a second; 0: not known.

    def received(self, size: int, seconds: float, stream: Stream, *, is_far: bool) -> None:
        """Note the result of a Receive, and its end: more to come, a gap, or the end of the stream."""
        self._has_ended = stream == "ended"
        self.is_drying = stream == "gap" or size * (FASTER_FAR if is_far else FASTER) < self._rate * seconds
        self._may_receive, self._seconds = False, 0.0

    def verified(self, size: int, seconds: float) -> None:
        """Note the result of a Verify."""
        self._seconds += seconds
        self._may_receive = not self.is_drying or self._seconds >= VERIFY_SECONDS
        if seconds > 0:
            self._rate = size / seconds if not self._rate else (3 * self._rate + size / seconds) / 4

    def next(self, *, room: int, verifiable: bool) -> Step:
        """`room`: bytes that may be received; `verifiable`: whether there is a whole record that is not verified."""
        may_receive = room > 0 and not self._has_ended
        if verifiable:
            if not (may_receive and self._may_receive):
                return Verify()
        elif self.is_drying or not may_receive:
            return Leave()
        if self.is_drying:
            return Receive(room, CHECK_SECONDS, CHECK_GAP_SECONDS)
        return Receive(room, RECEIVE_SECONDS, GAP_SECONDS)
