"""Walks the records of a log that may be damaged: past the damage, a window at a time.

Where the log ends is not written anywhere. RocketMQ stops at the first bytes that are no record; but behind a damaged one the log
goes on, while behind the end of a log that was cut after a crash old records may still lie. The two are told apart as recovery
does it: what goes on is not older than what was before, and no queue numbers its messages anew.
"""

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from attrs import frozen

from store.message import MAGIC_BLANK, QUEUELESS, SIZE_AND_MAGIC, TRANSACTION_MASK
from store.offline.file_series import FileSeries
from store.record_scan import DispatchEntry, scan_records
from store.resync import next_record

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
    window: int = _WINDOW,
) -> Iterator[Window | Gap]:
    """Everything between two offsets in order, every byte in a window or a gap; `start` is where a record should begin.

    `may_grow`: a broker is writing the log now, so what is no record is looked at twice. Raises OSError.
    """
    while start < end:
        file_end = min(end, start - start % log.file_size + log.file_size)
        for piece in _walk_file(log, start, file_end, delays_ms, may_grow, window):
            yield piece
            start = piece.end


def _walk_file(
    log: FileSeries, at: int, end: int, delays_ms: tuple[int, ...], may_grow: bool, window: int
) -> Iterator[Window | Gap]:
    size, looks = window, 0
    while at < end:
        wanted = min(size, end - at)
        data = log.read(at, wanted)
        scan = scan_records(data, at, log.file_size, check_crc=True, delays_ms=delays_ms)
        done = at + scan.consumed
        if scan.consumed:
            yield Window(at, done, scan.entries, data)
        if scan.error is None and _is_blank(data, scan.consumed, end - done):
            yield Window(done, end, [], b"")
            return
        if scan.error is None and len(data) == wanted < end - at:
            size = window if scan.consumed else max(size * 2, scan.needed)  # A record that is larger than the window.
            at = done
            continue
        if done == end:
            return
        reason = scan.error or ("the file ends here" if len(data) < wanted else "an unfinished record")
        found = next_record(log.read, done + 1, end, log.file_size)
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


def goes_on(
    last_timestamp: int,
    next_offsets: Mapping[tuple[str, int], int],
    timestamp: int,
    offsets: Mapping[tuple[str, int], int],
) -> bool:
    """Whether sound records behind a gap belong to the log, or were left there by an earlier cut.

    `last_timestamp`, `next_offsets` tell of what is before the gap, `timestamp` and `offsets` of the first record, and the
    first of each queue, behind it.
    """
    if timestamp < last_timestamp:
        return False
    return all(offset >= next_offsets[key] for key, offset in offsets.items() if key in next_offsets)


def walk_log(
    log: FileSeries, *, delays_ms: tuple[int, ...] = (), start: int | None = None, may_grow: bool = False
) -> Iterator[Window | Gap]:
    """The log from `start`, its first byte if None, to its end; gaps in it are damage. Raises OSError.

    `may_grow`: a broker is writing it now.
    """
    next_offsets: dict[tuple[str, int], int] = {}
    last_timestamp = 0
    gap: Gap | None = None
    start = log.min_offset if start is None else start
    for piece in walk(log, start, log.end, delays_ms=delays_ms, may_grow=may_grow):
        if isinstance(piece, Gap):
            if piece.is_end:
                return
            gap = Gap(gap.start, piece.end, gap.reason) if gap is not None else piece
            continue
        if gap is not None and piece.entries:
            if not goes_on(
                last_timestamp, next_offsets, piece.entries[0].store_timestamp, first_offsets(piece.entries)
            ):
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


def first_offsets(entries: list[DispatchEntry]) -> dict[tuple[str, int], int]:
    """The queue offset of the first record of each queue."""
    offsets: dict[tuple[str, int], int] = {}
    for entry in entries:
        if entry.sys_flag & TRANSACTION_MASK not in QUEUELESS:
            offsets.setdefault((entry.topic, entry.queue_id), entry.queue_offset)
    return offsets
