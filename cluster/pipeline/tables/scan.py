"""Reads a split of a log into Arrow batches: its records, or the digests of its blocks. Memory is bounded by the window.

The same split of the same bytes gives the same batches. What is a record is judged by store/record/column_scan.py, body
CRC included.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from attrs import frozen

from twinlog.cluster.pipeline.sources.files import StoreFiles
from twinlog.cluster.pipeline.sources.log_bytes import LogBytes
from twinlog.cluster.pipeline.sources.splits import Split
from twinlog.cluster.pipeline.sources.walk import Broken as Broken
from twinlog.cluster.pipeline.sources.walk import BrokenKind as BrokenKind
from twinlog.cluster.pipeline.sources.walk import SplitWalk
from twinlog.cluster.pipeline.sources.walk import merged as merged
from twinlog.cluster.pipeline.tables.blocks import block_batches as block_batches
from twinlog.cluster.pipeline.tables.records import record_batch
from twinlog.store.record.column_scan import Bools
from twinlog.store.record.columns import Columns
from twinlog.store.record.scan import DispatchEntry, scan_records

ROWS_MAX = 8192


@frozen
class RecordFilter:
    """Which records are wanted. Offsets of the log and store times, ms: `start` and `begin_ms` included, the ends not."""

    topics: frozenset[str] | None = None
    start: int = 0
    end: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None

    def narrowed(self, split: Split) -> Split:
        """What of a split can have such records."""
        end = split.end if self.end is None else min(split.end, self.end)
        return Split(min(max(split.start, self.start), end), end)

    def chosen(self, records: Columns) -> Bools:
        """Which of these records are wanted, whose offsets are."""
        stored, chosen = records.store_timestamp, np.ones(len(records), np.bool_)
        if self.topics is not None:
            chosen &= np.array([topic in self.topics for topic in records.topics], np.bool_)[records.topic]
        if self.begin_ms is not None:
            chosen &= stored >= self.begin_ms
        if self.end_ms is not None:
            chosen &= stored < self.end_ms
        return chosen


ALL = RecordFilter()


def _ignore(_: Broken) -> None:
    pass


def record_batches(
    files: StoreFiles,
    split: Split,
    *,
    where: RecordFilter = ALL,
    body: bool = False,
    rows_max: int = ROWS_MAX,
    on_broken: Callable[[Broken], None] = _ignore,
) -> Iterator[pa.RecordBatch]:
    """The records that begin in a split, in its order, as columns.RECORDS; nothing else is decoded than what is wanted.

    Bytes that are no record, or cannot be read, are told to `on_broken`, those before a batch before it is yielded; the scan goes
    on behind them. Nothing is read past `files.end`.
    """
    with LogBytes(files.log, files.file_size) as source:
        for piece in SplitWalk(source, files.first, files.end).run(where.narrowed(split)):
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


def entries(files: StoreFiles, start: int, end: int) -> Iterator[DispatchEntry | Broken]:
    """The records that begin in bytes `start` to `end` of the log, one by one with their raw properties, and what is none."""
    with LogBytes(files.log, files.file_size) as source:
        for piece in SplitWalk(source, files.first, files.end).run(Split(start, end)):
            if isinstance(piece, Broken):
                yield piece
                continue
            scan = scan_records(piece.data, piece.offset, files.file_size, check_crc=False)  # Which was checked.
            yield from (entry for entry in scan.entries if entry.phy_offset < end)
