"""Which parts of several logs differ, as the digests of their blocks tell, and which logs end early. Pure: values in, values out.

A block is 64 KiB of the endless log, counted from offset 0 (store/integrity/digest.py). Where the logs begin and end may
differ, and the first and the last block of a log may be partial: what cannot be told from digests is named too, to be looked
into.
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

    `digest`: xxh3-128 of these bytes, as they were read; `first_record` is -1 where no record begins in them.
    """

    start: int
    end: int
    digest: bytes
    records: int = 0
    first_record: int = -1


@frozen
class LogBounds:
    """One of the logs. It has bytes `first` to `last`; up to `confirmed` it has them for good (None: not known).

    `claimed`: how far the log went at some time, as its own files say (queues, digests, a clean stop); None: nothing is known.
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
        """Whether any of these bytes belong to the log."""
        return self.first < end and start < self.last


class ByteRange(NamedTuple):
    """Bytes `start` to `end` of the logs."""

    start: int
    end: int


def differing_blocks(sides: Sequence[LogBounds], blocks: Mapping[str, Iterable[BlockRow]]) -> Iterator[ByteRange]:
    """The ranges to look into, in order. `blocks`: the rows of each side by its name, by their offset."""
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
    """Rows by the number of their block, and every block between that no side has a row of, though two logs go over it."""
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
    """The bytes to look into of the block at `start`, whose rows by side these are; None when all that have it are equal.

    Also where one lacks a row of bytes that its log goes over, and where partial blocks have other bounds.
    """
    having = [side for side in sides if side.has(start, start + BLOCK_SIZE)]
    low = sorted(max(start, side.first) for side in having)
    high = sorted(min(start + BLOCK_SIZE, side.last) for side in having)
    if len(having) < 2 or low[1] >= high[-2]:  # No byte that two of them have.
        return None
    found = [rows.get(side.name) for side in having]
    first = found[0]
    if first is not None and all(row is not None and row[:3] == first[:3] for row in found):
        return None
    return ByteRange(low[1], high[-2])


def ranges(parts: Iterable[ByteRange]) -> Iterator[ByteRange]:
    """Parts in order, those that touch as one."""
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
    """From here on at least two of them may have bytes."""
    return sorted(side.first for side in sides)[1] if len(sides) > 1 else 0


def common_end(sides: Sequence[LogBounds]) -> int:
    """Up to here at least two of them have bytes, if they have any in common."""
    return sorted(side.last for side in sides)[-2] if len(sides) > 1 else 0


def tail_findings(sides: Sequence[LogBounds]) -> list[AuditFinding]:
    """Who has not got everything yet, and who lost what it had.

    Only what somebody has can have been lost: what a side's files say of its end may be damaged, too.
    """
    longest = max(sides, key=lambda side: side.last)
    return [
        truncated(side, longest) if (side.claimed or 0) > side.last and not side.is_running else lag(side, longest)
        for side in sides
        if side.last < longest.last
    ]


def lag(side: LogBounds, longest: LogBounds) -> AuditFinding:
    """A log that ends where another one goes on."""
    return AuditFinding(
        cls=FindingClass.LAG,
        member=side.name,
        offset=side.last,
        end=longest.last,
        what="ends earlier",
        why=f"{longest.name} goes on",
        good=longest.name,
    )


def truncated(side: LogBounds, longest: LogBounds) -> AuditFinding:
    """A log that ends where its own files say that it went on."""
    return AuditFinding(
        cls=FindingClass.TRUNCATED,
        member=side.name,
        offset=side.last,
        end=longest.last,
        what="lost its end",
        why=f"its own files say that it went up to {side.claimed}",
        good=longest.name,
    )


def nothing_in_common(sides: Sequence[LogBounds]) -> bool:
    """Whether there is no byte that two of the logs have, though they have some."""
    with_bytes = [side for side in sides if side.first < side.last]
    return len(with_bytes) > 1 and not any(
        one.has(other.first, other.last) for at, one in enumerate(with_bytes) for other in with_bytes[at + 1 :]
    )
