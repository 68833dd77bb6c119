"""Tasks of an audit, wherever they run: digests of a part of a log, a comparison by records, a check of a member's own files.

No Spark: a task is a function of its arguments. Where bytes cannot be read, the answer says so, and the rest is audited. The
digests of one split of all logs meet in one task, which compares them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from operator import itemgetter
from struct import Struct
from typing import Any, NamedTuple, Protocol

import numpy as np
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

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
from twinlog.cluster.pipeline.audit.parts import LogPart
from twinlog.cluster.pipeline.audit.side_tables import check_range, check_ranges, check_tables, own_digests
from twinlog.cluster.pipeline.sources.files import StoreFiles
from twinlog.cluster.pipeline.sources.log_bytes import Split
from twinlog.cluster.pipeline.sources.places import UnreadableError, open_file
from twinlog.store.errors import StoreError
from twinlog.store.integrity.digest import BLOCK_SIZE, DigestBlock, LogDigests
from twinlog.store.offline.verify.digest_check import NOTHING_COMPARED, ComparedDigests
from twinlog.store.offline.verify.log_check import CheckedPart
from twinlog.store.offline.verify.verify import VerifyReport

_ROW = Struct("<qq16s")
_ROWS = np.dtype([("start", "<i8"), ("end", "<i8"), ("digest", "V16")])
assert _ROWS.itemsize == _ROW.size


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
    own: ComparedDigests = NOTHING_COMPARED  # The same blocks, compared with the member's own digests.

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
    own: Mapping[int, ComparedDigests] = {}  # By member.


def digests_of(files: StoreFiles, part: MemberSplit, *, with_own: bool = False) -> SplitDigests:
    """Read a split of a log, a window at a time. `with_own`: compare the blocks with the digests that the member keeps, too."""
    from twinlog.cluster.pipeline.tables.scan import block_digests

    packed, gaps, compared = [], [], _OwnDigests(files if with_own else None)
    done = part.split.start
    try:
        for starts, ends, digests in block_digests(files, part.split):
            done = int(ends[-1])
            are_read = np.array([digest is not None for digest in digests])
            for at in np.flatnonzero(~are_read).tolist():
                gaps.append((int(starts[at]), int(ends[at]), _why_unreadable(files, int(starts[at]))))
            rows = np.empty(int(are_read.sum()), _ROWS)
            rows["start"], rows["end"] = starts[are_read], ends[are_read]
            rows["digest"] = np.frombuffer(b"".join(digest for digest in digests if digest is not None), "V16")
            packed.append(rows.tobytes())
            compared.add(rows)
    except UnreadableError as error:
        gaps.append((done, part.split.end, str(error)))
    return SplitDigests(part.member, part.split.start, b"".join(packed), tuple(_joined(gaps)), compared.result())


@define(eq=False)
class _OwnDigests:
    """Compares blocks with the digests that a twinlog member keeps of its log. `files` None: does nothing."""

    files: StoreFiles | None
    digests: LogDigests | None = field(init=False)
    _ranges: list[tuple[int, int]] = field(factory=list, init=False)
    _differing: list[DigestBlock] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.digests = own_digests(self.files) if self.files is not None else None

    def add(self, rows: NDArray[Any]) -> None:
        """Compare some blocks, in order; one with other bounds than a digest's is left out."""
        if self.digests is None or not len(rows):
            return
        start, end = int(rows["start"][0]), int(rows["end"][-1])
        if self._is_same(start, end, rows):
            self._add_range(start, end)
            return
        kept = {(block.start, block.end): block for block in self.digests.blocks(start, end)}
        for low, high, found in zip(rows["start"].tolist(), rows["end"].tolist(), rows["digest"].tolist(), strict=True):
            block = kept.get((low, high))
            if block is None:
                continue
            if block.digest != found:
                self._differing.append(block)
            self._add_range(low, high)

    def _is_same(self, start: int, end: int, rows: NDArray[Any]) -> bool:
        """True if these are all blocks of a range, whole ones, and all their digests are those that are kept."""
        digests = self.digests
        if digests is None or start % BLOCK_SIZE or end % BLOCK_SIZE or not digests.start <= start < end <= digests.end:
            return False
        is_whole = len(rows) * BLOCK_SIZE == end - start
        return is_whole and digests.entries_of(start, end) == rows["digest"].tobytes()

    def _add_range(self, low: int, high: int) -> None:
        if self._ranges and self._ranges[-1][1] == low:
            self._ranges[-1] = self._ranges[-1][0], high
        else:
            self._ranges.append((low, high))

    def result(self) -> ComparedDigests:
        """Ranges compared, and those that differ."""
        return ComparedDigests(tuple(self._ranges), tuple(self._differing))


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
    own = {number: each.own for number, each in sorted(by_member.items()) if each.own.ranges}
    if (alike := _alike(sides, split, by_member)) is not None:
        return alike._replace(own=own)
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
        own=own,
    )


def _alike(sides: Mapping[int, LogBounds], split: Split, found: Mapping[int, SplitDigests]) -> SplitCompared | None:
    """The comparison of members that have all the same blocks with the same digests, as nearly always; else None."""
    packed = {each.packed for each in found.values()}
    bounds = {(side.first, side.last) for side in (clipped(sides[number], split) for number in found)}
    if len(found) < 2 or len(packed) > 1 or len(bounds) > 1 or any(each.unreadable for each in found.values()):
        return None
    rows, (first, last) = np.frombuffer(packed.pop(), _ROWS), bounds.pop()
    is_whole = len(rows) > 0 and rows["start"][0] == first and (rows["end"][:-1] == rows["start"][1:]).all()
    if not is_whole or rows["end"][-1] != last or split.start % BLOCK_SIZE or split.end % BLOCK_SIZE:
        return None
    sizes = {sides[number].name: last - first for number in found}
    return SplitCompared(split.start, tuple(sorted(found)), len(rows), (), sizes, sizes, ())


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


def digest_parts(
    sent: SentStores, done: Callable[[int], None], parts: Iterable[MemberSplit], *, with_own: bool = False
) -> Iterator[SplitDigests]:
    """Digests of several splits; `done` counts bytes. `with_own`: as for digests_of()."""
    for part in parts:
        yield digests_of(sent.value[part.member], part, with_own=with_own)
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


def check_split(sent: SentStores, done: Callable[[int], None], part: LogPart) -> list[tuple[int, Checked]]:
    """Check the records of a part of a log, and the entries in queues and index of each of its members; keyed by member."""
    stores = [sent.value[member] for member in part.members]
    if len(stores) > 1:
        try:
            checked = check_ranges(stores, part.split, part.known, done)
        except (OSError, StoreError):
            pass  # Of one of them; the check of each alone tells whose.
        else:
            return [(member, (part.split.start, each)) for member, each in zip(part.members, checked, strict=True)]
    return [
        (member, (part.split.start, _check_alone(files, part.split, done, known)))
        for member, files, known in zip(part.members, stores, part.known, strict=True)
    ]


def _check_alone(
    files: StoreFiles, split: Split, done: Callable[[int], None], known: ComparedDigests
) -> CheckedPart | str:
    try:
        return check_range(files, split, done, known)
    except (OSError, StoreError) as error:
        return str(error)


class MemberParts(NamedTuple):
    """The checked parts of one member's log."""

    member: int
    parts: Iterable[Checked]

    @classmethod
    def of(cls, found: tuple[int, Iterable[Checked]]) -> "MemberParts":
        """From a pair."""
        return cls(*found)

    @classmethod
    def grouped(cls, checked: Iterable[tuple[int, Checked]]) -> "list[MemberParts]":
        """Those of each member."""
        found: dict[int, list[Checked]] = {}
        for member, part in checked:
            found.setdefault(member, []).append(part)
        return [cls(member, parts) for member, parts in sorted(found.items())]


def check_member(sent: SentStores, found: MemberParts) -> tuple[int, VerifyReport | str]:
    """Check all that lies beside a member's log, after its parts were checked; a text: why it was not checked."""
    member, checked = found.member, [part for _, part in sorted(found.parts, key=itemgetter(0))]
    parts = [part for part in checked if not isinstance(part, str)]
    if len(parts) < len(checked):
        return member, next(part for part in checked if isinstance(part, str))
    try:
        return member, check_tables(sent.value[member], parts)
    except (OSError, StoreError) as error:
        return member, str(error)
