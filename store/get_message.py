"""Answers a pull: which messages of a queue a consumer gets, and where it goes on.

Source: DefaultMessageStore.getMessage, RocketMQ 4.9.8.
"""

from enum import Enum
from functools import cache
from typing import NamedTuple

import psutil

from store.commit_log import CommitLog
from store.config import BrokerRole, StoreConfig
from store.consume_queue import UNIT, ConsumeQueue

_SCAN_UNITS_MAX = 800  # RocketMQ's 16,000 bytes of units.


class GetStatus(Enum):
    """How a read went. Source: GetMessageStatus."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetResult(NamedTuple):
    """Records as they are stored, in views without a copy. Offsets count messages, `size` bytes."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    buffers: list[memoryview]
    size: int = 0
    message_count: int = 0
    suggest_slave: bool = False


@cache
def memory_bytes_max(ratio: int) -> int:
    """How far behind the log's end a message counts as being in memory: `ratio` percent of this machine's RAM."""
    return int(psutil.virtual_memory().total) * ratio // 100


def get_message(
    queue: ConsumeQueue,
    log: CommitLog,
    config: StoreConfig,
    offset: int,
    count_max: int,
    tags_codes: frozenset[int] | None,
) -> GetResult:
    """Up to `count_max` messages, at least one, from `offset` on whose tags code is wanted (None: all of them)."""
    count_max = max(1, count_max)
    low, high = queue.min_offset, queue.max_offset

    def nothing(status: GetStatus, corrected: int) -> GetResult:
        keep = config.broker_role is BrokerRole.SLAVE and not config.offset_check_in_slave
        return GetResult(status, offset if keep else corrected, low, high, [])

    if high == 0:
        return nothing(GetStatus.NO_MESSAGE_IN_QUEUE, 0)
    if offset < low:
        return nothing(GetStatus.OFFSET_TOO_SMALL, low)
    if offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high, [])
    if offset > high:
        return nothing(GetStatus.OFFSET_OVERFLOW_BADLY, high)
    units = queue.read(offset, max(_SCAN_UNITS_MAX, count_max) if tags_codes is not None else count_max)
    if not units:
        return nothing(GetStatus.OFFSET_FOUND_NULL, queue.next_file_offset(offset))
    return _collect(units, low, high, log, config, offset, count_max, tags_codes)


def _collect(
    units: bytes,
    low: int,
    high: int,
    log: CommitLog,
    config: StoreConfig,
    offset: int,
    count_max: int,
    tags_codes: frozenset[int] | None,
) -> GetResult:
    runs: list[tuple[int, int]] = []  # Records that follow each other in the log go out as one view: start and end.
    run_start = run_end = -1
    total = count = passed = skip_below = last_phy_offset = 0
    removed = False
    log_start, log_end, file_size = log.min_offset, log.max_offset, log.file_size
    memory_start = log_end - memory_bytes_max(config.access_message_in_memory_max_ratio)
    in_memory, on_disk = _limits(config, count_max)
    for phy_offset, size, code in UNIT.iter_unpack(units):
        last_phy_offset = phy_offset
        if phy_offset < skip_below:
            passed += 1
            continue
        messages_max, bytes_max = in_memory if phy_offset >= memory_start else on_disk
        if count and (count >= messages_max or total + size > bytes_max):
            break
        passed += 1
        if tags_codes is not None and as_i32(code) not in tags_codes:
            continue
        if not (log_start <= phy_offset <= log_end - size and phy_offset % file_size + size <= file_size):
            removed = removed or not count
            skip_below = (phy_offset // file_size + 1) * file_size
            continue
        if phy_offset != run_end or not phy_offset % file_size:
            runs.append((run_start, run_end))
            run_start = phy_offset
        run_end = phy_offset + size
        total += size
        count += 1
        skip_below = 0
    runs.append((run_start, run_end))
    views = (log.read(start, end - start) for start, end in runs[1:]) if count else ()
    status = GetStatus.NO_MATCHED_MESSAGE
    if count:
        status = GetStatus.FOUND
    elif removed:
        status = GetStatus.MESSAGE_WAS_REMOVING
    suggest = last_phy_offset < memory_start
    buffers = [view for view in views if view is not None]
    return GetResult(status, offset + passed, low, high, buffers, total, count, suggest)


def _limits(config: StoreConfig, count_max: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """How many messages and bytes one answer may have: while they are in memory, and otherwise."""
    return (
        (
            min(count_max, config.max_transfer_count_on_message_in_memory),
            config.max_transfer_bytes_on_message_in_memory,
        ),
        (min(count_max, config.max_transfer_count_on_message_in_disk), config.max_transfer_bytes_on_message_in_disk),
    )


def as_i32(code: int) -> int:
    """A tags code as filters compare it: its low 32 bits, signed."""
    low = code & 0xFFFFFFFF
    return low - (1 << 32) if low & 0x80000000 else low


def offset_by_time(queue: ConsumeQueue, log: CommitLog, timestamp: int) -> int:
    """The message stored nearest to `timestamp` (ms); of two equally near the earlier. 0 for an empty queue.

    RocketMQ 4.9 picks the file by its modification time first; searching all units gives what that is meant to give.
    """
    low, high = queue.min_offset, queue.max_offset - 1
    if high < low:
        return 0
    while low < high:
        middle = (low + high) // 2
        if store_timestamp(queue, log, middle) < timestamp:
            low = middle + 1
        else:
            high = middle
    here = store_timestamp(queue, log, low)
    before = store_timestamp(queue, log, low - 1) if low > queue.min_offset else -1
    return low - 1 if here > timestamp and before >= 0 and timestamp - before <= here - timestamp else low


_STORE_TIME_AT, _STORE_TIME_AT_V6, _SYS_FLAG_AT = 56, 68, 36


def store_timestamp(queue: ConsumeQueue, log: CommitLog, queue_offset: int) -> int:
    """When the message was stored, ms; -1 when it is not there."""
    unit = queue.unit(queue_offset)
    record = log.read(unit.phy_offset, unit.size) if unit is not None else None
    if record is None:
        return -1
    at = _STORE_TIME_AT_V6 if record[_SYS_FLAG_AT + 3] & 0x10 else _STORE_TIME_AT
    return int.from_bytes(record[at : at + 8], signed=True)
