"""Walks the records that begin in a split, a window at a time: stretches of sound records and what lies between them.

Every byte from the first record that begins in the split to the end of the last one, or of the split, belongs to one of these.
store/record/column_scan.py decides what a record is.

A split may begin at any byte. To find its first record, the records before it are walked from the start of the file or, where
that is far away, from the first sound record within a bounded distance. That record might be part of another one's body, made so
that it names its own offset. Then other records begin before the split that the walk did not meet, and the file is walked from
its start.
"""

from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import numpy as np
from attrs import define, field, frozen

from twinlog.cluster.pipeline.sources.log_bytes import RECORD_MAX, LogBytes, Split
from twinlog.cluster.pipeline.sources.places import UnreadableError
from twinlog.store.record.column_scan import scan_columns
from twinlog.store.record.columns import Columns
from twinlog.store.record.heads import HEAD_SIZE, read_heads
from twinlog.store.record.resync import begins_with_record, candidates, next_record
from twinlog.store.record.walk import FILE_ENDS, WINDOW, Gap, walk

LOOK_BACK = 8 << 20  # Twice the largest record, unless maxMessageSize is raised.
_MAGIC_PREFIX = b"\xda\xa3\x20"


def first_record(
    source: LogBytes, offset: int, first: int, end: int, look_back: int = LOOK_BACK
) -> tuple[int, str | None]:
    """Offset of the first record from `offset` on, by the records before it; `offset` and a reason if they do not show it.

    The log has bytes `first` to `end`. The result may lie behind a blank, at the start of a file, and behind the end of the log.
    """
    anchor = max(first, offset - offset % source.file_size)
    if offset <= anchor or offset >= end:
        return offset, None
    if offset - anchor <= look_back:
        return _walk(source, anchor, offset, end, set())
    low, file_end = offset - look_back, min(end, source.file_end(offset))
    found = next_record(source.read_patiently, low, file_end, source.file_size, heads_end=offset)
    if found is None or found >= offset:
        return offset, "no sound record lies before it"
    met: set[int] = set()
    place = _walk(source, found, offset, end, met)
    return place if _are_all(source, met, found, offset) else _walk(source, anchor, offset, end, set())


def _walk(source: LogBytes, at: int, offset: int, end: int, met: set[int]) -> tuple[int, str | None]:
    """Walk from a record's start `at` to the first record from `offset` on; adds the starts of those before it to `met`."""
    file_end = min(end, source.file_end(at))
    while at < offset:
        wanted = min(WINDOW, offset - at) + HEAD_SIZE
        data = source.read_patiently(at, wanted)
        heads = read_heads(memoryview(data), at, source.file_size)
        starts = (heads.starts + at).tolist()
        met.update(start for start in starts if start < offset)
        if starts and starts[-1] >= offset:
            return starts[-1], None
        problem, behind = heads.problem, at + heads.end
        if problem is None and behind < offset and len(data) < wanted:
            problem = FILE_ENDS
        crosses = behind > offset and heads.blank is None
        is_in_doubt = len(starts) > 0 and (crosses or problem is not None)
        if is_in_doubt and not begins_with_record(source.read_patiently, starts[-1], source.file_size):
            problem, behind = "it lies in a record that is not sound", starts[-1]  # Its size may be damaged.
        if problem is not None and behind < offset:
            found = next_record(source.read_patiently, behind + 1, file_end, source.file_size, heads_end=offset)
            if found is None or found >= offset:  # The caller searches behind it.
                return offset, problem
            behind = found
        at = behind
    return at, None


def _are_all(source: LogBytes, met: set[int], start: int, end: int) -> bool:
    """True if no records seem to begin between two offsets of a file except those in `met`."""
    data = source.read_patiently(start, end - start + HEAD_SIZE)
    if data.count(_MAGIC_PREFIX, 0, end - start + 7) <= len(met):
        return True
    found = (start + position for position, _ in candidates(data, start, source.file_size))
    return all(at in met for at in found if at < end)


_SEARCH_WINDOW = 1 << 20
_MORE = 64 << 10  # Bytes behind the end of a split, for its last record.


class BrokenKind(StrEnum):
    """Reason that bytes are no record."""

    DAMAGED = "damaged"
    UNREADABLE = "unreadable"  # They cannot be read; their state is unknown.
    MISSING = "missing"  # Their file is missing or too short.


@frozen
class Broken:
    """Bytes `start` to `end` of the log are no sound record. If a split ends within them, the next split has the rest."""

    start: int
    end: int
    reason: str
    kind: BrokenKind = BrokenKind.DAMAGED


class Stretch(NamedTuple):
    """Sound records in `data`, whose first byte is at `offset` of the log. Valid until the next one is requested.

    `columns` have neither tags codes nor keys.
    """

    offset: int
    data: memoryview
    columns: Columns


@define(eq=False)
class _SplitSource:
    """The log as a ByteSource of store/record/walk.py: its readable bytes, in a buffer that is used again."""

    source: LogBytes
    refusal: UnreadableError | None = None  # Error that ended the last read().
    _buffer: bytearray = field(factory=bytearray, init=False)

    @property
    def file_size(self) -> int:
        return self.source.file_size

    def read(self, offset: int, size: int) -> memoryview:
        try:
            self.refusal = None
            return self._fill(offset, size)
        except UnreadableError:
            readable, self.refusal = self.source.readable_end(offset, offset + size)
            return self._fill(offset, readable - offset)

    def _fill(self, offset: int, size: int) -> memoryview:
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)[:size]
        return view[: self.source.read_into(offset, view)] if size else view

    def next_record(self, start: int, end: int, heads_end: int) -> int | None:
        return next_record(
            self.source.read_patiently, start, end, self.file_size, heads_end=heads_end, window=_SEARCH_WINDOW
        )


def walk_split(
    source: LogBytes, split: Split, first: int, end: int, *, window: int = WINDOW, look_back: int = LOOK_BACK
) -> Iterator[Stretch | Broken]:
    """Everything that begins in a split of a log with bytes `first` to `end`, in order.

    `window` bounds the memory, except for larger records.
    """
    at, stop = max(split.start, first), min(split.end, end)
    if at >= stop:
        return
    readable = _SplitSource(source)
    begin, reason = first_record(source, at, first, end, look_back)
    if reason is not None:
        file_end = min(end, source.file_end(at))
        found = readable.next_record(at, file_end, stop)
        begin = min(stop, file_end if found is None else found)
        if begin > at:
            yield _broken(source, Gap(at, begin, reason), None)
    scan = partial(scan_columns, file_size=source.file_size, check_crc=True, hashes=False)
    for piece in walk(readable, begin, end, scan, stop=stop, ahead=_MORE, window=window, record_max=RECORD_MAX):
        if isinstance(piece, Gap):
            yield _broken(source, piece, readable.refusal)
        elif piece.scan is not None:
            assert isinstance(piece.data, memoryview)
            yield Stretch(piece.start, piece.data, _up_to(piece.scan.entries, stop))


def _broken(source: LogBytes, gap: Gap, refusal: UnreadableError | None) -> Broken:
    """Determine the kind of a gap. `refusal`: the error that ended the read before it."""
    if gap.is_short and refusal is not None:
        return Broken(gap.start, gap.end, str(refusal), BrokenKind.UNREADABLE)
    try:
        is_there = bool(source.read(gap.start, 1) and source.read(gap.end - 1, 1))
    except UnreadableError as error:
        return Broken(gap.start, gap.end, str(error), BrokenKind.UNREADABLE)
    if is_there and not gap.is_short:
        return Broken(gap.start, gap.end, gap.reason)
    reason = FILE_ENDS if source.has_file(gap.start) else "the file is missing"
    return Broken(gap.start, gap.end, reason, BrokenKind.MISSING)


def _up_to(columns: Columns, stop: int) -> Columns:
    """Records that begin before `stop`."""
    count = int(np.searchsorted(columns.phy_offset, stop))
    return columns if count == len(columns) else columns.part(np.arange(len(columns)) < count)
