"""Finds the next sound record behind bytes that are none, and distinguishes damage from stale records. No I/O.

A record is recognised by its magic, by the physical offset that it names as its own, by fields that add up to its size, and by
the CRC of its body. The offset makes a hit by chance practically impossible: a copy of a record in another's body names another
place.

No file says where a log ends. RocketMQ stops at the first bytes that are no record. But a log goes on behind a damaged record,
while stale records may lie behind the end of a log that RocketMQ cut after a crash: it clears nothing. Records of the log are
not older than those before the gap, and continue the numbering of their queues. Starts, offline tools and the scrub share this
rule.
"""

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from twinlog.store.record.message import (
    MAGIC_V1,
    MAGIC_V2,
    QUEUELESS,
    RECORD_SIZE_MIN,
    SIZE_AND_MAGIC,
    TRANSACTION_MASK,
)
from twinlog.store.record.scan import DispatchEntry, scan_records

# (log offset, size) -> these bytes; fewer at the end of the log, never beyond one file.
Read = Callable[[int, int], bytes]

# Stands behind bytes that may end within a record, see store/log/unverified_tail.py. No UTF-8 and no GBK has such bytes.
UNFINISHED = b"\xfe\xff\xff\xfe"
BLANK = "the unused rest of a file"  # What lies at an offset that no record has.
_MAGICS = (MAGIC_V1, MAGIC_V2)
_MAGIC_PREFIX = b"\xda\xa3\x20"  # Common to versions 1 and 2.
_PHY_OFFSET, _PHY_OFFSET_AT = Struct(">q"), 28
_HEAD_SIZE = _PHY_OFFSET_AT + _PHY_OFFSET.size
_WINDOW = 4 << 20
assert all(magic.to_bytes(4, signed=True).startswith(_MAGIC_PREFIX) for magic in _MAGICS)


def next_record(
    read: Read, start: int, end: int, file_size: int, *, heads_end: int | None = None, window: int = _WINDOW
) -> int | None:
    """The log offset of the first sound record in bytes `start` to `end` of the log; None when there is none.

    Records that begin behind `heads_end` are ignored. Reads a window at a time, across file ends; raises what `read` raises.
    """
    assert window > _HEAD_SIZE
    while start < (end if heads_end is None else min(end, heads_end)):
        file_end = min(end, start - start % file_size + file_size)
        size = min(window, file_end - start)
        data = read(start, size)
        for position, record_size in candidates(data, start, file_size):
            if start + position + record_size <= end:
                whole = position + record_size <= len(data)
                record = data[position:][:record_size] if whole else read(start + position, record_size)
                if is_record(record, start + position, file_size):
                    return start + position
        # A head may lie across the window's end, never across the file's.
        start += size if start + size == file_end else size - _HEAD_SIZE + 1
    return None


def candidates(data: bytes | bytearray, phy_offset: int, file_size: int) -> Iterator[tuple[int, int]]:
    """Position and size of everything that looks like a record by its head, which must lie in `data`; the rest need not."""
    found = data.find(_MAGIC_PREFIX, 4)
    while found >= 0:
        position = found - 4
        if position + _HEAD_SIZE > len(data):
            return
        size, magic = SIZE_AND_MAGIC.unpack_from(data, position)
        offset = phy_offset + position
        if (
            magic in _MAGICS
            and _PHY_OFFSET.unpack_from(data, position + _PHY_OFFSET_AT) == (offset,)
            and RECORD_SIZE_MIN <= size <= file_size - offset % file_size
        ):
            yield position, size
        found = data.find(_MAGIC_PREFIX, found + 1)


def is_record(record: bytes | bytearray, phy_offset: int, file_size: int) -> bool:
    """True when these bytes, which lie at `phy_offset`, are one whole, sound record."""
    scan = scan_records(record, phy_offset, file_size, check_crc=True)
    return len(scan.entries) == 1 and scan.consumed == len(record)


def entry_at(read: Read, offset: int, file_size: int, *, check_crc: bool) -> DispatchEntry | None:
    """The entry of the sound record that begins at an offset of the log; None when none does. Raises what `read` raises."""
    head = read(offset, SIZE_AND_MAGIC.size)
    size = SIZE_AND_MAGIC.unpack(head)[0] if len(head) == SIZE_AND_MAGIC.size else 0
    if not RECORD_SIZE_MIN <= size <= file_size - offset % file_size:
        return None
    entries = scan_records(read(offset, size), offset, file_size, check_crc=check_crc).entries
    return entries[0] if entries else None


_SECTOR = 512  # A disk writes 512 bytes atomically, and promises no more.

Key = tuple[str, int]


class Head(NamedTuple):
    """The head of sound records behind a gap: offset and store time of the first one, number and offset of each queue's first."""

    phy_offset: int
    timestamp: int
    firsts: dict[Key, tuple[int, int]]


def head_of(entries: list[DispatchEntry]) -> Head:
    """The head of a stretch of records."""
    firsts: dict[Key, tuple[int, int]] = {}
    for entry in entries:
        if entry.sys_flag & TRANSACTION_MASK not in QUEUELESS:
            firsts.setdefault((entry.topic, entry.queue_id), (entry.queue_offset, entry.phy_offset))
    return Head(entries[0].phy_offset, entries[0].store_timestamp, firsts)


def goes_on(
    head: Head, last_timestamp: int, next_offset: Callable[[Key], int], place_of: Callable[[Key, int], int | None]
) -> bool:
    """True when sound records behind a gap in the last file belong to the log; False when an earlier cut left them there.

    `last_timestamp` and `next_offset` of a queue describe the log before the gap. `place_of` a message is the offset in its
    queue's unit: a number may be taken when the unit leads to this record. In an earlier file such records always belong to the
    log: a cut deletes all later files.
    """
    if head.timestamp < last_timestamp:
        return False
    return all(
        number >= next_offset(key) or place_of(key, number) == phy_offset
        for key, (number, phy_offset) in head.firsts.items()
    )


def begins_with_record(read: Read, offset: int, file_size: int) -> bool:
    """True when a sound record lies at `offset`. Raises what `read` raises."""
    return entry_at(read, offset, file_size, check_crc=True) is not None


def first_unfinished(entries: Sequence[DispatchEntry]) -> int | None:
    """The number of the first record whose properties have UNFINISHED in them: an older version of a sector is on the disk."""
    return next((number for number, entry in enumerate(entries) if UNFINISHED in entry.properties), None)


def is_torn(entry: DispatchEntry, end: int, file_size: int, read: Read) -> bool:
    """True when the last record before `end` has properties that end in a sector which was not written, or with UNFINISHED.

    After a crash such a record is invalid: its properties are the only part without a check.
    """
    if entry.phy_offset + entry.size != end:
        return False
    if UNFINISHED in entry.properties + read(end, len(UNFINISHED) - 1):
        return True
    if not entry.properties.endswith(b"\0"):
        return False
    in_last_sector = end % file_size % _SECTOR or _SECTOR
    return in_last_sector < entry.size and not any(read(end - in_last_sector, in_last_sector))
