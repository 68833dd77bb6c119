"""Walks the records of a store's own log, across files and past damage; long sound stretches as columns."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.record.multi_dispatch import MULTI_DISPATCHED
from twinlog.store.record.resync import UNFINISHED, next_record
from twinlog.store.record.scan import Scan, scan_records
from twinlog.store.record.walk import Gap
from twinlog.store.record.walk import walk as walk_records

if TYPE_CHECKING:
    from twinlog.store.record.column_scan import ColumnScan  # numpy comes with it: only where there is much to do.

_PIECE = 1 << 20
_ZEROS_MAX = 64 << 20
BULK_MIN = 64 << 20  # Bytes to walk: for fewer it does not pay to load numpy.
_BULK_STRETCH_MIN = 1 << 20
_BULK_WINDOW = 16 << 20  # With a thousand queues each gets some units together.


@frozen
class _MappedSource:
    """The log as a ByteSource of store/record/walk.py. So many zeros in a row as `zeros_max` stand for the rest of a file."""

    log: CommitLog
    zeros_max: int

    @property
    def file_size(self) -> int:
        return self.log.file_size

    def read(self, offset: int, size: int) -> bytes:
        return read_log(self.log, offset, size)

    def next_record(self, start: int, end: int, heads_end: int) -> int | None:
        """Reads no holes in the file, such as lie behind the end of a log."""
        file = self.log.files.file_at(start)
        if file is None:
            return None
        zeros = 0
        for low, high in file.data_ranges(start - file.start):
            while low < high and zeros < self.zeros_max:
                piece = min(_PIECE, high - low)
                if file.is_zero(low, piece):
                    zeros += piece
                else:
                    zeros = 0
                    first, last = max(start, file.start + low), min(file.start + low + piece, heads_end)
                    found = next_record(self.read, first, min(end, file.end), self.file_size, heads_end=last)
                    if found is not None:
                        return found
                low += piece
        return None


def walk(
    log: CommitLog,
    offset: int,
    end: int | None = None,
    *,
    check_crc: bool,
    delays_ms: tuple[int, ...] = (),
    zeros_max: int = _ZEROS_MAX,
) -> Iterator[tuple[int, Scan]]:
    """Scan the log from a record's start to `end`, by default its end, a window at a time: offset and outcome of each scan.

    A scan with an `error` ends before bytes that are no record; the next one begins with the first sound record behind them,
    wherever that is, and there is none if the log holds none. Raises OSError.
    """
    stop = log.max_offset if end is None else min(end, log.max_offset)
    scan = partial(scan_records, file_size=log.file_size, check_crc=check_crc, delays_ms=delays_ms)
    is_in_gap = False
    for piece in walk_records(_MappedSource(log, zeros_max), offset, stop, scan):
        if isinstance(piece, Gap):
            if not is_in_gap:
                if log.files.file_at(piece.start) is None:  # Deleted in the meantime.
                    return
                yield piece.start, Scan(0, [], piece.reason)
            is_in_gap = True
        else:
            found = piece.scan if piece.scan is not None else Scan(piece.end - piece.start, [])
            yield piece.start, found if piece.reason is None else evolve(found, error=piece.reason)
            is_in_gap = piece.reason is not None


def walk_in_bulk(
    log: CommitLog,
    offset: int,
    end: int | None = None,
    *,
    check_crc: bool,
    delays_ms: tuple[int, ...] = (),
    zeros_max: int = _ZEROS_MAX,
) -> "Iterator[tuple[int, Scan | ColumnScan]]":
    """The same, with columns for entries where a long stretch is sound, and no message in it is in more than one queue.

    The stretch before anything unusual has entries: what follows it may say more of its last record.
    """
    is_long = (log.max_offset if end is None else end) - offset >= BULK_MIN
    while True:
        held: tuple[int, ColumnScan] | None = None
        while is_long and (columns := _scan_much(log, offset, end, check_crc, delays_ms)) is not None:
            if held is not None:
                yield held
            held = offset, columns
            offset += columns.consumed
        if held is not None:
            offset = held[0]
        for start, scan in walk(log, offset, end, check_crc=check_crc, delays_ms=delays_ms, zeros_max=zeros_max):
            yield start, scan
            if is_long and scan.consumed and scan.error is None:
                offset = start + scan.consumed
                break
        else:
            return


def _scan_much(
    log: CommitLog, offset: int, end: int | None, check_crc: bool, delays_ms: tuple[int, ...]
) -> "ColumnScan | None":
    """A long stretch, if there is one and all is usual; an unfinished record at its end does not count."""
    file, stop = log.files.file_at(offset), log.max_offset if end is None else min(end, log.max_offset)
    size = min(_BULK_WINDOW, file.end - offset, stop - offset) if file is not None else 0
    if file is None or size < _BULK_STRETCH_MIN:
        return None
    data = file.read(offset - file.start, size)
    if MULTI_DISPATCHED in data or UNFINISHED in data:
        return None
    from twinlog.store.record.column_scan import scan_columns

    scan = scan_columns(data, offset, log.file_size, check_crc=check_crc, delays_ms=delays_ms)
    return scan if scan.error is None and scan.consumed else None


def read_log(log: CommitLog, offset: int, size: int) -> bytes:
    """Bytes of the log, by pread; fewer at the end of the file that holds the first one, none where there is no file."""
    file = log.files.file_at(offset)
    return file.read(offset - file.start, min(size, file.start + file.size - offset)) if file is not None else b""
