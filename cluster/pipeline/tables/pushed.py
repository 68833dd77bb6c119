"""Splits a query's filters into those that save reading and those that Spark applies. Pure: attributes and values in, ranges out.

Accepted filters are applied exactly: topics by name, offsets and times as ranges of integers.
"""

from collections.abc import Iterable
from typing import Any

from attrs import define, field

from twinlog.cluster.pipeline.tables.scan import RecordFilter


@define
class _Range:
    """Integers from `low` on, below `high`; None: no bound."""

    low: int | None = None
    high: int | None = None

    def narrow(self, low: int | None, high: int | None) -> None:
        """Intersect."""
        if low is not None:
            self.low = low if self.low is None else max(self.low, low)
        if high is not None:
            self.high = high if self.high is None else min(self.high, high)


@define
class Pushed:
    """Selection of a query as far as readers apply it: `offset_column` and `stored_ms` in ranges, `topic` in a set."""

    offset_column: str
    topics: frozenset[str] | None = None  # From an option, until filters narrow them.
    offsets: _Range = field(factory=_Range, init=False)
    times: _Range = field(factory=_Range, init=False)

    def take(self, kind: str, column: str, value: Any) -> bool:
        """Accept a filter, given by the name of its class, if it can be applied here; whether it was."""
        if kind == "IsNotNull":
            return column in (self.offset_column, "stored_ms", "topic")
        if column == "topic":
            return self._take_topic(kind, value)
        found = {self.offset_column: self.offsets, "stored_ms": self.times}.get(column)
        bounds = _bounds(kind, value) if found is not None else None
        if found is None or bounds is None:
            return False
        found.narrow(*bounds)
        return True

    def _take_topic(self, kind: str, value: Any) -> bool:
        values: Iterable[Any]
        if kind in ("EqualTo", "EqualNullSafe"):
            values = (value,)
        elif kind == "In":
            values = value
        else:
            return False
        wanted = frozenset(each for each in values if each is not None)
        if not all(isinstance(each, str) for each in wanted):
            return False
        self.topics = wanted if self.topics is None else self.topics & wanted
        return True

    def where(self, *, start: int, end: int) -> RecordFilter:
        """Filter for records that begin in bytes `start` to `end` of the log."""
        low = start if self.offsets.low is None else max(start, self.offsets.low)
        high = end if self.offsets.high is None else min(end, self.offsets.high)
        return RecordFilter(
            topics=self.topics, start=low, end=max(low, high), begin_ms=self.times.low, end_ms=self.times.high
        )


def _bounds(kind: str, value: Any) -> tuple[int | None, int | None] | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return {
        "EqualTo": (value, value + 1),
        "EqualNullSafe": (value, value + 1),
        "GreaterThan": (value + 1, None),
        "GreaterThanOrEqual": (value, None),
        "LessThan": (None, value),
        "LessThanOrEqual": (None, value + 1),
    }.get(kind)
