"""Which bytes of the log are known to be damaged. No I/O."""

from bisect import bisect_left
from collections.abc import Iterator

from attrs import define, field


@define(eq=False)
class DamagedRanges:
    """Ranges of log offsets, sorted, none touching another."""

    _ranges: list[tuple[int, int]] = field(factory=list)

    def add(self, start: int, end: int) -> None:
        """Note bytes `start` to `end` as damaged; ranges that touch become one."""
        assert start < end
        ranges = self._ranges
        at = bisect_left(ranges, start, key=lambda item: item[1])
        after = at
        while after < len(ranges) and ranges[after][0] <= end:
            start, end = min(start, ranges[after][0]), max(end, ranges[after][1])
            after += 1
        ranges[at:after] = [(start, end)]

    def remove(self, start: int, end: int) -> None:
        """Bytes `start` to `end` are sound again, or gone."""
        kept: list[tuple[int, int]] = []
        for low, high in self._ranges:
            kept += [part for part in ((low, min(high, start)), (max(low, end), high)) if part[0] < part[1]]
        self._ranges[:] = kept

    def overlaps(self, start: int, end: int) -> bool:
        """Whether any of bytes `start` to `end` is damaged."""
        at = bisect_left(self._ranges, start + 1, key=lambda item: item[1])
        return at < len(self._ranges) and self._ranges[at][0] < end

    @property
    def total(self) -> int:
        """Bytes in all ranges."""
        return sum(end - start for start, end in self._ranges)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(self._ranges))

    def __len__(self) -> int:
        return len(self._ranges)
