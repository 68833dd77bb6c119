"""Durations counted in fixed buckets, since the start and over the last minute. No I/O, no clock.

One note() counts many durations at once: a group commit, or an acknowledgement that releases a thousand producers.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from attrs import define, field, frozen

# Upper bounds in seconds, from a replica's memory over disks to time limits of seconds. The last one is infinite.
SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0015, 0.0025, 0.005, 0.0075),
    *(0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
BOUNDS = (*SECONDS, math.inf)
LOOK_SECONDS, LOOKS = 10.0, 7  # A minute: the newest sample is up to ten seconds old.


@frozen
class HistogramCounts:
    """The count of durations in each of BOUNDS, and the sum of all, seconds."""

    counts: tuple[int, ...] = (0,) * len(BOUNDS)
    sum: float = 0.0


@define(eq=False)
class Histogram:
    """Call sample() every second or so, for the counts of the last minute."""

    counts: list[int] = field(factory=lambda: [0] * len(BOUNDS), init=False)
    sum: float = field(default=0.0, init=False)  # Seconds.
    _looks: deque[tuple[float, tuple[int, ...]]] = field(factory=lambda: deque(maxlen=LOOKS), init=False)

    def note(self, seconds: float, count: int = 1) -> None:
        """Count `count` durations of so many seconds."""
        self.counts[bisect_left(BOUNDS, seconds)] += count
        self.sum += seconds * count

    def note_run(self, longest: float, shortest: float, count: int) -> None:
        """Count durations that ended together, of which only the longest and the shortest are known.

        In one bucket, as nearly always, this is exact but for the sum, which takes their mean; else they are spread evenly.
        """
        first = last = bisect_left(BOUNDS, shortest)
        if longest > BOUNDS[first]:
            last = bisect_left(BOUNDS, longest)
        self.sum += (longest + shortest) / 2 * count
        if first == last:
            self.counts[first] += count
            return
        before = 0
        for bucket in range(first, last + 1):
            up_to = count if bucket == last else round(count * (BOUNDS[bucket] - shortest) / (longest - shortest))
            self.counts[bucket] += up_to - before
            before = up_to

    def sample(self, now: float) -> None:
        """Remember the present counts, when that is due; `now` in seconds of a monotonic clock."""
        if not self._looks or now - self._looks[-1][0] >= LOOK_SECONDS:
            self._looks.append((now, tuple(self.counts)))

    def taken(self) -> HistogramCounts:
        """A snapshot of all counts."""
        return HistogramCounts(tuple(self.counts), self.sum)

    def recent(self) -> tuple[int, ...]:
        """The counts of the last minute."""
        young = len(self._looks) < LOOKS  # Whatever was counted, a minute ago it was not.
        before: Sequence[int] = (0,) * len(BOUNDS) if young else self._looks[0][1]
        return tuple(now - then for now, then in zip(self.counts, before, strict=True))


def percentile(counts: Sequence[int], share: float, bounds: Sequence[float] = BOUNDS) -> float | None:
    """The duration that this share did not exceed, as the bounds count it; None without any. At most the last finite bound."""
    wanted, passed = sum(counts) * share, 0
    for bucket, count in enumerate(counts):
        if count and passed + count >= wanted:
            low, high = bounds[bucket - 1] if bucket else 0.0, bounds[bucket]
            return low if math.isinf(high) else low + (high - low) * (wanted - passed) / count
        passed += count
    return None
