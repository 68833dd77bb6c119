"""Finds the parts of several logs that differ, by digests of their blocks, and the logs that end early. Pure.

A block is 64 KiB of the log, counted from offset 0 (store/integrity/digest.py). Logs may begin and end at different offsets, and
the first and last block of a log may be partial. Ranges that digests cannot decide are returned, too, for a comparison by
records.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from attrs import field, frozen

from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.store.epoch_file import EpochEntry
from twinlog.store.integrity.digest import BLOCK_SIZE


class BlockRow(NamedTuple):
    """Bytes `start` to `end` of a log, inside one block, and the xxh3-128 of these bytes as they were read."""

    start: int
    end: int
    digest: bytes


@frozen
class LogBounds:
    """Bounds of a log: bytes `first` to `last`; no role change removes bytes below `confirmed` (None: unknown).

    `claimed`: the furthest end that the member's own files mention (queues, digests, a clean stop); None: none do.
    """

    name: str
    first: int
    last: int
    confirmed: int | None = None
    epochs: tuple[EpochEntry, ...] = ()
    file_size: int = 1 << 30
    is_running: bool = False
    claimed: int | None = field(default=None, kw_only=True)

    def has(self, start: int, end: int) -> bool:
        """True if any of these bytes belong to the log."""
        return self.first < end and start < self.last

    def file_of(self, offset: int) -> str:
        """File of the log that contains a byte."""
        return f"commitlog/{offset - offset % self.file_size:020d}"


class ByteRange(NamedTuple):
    """Bytes `start` to `end` of the logs."""

    start: int
    end: int


def differing_blocks(sides: Sequence[LogBounds], blocks: Mapping[str, Iterable[BlockRow]]) -> list[ByteRange]:
    """Ranges to compare by records, in order. `blocks`: the rows of each log by its name."""
    by_block: dict[int, dict[str, BlockRow]] = defaultdict(dict)
    for name, rows in blocks.items():
        for row in rows:
            by_block[row.start // BLOCK_SIZE][name] = row
    numbers = set(by_block)
    if len(sides) > 1:  # Also blocks without a row, though at least two logs cover them.
        starts, ends = sorted(side.first for side in sides), sorted(side.last for side in sides)
        numbers.update(range(starts[1] // BLOCK_SIZE, -(-ends[-2] // BLOCK_SIZE)))
    found = (block_differs(sides, number * BLOCK_SIZE, by_block.get(number, {})) for number in sorted(numbers))
    return ranges(part for part in found if part is not None)


def block_differs(sides: Sequence[LogBounds], start: int, rows: Mapping[str, BlockRow]) -> ByteRange | None:
    """The bytes of the block at `start` to compare by records; None when all logs that have the block are equal.

    Includes blocks that a log covers but has no row of, and partial blocks with different bounds.
    """
    having = [side for side in sides if side.has(start, start + BLOCK_SIZE)]
    low = sorted(max(start, side.first) for side in having)
    high = sorted(min(start + BLOCK_SIZE, side.last) for side in having)
    if len(having) < 2 or low[1] >= high[-2]:  # No common byte.
        return None
    found = {rows.get(side.name) for side in having}
    if len(found) == 1 and None not in found:
        return None
    return ByteRange(low[1], high[-2])


def ranges(parts: Iterable[ByteRange]) -> list[ByteRange]:
    """Merge parts that touch; the parts are in order."""
    found: list[ByteRange] = []
    for part in parts:
        if found and part.start <= found[-1].end:
            found[-1] = ByteRange(found[-1].start, max(found[-1].end, part.end))
        else:
            found.append(part)
    return found


def tail_findings(sides: Sequence[LogBounds]) -> list[AuditFinding]:
    """Members that are behind, and members that lost their end.

    A tail counts as lost only if another member has it: what a member's own files say of its end may be damaged, too.
    """
    longest = max(sides, key=lambda side: side.last)
    return [_tail_finding(side, longest) for side in sides if side.last < longest.last]


def _tail_finding(side: LogBounds, longest: LogBounds) -> AuditFinding:
    is_lost = (side.claimed or 0) > side.last and not side.is_running
    return AuditFinding(
        cls=FindingClass.TRUNCATED if is_lost else FindingClass.LAG,
        member=side.name,
        offset=side.last,
        end=longest.last,
        what="lost its end" if is_lost else "ends earlier",
        why=f"its own files mention bytes up to {side.claimed}" if is_lost else f"{longest.name} continues",
        good=longest.name,
    )


def unreadable(side: LogBounds, start: int, end: int, why: str) -> AuditFinding:
    """Bytes of a log that cannot be read."""
    return AuditFinding(
        cls=FindingClass.UNREADABLE,
        member=side.name,
        offset=start,
        end=end,
        what="cannot be read",
        why=why,
        file=side.file_of(start),
    )


def nothing_in_common(sides: Sequence[LogBounds]) -> bool:
    """True if no two of the logs have a byte in common, though several have bytes."""
    with_bytes = [side for side in sides if side.first < side.last]
    return len(with_bytes) > 1 and not any(
        one.has(other.first, other.last) for one, other in combinations(with_bytes, 2)
    )
