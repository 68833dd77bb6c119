"""Walks the records of a log that may be damaged: past the damage, a window at a time.

Where the log ends is not written anywhere. RocketMQ stops at the first bytes that are no record; but behind a damaged one the log
goes on, while behind the end of a log that was cut after a crash old records may still lie. The two are told apart as recovery
does it: what goes on is not older than what was before, and no queue numbers its messages anew.
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from attrs import frozen

from twinlog.store.offline.file_series import FileSeries
from twinlog.store.record.message import MAGIC_BLANK, QUEUELESS, SIZE_AND_MAGIC, TRANSACTION_MASK
from twinlog.store.record.resync import next_record
from twinlog.store.record.scan import DispatchEntry, scan_records
from twinlog.store.record.stale_records import Head, Key, begins_with_record, goes_on, head_of, is_torn

FILE_ENDS = "the file ends here"
_WINDOW = 4 << 20
_LOOKS_MAX = 20  # At an end that goes on moving.
_LOOK_AGAIN_SECONDS = 0.05


class Window(NamedTuple):
    """Bytes `start` to `end` of the log hold the records of `entries` one after the other, and blanks; all are sound.

    `data` are bytes from `start` on, more or less than up to `end`, but all of the records.
    """

    start: int
    end: int
    entries: list[DispatchEntry]
    data: bytes


@frozen
class Gap:
    """Bytes `start` to `end` of the log hold no sound record, because of `reason`. `is_end`: a broker is writing there now."""

    start: int
    end: int
    reason: str
    is_end: bool = False


def walk(
    log: FileSeries,
    start: int,
    end: int,
    *,
    delays_ms: tuple[int, ...] = (),
    may_grow: bool = False,
    after_crash: bool = False,
    window: int = _WINDOW,
) -> Iterator[Window | Gap]:
    """Everything between two offsets in order, every byte in a window or a gap; `start` is where a record should begin.

    `may_grow`: a broker is writing the log now, so what is no record is looked at twice. `after_crash`: a record whose last
    sector was not written is none. Raises OSError.
    """
    while start < end:
        file_end = min(end, start - start % log.file_size + log.file_size)
        for piece in _walk_file(log, start, file_end, delays_ms, may_grow, after_crash, window):
            yield piece
            start = piece.end


def _walk_file(
    log: FileSeries, at: int, end: int, delays_ms: tuple[int, ...], may_grow: bool, after_crash: bool, window: int
) -> Iterator[Window | Gap]:
    size, looks = window, 0
    while at < end:
        wanted = min(size, end - at)
        data = log.read(at, wanted)
        scan = scan_records(data, at, log.file_size, check_crc=True, delays_ms=delays_ms)
        done, entries = at + scan.consumed, scan.entries
        if after_crash and scan.error is not None and entries and is_torn(entries[-1], done, log.file_size, log.read):
            done, entries = entries[-1].phy_offset, entries[:-1]
        if done > at:
            yield Window(at, done, entries, data)
        if scan.error is None and _is_blank(data, scan.consumed, end - done):
            yield Window(done, end, [], b"")
            return
        if scan.error is None and len(data) == wanted < end - at:
            size = window if scan.consumed else max(size * 2, scan.needed)  # A record that is larger than the window.
            at = done
            continue
        if done == end:
            return
        reason = scan.error or (FILE_ENDS if len(data) < wanted else "an unfinished record")
        found = None if log.is_clear_from(done) else next_record(log.read, done + 1, end, log.file_size)
        if may_grow and _has_changed(log, done, data[scan.consumed :]):
            at, looks = done, looks + 1
            if looks < _LOOKS_MAX:
                continue
            yield Gap(done, end, "it is being written", is_end=True)
            return
        at, size = end if found is None else found, window
        yield Gap(done, at, reason)


def _has_changed(log: FileSeries, offset: int, data: bytes) -> bool:
    time.sleep(_LOOK_AGAIN_SECONDS)
    return log.read(offset, len(data)) != data


def _is_blank(data: bytes, at: int, room: int) -> bool:
    """Whether a blank is next, whose end is not in the data."""
    return len(data) - at >= SIZE_AND_MAGIC.size and SIZE_AND_MAGIC.unpack_from(data, at) == (room, MAGIC_BLANK)


def goes_on_behind(
    log: FileSeries,
    head: Head,
    last_timestamp: int,
    next_offset: Callable[[Key], int],
    place_of: Callable[[Key, int], int | None] = lambda _key, _number: None,
) -> bool:
    """Whether sound records behind a gap belong to the log; see twinlog.store.recovery.side_files."""
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
