"""Damage known in a store: ranges of the log and wrong queue units, found by reads and by the scrub."""

from bisect import bisect_left
from collections.abc import Iterator

import structlog
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
        """True when any of bytes `start` to `end` is damaged."""
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


log = structlog.get_logger()

_LOGGED_MAX = 200  # Lines in the log; a disk that breaks would write them without end.
_UNITS_MAX = 10_000  # More wrong units than this are counted, not kept one by one.


@define(eq=False)
class KnownDamage:
    """Messages in `damaged` are not served. In `in_doubt` a byte changed that no message's CRC covers.

    `wrong_units` counts units that are still wrong, `repaired_units` those that were.
    """

    damaged: DamagedRanges = field(factory=DamagedRanges)
    in_doubt: DamagedRanges = field(factory=DamagedRanges)
    wrong_units: int = 0
    repaired_units: int = 0
    _logged: int = field(default=0, init=False)
    _units: set[tuple[str, int, int]] = field(factory=set, init=False)

    def record(self, start: int, end: int, found: str) -> None:
        """Bytes `start` to `end` of the log are not a sound record."""
        is_known = self.damaged.overlaps(start, end)
        self.damaged.add(start, end)
        if not is_known and self._may_log():
            log.error(
                "damaged bytes in the commit log; their messages are not served, consumers skip them",
                offset=start,
                bytes=end - start,
                found=found,
                advice="copy the message from another replica, or this store's files from a backup",
            )

    def suspect(self, start: int, end: int, found: str) -> None:
        """A byte in this range differs from what was written, and it is unknown which one."""
        is_known = self.in_doubt.overlaps(start, end)
        self.in_doubt.add(start, end)
        if not is_known and self._may_log():
            log.error(
                "commit log bytes that no CRC covers changed on the disk; their messages are served unchanged",
                offset=start,
                bytes=end - start,
                found=found,
                advice="compare this range with another replica",
            )

    def unit(self, topic: str, queue_id: int, queue_offset: int, found: str, *, served: bool = False) -> None:
        """A consume queue's unit is wrong; `served`: its message is found all the same."""
        key = (topic, queue_id, queue_offset)
        if key in self._units:
            return
        self.wrong_units += 1
        if len(self._units) < _UNITS_MAX:
            self._units.add(key)
        if self._may_log():
            log.error(
                "wrong unit in a consume queue",
                message="served" if served else "not served",
                topic=topic,
                queue_id=queue_id,
                queue_offset=queue_offset,
                found=found,
                advice="the scrub repairs it where digests prove the log; else stop the broker and remove this queue's"
                " directory: the next start rebuilds it from the log",
            )

    def unit_repaired(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """A wrong unit of a consume queue was rewritten from its record."""
        self.units_right(topic, queue_id, queue_offset, queue_offset + 1)
        self.repaired_units += 1
        if self._may_log():
            log.warning(
                "wrong unit in a consume queue repaired", topic=topic, queue_id=queue_id, queue_offset=queue_offset
            )

    def units_right(self, topic: str, queue_id: int, start: int, end: int) -> None:
        """Units `start` to `end` of a queue are right, whatever was found before."""
        if not self._units:
            return
        for key in [(topic, queue_id, queue_offset) for queue_offset in range(start, end)]:
            if key in self._units:
                self._units.remove(key)
                self.wrong_units -= 1

    def healed(self, start: int, end: int) -> None:
        """Bytes that were damaged are sound again."""
        if self.damaged.overlaps(start, end):
            self.damaged.remove(start, end)
            log.info("damaged bytes of the commit log are sound again", offset=start, bytes=end - start)

    def forget_below(self, offset: int) -> None:
        """Forget damage of deleted log files."""
        if offset > 0:
            self.damaged.remove(0, offset)
            self.in_doubt.remove(0, offset)

    def _may_log(self) -> bool:
        self._logged += 1
        if self._logged == _LOGGED_MAX + 1:
            log.error("more damage was found; it is counted, but no longer logged one by one", logged=_LOGGED_MAX)
        return self._logged <= _LOGGED_MAX
