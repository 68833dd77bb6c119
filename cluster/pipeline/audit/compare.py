"""Finds the parts of several logs that differ, by digests of their blocks, and the logs that end early. Pure.

A block is 64 KiB of the log, counted from offset 0 (store/integrity/digest.py). Logs may begin and end at different offsets, and
the first and last block of a log may be partial. Ranges that digests cannot decide are returned, too, for a comparison by
records.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from attrs import field, frozen

from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.store.epoch_file import EpochEntry
from twinlog.store.integrity.digest import BLOCK_SIZE


class BlockRow(NamedTuple):
    """Bytes `start` to `end` of a log, inside one block: a row of the BLOCKS table.

    `digest`: xxh3-128 of these bytes as they were read; `first_record` is -1 where no record begins in them.
    """

    start: int
    end: int
    digest: bytes
    records: int = 0
    first_record: int = -1


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


class ByteRange(NamedTuple):
    """Bytes `start` to `end` of the logs."""

    start: int
    end: int


def differing_blocks(sides: Sequence[LogBounds], blocks: Mapping[str, Iterable[BlockRow]]) -> Iterator[ByteRange]:
    """Ranges to compare by records, in order. `blocks`: the rows of each log by its name, ordered by offset."""
    rows = merge(*(_tagged(name, rows) for name, rows in blocks.items()), key=itemgetter(0))
    found = (
        inside
        for number, of_block in groupby(_with_absent(rows, sides), key=itemgetter(0))
        if (inside := block_differs(sides, number * BLOCK_SIZE, {name: row for _, name, row in of_block if row}))
    )
    return ranges(found)


def _tagged(name: str, rows: Iterable[BlockRow]) -> Iterator[tuple[int, str, BlockRow]]:
    for row in rows:
        yield row.start, name, row


def _with_absent(
    rows: Iterable[tuple[int, str, BlockRow]], sides: Sequence[LogBounds]
) -> Iterator[tuple[int, str, BlockRow | None]]:
    """Rows by the number of their block, and every block in between that is missing though at least two logs cover it."""
    expected = common_start(sides) // BLOCK_SIZE
    for start, name, row in rows:
        number = start // BLOCK_SIZE
        for absent in range(expected, number):
            yield absent, "", None
        expected = max(expected, number + 1)
        yield number, name, row
    for absent in range(expected, -(-common_end(sides) // BLOCK_SIZE)):
        yield absent, "", None


def block_differs(sides: Sequence[LogBounds], start: int, rows: Mapping[str, BlockRow]) -> ByteRange | None:
    """The bytes of the block at `start` to compare by records; None when all logs that have the block are equal.

    Includes blocks that a log covers but has no row of, and partial blocks with different bounds.
    """
    having = [side for side in sides if side.has(start, start + BLOCK_SIZE)]
    low = sorted(max(start, side.first) for side in having)
    high = sorted(min(start + BLOCK_SIZE, side.last) for side in having)
    if len(having) < 2 or low[1] >= high[-2]:  # No common byte.
        return None
    found = [rows.get(side.name) for side in having]
    first = found[0]
    if first is not None and all(row is not None and row[:3] == first[:3] for row in found):
        return None
    return ByteRange(low[1], high[-2])


def ranges(parts: Iterable[ByteRange]) -> Iterator[ByteRange]:
    """Merge parts that touch; the parts are in order."""
    last: ByteRange | None = None
    for part in parts:
        if last is not None and part.start <= last.end:
            last = ByteRange(last.start, max(last.end, part.end))
            continue
        if last is not None:
            yield last
        last = part
    if last is not None:
        yield last


def common_start(sides: Sequence[LogBounds]) -> int:
    """First offset that at least two of the logs may have."""
    return sorted(side.first for side in sides)[1] if len(sides) > 1 else 0


def common_end(sides: Sequence[LogBounds]) -> int:
    """Last offset up to which at least two of the logs have bytes."""
    return sorted(side.last for side in sides)[-2] if len(sides) > 1 else 0


def tail_findings(sides: Sequence[LogBounds]) -> list[AuditFinding]:
    """Members that are behind, and members that lost their end.

    A tail counts as lost only if another member has it: what a member's own files say of its end may be damaged, too.
    """
    longest = max(sides, key=lambda side: side.last)
    return [
        truncated(side, longest) if (side.claimed or 0) > side.last and not side.is_running else lag(side, longest)
        for side in sides
        if side.last < longest.last
    ]


def lag(side: LogBounds, longest: LogBounds) -> AuditFinding:
    """A log that ends before another one."""
    return AuditFinding(
        cls=FindingClass.LAG,
        member=side.name,
        offset=side.last,
        end=longest.last,
        what="ends earlier",
        why=f"{longest.name} continues",
        good=longest.name,
    )


def truncated(side: LogBounds, longest: LogBounds) -> AuditFinding:
    """A log that ends before the end that its own files mention."""
    return AuditFinding(
        cls=FindingClass.TRUNCATED,
        member=side.name,
        offset=side.last,
        end=longest.last,
        what="lost its end",
        why=f"its own files mention bytes up to {side.claimed}",
        good=longest.name,
    )


def nothing_in_common(sides: Sequence[LogBounds]) -> bool:
    """True if no two of the logs have a byte in common, though several have bytes."""
    with_bytes = [side for side in sides if side.first < side.last]
    return len(with_bytes) > 1 and not any(
        one.has(other.first, other.last) for at, one in enumerate(with_bytes) for other in with_bytes[at + 1 :]
    )
