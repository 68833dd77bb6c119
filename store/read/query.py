"""Queries: messages by key, and the message of a queue that was stored at a time.

Sources: DefaultMessageStore.queryMessage and getOffsetInQueueByTime, RocketMQ 4.9.8. The former searches up to three times while
no record can be read, with the same outcome each time."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import trio

from twinlog.store.index.service import IndexService
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.record.message import RECORD_V4, SIZE_AND_MAGIC, record_stored_ms

_BYTES_MAX = 12 << 20  # Clients take frames of up to 16 MiB.


class QueryResult(NamedTuple):
    """Records in the order of the log, with store time (ms) and log offset of the newest message in the index.

    Both are 0 when the index has nothing for the key.
    """

    records: list[memoryview]
    index_timestamp: int = 0
    index_phy_offset: int = 0


async def query_message(
    index: IndexService,
    log: CommitLog,
    record_at: Callable[[int], memoryview | None],
    topic: str,
    key: str,
    count_max: int,
    begin_ms: int,
    end_ms: int,
) -> QueryResult:
    """Up to `count_max` of the newest messages with a key, stored in a time range, at most 12 MiB of them.

    Some may have another key, because the index keeps hashes only: the caller compares. Raises OSError.
    """
    offsets = await index.find(topic, key, count_max, begin_ms, end_ms)
    if not offsets:
        return QueryResult([])
    last_indexed = index.last_indexed
    newest_first = list(dict.fromkeys(offsets))
    there = await trio.to_thread.run_sync(_bring_to_memory, log, newest_first)
    found = (record_at(offset) for offset in sorted(there))
    return QueryResult([record for record in found if record is not None], *last_indexed)


def _bring_to_memory(log: CommitLog, offsets: Iterable[int]) -> list[int]:
    """Read the records of one answer once, so that the event loop does not wait for the disk afterwards."""
    taken: list[int] = []
    total = 0
    for offset in offsets:
        file = log.files.file_at(offset)
        if file is None or offset + SIZE_AND_MAGIC.size > file.end:
            continue
        position = offset - file.start
        size, _ = SIZE_AND_MAGIC.unpack(file.read(position, SIZE_AND_MAGIC.size))
        if not SIZE_AND_MAGIC.size <= size <= file.end - offset:
            continue
        if taken and total + size > _BYTES_MAX:
            break
        file.read(position, size)
        taken.append(offset)
        total += size
    return taken


def offset_by_time(queue: ConsumeQueue, log: CommitLog, timestamp: int) -> int:
    """The message stored nearest to `timestamp` (ms); of two equally near the earlier. 0 for an empty queue.

    RocketMQ 4.9 picks the file by its modification time first; a search of all units gives the result that this is meant to give.
    Unreadable messages count as stored with the next readable one.
    """
    low, high = queue.min_offset, queue.max_offset - 1
    if high < low:
        return 0
    while low < high:
        middle = (low + high) // 2
        unit = queue.unit(middle)
        if unit is not None and not unit.is_blank and unit.phy_offset < log.min_offset:
            low = middle + 1
            continue
        look = middle
        while (stored := store_timestamp(queue, log, look)) < 0 and look < high:
            look += 1
        if 0 <= stored < timestamp:
            low = look + 1
        else:
            high = middle
    low = min(low, queue.max_offset - 1)
    here = store_timestamp(queue, log, low)
    before = store_timestamp(queue, log, low - 1) if low > queue.min_offset else -1
    return low - 1 if here > timestamp and before >= 0 and timestamp - before <= here - timestamp else low


def store_timestamp(queue: ConsumeQueue, log: CommitLog, queue_offset: int) -> int:
    """The store time of a message, ms; -1 when it is not there."""
    unit = queue.unit(queue_offset)
    file = log.files.file_at(unit.phy_offset) if unit is not None else None
    if unit is None or file is None or unit.size < RECORD_V4.size or unit.phy_offset + unit.size > file.end:
        return -1
    try:  # By a system call: the map would end the process at an unreadable sector.
        record = file.read(unit.phy_offset - file.start, RECORD_V4.size)
    except OSError:
        return -1
    stored = record_stored_ms(record, unit.phy_offset) if len(record) == RECORD_V4.size else None
    return stored if stored is not None else -1  # None: the unit leads nowhere.
