"""Walks the records of a log that lies in files, over the ends of files and over damage."""

from collections.abc import Iterator

import attrs

from store.commit_log import CommitLog
from store.record_scan import Scan, scan_records
from store.resync import next_record

_WINDOW = 4 << 20


def walk(
    log: CommitLog, offset: int, end: int | None = None, *, check_crc: bool, delays_ms: tuple[int, ...] = ()
) -> Iterator[tuple[int, Scan]]:
    """Scan the log from a record's start to `end`, by default its end, a window at a time: where each begins, and what it holds.

    A scan with an `error` ends before bytes that are no record; the next one begins with the first sound record behind them,
    wherever that is. There is none if the log holds none. Raises OSError.
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
            found = next_sound(log, offset + 1, stop)
            if found is None:
                return
            offset = found
        elif scan.consumed == 0:  # A record, or a blank, that is larger than the window.
            window = max(window * 2, scan.needed)
        else:
            window = _WINDOW


def next_sound(log: CommitLog, offset: int, end: int) -> int | None:
    """Where the first sound record from `offset` on lies; None when there is none below `end`. Raises OSError.

    Holes in the files, as there are behind the end of the log, cost nothing.
    """

    def read(at: int, size: int) -> bytes:
        file = log.files.file_at(at)
        return file.read(at - file.start, size) if file is not None else b""

    for file in log.files.files:
        if file.start + file.size <= offset:
            continue
        for low, high in file.data_ranges(max(0, offset - file.start)):
            stop = min(end, file.end)
            found = next_record(read, max(offset, file.start + low), stop, log.file_size, heads_end=file.start + high)
            if found is not None:
                return found
    return None
