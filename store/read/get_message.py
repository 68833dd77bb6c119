"""Answers pulls: the messages of a queue that a consumer gets, and the offset where it goes on.

Source: DefaultMessageStore.getMessage, RocketMQ 4.9.8."""

import os
from collections.abc import Callable
from enum import Enum
from functools import cache
from struct import Struct
from time import monotonic
from typing import NamedTuple

from twinlog.store.config import CONSUME_QUEUE_UNIT, StoreConfig
from twinlog.store.integrity.pull_check import BROKEN, sound_units
from twinlog.store.integrity.read_check import ReadCheck
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.consume_queue_ext import EXT_ADDRESS_MAX
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.message import BORN_HOST_V6, MAGIC_V2, RECORD_V4, STORE_HOST_V6

_MAGIC_AT, _SYS_FLAG_AT = 4, 36
_I32, _I16 = Struct(">i"), Struct(">h")
_V6_MORE = 12  # Bytes that an address of that kind is longer.
_WHOLE_MAX = 16 << 10  # Up to this size a record is read in one go; of longer ones the body is passed over.


def stored_properties(log: CommitLog, phy_offset: int, size: int) -> bytes:
    """`name 0x01 value` pairs joined by 0x02, of the sound record at an offset; empty where none can be read.

    By system calls: a sector that cannot be read would end the process if it were read through the map.
    """
    file = log.files.file_at(phy_offset)
    if file is None or phy_offset + size > file.end:
        return b""
    position = phy_offset - file.start
    try:
        head = file.read(position, min(size, _WHOLE_MAX))
        if len(head) < RECORD_V4.size:
            return b""
        (sys_flag,) = _I32.unpack_from(head, _SYS_FLAG_AT)
        body_at = RECORD_V4.size
        if sys_flag & (BORN_HOST_V6 | STORE_HOST_V6):
            body_at += _V6_MORE * (bool(sys_flag & BORN_HOST_V6) + bool(sys_flag & STORE_HOST_V6))
        body_end = body_at + _I32.unpack_from(head, body_at - 4)[0]
        if not body_at <= body_end < size - 2:
            return b""
        tail = head[body_end:] if size <= _WHOLE_MAX else file.read(position + body_end, size - body_end)
    except OSError:
        return b""
    is_v2 = _I32.unpack_from(head, _MAGIC_AT)[0] == MAGIC_V2
    topic_end = 2 + _I16.unpack_from(tail)[0] if is_v2 else 1 + tail[0]
    if topic_end + 2 > len(tail):
        return b""
    return tail[topic_end + 2 : topic_end + 2 + _I16.unpack_from(tail, topic_end)[0]]


_SCAN_UNITS_MAX = 800  # RocketMQ's 16,000 bytes of units.
_NOTHING = -(1 << 63)
_SEARCH_SECONDS_MAX = 0.05  # Time limit of a search for messages that a property filter accepts.
_ANY_SECONDS_MAX = 0.005

PropertyFilter = Callable[[bytes], bool]
"""Whether a message with these properties, as its record has them, is wanted."""


class GetStatus(Enum):
    """The outcome of a read. Source: GetMessageStatus."""

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


class _Pull(NamedTuple):
    """One pull of messages `low` to `high` of a queue; the other fields are the arguments of get_message()."""

    queue: ConsumeQueue
    log: CommitLog
    config: StoreConfig
    low: int
    high: int
    offset: int
    count_max: int
    tags_codes: frozenset[int] | None
    accepts: PropertyFilter | None
    check: ReadCheck | None
    limit: int | None


@cache
def memory_bytes_max(ratio: int) -> int:
    """The distance from the log's end within which a message counts as in memory: `ratio` percent of this machine's RAM."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * ratio // 100


def get_message(
    queue: ConsumeQueue,
    log: CommitLog,
    config: StoreConfig,
    offset: int,
    count_max: int,
    tags_codes: frozenset[int] | None,
    *,
    accepts: PropertyFilter | None = None,
    check: ReadCheck | None = None,
    limit: int | None = None,
) -> GetResult:
    """Up to `count_max` messages, at least one, from `offset` on whose tags code is wanted (None: all of them).

    `accepts`: only those whose properties it accepts. `check`: check each record, and leave out broken ones. `limit`: show no
    byte of the log from there on.
    """
    count_max = max(1, count_max)
    low, high = queue.min_offset, queue.max_offset

    if offset == high != 0:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high, [])
    if not low <= offset < high:
        return _outside(config, offset, low, high)
    filtered = tags_codes is not None or accepts is not None
    units = queue.read(offset, max(_SCAN_UNITS_MAX, count_max) if filtered else count_max)
    if not units:
        corrected = queue.next_file_offset(offset)
        return GetResult(GetStatus.OFFSET_FOUND_NULL, _corrected_for(config, offset, corrected), low, high, [])
    if not filtered and check is None and (found := _all_of(units, low, high, log, config, offset, limit)) is not None:
        return found
    pull = _Pull(queue, log, config, low, high, offset, count_max, tags_codes, accepts, check, limit)
    result = _collect(pull, units)
    passed = result.next_offset - offset
    are_all = passed * CONSUME_QUEUE_UNIT == len(units)
    if are_all and result.message_count < min(passed, count_max) and count_max < _SCAN_UNITS_MAX and not filtered:
        more = queue.read(offset, _SCAN_UNITS_MAX)  # Some were left out: read more, as RocketMQ does at once.
        if len(more) > len(units):
            return _collect(pull, more)
    return result


def _outside(config: StoreConfig, offset: int, low: int, high: int) -> GetResult:
    if high == 0:
        status, corrected = GetStatus.NO_MESSAGE_IN_QUEUE, 0
    elif offset < low:
        status, corrected = GetStatus.OFFSET_TOO_SMALL, low
    else:
        status, corrected = GetStatus.OFFSET_OVERFLOW_BADLY, high
    return GetResult(status, _corrected_for(config, offset, corrected), low, high, [])


def _corrected_for(config: StoreConfig, offset: int, corrected: int) -> int:
    """The offset to answer with: the corrected one. A slave does not correct, unless it is configured to."""
    return offset if config.is_slave and not config.offset_check_in_slave else corrected


def _all_of(
    units: bytes, low: int, high: int, log: CommitLog, config: StoreConfig, offset: int, limit: int | None
) -> GetResult | None:
    """All these messages, in memory and intact, as in nearly every answer. None: each has to be looked at."""
    log_end, file_size = log.max_offset, log.file_size
    shown_end = log_end if limit is None else min(limit, log_end)
    first = max(log.min_offset, log_end - memory_bytes_max(config.access_message_in_memory_max_ratio))
    bytes_max = config.max_transfer_bytes_on_message_in_memory
    count = len(units) // CONSUME_QUEUE_UNIT
    if count > config.max_transfer_count_on_message_in_memory:
        return None
    runs: list[tuple[int, int]] = []
    run_start = run_end = -1
    total = 0
    for phy_offset, size, _ in UNIT.iter_unpack(units):
        end = phy_offset + size
        if phy_offset < first or not phy_offset < end <= shown_end or phy_offset % file_size + size > file_size:
            return None
        if phy_offset != run_end or not phy_offset % file_size:
            runs.append((run_start, run_end))
            run_start = phy_offset
        run_end = end
        total += size
    if total > bytes_max:
        return None
    runs.append((run_start, run_end))
    buffers = []
    for start, end in runs[1:]:
        view = log.read(start, end - start)
        if view is None:
            return None
        buffers.append(view)
    return GetResult(GetStatus.FOUND, offset + count, low, high, buffers, total, count)


def _collect(pull: _Pull, units: bytes) -> GetResult:
    """Slow path: filters, checks, and messages that the log does not have or does not show."""
    queue, log, config, low, high, offset, count_max, tags_codes, accepts, check, limit = pull
    runs: list[tuple[int, int]] = []  # Records that follow each other in the log go out as one view: start and end.
    run_start = run_end = -1
    total = count = passed = last_phy_offset = 0
    skip_below = _NOTHING
    removed = held_back = False
    log_start, log_end, file_size = log.min_offset, log.max_offset, log.file_size
    shown_end = log_end if limit is None else min(limit, log_end)
    memory_start = log_end - memory_bytes_max(config.access_message_in_memory_max_ratio)
    in_memory, on_disk = _limits(config, count_max)
    deadline = monotonic() + _SEARCH_SECONDS_MAX if accepts is not None else 0.0
    for phy_offset, size, code in (
        UNIT.iter_unpack(units) if check is None else sound_units(check, queue, offset, units)
    ):
        if phy_offset < skip_below:
            last_phy_offset = phy_offset
            passed += 1
            continue
        if size == BROKEN and check is not None:
            removed = removed or not count
            passed += 1
            continue
        last_phy_offset = phy_offset
        messages_max, bytes_max = in_memory if phy_offset >= memory_start else on_disk
        if count and (count >= messages_max or total + size > bytes_max):
            break
        if tags_codes is not None and not (
            as_i32(code) in tags_codes if code > EXT_ADDRESS_MAX else _extension_matches(queue, code, tags_codes)
        ):
            if phy_offset + size > shown_end and phy_offset >= log_start:
                held_back = True
                break
            passed += 1
            continue
        if not (log_start <= phy_offset <= shown_end - size and phy_offset % file_size + size <= file_size):
            if log_start <= phy_offset and shown_end - size < phy_offset <= log_end - size and size <= file_size:
                held_back = True
                break
            passed += 1
            removed = removed or not count
            if phy_offset < log_start:  # Its file is gone; so are the records up to that file's end.
                skip_below = (phy_offset // file_size + 1) * file_size
            continue
        if accepts is not None:
            if passed and monotonic() > deadline:
                break
            if not accepts(stored_properties(log, phy_offset, size)):
                passed += 1
                continue
        passed += 1
        if phy_offset != run_end or not phy_offset % file_size:
            runs.append((run_start, run_end))
            run_start = phy_offset
        run_end = phy_offset + size
        total += size
        count += 1
        skip_below = _NOTHING
    runs.append((run_start, run_end))
    views = (log.read(start, end - start) for start, end in runs[1:]) if count else ()
    buffers = [view for view in views if view is not None]
    status = _status(count, removed=removed, is_end=held_back and not passed)
    suggest = last_phy_offset < memory_start
    return GetResult(status, offset + passed, low, high, buffers, sum(map(len, buffers)), count, suggest)


def _status(count: int, *, removed: bool, is_end: bool) -> GetStatus:
    """`removed`: messages are gone or broken; `is_end`: the next message must not be shown yet."""
    if count:
        return GetStatus.FOUND
    if is_end:
        return GetStatus.OFFSET_OVERFLOW_ONE
    return GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE


def any_accepted(queue: ConsumeQueue, log: CommitLog, start: int, end: int, accepts: PropertyFilter) -> bool:
    """True when a filter accepts one of the messages `start` to `end` of the queue, or when finding out takes too long."""
    deadline = monotonic() + _ANY_SECONDS_MAX
    units = queue.read(start, end - start)
    for phy_offset, size, _ in UNIT.iter_unpack(units):
        if accepts(stored_properties(log, phy_offset, size)) or monotonic() > deadline:
            return True
    return len(units) < (end - start) * CONSUME_QUEUE_UNIT  # The rest lies in another file: for a pull to find out.


def _extension_matches(queue: ConsumeQueue, address: int, tags_codes: frozenset[int]) -> bool:
    """True when a tags code in the queue's extension is wanted, or cannot be read."""
    code = queue.ext.tags_code(address) if queue.ext is not None else None
    return code is None or as_i32(code) in tags_codes


def _limits(config: StoreConfig, count_max: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The most messages and bytes of one answer: from memory, and from the disk."""
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
