"""Counters that are looked at now and then, and how they grew over the last minute, hour and day. No I/O, no clock.

Source: StatsItem.java, StatsItemSet.java (RocketMQ 4.9.7). There each of the three lists has a thread's timer behind it; here
`Windows` says which lists are due. Times are seconds of any clock that only goes forward.
"""

from collections import deque
from collections.abc import Iterable

from attrs import define, field, frozen

NUMS, SIZE, LATENCY_MS, CALLS = range(4)  # What a counter counts; CALLS: how many requests brought it.
PERIODS = MINUTE, HOUR, DAY = range(3)
_PACES = ((10.0, 7), (600.0, 7), (3600.0, 25))  # Seconds between two looks, and how many of them a list holds.

Counts = tuple[int, int, int, int]
_ZERO: Counts = (0, 0, 0, 0)


def _lists() -> tuple[deque[tuple[float, Counts]], ...]:
    return tuple(deque(maxlen=length) for _, length in _PACES)


@define(eq=False)
class Counter:
    """What came since it was born; whoever counts adds to the fields."""

    nums: int = 0
    size: int = 0  # Bytes.
    latency_ms: int = 0
    calls: int = 0
    next_offset: int = 0  # Of a queue, where a group's next pull goes on; not looked at over time.
    _looks: tuple[deque[tuple[float, Counts]], ...] = field(factory=_lists, init=False)

    @property
    def counts(self) -> Counts:
        return self.nums, self.size, self.latency_ms, self.calls

    def look(self, period: int, now: float) -> None:
        """Note how far it is. The first look pretends that one before found nothing, as RocketMQ's does."""
        looks = self._looks[period]
        if not looks:
            looks.append((now - _PACES[period][0], _ZERO))
        looks.append((now, self.counts))

    def span(self, period: int) -> tuple[tuple[float, Counts], tuple[float, Counts]] | None:
        """The oldest and the newest look of a list; None before the first."""
        looks = self._looks[period]
        return (looks[0], looks[-1]) if looks else None

    @property
    def is_idle(self) -> bool:
        """Whether nothing came for a day."""
        day = self._looks[DAY]
        return len(day) == day.maxlen and day[0][1] == self.counts


@frozen
class Snapshot:
    """How a counter grew: in all, a second, and a call (0 where calls are not counted)."""

    sum: int = 0
    tps: float = 0.0
    average: float = 0.0

    def plain(self) -> dict[str, float]:
        """BrokerStatsItem's JSON."""
        return {"avgpt": self.average, "sum": self.sum, "tps": self.tps}


def snapshot(counters: Iterable[Counter], what: int, period: int) -> Snapshot:
    """How `counters` grew together over a period."""
    spans = [span for counter in counters if (span := counter.span(period)) is not None]
    if not spans:
        return Snapshot()
    total = sum(after[what] - before[what] for (_, before), (_, after) in spans)
    calls = sum(after[CALLS] - before[CALLS] for (_, before), (_, after) in spans)
    seconds = max(end for _, (end, _) in spans) - min(begin for (begin, _), _ in spans)
    return Snapshot(total, total / seconds, total / calls if calls else 0.0)


@define
class Windows:
    """Says when which list is due: the first time at once, then at its period's pace."""

    _next: list[float] = field(factory=list, init=False)

    def due(self, now: float) -> list[int]:
        """The lists to look for now. A late call brings one look, not those that were missed."""
        if not self._next:
            self._next = [now] * len(_PACES)
        found = [period for period, at in enumerate(self._next) if now >= at]
        for period in found:
            pace = _PACES[period][0]
            self._next[period] += pace * (1 + (now - self._next[period]) // pace)
        return found
