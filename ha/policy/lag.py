"""How old is the oldest byte that a slave lacks? The log's bytes carry no clock of their own, so stamp its end now and then.

A stamp (offset, time) says: at that time the log ended there. Times are monotonic seconds. Stamps are kept at several
levels of detail, each level half as dense as the one before and twice as long, so that ages from parts of a second to
many days are exact to a hundredth or so, and memory is bounded.
"""

from bisect import bisect_right
from collections import deque
from operator import itemgetter

from attrs import define, field

LEVELS, STAMPS = 22, 256
INTERVAL = 0.1  # Seconds between two stamps of the first level, at least.


def _levels() -> list[deque[tuple[int, float]]]:
    return [deque(maxlen=STAMPS) for _ in range(LEVELS)]


@define(eq=False)
class AppendStamps:
    """The log's end over time."""

    _levels: list[deque[tuple[int, float]]] = field(factory=_levels, init=False)

    def note(self, max_offset: int, now: float) -> None:
        """The log ends at `max_offset` now. Costs little when there is nothing new, or when it is called too often."""
        interval = INTERVAL
        for level in self._levels:
            if level and (level[-1][0] >= max_offset or now < level[-1][1] + interval):
                break
            level.append((max_offset, now))
            interval *= 2

    def age(self, ack_offset: int, max_offset: int, now: float) -> float | None:
        """Seconds since the byte at `ack_offset` was appended; 0 if there is none, None if it is older than all stamps."""
        if ack_offset >= max_offset:
            return 0.0
        for level in self._levels:
            if level and level[0][0] <= ack_offset:
                at = bisect_right(level, ack_offset, key=itemgetter(0))  # The first stamp that has the byte.
                return now - level[at][1] if at < len(level) else 0.0  # Too young to be stamped.
        return None
