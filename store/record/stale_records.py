"""Distinguishes damage inside a log from stale records behind its end. No I/O.

RocketMQ stops at the first bytes that are no record. But a log goes on behind a damaged record, while stale records may lie
behind the end of a log that RocketMQ cut after a crash: it clears nothing. Records of the log are not older than those before
the gap, and continue the numbering of their queues. Starts, offline tools and the scrub share this rule.
"""

from collections.abc import Callable
from typing import NamedTuple

from twinlog.store.record.message import QUEUELESS, TRANSACTION_MASK
from twinlog.store.record.resync import Read, entry_at
from twinlog.store.record.scan import DispatchEntry

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
    head: Head,
    last_timestamp: int,
    next_offset: Callable[[Key], int],
    place_of: Callable[[Key, int], int | None] = lambda _key, _number: None,
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


def is_torn(entry: DispatchEntry, end: int, file_size: int, read: Read) -> bool:
    """True when the last record before `end` has properties that end in a sector which was not written.

    After a crash such a record is invalid: its properties are the only part without a check.
    """
    if entry.phy_offset + entry.size != end or not entry.properties.endswith(b"\0"):
        return False
    in_last_sector = end % file_size % _SECTOR or _SECTOR
    return in_last_sector < entry.size and not any(read(end - in_last_sector, in_last_sector))
