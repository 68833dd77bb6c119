"""Walks the records of a log that lies in files, over the ends of files and over damage."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.record.multi_dispatch import MULTI_DISPATCHED
from twinlog.store.record.resync import next_record
from twinlog.store.record.scan import Scan, scan_records

if TYPE_CHECKING:
    from twinlog.store.record.column_scan import ColumnScan  # numpy comes with it: only where there is much to do.

_WINDOW = 4 << 20
_PIECE = 1 << 20
_ZEROS_MAX = 64 << 20
BULK_MIN = 64 << 20  # Bytes to walk: for fewer it does not pay to load numpy.
_BULK_STRETCH_MIN = 1 << 20
_BULK_WINDOW = 16 << 20  # With a thousand queues each gets some units together.


def walk(
    log: CommitLog,
    offset: int,
    end: int | None = None,
    *,
    check_crc: bool,
    delays_ms: tuple[int, ...] = (),
    zeros_max: int = _ZEROS_MAX,
) -> Iterator[tuple[int, Scan]]:
    """Scan the log from a record's start to `end`, by default its end, a window at a time: where each begins, and what it holds.

    A scan with an `error` ends before bytes that are no record; the next one begins with the first sound record behind them,
    wherever that is. There is none if the log holds none, see next_sound. Raises OSError.
    """
    window = _WINDOW
    while offset < (stop := log.max_offset if end is None else min(end, log.max_offset)):
        file = log.files.file_at(offset)
        if file is None:  # Deleted meanwhile.
            return
        size = min(window, file.end - offset, stop - offset)
        scan = scan_records(
            file.read(offset - file.start, size), offset, log.file_size, check_crc=check_crc, delays_ms=delays_ms
        )
        if scan.error is None and scan.consumed < size and offset + size == min(file.end, stop):
            scan = attrs.evolve(scan, error="an unfinished record")
        yield offset, scan
        offset += scan.consumed
        if scan.error is not None:
            found = next_sound(log, offset + 1, stop, zeros_max=zeros_max)
            if found is None:
                return
            offset = found
        elif scan.consumed == 0:  # A record, or a blank, that is larger than the window.
            window = max(window * 2, scan.needed)
        else:
            window = _WINDOW


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
    if MULTI_DISPATCHED in data:
        return None
    from twinlog.store.record.column_scan import scan_columns

    scan = scan_columns(data, offset, log.file_size, check_crc=check_crc, delays_ms=delays_ms)
    return scan if scan.error is None and scan.consumed else None


def read_log(log: CommitLog, offset: int, size: int) -> bytes:
    """Bytes of the log, by pread; fewer at the end of the file that holds the first one, none where there is no file."""
    file = log.files.file_at(offset)
    return file.read(offset - file.start, min(size, file.start + file.size - offset)) if file is not None else b""


def next_sound(log: CommitLog, offset: int, end: int, *, zeros_max: int = _ZEROS_MAX) -> int | None:
    """Where the first sound record from `offset` on lies; None when there is none below `end`. Raises OSError.

    Holes in a file, as there are behind the end of the log, cost nothing. Where zeros are none, so many of them in a row stand
    for all the rest of the file.
    """
    for file in log.files.files:
        zeros = 0
        for low, high in file.data_ranges(max(0, offset - file.start)) if file.start + file.size > offset else ():
            while low < high and zeros < zeros_max:
                piece = min(_PIECE, high - low)
                if file.is_zero(low, piece):
                    zeros += piece
                else:
                    zeros = 0
                    found = _first_record(log, file, max(offset, file.start + low), file.start + low + piece, end)
                    if found is not None:
                        return found
                low += piece
    return None


def _first_record(log: CommitLog, file: MappedFile, start: int, heads_end: int, end: int) -> int | None:
    def read(at: int, size: int) -> bytes:
        return file.read(at - file.start, size)

    return next_record(read, start, min(end, file.end), log.file_size, heads_end=heads_end)
