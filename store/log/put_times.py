"""Durations of producers' writes in the last whole minute. No I/O, no clock.

Source: StoreStatsService.java (RocketMQ 4.9.7), whose buckets these are.
"""

from bisect import bisect_left
from itertools import accumulate, repeat
from math import inf

from attrs import define, field

# Upper bounds in ms: steps of 1 to 20 ms, of 2 to 50, of 5 to 100, of 10 to 200, of 50 to 500, of 100 to 1 s, of 1 s to 10 s.
_STEPS = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
_BOUNDS = tuple(accumulate(step for step, count in _STEPS for step in repeat(step, count)))
assert (_BOUNDS[0], _BOUNDS[-1]) == (1, 10_000)

_COARSE = (10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_NAMES = (
    *("[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]"),
    *("[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]"),
)
QUICK_SECONDS, MINUTE_SECONDS = 0.001, 60.0


def _empty() -> list[int]:
    return [0] * (len(_BOUNDS) + 1)


@define(eq=False)
class PutTimes:
    """Counts writes. The caller adds writes of less than a millisecond to `quick`, and calls note() for others."""

    quick: int = 0  # Messages of this minute.
    longest_ms: int = 0  # Since the start.
    _slow: list[int] = field(factory=_empty, init=False)
    _turn_at: float = field(default=-inf, init=False)
    _last_quick: int = field(default=0, init=False)
    _last_slow: list[int] = field(factory=_empty, init=False)

    def note(self, seconds: float, messages: int) -> None:
        """Writing so many messages took a millisecond or more."""
        ms = int(seconds * 1000)
        self.longest_ms = max(self.longest_ms, ms)
        self._slow[bisect_left(_BOUNDS, ms)] += messages

    def rotate(self, now: float) -> None:
        """Start a new minute when one is over; `now` in seconds of a monotonic clock."""
        if now < self._turn_at:
            return
        self._turn_at = now + MINUTE_SECONDS
        self._last_quick, self._last_slow = self.quick, self._slow
        self.quick, self._slow = 0, _empty()

    def distribution(self) -> str:
        """RocketMQ's putMessageDistributeTime."""
        counts = [self._last_quick, *repeat(0, len(_COARSE) + 1)]
        for bound, count in zip((*_BOUNDS, _COARSE[-1] + 1), self._last_slow, strict=True):
            counts[1 + bisect_left(_COARSE, bound)] += count
        return "".join(f"{name}:{count} " for name, count in zip(_NAMES, counts, strict=True))

    def percentile_ms(self, share: float) -> float:
        """The duration that this share of the messages did not exceed; 0 without messages."""
        counts = [self._last_quick + self._last_slow[0], *self._last_slow[1:]]
        wanted, passed = sum(counts) * share, 0
        for index, count in enumerate(counts):
            if count and passed + count >= wanted:
                low = _BOUNDS[index - 1] if index else 0
                high = _BOUNDS[index] if index < len(_BOUNDS) else low
                return low + (high - low) * (wanted - passed) / count
            passed += count
        return 0.0
