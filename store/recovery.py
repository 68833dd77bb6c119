"""Finds the end of the log after a start, and brings the queues level with it.

After a normal exit the walk begins behind the last record that the queues know, if that is sound, else with the third last
file; after a crash with the newest file that the checkpoint vouches for, and what the queues say of that part is written anew: of
their units, too, only some may have reached the disk. Whatever lies behind the last sound record is cut, and the cut is durable.
Sources: CommitLog.recoverNormally and recoverAbnormally, DefaultMessageStore.recover; RocketMQ 4.9.8. Unlike RocketMQ, a blank at
the very end stays: a replica may already hold it. And RocketMQ walks the last three files in any case, which takes us seconds.
"""

from collections.abc import Iterator

from attrs import frozen

from store.checkpoint import Checkpoint
from store.commit_log import CommitLog
from store.consume_queue_table import ConsumeQueueTable
from store.message import MAGIC_V1, MAGIC_V2, RECORD_V4, decode_message
from store.record_scan import DispatchEntry, Scan, scan_records

_RECOVER_FILES = 3
# Bytes. What an earlier cut of RocketMQ's left behind begins right at the end; no record is as long as this.
_LOOK_AFTER_CLEAN_STOP = 8 << 20
# After a crash the rest of the file is made zero in any case; this much of it is looked at, to tell what was lost.
_LOOK_AFTER_CRASH = 64 << 20
_WINDOW = 4 << 20
_SECTOR = 512  # The most that a disk writes as a whole, as far as anybody promises.


@frozen
class Recovered:
    """What was done: the log ends at `end_offset`; `cut_bytes` held something that is no sound record, because of `error`."""

    start_offset: int
    end_offset: int
    records: int
    dispatched: int
    cut_bytes: int
    error: str | None
    last_store_timestamp: int


def walk(
    log: CommitLog, offset: int, *, check_crc: bool, delays_ms: tuple[int, ...] = ()
) -> Iterator[tuple[int, Scan]]:
    """Scan the log from a record's start to its end or to the first bytes that are no record, a window at a time."""
    window = _WINDOW
    while offset < log.max_offset:
        file = log.files.file_at(offset)
        assert file is not None
        size = min(window, file.end - offset)
        scan = scan_records(
            file.view(offset - file.start, size), offset, log.file_size, check_crc=check_crc, delays_ms=delays_ms
        )
        yield offset, scan
        offset += scan.consumed
        if scan.error is not None:
            return
        if scan.consumed == 0:  # A record, or a blank, that is larger than the window.
            if size == file.end - offset:
                return
            window = max(window * 2, scan.needed)


def recover(
    log: CommitLog,
    queues: ConsumeQueueTable,
    checkpoint: Checkpoint,
    *,
    after_crash: bool,
    check_crc: bool,
    delays_ms: tuple[int, ...],
) -> Recovered:
    """Walk, dispatch what the queues lack, cut. Raises OSError."""
    behind = max(queues.max_phy_offset, log.min_offset)
    last: DispatchEntry | None = None
    if after_crash:
        # Not behind the queues' end: somebody may have deleted them, for us to make them anew.
        start = dispatch_from = min(_start_after_crash(log, checkpoint.recover_from_ms), behind)
        queues.rewind(start)
    else:
        last = _last_dispatched(log, queues)
        files = log.files.files[-_RECOVER_FILES:]
        start = behind if last is not None else min(files[0].start if files else 0, behind)
        dispatch_from = behind
    end, records, dispatched, error = start, 0, 0, None
    for offset, scan in walk(log, start, check_crc=check_crc, delays_ms=delays_ms):
        end, error = offset + scan.consumed, scan.error
        records += len(scan.entries)
        last = scan.entries[-1] if scan.entries else last
        fresh = [entry for entry in scan.entries if entry.phy_offset >= dispatch_from]
        dispatched += sum(map(len, queues.put(fresh).values()))
    if after_crash and last is not None and last.phy_offset + last.size == end and _is_torn(log, last):
        end, error = last.phy_offset, "a record whose last bytes were not written"
    cut_bytes = _dirty_bytes(log, end, _LOOK_AFTER_CRASH if after_crash else _LOOK_AFTER_CLEAN_STOP)
    log.files.cut(end, is_clear=not after_crash and cut_bytes == 0)
    if after_crash or queues.max_phy_offset > end:
        queues.truncate(end)
    queues.correct_min_offsets(log.min_offset)
    log.next_queue_offsets = queues.next_offsets()
    timestamp = last.store_timestamp if last is not None else 0
    return Recovered(start, end, records, dispatched, cut_bytes, error if cut_bytes else None, timestamp)


def _is_torn(log: CommitLog, entry: DispatchEntry) -> bool:
    """Whether the last record's properties end in a sector that was not written: nothing else in a record lacks a check."""
    position = entry.phy_offset % log.file_size
    in_last_sector = (position + entry.size) % _SECTOR or _SECTOR
    raw = log.read(entry.phy_offset, entry.size)
    if raw is None or in_last_sector >= entry.size or bytes(raw[-in_last_sector:]).strip(b"\0"):
        return False
    return decode_message(raw, check_crc=False).properties_raw.endswith(b"\0")


def _last_dispatched(log: CommitLog, queues: ConsumeQueueTable) -> DispatchEntry | None:
    """The last record that the queues know of; None when there is none there, or not a sound one."""
    unit = queues.last_unit
    record = log.read(unit.phy_offset, unit.size) if unit is not None else None
    if unit is None or record is None:
        return None
    scan = scan_records(record, unit.phy_offset, log.file_size, check_crc=True)
    return scan.entries[0] if scan.consumed == unit.size and len(scan.entries) == 1 else None


def _start_after_crash(log: CommitLog, recover_from_ms: int) -> int:
    """The start of the newest file whose first record is old enough to be on disk; the first file when none is."""
    for file in reversed(log.files.files):
        fields = RECORD_V4.unpack(file.read(0, RECORD_V4.size))
        if fields[1] in (MAGIC_V1, MAGIC_V2) and 0 < fields[10] <= recover_from_ms:
            return file.start
    return log.min_offset


def _dirty_bytes(log: CommitLog, end: int, look_max: int) -> int:
    """How many bytes behind `end` are not just the zeros of a fresh file, counted to the end of what was written.

    0 when the first `look_max` bytes behind it are zero.
    """
    dirty = 0
    for file in log.files.files:
        position = max(0, end - file.start)
        if position < file.size and not file.is_clear_from(position, look_max):
            dirty = file.start + file.data_end(position) - end
    return dirty
