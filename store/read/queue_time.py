"""Which message of a queue was stored when. Source: DefaultMessageStore.getOffsetInQueueByTime, RocketMQ 4.9.8."""

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.record.message import RECORD_V4, record_stored_ms


def offset_by_time(queue: ConsumeQueue, log: CommitLog, timestamp: int) -> int:
    """The message stored nearest to `timestamp` (ms); of two equally near the earlier. 0 for an empty queue.

    RocketMQ 4.9 picks the file by its modification time first; searching all units gives what that is meant to give. Messages
    that cannot be read count as stored with the next one that can.
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
    """When the message was stored, ms; -1 when it is not there."""
    unit = queue.unit(queue_offset)
    file = log.files.file_at(unit.phy_offset) if unit is not None else None
    if unit is None or file is None or unit.size < RECORD_V4.size or unit.phy_offset + unit.size > file.end:
        return -1
    try:  # By a system call: the map would end the process where the disk does not read a sector.
        record = file.read(unit.phy_offset - file.start, RECORD_V4.size)
    except OSError:
        return -1
    stored = record_stored_ms(record, unit.phy_offset) if len(record) == RECORD_V4.size else None
    return stored if stored is not None else -1  # None: the unit leads nowhere.
