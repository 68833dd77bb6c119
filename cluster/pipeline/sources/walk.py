"""Walks the records that begin in a split, a window at a time: stretches of sound records and what lies between them.

Every byte from the first record that begins in the split to the end of the last one, or of the split, belongs to one of these.
store/record/column_scan.py decides what a record is.

A split may begin at any byte. To find its first record, the records before it are walked from the start of the file or, where
that is far away, from the first sound record within a bounded distance. That record might be part of another one's body, made so
that it names its own offset. Then other records begin before the split that the walk did not meet, and the file is walked from
its start.
"""

from collections.abc import Generator, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from attrs import define, evolve, field, frozen

from twinlog.cluster.pipeline.sources.heads import HEAD_SIZE, read_heads
from twinlog.cluster.pipeline.sources.log_bytes import RECORD_MAX, LogBytes, Split
from twinlog.cluster.pipeline.sources.places import UnreadableError
from twinlog.store.record.column_scan import ColumnScan, scan_columns
from twinlog.store.record.columns import Columns, KeyColumns
from twinlog.store.record.message import MAGIC_BLANK, SIZE_AND_MAGIC
from twinlog.store.record.resync import candidates, next_record
from twinlog.store.record.stale_records import begins_with_record

LOOK_BACK = 8 << 20  # No record is larger than half of it, unless maxMessageSize says so.
_WINDOW = 4 << 20
_MAGIC_PREFIX = b"\xda\xa3\x20"


def first_record(
    source: LogBytes, offset: int, first: int, end: int, look_back: int = LOOK_BACK
) -> tuple[int, str | None]:
    """Where the first record from `offset` on begins, as far as what lies before tells; `offset` and a reason if it does not.

    The log has bytes `first` to `end`. The place may be behind a blank, at the start of a file, and behind the end of the log.
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
    """From `at`, where a record should begin, to the first one from `offset` on; adds to `met` where those before it begin."""
    file_end = min(end, source.file_end(at))
    while at < offset:
        wanted = min(_WINDOW, offset - at) + HEAD_SIZE
        data = source.read_patiently(at, wanted)
        heads = read_heads(memoryview(data), at, source.file_size)
        starts = (heads.starts + at).tolist()
        met.update(start for start in starts if start < offset)
        if starts and starts[-1] >= offset:
            return starts[-1], None
        problem, behind = heads.problem, at + heads.end
        if problem is None and behind < offset and len(data) < wanted:
            problem = "the file ends here"
        crosses = behind > offset and not heads.is_blank
        if (
            starts
            and (crosses or problem)
            and not begins_with_record(source.read_patiently, starts[-1], source.file_size)
        ):
            problem, behind = "it lies in a record that is not sound", starts[-1]  # Its size may be wrong, too.
        if problem is not None and behind < offset:
            found = next_record(source.read_patiently, behind + 1, file_end, source.file_size, heads_end=offset)
            if found is None or found >= offset:  # What lies behind it is for the caller to look for.
                return offset, problem
            behind = found
        at = behind
    return at, None


def _are_all(source: LogBytes, met: set[int], start: int, end: int) -> bool:
    """Whether no other records seem to begin between two offsets of a file than those that were met."""
    data = source.read_patiently(start, end - start + HEAD_SIZE)
    if data.count(_MAGIC_PREFIX, 0, end - start + 7) <= len(met):
        return True
    found = (start + position for position, _ in candidates(data, 0, start, source.file_size))
    return all(at in met for at in found if at < end)


WINDOW = 4 << 20
_SEARCH_WINDOW = 1 << 20
_FILE_ENDS = "the file ends here"
_MORE = 64 << 10  # Behind the end of a split, for its last record.


_NO = np.zeros(0, np.int64)
_NOTHING = ColumnScan(0, Columns([], _NO, _NO, _NO, _NO, _NO, _NO, _NO, _NO, KeyColumns(_NO, _NO, _NO)))


class BrokenKind(StrEnum):
    """Why bytes are no record."""

    DAMAGED = "damaged"
    UNREADABLE = "unreadable"  # They cannot be read; nothing is known of them.
    MISSING = "missing"  # There is no file with them, or it is too short.


@frozen
class Broken:
    """Bytes `start` to `end` of the log are no sound record. Where a split ends in them, the next one has the rest."""

    start: int
    end: int
    reason: str
    kind: BrokenKind = BrokenKind.DAMAGED


class Stretch(NamedTuple):
    """Sound records that lie in `data`, whose first byte is at `offset` of the log. Valid until the next one is asked for.

    `columns` have neither tags codes nor keys.
    """

    offset: int
    data: memoryview
    columns: Columns


@define(eq=False)
class SplitWalk:
    """Walks one split of a log that has bytes `first` to `end`; `window` bounds the memory, but for larger records."""

    source: LogBytes
    first: int
    end: int
    window: int = WINDOW
    look_back: int = LOOK_BACK
    _buffer: bytearray = field(factory=bytearray, init=False)

    def run(self, split: Split) -> Iterator[Stretch | Broken]:
        """All that begins in the split, in order."""
        at, stop = max(split.start, self.first), min(split.end, self.end)
        if at >= stop:
            return
        begin, reason = first_record(self.source, at, self.first, self.end, self.look_back)
        if reason is not None:
            gap = self._gap(at, at, stop, reason)
            if gap.end > at:
                yield gap
            begin = gap.end
        at = begin
        while at < stop:
            at = yield from self._file(at, stop)

    def _file(self, at: int, stop: int) -> Generator[Stretch | Broken, None, int]:
        """What begins in one file, from `at`, where a record should begin, up to `stop`; where that ended."""
        file_end, needed = min(self.end, self.source.file_end(at)), 0
        while at < min(file_end, stop):
            size = min(max(self.window, needed), file_end - at, max(stop - at + _MORE, needed))
            try:
                view, refusal = self._read(at, size), None
            except UnreadableError:
                readable, refusal = self.source.readable_end(at, at + size)
                view = self._read(at, readable - at)
            scan = self._scan(view, at)
            done = at + scan.consumed
            if scan.consumed:
                yield Stretch(at, view, _up_to(scan.entries, stop))
            if scan.error is None and _is_blank(view, scan.consumed, self.source.file_end(at) - done):
                done = file_end
            elif scan.error is None and len(view) == size and at + size < file_end and scan.needed <= RECORD_MAX:
                needed = 0 if scan.consumed else max(2 * size, scan.needed)
            elif done < min(file_end, stop):
                gap = self._gap(done, done + 1, stop, scan.error or _unfinished(scan.needed))
                if scan.error is None and refusal is not None:
                    gap = evolve(gap, reason=str(refusal), kind=BrokenKind.UNREADABLE)
                elif scan.error is None and len(view) < size and gap.kind is BrokenKind.DAMAGED:
                    gap = evolve(gap, reason=_FILE_ENDS, kind=BrokenKind.MISSING)
                yield gap
                done, needed = gap.end, 0
            at = done
        return max(at, min(file_end, stop))

    def _read(self, offset: int, size: int) -> memoryview:
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)[:size]
        return view[: self.source.read_into(offset, view)] if size else view

    def _scan(self, view: memoryview, offset: int) -> ColumnScan:
        return scan_columns(view, offset, self.source.file_size, check_crc=True, hashes=False) if view else _NOTHING

    def _gap(self, start: int, search_from: int, stop: int, reason: str) -> Broken:
        """What lies between `start` and the next sound record, as far as it is of this file and split."""
        end = min(self.end, self.source.file_end(start))
        found = next_record(
            self.source.read_patiently, search_from, end, self.source.file_size, heads_end=stop, window=_SEARCH_WINDOW
        )
        gap = Broken(start, min(end, stop) if found is None else min(found, stop), reason)
        try:
            is_there = gap.end == start or bool(self.source.read(start, 1) and self.source.read(gap.end - 1, 1))
        except UnreadableError as refusal:
            return evolve(gap, reason=str(refusal), kind=BrokenKind.UNREADABLE)
        if is_there:
            return gap
        reason = _FILE_ENDS if self.source.has_file(start) else "the file is missing"
        return evolve(gap, reason=reason, kind=BrokenKind.MISSING)


def _unfinished(needed: int) -> str:
    return f"a record of {needed} bytes, more than {RECORD_MAX}" if needed > RECORD_MAX else "an unfinished record"


def _up_to(columns: Columns, stop: int) -> Columns:
    """The records that begin before `stop`."""
    count = int(np.searchsorted(columns.phy_offset, stop))
    return columns if count == len(columns) else columns.part(np.arange(len(columns)) < count)


def _is_blank(data: memoryview, at: int, room: int) -> bool:
    """Whether a blank is next, whose end is not in the data."""
    return len(data) - at >= SIZE_AND_MAGIC.size and SIZE_AND_MAGIC.unpack_from(data, at) == (room, MAGIC_BLANK)


def merged(pieces: Iterable[Broken]) -> list[Broken]:
    """What the splits of a log told, in the order of the log, with neighbours as one; the first one's reason stands."""
    found: list[Broken] = []
    for piece in sorted(pieces, key=lambda piece: piece.start):
        if found and found[-1].end == piece.start and found[-1].kind is piece.kind:
            found[-1] = evolve(found[-1], end=piece.end)
        else:
            found.append(piece)
    return found
