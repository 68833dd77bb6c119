"""Where a log can be cut: at a record, a blank or a file, never inside of one."""

from collections.abc import Iterable

from twinlog.store.log.range import LogRange
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.record.resync import next_record
from twinlog.store.record.scan import DispatchEntry, scan_records
from twinlog.store.record.stale_records import begins_with_record

_WINDOW = 1 << 20


def newest_below(queues: Iterable[ConsumeQueue], phy_offset: int) -> int | None:
    """Where the newest message below an offset of the log begins that any queue has."""
    found = -1
    for queue in queues:
        unit = queue.last_message(queue.first_behind(phy_offset))
        if unit is not None and found < unit.phy_offset < phy_offset:
            found = unit.phy_offset
    return found if found >= 0 else None


def record_before(bytes_: LogRange, offset: int, file_size: int, known: int | None) -> DispatchEntry | str | None:
    """The last record below an offset, None where there is none; a text when neither record, blank nor file begins there.

    `known`: where a record below it begins, according to a queue. Raises OSError.
    """
    if offset <= bytes_.start:
        return None
    file_start = max(bytes_.start, (offset - 1) // file_size * file_size)
    earlier = _entry_at(bytes_, known, file_size) if known is not None and known < file_start else None
    last = None
    for start in (max(known or 0, file_start), file_start):  # What the queue says may be wrong.
        last, end = _walk(bytes_, start, offset, file_size)
        if end == offset:
            return last or earlier
    if offset % file_size == 0 or begins_with_record(bytes_.read, offset, file_size):
        return last or earlier  # Damage lies before it.
    return f"that is inside of the record at {end}"


def _entry_at(bytes_: LogRange, offset: int, file_size: int) -> DispatchEntry | None:
    size = int.from_bytes(bytes_.read(offset, 4)) if offset >= bytes_.start else 0
    scan = scan_records(bytes_.read(offset, min(size, file_size)), offset, file_size, check_crc=False) if size else None
    return scan.entries[0] if scan is not None and scan.entries else None


def _walk(bytes_: LogRange, at: int, end: int, file_size: int) -> tuple[DispatchEntry | None, int]:
    """The last record in a part of a file that begins with one, and how far records and blanks go."""
    last, window = None, _WINDOW
    while at < end:
        size = min(window, end - at)
        scan = scan_records(bytes_.read(at, size), at, file_size, check_crc=False)
        last = scan.entries[-1] if scan.entries else last
        at += scan.consumed
        if scan.error is not None:
            found = next_record(bytes_.read, at + 1, end, file_size)
            if found is None:
                break
            at = found
        elif scan.consumed == 0 and size == end - at:
            break
        else:
            window = _WINDOW if scan.consumed else max(window * 2, scan.needed)
    return last, at
