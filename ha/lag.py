"""How old is the oldest byte that a slave lacks? The log's bytes carry no clock of their own, so stamp its end now and
then.

A stamp (offset, time) says: at that time the log ended there. Times are monotonic seconds.
"""

from bisect import bisect_right

from attrs import define, field

STAMPS_MAX = 2048


@define(eq=False)
class AppendStamps:
    """The log's end over time: dense for the last minutes, thinner the older it gets, so that it never grows large."""

    _offsets: list[int] = field(factory=list, init=False)
    _times: list[float] = field(factory=list, init=False)

    def note(self, max_offset: int, now: float) -> None:
        """The log ends at `max_offset` now. Without progress since the last stamp there is none."""
        if self._offsets and max_offset <= self._offsets[-1]:
            return
        self._offsets.append(max_offset)
        self._times.append(now)
        if len(self._offsets) > STAMPS_MAX:
            half = STAMPS_MAX // 2
            self._offsets[:half] = self._offsets[:half:2]
            self._times[:half] = self._times[:half:2]

    def age(self, ack_offset: int, max_offset: int, now: float) -> float | None:
        """Seconds since the byte at `ack_offset` was appended; 0 when there is none, None when it is older than all
        stamps.
        """
        if ack_offset >= max_offset:
            return 0.0
        at = bisect_right(self._offsets, ack_offset)  # The first stamp that has the byte.
        if at == 0:
            return None
        return now - self._times[at] if at < len(self._times) else 0.0  # Too young to be stamped.
