"""Windows of a log for its checks: what store/offline/walk.py finds, with an array for each field instead of entries."""

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from attrs import define, evolve, field

from twinlog.store.offline.file_series import FileSeries
from twinlog.store.record.column_scan import ColumnScan, scan_columns
from twinlog.store.record.columns import Columns, KeyColumns
from twinlog.store.record.resync import Head, is_torn
from twinlog.store.record.scan import DispatchEntry, scan_records
from twinlog.store.record.walk import WINDOW, Bytes, Gap, walk

_LOOK_AGAIN_SECONDS = 0.05
_NO = np.zeros(0, np.int64)
_NO_RECORDS = Columns([], _NO, _NO, _NO, _NO, _NO, _NO, _NO, _NO, KeyColumns(_NO, _NO, _NO))


class ColumnWindow(NamedTuple):
    """As twinlog.store.offline.walk.Window, with columns. `data` is good until the next window is asked for.

    `has_more_queues`: one of the messages may lie in further queues; then entries() is needed.
    """

    start: int
    end: int
    records: Columns
    data: memoryview
    has_more_queues: bool = False

    def entries(self, file_size: int, delays_ms: tuple[int, ...]) -> list[DispatchEntry]:
        """The records as entries, with their properties."""
        data = self.data[: self.end - self.start]
        return scan_records(data, self.start, file_size, check_crc=False, delays_ms=delays_ms).entries


def walk_columns(
    log: FileSeries,
    start: int,
    end: int,
    *,
    delays_ms: tuple[int, ...] = (),
    may_grow: bool = False,
    after_crash: bool = False,
) -> Iterator[ColumnWindow | Gap]:
    """As twinlog.store.offline.walk.walk(), with columns. Raises OSError."""

    def scan(data: Bytes, at: int) -> ColumnScan:
        found = scan_columns(data, at, log.file_size, check_crc=True, delays_ms=delays_ms)
        return _without_torn(log, found, data, at) if after_crash and found.error is not None else found

    def has_changed(offset: int, data: Bytes) -> bool:
        time.sleep(_LOOK_AGAIN_SECONDS)
        return log.read(offset, len(data)) != bytes(data)

    for piece in walk(_OneBuffer(log), start, end, scan, has_changed=has_changed if may_grow else None):
        if isinstance(piece, Gap):
            yield piece
        elif piece.scan is None:
            yield ColumnWindow(piece.start, piece.end, _NO_RECORDS, memoryview(b""))
        else:
            found = piece.scan
            yield ColumnWindow(piece.start, piece.end, found.entries, memoryview(piece.data), found.has_more_queues)


@define(eq=False)
class _OneBuffer:
    """A log whose bytes are good until more of them are read: memory that is new for each window costs as much as the read."""

    log: FileSeries
    _buffer: memoryview = field(factory=lambda: memoryview(bytearray(WINDOW)), init=False)

    @property
    def file_size(self) -> int:
        return self.log.file_size

    def read(self, offset: int, size: int) -> Bytes:
        if size > len(self._buffer):  # For a large record.
            return self.log.read(offset, size)
        return self._buffer[: self.log.read_into(offset, self._buffer[:size])]

    def next_record(self, start: int, end: int, heads_end: int) -> int | None:
        return self.log.next_record(start, end, heads_end)


def _without_torn(log: FileSeries, found: ColumnScan, data: Bytes, at: int) -> ColumnScan:
    """The same without a last record of which a crash has left a part."""
    records, done = found.entries, at + found.consumed
    if not len(records):
        return found
    start = int(records.phy_offset[-1])
    record = data[start - at : start - at + int(records.size[-1])]
    (last,) = scan_records(record, start, log.file_size, check_crc=False).entries
    if not is_torn(last, done, log.file_size, log.read):
        return found
    return evolve(found, consumed=start - at, entries=records.first(len(records) - 1))


def head_of(records: Columns) -> Head:
    """As twinlog.store.record.resync.head_of()."""
    numbers = np.flatnonzero(records.is_queued)
    keys = records.topic[numbers] << 32 | records.queue_id[numbers] & 0xFFFFFFFF
    firsts = numbers[np.sort(np.unique(keys, return_index=True)[1])].tolist()
    return Head(
        int(records.phy_offset[0]),
        int(records.store_timestamp[0]),
        {
            (entry.topic, entry.queue_id): (entry.queue_offset, entry.phy_offset)
            for entry in map(records.__getitem__, firsts)
        },
    )
