"""Where a start begins to walk the log; see store/recovery/recovery.py."""

from xxhash import xxh3_64_intdigest

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.walk import read_log
from twinlog.store.record.message import MAGIC_V1, MAGIC_V2, RECORD_V4, SIZE_AND_MAGIC
from twinlog.store.record.resync import is_record
from twinlog.store.recovery.point import RecoveryPoint

_RECOVER_FILES = 3  # As RocketMQ.
# We note a recovery point each 256 MiB. When more of the log than this follows it, RocketMQ wrote that.
_FOLLOWS_POINT_MAX = 1 << 30


def fits(point: RecoveryPoint, log: CommitLog, flushed_ms: int) -> bool:
    """Whether the point belongs to this log: the newest record below it is where it was, and still the newest on the disk.

    `flushed_ms` is the store time up to which the checkpoint says that the log is on the disk. When that is newer, but nothing
    follows the point, RocketMQ cut the log below it and wrote anew there; what lies behind is left over.
    """
    if point.log_file_size != log.file_size or not log.min_offset <= point.offset <= log.max_offset:
        return False
    last = point.last
    if flushed_ms > last.store_timestamp and not any(read_log(log, point.offset, SIZE_AND_MAGIC.size)):
        return False
    if last.phy_offset < log.min_offset:  # Nothing is left to recognise the log by.
        return point.offset == log.min_offset
    raw = read_log(log, last.phy_offset, last.size)
    return xxh3_64_intdigest(raw) == last.digest and is_record(raw, last.phy_offset, log.file_size)


def begins_at(point: RecoveryPoint, log: CommitLog, *, after_crash: bool) -> bool:
    """Whether to begin at a point that fits: after a crash unless RocketMQ wrote much behind it, else if it is the log's end."""
    if after_crash:
        return log.max_offset - point.offset <= _FOLLOWS_POINT_MAX + 2 * log.file_size
    if point.offset == log.max_offset:
        return True
    return point.offset >= log.files.files[-1].start and not any(read_log(log, point.offset, SIZE_AND_MAGIC.size))


def start_after_stop(log: CommitLog, behind: int) -> int:
    """RocketMQ's third last file, or the file in which the queues end, at `behind`, when that is an earlier one."""
    files = log.files.files
    return min(files[-_RECOVER_FILES:][0].start if files else 0, _file_start(log, behind))


def start_after_crash(log: CommitLog, behind: int, recover_from_ms: int) -> int:
    """The start of the newest file whose first record is old enough to be on disk; the first file when none is.

    Not behind the queues' end: somebody may have deleted them, for us to make them anew.
    """
    vouched_for = log.min_offset
    for file in reversed(log.files.files):
        fields = RECORD_V4.unpack(file.read(0, RECORD_V4.size))
        if fields[1] in (MAGIC_V1, MAGIC_V2) and 0 < fields[10] <= recover_from_ms:
            vouched_for = file.start
            break
    return min(vouched_for, _file_start(log, behind))


def _file_start(log: CommitLog, offset: int) -> int:
    """The start of the file that holds `offset`: there a record begins, whatever a queue says."""
    return max(log.min_offset, offset - offset % log.file_size)
