"""Walks the records of a store directory that is read offline, past damage, and finds the end of its log.

No file says where a log ends. RocketMQ stops at the first bytes that are no record. But a log continues behind a damaged record,
and old records may lie behind the end of a log that was cut after a crash. As in recovery, records belong to the log if they are
not older than those before the gap, and no queue begins to number its messages anew.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from attrs import evolve, frozen

from twinlog.store.offline.file_series import FileSeries
from twinlog.store.offline.queue_view import QueueView
from twinlog.store.record.message import (
    MAGIC_V1,
    MAGIC_V2,
    QUEUELESS,
    RECORD_V4,
    SIZE_AND_MAGIC,
    TRANSACTION_MASK,
    record_stored_ms,
)
from twinlog.store.record.resync import Head, Key, begins_with_record, goes_on, head_of, is_torn
from twinlog.store.record.scan import DispatchEntry, Scan, scan_records
from twinlog.store.record.walk import WINDOW, Bytes
from twinlog.store.record.walk import Gap as Gap
from twinlog.store.record.walk import walk as walk_records

_LOOK_AGAIN_SECONDS = 0.05


class Window(NamedTuple):
    """Bytes `start` to `end` of the log hold the records of `entries` one after the other, and blanks; all are sound.

    `data` are bytes from `start` on, more or less than up to `end`, but all of the records.
    """

    start: int
    end: int
    entries: list[DispatchEntry]
    data: bytes


def walk(
    log: FileSeries,
    start: int,
    end: int,
    *,
    delays_ms: tuple[int, ...] = (),
    may_grow: bool = False,
    after_crash: bool = False,
    window: int = WINDOW,
) -> Iterator[Window | Gap]:
    """Everything between two offsets in order, every byte in a window or a gap; a record should begin at `start`.

    `may_grow`: a broker is writing the log now, so bytes that are no record are read twice. `after_crash`: a record whose last
    sector was not written is none. Raises OSError.
    """

    def scan(data: Bytes, at: int) -> Scan:
        found = scan_records(data, at, log.file_size, check_crc=True, delays_ms=delays_ms)
        return _without_torn(log, found, at) if after_crash else found

    def has_changed(offset: int, data: Bytes) -> bool:
        time.sleep(_LOOK_AGAIN_SECONDS)
        return log.read(offset, len(data)) != data

    for piece in walk_records(log, start, end, scan, window=window, has_changed=has_changed if may_grow else None):
        if isinstance(piece, Gap):
            yield piece
        else:
            assert isinstance(piece.data, bytes)
            yield Window(piece.start, piece.end, piece.scan.entries if piece.scan is not None else [], piece.data)


def _without_torn(log: FileSeries, found: Scan, at: int) -> Scan:
    """The same without a last record of which a crash has left a part."""
    entries, done = found.entries, at + found.consumed
    if found.error is None or not entries or not is_torn(entries[-1], done, log.file_size, log.read):
        return found
    return evolve(found, consumed=entries[-1].phy_offset - at, entries=entries[:-1])


def goes_on_behind(
    log: FileSeries,
    head: Head,
    last_timestamp: int,
    next_offset: Callable[[Key], int],
    place_of: Callable[[Key, int], int | None] = lambda _key, _number: None,
) -> bool:
    """True when sound records behind a gap belong to the log; see twinlog.store.recovery.recovery."""
    if any(file.start > head.phy_offset and _begins_with_record(log, file.start) for file in log.files):
        return True
    return goes_on(head, last_timestamp, next_offset, place_of)


def _begins_with_record(log: FileSeries, offset: int) -> bool:
    try:
        return begins_with_record(log.read, offset, log.file_size)
    except OSError:
        return False


def walk_log(
    log: FileSeries,
    *,
    delays_ms: tuple[int, ...] = (),
    start: int | None = None,
    may_grow: bool = False,
    after_crash: bool = False,
) -> Iterator[Window | Gap]:
    """The log from `start`, its first byte if None, to its end; gaps in it are damage. Raises OSError.

    `may_grow`, `after_crash`: as walk().
    """
    next_offsets: dict[tuple[str, int], int] = {}
    last_timestamp = 0
    gap: Gap | None = None
    start = log.min_offset if start is None else start
    for piece in walk(log, start, log.end, delays_ms=delays_ms, may_grow=may_grow, after_crash=after_crash):
        if isinstance(piece, Gap):
            if piece.is_end:
                return
            gap = Gap(gap.start, piece.end, gap.reason) if gap is not None else piece
            continue
        if gap is not None and piece.entries:
            if not goes_on_behind(log, head_of(piece.entries), last_timestamp, lambda key: next_offsets.get(key, 0)):
                return
            yield gap
            gap = None
        if gap is not None:  # A blank alone proves nothing.
            gap = Gap(gap.start, piece.end, gap.reason)
            continue
        yield piece
        for entry in piece.entries:
            if entry.sys_flag & TRANSACTION_MASK not in QUEUELESS:
                next_offsets[entry.topic, entry.queue_id] = entry.queue_offset + 1
            last_timestamp = entry.store_timestamp


_LOOK_BYTES = 4096  # Behind the end.


@frozen
class LogEnd:
    """The log ends behind its last sound record, at `offset`. `is_clear`: zeros follow, as where nothing was ever written."""

    offset: int
    is_clear: bool
    last_stored_ms: int | None


def find_log_end(
    log: FileSeries, views: Iterable[QueueView] = (), *, may_grow: bool = False, after_crash: bool = False
) -> LogEnd:
    """Walk from the last record in a queue, else from the start of the last file that begins with a record.

    `may_grow`, `after_crash`: as walk(). Raises OSError.
    """
    begins = (file.start for file in reversed(log.files) if stored_ms(log, file.start) is not None)
    start = next(begins, log.min_offset)
    known = max((view.last.phy_offset for view in views if view.last is not None), default=-1)
    if known > start and stored_ms(log, known) is not None:
        start = known
    end, newest = start, None
    for piece in walk_log(log, start=start, may_grow=may_grow, after_crash=after_crash):
        end = piece.end
        if not isinstance(piece, Gap) and piece.entries:
            newest = piece.entries[-1].store_timestamp
    return LogEnd(end, not log.read(end, _LOOK_BYTES).strip(b"\0"), newest)


def stored_ms(log: FileSeries, offset: int) -> int | None:
    """The store time of the record at an offset; None when none begins there. Reads only its head. Raises OSError."""
    head = log.read(offset, RECORD_V4.size)
    if len(head) < RECORD_V4.size:
        return None
    _, magic = SIZE_AND_MAGIC.unpack_from(head)
    return record_stored_ms(head, offset) if magic in (MAGIC_V1, MAGIC_V2) else None
