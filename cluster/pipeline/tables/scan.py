"""Arrow batches of a split of a log: its records, or the digests of its blocks. Memory is bounded by the window.

The same split of the same bytes always gives the same batches. store/record/column_scan.py decides what a record is, including
the CRC of its body. For digests records are counted by their heads alone; bodies and other fields are not read.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from attrs import define, field, frozen

from twinlog.cluster.pipeline.sources.files import StoreFiles
from twinlog.cluster.pipeline.sources.log_bytes import Hole, LogBytes, Split
from twinlog.cluster.pipeline.sources.walk import Broken, first_record, walk_split
from twinlog.cluster.pipeline.tables.records import record_batch
from twinlog.cluster.pipeline.tables.schemas import BLOCK_COLUMNS
from twinlog.store.integrity.digest import BLOCK_SIZE, DIGEST_SIZE, ceil_block, digest, floor_block
from twinlog.store.record.column_scan import Bools
from twinlog.store.record.columns import Columns, Ints
from twinlog.store.record.heads import HEAD_SIZE, read_heads
from twinlog.store.record.resync import next_record

WINDOW, WINDOW_OF_ARCHIVES = 1 << 20, 4 << 20  # Small windows are fastest in memory, larger ones for object storage.
_ROWS_MAX = 16_384
_NONE: Ints = np.zeros(0, np.int64)


def block_batches(
    files: StoreFiles, split: Split, *, window: int | None = None, count_records: bool = True
) -> Iterator[pa.RecordBatch]:
    """The blocks that begin in a split, as schemas.BLOCK_COLUMNS. The first and the last block of the log may be partial.

    An unreadable block has no digest; a block with missing bytes, because its file is missing or short, is omitted.
    `count_records` False: only digests, in half the time; the columns of records are empty.
    """
    batches = (rows.batch() for rows in _blocks(files, split, window, count_records=count_records))
    return (batch for batch in batches if len(batch))


class BlockDigests(NamedTuple):
    """Blocks from `starts` to `ends` and their digests; None: unreadable."""

    starts: Ints
    ends: Ints
    digests: list[bytes | None]


def block_digests(files: StoreFiles, split: Split) -> Iterator[BlockDigests]:
    """As block_batches(), without records: some blocks at a time."""
    found = (rows.digests() for rows in _blocks(files, split, None, count_records=False))
    return (each for each in found if len(each.starts))


def _blocks(files: StoreFiles, split: Split, window: int | None, *, count_records: bool) -> "Iterator[_Rows]":
    start, end = _bounds(files, split)
    if start >= end:
        return
    window = window or (WINDOW if files.uri.is_local else WINDOW_OF_ARCHIVES)
    with closing(LogBytes(files.log, files.file_size)) as source:
        heads = None
        if count_records:
            heads = _HeadCount(source, files.end, *first_record(source, start, files.first, files.end))
        buffer = memoryview(bytearray(max(window // BLOCK_SIZE, 1) * BLOCK_SIZE))
        rows = _Rows(start)
        for low in range(floor_block(start), end, len(buffer)):
            begin, high = max(low, start), min(low + len(buffer), end)
            view = buffer[: high - begin]
            holes = source.fill(begin, view)
            rows.add(view, heads.starts_in(begin, view) if heads is not None else _NONE, holes)
            if rows.count >= _ROWS_MAX:
                yield rows
                rows = _Rows(high)
        if rows.count:
            yield rows


def _bounds(files: StoreFiles, split: Split) -> tuple[int, int]:
    """Bytes of the blocks whose first byte lies in the split."""
    start, end = max(split.start, files.first), min(split.end, files.end)
    start = start if start == files.first else ceil_block(start)
    return start, min(ceil_block(end), files.end)


@define(eq=False)
class _HeadCount:
    """Finds the starts of records, window after window."""

    source: LogBytes
    end: int
    at: int  # Offset where the next record should begin.
    problem: str | None

    def starts_in(self, offset: int, data: memoryview) -> Ints:
        """Offsets of the records that begin in a window."""
        found: list[Ints] = []
        stop = offset + len(data)
        while self.at < stop:
            if self.problem is not None:
                self._resync(stop)
                continue
            if self.at < offset or (self.at + HEAD_SIZE > stop and stop < self.end):  # Its head spans two windows.
                piece = memoryview(self.source.read_patiently(self.at, HEAD_SIZE))
                heads = read_heads(piece, self.at, self.source.file_size)
            else:
                heads = read_heads(data[self.at - offset :], self.at, self.source.file_size)
            found.append(heads.starts + self.at)
            is_stuck = heads.end == 0 and heads.problem is None
            self.at += heads.end
            self.problem = "less than a head is left" if is_stuck else heads.problem
        return np.concatenate(found) if found else _NONE

    def _resync(self, stop: int) -> None:
        """Continue with the next sound record, at most up to `stop`."""
        end = min(self.end, self.source.file_end(self.at))
        found = next_record(
            self.source.read_patiently, self.at, end, self.source.file_size, heads_end=stop, window=WINDOW
        )
        self.at = min(stop, end) if found is None else found
        if found is not None or self.at == end:
            self.problem = None


@define(eq=False)
class _Rows:
    """Collects windows, each of which follows the one before, until their blocks fill a batch."""

    start: int  # Of the first block.
    _end: int = field(init=False)
    _digests: list[bytes] = field(factory=list, init=False)
    _records: list[Ints] = field(factory=list, init=False)
    _holes: list[Hole] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._end = self.start

    @property
    def count(self) -> int:
        """Number of blocks."""
        return len(self._digests)

    def add(self, data: memoryview, records: Ints, holes: list[Hole]) -> None:
        """Add the blocks of the next window. `records`: starts of those in it; `holes`: bytes in it that are not there."""
        at = self._end
        first = floor_block(at) + BLOCK_SIZE - at  # Size of the first block.
        self._digests.append(digest(data[:first]))
        self._digests += [digest(data[low : low + BLOCK_SIZE]) for low in range(first, len(data), BLOCK_SIZE)]
        self._records.append(records)
        self._holes += holes
        self._end = at + len(data)

    def digests(self) -> BlockDigests:
        """All blocks."""
        starts, ends, kept, digests = self._blocks()
        return BlockDigests(starts[kept], ends[kept], [digests[at] for at in np.flatnonzero(kept).tolist()])

    def batch(self) -> pa.RecordBatch:
        """All rows."""
        starts, ends, kept, digests = self._blocks()
        records = np.concatenate(self._records)
        at = np.searchsorted(records, starts)
        counts = np.searchsorted(records, ends) - at
        firsts = np.where(counts > 0, np.append(records, -1)[at], -1)
        columns = [
            pa.array(starts),
            pa.array(ends),
            pa.array(digests, pa.binary(DIGEST_SIZE)),
            pa.array(counts.astype(np.int32)),
            pa.array(firsts),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=BLOCK_COLUMNS)
        return batch if kept.all() else batch.filter(pa.array(kept))

    def _blocks(self) -> "tuple[Ints, Ints, Bools, list[bytes | None]]":
        """Starts, ends, which of them are there, and digests, none of what cannot be read."""
        starts = np.arange(floor_block(self.start), self._end, BLOCK_SIZE)
        ends = np.minimum(starts + BLOCK_SIZE, self._end)
        starts[0] = self.start
        digests: list[bytes | None] = list(self._digests)
        kept = np.ones(len(starts), np.bool_)
        for hole in self._holes:
            touched = (starts < hole.end) & (ends > hole.start)
            kept &= ~touched | (hole.refusal is not None)
            for number in np.flatnonzero(touched).tolist():
                digests[number] = None
        return starts, ends, kept, digests


ROWS_MAX = 8192


@frozen
class RecordFilter:
    """Filter of records. Log offsets, and store times in ms: `start` and `begin_ms` inclusive, the ends exclusive."""

    topics: frozenset[str] | None = None
    start: int = 0
    end: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None

    def narrowed(self, split: Split) -> Split:
        """The part of a split that can have matching records."""
        end = split.end if self.end is None else min(split.end, self.end)
        return Split(min(max(split.start, self.start), end), end)

    def chosen(self, records: Columns) -> Bools:
        """Mask of the records that match; their offsets are in range."""
        stored, chosen = records.store_timestamp, np.ones(len(records), np.bool_)
        if self.topics is not None:
            chosen &= np.array([topic in self.topics for topic in records.topics], np.bool_)[records.topic]
        if self.begin_ms is not None:
            chosen &= stored >= self.begin_ms
        if self.end_ms is not None:
            chosen &= stored < self.end_ms
        return chosen


ALL = RecordFilter()


def record_batches(
    files: StoreFiles,
    split: Split,
    *,
    where: RecordFilter = ALL,
    body: bool = False,
    rows_max: int = ROWS_MAX,
    on_broken: Callable[[Broken], object] = lambda _: None,
) -> Iterator[pa.RecordBatch]:
    """The records that begin in a split, in order, as schemas.RECORD_COLUMNS; nothing but the selected ones is decoded.

    `on_broken` gets damaged and unreadable bytes, those before a batch before it is yielded; the scan continues behind them.
    Nothing is read beyond `files.end`.
    """
    with closing(LogBytes(files.log, files.file_size)) as source:
        for piece in walk_split(source, where.narrowed(split), files.first, files.end):
            if isinstance(piece, Broken):
                on_broken(piece)
                continue
            chosen = where.chosen(piece.columns)
            records = piece.columns if chosen.all() else piece.columns.part(chosen)
            for low in range(0, len(records), rows_max):
                part = _rows(records, low, low + rows_max)
                yield record_batch(piece.data, piece.offset, part, files.file_size, body=body)


def _rows(records: Columns, low: int, high: int) -> Columns:
    if low == 0 and high >= len(records):
        return records
    numbers = np.arange(len(records))
    return records.part((numbers >= low) & (numbers < high))
