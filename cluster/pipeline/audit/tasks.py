"""Tasks of an audit, wherever they run: digests of a part of a log, a comparison by records, a check of a member's own files.

No Spark: a task is a function of its arguments. Where bytes cannot be read, the answer says so, and the rest is audited. The
digests of one split of all logs meet in one task, which compares them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from operator import itemgetter
from struct import Struct
from typing import NamedTuple, Protocol

from attrs import evolve, frozen

from twinlog.cluster.pipeline.audit.classify import classify, tails
from twinlog.cluster.pipeline.audit.compare import (
    BlockRow,
    ByteRange,
    LogBounds,
    differing_blocks,
    ranges,
    tail_findings,
    unreadable,
)
from twinlog.cluster.pipeline.audit.copies import StoreCopy
from twinlog.cluster.pipeline.audit.findings import AuditFinding
from twinlog.cluster.pipeline.audit.side_tables import check_range, check_tables
from twinlog.cluster.pipeline.sources.files import StoreFiles
from twinlog.cluster.pipeline.sources.log_bytes import Split
from twinlog.cluster.pipeline.sources.places import UnreadableError, open_file
from twinlog.store.errors import StoreError
from twinlog.store.integrity.digest import BLOCK_SIZE
from twinlog.store.offline.verify.log_check import CheckedPart
from twinlog.store.offline.verify.verify import VerifyReport

_ROW = Struct("<qq16s")


@frozen
class MemberSplit:
    """A split of one member's log. `member`: its number."""

    member: int
    split: Split


class SplitDigests(NamedTuple):
    """Digests of a split, compact for sending: of each block i64 start, i64 end and 16 bytes of digest."""

    member: int
    start: int
    packed: bytes
    unreadable: tuple[tuple[int, int, str], ...]  # Byte range and reason.

    def rows(self) -> list[BlockRow]:
        """Decode the rows."""
        return [BlockRow(*row) for row in _ROW.iter_unpack(self.packed)]


class Differing(NamedTuple):
    """A range in which logs differ, and the numbers of the members to compare there."""

    range: ByteRange
    members: tuple[int, ...]


class SplitCompared(NamedTuple):
    """Comparison of the split at `start`. Sizes in bytes by member: `compared` with another one, or only `read`."""

    start: int
    members: tuple[int, ...]
    blocks: int
    differing: tuple[ByteRange, ...]
    compared: Mapping[str, int]
    read: Mapping[str, int]
    unreadable: tuple[AuditFinding, ...]


def digests_of(files: StoreFiles, part: MemberSplit) -> SplitDigests:
    """Read a split of a log, a window at a time."""
    from twinlog.cluster.pipeline.tables.scan import block_batches

    rows, gaps = [], []
    done = part.split.start
    try:
        for batch in block_batches(files, part.split, count_records=False):
            columns = (batch.column(name).to_pylist() for name in ("start", "end", "digest"))
            for start, end, digest in zip(*columns, strict=True):
                done = end
                if digest is None:
                    gaps.append((start, end, _why_unreadable(files, start)))
                else:
                    rows.append(_ROW.pack(start, end, digest))
    except UnreadableError as error:
        gaps.append((done, part.split.end, str(error)))
    return SplitDigests(part.member, part.split.start, b"".join(rows), tuple(_joined(gaps)))


def _why_unreadable(files: StoreFiles, offset: int) -> str:
    """Error of the system when reading a byte of the log."""
    for file in files.log:
        if file.start <= offset < file.start + file.size:
            try:
                with closing(open_file(file.uri)) as opened:
                    opened.read(offset - file.start, BLOCK_SIZE)
            except UnreadableError as error:
                return error.why
    return "it could not be read"


def _joined(spans: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Merge neighbours."""
    found: list[tuple[int, int, str]] = []
    for start, end, why in spans:
        if found and found[-1][1:] == (start, why):
            found[-1] = found[-1][0], end, why
        else:
            found.append((start, end, why))
    return found


def compared(sides: Mapping[int, LogBounds], split: Split, found: Iterable[SplitDigests]) -> SplitCompared:
    """Compare the digests of a split; `sides` by number of member. Members without digests take no part."""
    by_member = {each.member: each for each in found}
    rows = {number: each.rows() for number, each in by_member.items()}
    differing: list[ByteRange] = []
    for part, members in _segments(split, by_member.values()):
        inside = [(number, clipped(sides[number], part)) for number in members]
        inside = [(number, side) for number, side in inside if side.first < side.last]
        if len(inside) > 1:
            blocks = {
                side.name: [row for row in rows[number] if part.start <= row.start < part.end]
                for number, side in inside
            }
            differing += differing_blocks([side for _, side in inside], blocks)
    sizes = {sides[number].name: sum(row.end - row.start for row in each) for number, each in rows.items()}
    return SplitCompared(
        start=split.start,
        members=tuple(sorted(by_member)),
        blocks=max(map(len, rows.values()), default=0) if len(rows) > 1 else 0,
        differing=tuple(ranges(differing)),
        compared=sizes if len(rows) > 1 else {},
        read=sizes,
        unreadable=tuple(
            unreadable(sides[number], *span) for number, each in sorted(by_member.items()) for span in each.unreadable
        ),
    )


def _segments(split: Split, found: Collection[SplitDigests]) -> Iterator[tuple[Split, list[int]]]:
    """Parts of a split, and the members that are readable in all of each."""
    places = {place for each in found for start, end, _ in each.unreadable for place in (start, end)}
    bounds = sorted({split.start, split.end, *(place for place in places if split.start < place < split.end)})
    for low, high in pairwise(bounds):
        bad = {each.member for each in found for start, end, _ in each.unreadable if start < high and low < end}
        yield Split(low, high), sorted(each.member for each in found if each.member not in bad)


def clipped(side: LogBounds, split: Split) -> LogBounds:
    """The part of a log inside a split; may be empty."""
    first = max(side.first, split.start)
    return evolve(side, first=first, last=max(first, min(side.last, split.end)))


def different_blocks(parts: Iterable[ByteRange]) -> int:
    """Number of blocks that the ranges touch."""
    return sum(-(-part.end // BLOCK_SIZE) - part.start // BLOCK_SIZE for part in parts)


class SentStores(Protocol):
    """A broadcast value."""

    @property
    def value(self) -> dict[int, StoreFiles]:
        """Stores by number of member."""


def digest_parts(sent: SentStores, done: Callable[[int], None], parts: Iterable[MemberSplit]) -> Iterator[SplitDigests]:
    """Digests of several splits; `done` counts bytes."""
    for part in parts:
        yield digests_of(sent.value[part.member], part)
        done(part.split.size)


def keyed(size: int, found: SplitDigests) -> tuple[int, SplitDigests]:
    """The digests, keyed by the number of their split."""
    return found.start // size, found


def compare_split(
    sides: Mapping[int, LogBounds], size: int, found: tuple[int, Iterable[SplitDigests]]
) -> SplitCompared:
    """Compare the digests of one split of all logs."""
    number, digests = found
    return compared(sides, Split(number * size, (number + 1) * size), digests)


def compare_part(
    sent: SentStores, done: Callable[[int], None], sides: Mapping[int, LogBounds], part: Differing
) -> list[AuditFinding]:
    """Compare logs record by record in a range where they differ."""
    with _copies(sent.value, sides, part.members) as copies:
        found = classify([copy for copy in copies if copy.side.has(*part.range)], *part.range)
    done(len(part.members) * (part.range.end - part.range.start))
    return found


def find_ends(sent: SentStores, sides: Mapping[int, LogBounds], members: Sequence[int]) -> list[AuditFinding]:
    """Members that are behind, and members that lost their end."""
    try:
        with _copies(sent.value, sides, members) as copies:
            return tails(copies) if len(copies) > 1 else []
    except UnreadableError as error:
        shortest = min((sides[number] for number in members), key=lambda side: side.last)
        found = tail_findings([sides[number] for number in members])
        return [*found, unreadable(shortest, shortest.last, shortest.last, str(error))]


@contextmanager
def _copies(
    stores: Mapping[int, StoreFiles], sides: Mapping[int, LogBounds], members: Sequence[int]
) -> Iterator[list[StoreCopy]]:
    with ExitStack() as opened:
        yield [opened.enter_context(closing(StoreCopy(sides[number], stores[number]))) for number in members]


# Where a file of a log begins, and the result of its check; a text: why it could not be read.
Checked = tuple[int, CheckedPart | str]


def check_file(sent: SentStores, done: Callable[[int], None], part: MemberSplit) -> tuple[int, Checked]:
    """Check the records of one file of a log, and their entries in queues and index; keyed by member."""
    try:
        return part.member, (part.split.start, check_range(sent.value[part.member], part.split, done))
    except (OSError, StoreError) as error:
        return part.member, (part.split.start, str(error))


def check_member(sent: SentStores, found: tuple[int, Iterable[Checked]]) -> tuple[int, VerifyReport | str]:
    """Check all that lies beside a member's log, after its files were checked; a text: why it was not checked."""
    member, checked = found[0], [part for _, part in sorted(found[1], key=itemgetter(0))]
    parts = [part for part in checked if not isinstance(part, str)]
    if len(parts) < len(checked):
        return member, next(part for part in checked if isinstance(part, str))
    try:
        return member, check_tables(sent.value[member], parts)
    except (OSError, StoreError) as error:
        return member, str(error)
