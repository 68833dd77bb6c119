"""Compares two logs byte by byte where both have bytes: replicas are equal there, or one is damaged.

Start and end may differ: retention follows each disk's own clock, and a slave may lag.
"""

from collections.abc import Iterator
from enum import StrEnum

from attrs import asdict, define, frozen

from twinlog.store.errors import MessageFormatError
from twinlog.store.integrity.digest import BLOCK_SIZE, LogDigests, ceil_block, floor_block
from twinlog.store.offline.dump import DumpedMessage, described
from twinlog.store.offline.file_series import FileSeries
from twinlog.store.offline.finding import doc
from twinlog.store.offline.queue_view import view_queue
from twinlog.store.offline.walk import Gap, find_log_end, walk
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.message import SIZE_AND_MAGIC, decode_message
from twinlog.store.util.progress import Progress, no_progress

Queues = dict[tuple[str, int], FileSeries]
_PIECE = 8 << 20
_QUEUE_PIECE = UNIT.size << 16


class DiffVerdict(StrEnum):
    """The result of a comparison."""

    EQUAL = "equal"  # Over all that both have.
    DIFFERENT = "different"
    NOTHING_IN_COMMON = "nothing-in-common"  # One ends before the other begins.


@frozen
class DiffSide:
    """One of the two logs. Offsets in bytes."""

    root: str
    min_offset: int
    end_offset: int
    last_stored_ms: int | None


@frozen
class DiffRecord:
    """One side at the first difference: a message, sound or not, or other bytes."""

    start_offset: int
    end_offset: int
    problem: str | None = doc("what is wrong with it, for example its CRC; null: it is sound")
    message: DumpedMessage | None = doc("null: its fields make no sense")


@frozen(kw_only=True)
class Difference:
    """The differing range. Bytes behind the first one may be equal again."""

    first_offset: int
    last_offset: int
    blocks: int = doc("of 64 KiB, that differ")
    left: DiffRecord
    right: DiffRecord
    fields: tuple[str, ...] = doc("of the two messages, which differ")


@frozen(kw_only=True)
class QueueDifference:
    """A queue whose entries differ, or that only one of the two has. Offsets count messages."""

    topic: str
    queue_id: int
    first_offset: int | None = doc("null: only one of the two has the queue")
    left: tuple[int, int, int] | None = doc("offset in the log, size, tags code")
    right: tuple[int, int, int] | None


@frozen(kw_only=True)
class DiffReport:
    """Two logs compared."""

    verdict: DiffVerdict
    left: DiffSide
    right: DiffSide
    common_start: int
    common_end: int
    read_bytes: int = doc("of each, that were compared")
    digest_bytes: int = doc("that were compared by their digests only")
    right_behind_bytes: int = doc("how much longer the left one is; negative: the right one is longer")
    difference: Difference | None
    queues: tuple[QueueDifference, ...] | None = doc("null: not compared")


@define(eq=False)
class ComparedLog:
    """One of the two, opened: `digests` only where they are to be trusted."""

    root: str
    log: FileSeries
    queues: Queues
    may_grow: bool = False
    after_crash: bool = False
    digests: LogDigests | None = None


def diff(
    left: ComparedLog, right: ComparedLog, *, with_queues: bool = False, progress: Progress = no_progress
) -> DiffReport:
    """Compare. Raises OSError."""
    sides = [_described(side) for side in (left, right)]
    start = max(side.min_offset for side in sides)
    end = max(start, min(side.end_offset for side in sides))
    compared = _LogComparison(left, right, start, end, progress)
    compared.run()
    queues = tuple(_compare_queues(left, right)) if with_queues else None
    difference = compared.difference()
    verdict = DiffVerdict.DIFFERENT if difference is not None or queues else DiffVerdict.EQUAL
    if start == end and any(side.end_offset > side.min_offset for side in sides):
        verdict = DiffVerdict.NOTHING_IN_COMMON
    return DiffReport(
        verdict=verdict,
        left=sides[0],
        right=sides[1],
        common_start=start,
        common_end=end,
        read_bytes=compared.read_bytes,
        digest_bytes=compared.digest_bytes,
        right_behind_bytes=sides[0].end_offset - sides[1].end_offset,
        difference=difference,
        queues=queues,
    )


def _described(side: ComparedLog) -> DiffSide:
    log = side.log
    views = (view_queue(series, log.min_offset) for series in side.queues.values())
    end = find_log_end(log, views, may_grow=side.may_grow, after_crash=side.after_crash)
    return DiffSide(side.root, log.min_offset, end.offset, end.last_stored_ms)


@define
class _LogComparison:
    """The bytes of a range that both have."""

    left: ComparedLog
    right: ComparedLog
    start: int
    end: int
    progress: Progress
    read_bytes: int = 0
    digest_bytes: int = 0
    first: int | None = None
    blocks: int = 0
    _last: tuple[int, bytes, bytes] | None = None  # The last differing block: its start, and both sides of it.

    def run(self) -> None:
        for start, end in self._ranges_to_read():
            while start < end:
                size = min(_PIECE - start % _PIECE, end - start)
                self._compare(start, size)
                start += size
                self.progress(start - self.start, self.end - self.start)

    def _ranges_to_read(self) -> Iterator[tuple[int, int]]:
        """The common range without blocks that have the same digest on both sides."""
        left, right = self.left.digests, self.right.digests
        at = self.start
        if left is not None and right is not None:
            low, high = ceil_block(at), floor_block(self.end)
            ours = {block.start: block for block in left.blocks(low, high) if block.end - block.start == BLOCK_SIZE}
            for theirs in right.blocks(low, high):
                if theirs == ours.get(theirs.start):
                    if at < theirs.start:
                        yield at, theirs.start
                    at = theirs.end
                    self.digest_bytes += BLOCK_SIZE
        if at < self.end:
            yield at, self.end

    def _compare(self, start: int, size: int) -> None:
        ours, theirs = (_read(side.log, start, size) for side in (self.left, self.right))
        self.read_bytes += size
        if ours == theirs:
            return
        for at in range(0, size, BLOCK_SIZE):
            a, b = ours[at : at + BLOCK_SIZE], theirs[at : at + BLOCK_SIZE]
            if a != b:
                self.blocks += 1
                self.first = start + at + _first_difference(a, b) if self.first is None else self.first
                self._last = start + at, a, b

    def difference(self) -> Difference | None:
        if self.first is None or self._last is None:
            return None
        at, ours, theirs = self._last
        left, right = (record_around(side.log, self.first) for side in (self.left, self.right))
        return Difference(
            first_offset=self.first,
            last_offset=at + len(ours) - 1 - _first_difference(ours[::-1], theirs[::-1]),
            blocks=self.blocks,
            left=left,
            right=right,
            fields=fields_that_differ(left.message, right.message),
        )


def _first_difference(a: bytes, b: bytes) -> int:
    """The first position where they differ; they do."""
    return next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)


def _read(log: FileSeries, offset: int, size: int) -> bytes:
    """These bytes; zeros where the log has none, because a file is missing or short. Raises OSError."""
    pieces = []
    while size:
        piece = log.read(offset, size) or bytes(min(size, log.file_size - offset % log.file_size))
        pieces.append(piece)
        offset += len(piece)
        size -= len(piece)
    return b"".join(pieces)


def record_around(log: FileSeries, offset: int) -> DiffRecord:
    """The record that a byte of the log belongs to. Raises OSError."""
    file_start = offset - offset % log.file_size
    for piece in walk(log, max(log.min_offset, file_start), file_start + log.file_size):
        if not piece.start <= offset < piece.end:
            continue
        if isinstance(piece, Gap):
            return DiffRecord(piece.start, piece.end, piece.reason, _message_at(log, piece.start))
        rest = piece.start
        for entry in piece.entries:
            rest = entry.phy_offset + entry.size
            if entry.phy_offset <= offset < rest:
                return DiffRecord(entry.phy_offset, rest, None, _message_at(log, entry.phy_offset))
        return DiffRecord(rest, piece.end, "the unused rest of a file", None)
    return DiffRecord(offset, offset, "the log has no byte here", None)


def _message_at(log: FileSeries, offset: int) -> DumpedMessage | None:
    """The message there, whatever its CRC says."""
    head = log.read(offset, SIZE_AND_MAGIC.size)
    size = SIZE_AND_MAGIC.unpack(head)[0] if len(head) == SIZE_AND_MAGIC.size else 0
    try:
        return described(decode_message(log.read(offset, max(0, size)), check_crc=False), with_body=True)
    except (MessageFormatError, ValueError):
        return None


def fields_that_differ(left: DumpedMessage | None, right: DumpedMessage | None) -> tuple[str, ...]:
    """The names of the fields in which two messages differ."""
    if left is None or right is None:
        return ()
    ours, theirs = asdict(left), asdict(right)
    return tuple(name for name in ours if ours[name] != theirs[name])


def _compare_queues(left: ComparedLog, right: ComparedLog) -> Iterator[QueueDifference]:
    """Compare the messages that both logs and both queues have; messages missing at one end are lag."""
    low = max(left.log.min_offset, right.log.min_offset)
    for key in sorted(left.queues.keys() | right.queues.keys()):
        if key not in left.queues or key not in right.queues:
            only = left.queues.get(key) or right.queues[key]
            if view_queue(only, low).messages:
                yield QueueDifference(topic=key[0], queue_id=key[1], first_offset=None, left=None, right=None)
            continue
        ours, theirs = left.queues[key], right.queues[key]
        views = view_queue(ours, low), view_queue(theirs, low)
        start, end = max(view.min_offset for view in views), min(view.max_offset for view in views)
        at = _first_unit_that_differs(ours, theirs, start * UNIT.size, end * UNIT.size)
        if at is not None:
            units = [UNIT.unpack(series.read_across(at, UNIT.size)) for series in (ours, theirs)]
            yield QueueDifference(
                topic=key[0], queue_id=key[1], first_offset=at // UNIT.size, left=units[0], right=units[1]
            )


def _first_unit_that_differs(ours: FileSeries, theirs: FileSeries, at: int, end: int) -> int | None:
    while at < end:
        size = min(_QUEUE_PIECE, end - at)
        a, b = ours.read_across(at, size), theirs.read_across(at, size)
        if a != b:
            return next(at + i for i in range(0, size, UNIT.size) if a[i : i + UNIT.size] != b[i : i + UNIT.size])
        at += size
    return None
