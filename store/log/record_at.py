"""Which record of a log a byte belongs to: for showing what lies where two logs differ. Reads a bounded part of the log.

A record is found from any place behind its start, because it names its own place; see store/record/resync.py.
"""

from attrs import frozen

from twinlog.store.log.range import LogRange
from twinlog.store.record.message import MAGIC_BLANK, SIZE_AND_MAGIC
from twinlog.store.record.resync import next_record
from twinlog.store.record.scan import DispatchEntry, scan_records

_LOOKS = (64 << 10, 1 << 20, 8 << 20)  # So far before the byte a sound record is looked for; none is larger.
LOOK_MAX = _LOOKS[-1]
_READ = 1 << 20
BLANK = "the unused rest of a file"


@frozen
class RecordAt:
    """Bytes `start` to `end` of the log are a record or, with a `problem`, none that is sound."""

    start: int
    end: int
    problem: str | None


def bounds_around(offset: int, file_size: int) -> tuple[int, int]:
    """Which bytes record_at() needs for it, as far as the log has them."""
    file_start = offset - offset % file_size
    return max(file_start, offset - LOOK_MAX), min(file_start + file_size, offset + LOOK_MAX)


def record_at(log: LogRange, offset: int, file_size: int) -> RecordAt:
    """What byte `offset` belongs to. `log` holds bounds_around() of it. Raises OSError."""
    at, is_start = _sound_start(log, offset, file_size)
    if not is_start:
        return RecordAt(at, offset + 1, "no sound record lies before it")
    size = _READ
    while at < log.end:
        data = log.read(at, size)
        scan = scan_records(data, at, file_size, check_crc=True)
        done = at + scan.consumed
        if done > offset:
            return _in(scan.entries, offset, done)
        if scan.error is None and is_blank(data, scan.consumed):
            return RecordAt(done, at + scan.consumed + scan.needed, BLANK)
        if scan.error is None and at + size < log.end:
            at, size = done, max(_READ, scan.needed)
            continue
        found = next_record(log.read, done + 1, log.end, file_size)
        at = log.end if found is None else found
        if at > offset:
            return RecordAt(done, at, scan.error or "the log ends inside of it")
    return RecordAt(offset, offset, "the log has no byte here")


def _in(entries: list[DispatchEntry], offset: int, end: int) -> RecordAt:
    """Which of these records has the byte; `end` is where they end, with the blank behind them."""
    start = end
    for entry in reversed(entries):
        record_end = entry.phy_offset + entry.size
        if offset >= record_end:
            return RecordAt(record_end, start, BLANK)
        if offset >= entry.phy_offset:
            return RecordAt(entry.phy_offset, record_end, None)
        start = entry.phy_offset
    return RecordAt(offset, end, BLANK)


def is_blank(data: bytes, at: int) -> bool:
    """Whether the unused rest of a file begins there."""
    return len(data) - at >= SIZE_AND_MAGIC.size and SIZE_AND_MAGIC.unpack_from(data, at)[1] == MAGIC_BLANK


def _sound_start(log: LogRange, offset: int, file_size: int) -> tuple[int, bool]:
    """Where a record should begin, at or before `offset`, and whether one does."""
    file_start = offset - offset % file_size
    for look in _LOOKS:
        start = offset - look
        if start <= file_start:
            return max(file_start, log.start), True
        found = next_record(log.read, max(start, log.start), log.end, file_size, heads_end=offset + 1)
        if found is not None and found <= offset:
            return found, True
    return max(offset - LOOK_MAX, log.start), False
