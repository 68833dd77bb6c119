"""Finds the end of the log at a start, and brings the queues up to it.

The walk begins
- at our recovery point, when it fits the log: all below it is on the disk, and the queues are as it describes. After a clean stop
  it is the log's end, and nothing is walked;
- else, when RocketMQ wrote last and stopped cleanly, at the third last file, or where the queues end, if that is earlier;
- after a crash of RocketMQ at the newest file that its checkpoint covers.

Queues that are lost or damaged are rebuilt from the whole log.

Behind bytes that are no record, the next sound record is searched. Where it continues the records before the damage, it belongs
to the log, and only the damaged bytes are lost. Where it is older, or its number in its queue is taken, it is stale, left by an
earlier cut by RocketMQ, which clears nothing: the log ends before the damage. It also does when nothing sound follows. The rest
is kept in a side file, and the cut is durable. After a crash a slave's log ends before the damage in any case: its master sends
the rest again, whole. Unless an earlier start kept what lies behind: producers were answered for what came later, which nobody
else may have.

Sources: CommitLog.recoverNormally and recoverAbnormally, DefaultMessageStore.recover; RocketMQ 4.9.8. RocketMQ cuts at the
first bytes that are no record, rebuilds no single queue, and forgets a blank at the very end, which stays here: a replica
may already hold it.
"""

from collections.abc import Callable
from functools import partial

import structlog
from attrs import define, field
from xxhash import xxh3_64_intdigest

from twinlog.store.integrity.damage import DamagedRanges
from twinlog.store.log.checkpoint import Checkpoint
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.walk import read_log, walk_in_bulk
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.record.message import MAGIC_V1, MAGIC_V2, QUEUELESS, RECORD_V4, SIZE_AND_MAGIC, TRANSACTION_MASK
from twinlog.store.record.multi_dispatch import more_queues
from twinlog.store.record.resync import (
    UNFINISHED,
    Key,
    begins_with_record,
    first_unfinished,
    goes_on,
    head_of,
    is_record,
    is_torn,
)
from twinlog.store.record.scan import DispatchEntry, EntryColumns, scan_records
from twinlog.store.recovery.durable_end import DurableEnd, DurableStart
from twinlog.store.recovery.point import PointRecord, RecoveryPoint
from twinlog.store.recovery.queues import QueueRecovery
from twinlog.store.recovery.side_files import CutTail, SideFiles, keep_behind_end
from twinlog.store.util.sync import is_no_space

_RECOVER_FILES = 3  # As RocketMQ.
# We note a recovery point each 256 MiB. When more of the log than this follows it, RocketMQ wrote that.
_FOLLOWS_POINT_MAX = 1 << 30


def fits(point: RecoveryPoint, log: CommitLog, flushed_ms: int) -> bool:
    """True when the point belongs to this log: the last record below it is unchanged, and still the newest on the disk.

    `flushed_ms` is the store time up to which the checkpoint covers the log. When that is newer, but nothing follows the point,
    RocketMQ cut the log below it and wrote on there; the records behind are stale.
    """
    if point.log_file_size != log.file_size or not log.min_offset <= point.offset <= log.max_offset:
        return False
    last = point.last
    if flushed_ms > last.store_timestamp and not any(read_log(log, point.offset, SIZE_AND_MAGIC.size)):
        return False
    if last.phy_offset < log.min_offset:  # No record is left to identify the log.
        return point.offset == log.min_offset
    raw = read_log(log, last.phy_offset, last.size)
    return xxh3_64_intdigest(raw) == last.digest and is_record(raw, last.phy_offset, log.file_size)


def begins_at(point: RecoveryPoint, log: CommitLog, *, after_crash: bool) -> bool:
    """True when the walk begins at a fitting point: after a crash unless RocketMQ wrote much behind it, else at the log's end."""
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

    Not behind the queues' end: they may have been deleted to be rebuilt.
    """
    durable_start_offset = log.min_offset
    for file in reversed(log.files.files):
        fields = RECORD_V4.unpack(file.read(0, RECORD_V4.size))
        if fields[1] in (MAGIC_V1, MAGIC_V2) and 0 < fields[10] <= recover_from_ms:
            durable_start_offset = file.start
            break
    return min(durable_start_offset, _file_start(log, behind))


def _file_start(log: CommitLog, offset: int) -> int:
    """The start of the file that holds `offset`: there a record begins, whatever a queue says."""
    return max(log.min_offset, offset - offset % log.file_size)


log_lines = structlog.get_logger()

# Zeros that are read behind the end, where they are no hole, before the rest counts as zero, too. Stale records of a cut by
# RocketMQ begin right at the end; after a crash, bytes in between may be missing.
_ZEROS_AFTER_CLEAN_STOP = 8 << 20
_ZEROS_AFTER_CRASH = 64 << 20
_DISPATCH_BATCH = 32_768
_UNITS_KEPT_MAX = 1 << 20  # Units, of 20 bytes.


@define(kw_only=True)
class Recovery:
    """Opens the queues of an open log, walks, dispatches missing records, rebuilds, cuts. Fills `damaged`.

    `others_have_it`: other members have all acknowledged bytes, on a slave, or a master whose group acknowledges together.
    After run(), `records` between `start` and `end` of the log were walked, and `dispatched` units were missing. Where the disk
    had no room for them, `refused` says so, and they are late units of their queues.
    """

    log: CommitLog
    queues: ConsumeQueueTable
    checkpoint: Checkpoint
    side: SideFiles
    damaged: DamagedRanges
    durable_end: DurableEnd
    durable_start: DurableStart
    after_crash: bool
    others_have_it: bool = False
    check_crc: bool
    delays_ms: tuple[int, ...]
    of_queues: QueueRecovery = field(init=False)
    noted: RecoveryPoint | None = field(init=False)  # The recovery point as saved, even when it does not fit.
    start: int = field(default=0, init=False)
    end: int = field(default=0, init=False)
    records: int = field(default=0, init=False)
    dispatched: int = field(default=0, init=False)
    error: str | None = field(default=None, init=False)
    last: DispatchEntry | None = field(default=None, init=False)
    last_record: PointRecord = field(factory=PointRecord, init=False)  # Before run() has ended, that of the point.
    cut: CutTail = field(factory=CutTail, init=False)
    from_point: bool = field(default=False, init=False)
    newest_timestamp: int = field(default=0, init=False)
    undispatched: list[DispatchEntry] = field(factory=list, init=False)
    refused: OSError | None = field(default=None, init=False)
    kept_before: tuple[tuple[int, int], ...] = field(default=(), init=False)  # Damage that earlier starts kept.
    kept: list[tuple[int, int]] = field(factory=list, init=False)  # By this one.
    _units_kept: int = field(default=0, init=False)  # Units that only the memory has.

    def __attrs_post_init__(self) -> None:
        point = self.noted = self.side.load_point()
        if point is not None and not fits(point, self.log, self.checkpoint.physic_msg_timestamp):
            point = None
        self.of_queues = QueueRecovery(
            self.log, self.queues, self.side, self.damaged, point, self.after_crash, self.check_crc, self.delays_ms
        )

    def run(self) -> None:
        """Do it. Raises OSError, and StoreDirectoryError while nothing was changed yet."""
        point = self.of_queues.point
        for damaged in point.damaged if point is not None else ():
            if damaged[1] > self.log.min_offset:
                self.damaged.add(*damaged)
        self.kept_before = self.side.load_kept_damage()
        self.of_queues.open()
        if point is not None and begins_at(point, self.log, after_crash=self.after_crash):
            self.from_point, self.start, self.last_record = True, point.offset, point.last
            self.of_queues.settle(point)
        else:
            self.of_queues.find_ends()
            self.start = self._start_without_point(point)
            if self.after_crash:
                self.of_queues.rewind(self.start)
        self.of_queues.discard(self.of_queues.faults)
        self.of_queues.rebuild(self.of_queues.faults, self.start)
        self._walk()
        if self._checkpoint_is_wrong() and not self.from_point:
            log_lines.warning("the checkpoint is wrong; the whole log is walked", start=self.start)
            self.start = self.log.min_offset
            self.queues.rewind(self.start)
            self._walk()
        self.of_queues.keep_numbers(self.end)
        self._compare_ends()
        self._cut()
        self._note_kept_damage()
        self.of_queues.finish(self.end)
        for queue in self.queues:
            queue.correct_min_offset(self.log.min_offset)
        self.log.next_queue_offsets = self.queues.next_offsets()
        assert self.log.max_offset == self.end or not self.log.files.files
        assert self.queues.max_phy_offset <= self.end, "no unit leads behind the end of the log"
        if self.last is not None:
            raw = read_log(self.log, self.last.phy_offset, self.last.size)
            digest = xxh3_64_intdigest(raw)
            self.last_record = PointRecord(self.last.phy_offset, self.last.size, digest, self.last.store_timestamp)

    def _start_without_point(self, point: RecoveryPoint | None) -> int:
        behind = max(self.queues.max_phy_offset, self.log.min_offset)
        if self.after_crash:
            start = start_after_crash(self.log, behind, self.checkpoint.recover_from_ms)
        else:
            start = start_after_stop(self.log, behind)
        return max(start, point.offset) if point is not None and not self.of_queues.faults else start

    def _checkpoint_is_wrong(self) -> bool:
        """True when the checkpoint covers messages newer than all that exist."""
        return (
            self.after_crash
            and self.start > self.log.min_offset
            and self.checkpoint.recover_from_ms > max(self.newest_timestamp, 0)
        )

    # The walk

    def _walk(self) -> None:
        """Walk from `start` to the end of the log, which becomes `end`."""
        self.end, self.error = self.start, None
        numbers = self.queues.next_offsets()
        damage: int | None = None  # Start of bytes that are no record, until the bytes behind them decide.
        gaps: dict[Key, str] = {}
        for offset, scan in walk_in_bulk(
            self.log, self.start, check_crc=self.check_crc, delays_ms=self.delays_ms, zeros_max=self._zeros_max
        ):
            end = offset + scan.consumed
            if isinstance(scan.entries, list):
                entries = scan.entries
            elif damage is None and not gaps and self._take_columns(scan.entries, numbers):
                self.end, self.error = end, None
                continue
            else:
                raw, file_size = self._read(offset, scan.consumed), self.log.file_size
                entries = scan_records(raw, offset, file_size, check_crc=False, delays_ms=self.delays_ms).entries
            is_doubtful = scan.error is not None and self.after_crash and entries
            if is_doubtful and is_torn(entries[-1], end, self.log.file_size, self._read):
                end, entries = entries[-1].phy_offset, entries[:-1]
            if damage is not None and entries:
                self._dispatch()
                if self._is_stale(entries, offset):
                    self.error = f"{self.error}, then stale records"
                    break
                if self.after_crash and self.others_have_it and not self._was_kept(damage, offset):
                    self.error = f"{self.error}; other members send the rest again"
                    break
                self._keep_damage(damage, offset)
                damage = None
            older_at = self._older_at(entries, end)
            if older_at is not None:
                end, entries = older_at, [entry for entry in entries if entry.phy_offset < older_at]
            self._take(entries, numbers, gaps)
            self.undispatched += (entry for entry in more_queues(entries) if self.queues.admits(*entry[:2]))
            if older_at is not None:
                self.end, self.error = end, "bytes that had not arrived yet; other members send the rest again"
                break
            if damage is None:
                self.end, self.error = end, scan.error
                damage = end if scan.error is not None else None
        self._dispatch()
        self._fill_gaps(gaps)

    def _older_at(self, entries: list[DispatchEntry], end: int) -> int | None:
        """The record, or the unused rest of a file, of which the disk has an older version of a sector; None: there is none.
        Where nobody else has what follows it, it stays.
        """
        if not entries or not self.after_crash or not self.others_have_it:
            return None
        number, rest = first_unfinished(entries), entries[-1].phy_offset + entries[-1].size
        if number is not None:
            return entries[number].phy_offset
        is_behind_the_last = end % self.log.file_size == 0 and rest < end
        return rest if is_behind_the_last and UNFINISHED in self._read(rest, end - rest) else None

    def _take(self, entries: list[DispatchEntry], numbers: dict[Key, int], gaps: dict[Key, str]) -> None:
        """Stage for dispatch, but leave out the queues in which messages are missing that the log should have."""
        for entry in entries:
            if entry.sys_flag & TRANSACTION_MASK in QUEUELESS:
                continue
            key = entry[:2]
            number = numbers.get(key, 0)
            if entry.queue_offset > number and key not in gaps and not self._is_explained(entry, number):
                gaps[key] = f"messages {number} to {entry.queue_offset - 1} are missing"
            numbers[key] = max(number, entry.queue_offset + 1)
        self.records += len(entries)
        self.undispatched += [entry for entry in entries if entry[:2] not in gaps] if gaps else entries
        if len(self.undispatched) >= _DISPATCH_BATCH:
            self._dispatch()
        if entries:
            self.last = entries[-1]
            self.newest_timestamp = max(self.newest_timestamp, *(entry.store_timestamp for entry in entries))

    def _take_columns(self, columns: EntryColumns, numbers: dict[Key, int]) -> bool:
        """Dispatch many records at once; False, with nothing done, where one may be missing before them."""
        from twinlog.store.queue.columns import queue_runs

        reached: dict[Key, int] = {}
        for run in queue_runs(columns):
            number = numbers.get((run.topic, run.queue_id), 0)
            if not run.is_consecutive or run.queue_offset > number:
                return False
            reached[run.topic, run.queue_id] = max(number, run.queue_offset + len(run.records))
        numbers.update(reached)
        self._dispatch()
        self._put(partial(self.queues.put_columns, columns))
        self.records += len(columns)
        if len(columns):
            self.last = columns[-1]
            self.newest_timestamp = max(self.newest_timestamp, int(columns.store_timestamp.max()))
        return True

    def _dispatch(self) -> None:
        """Dispatch staged messages, many at a time: with a thousand queues there is a system call for each queue."""
        self._put(partial(self.queues.put, self.undispatched))
        self.undispatched = []

    def _put(self, put: Callable[[], dict[ConsumeQueue, list[int]]]) -> None:
        """Put units into the queues. A full disk does not stop the start: what it has no room for is kept in memory."""
        try:
            grown = put()
        except OSError as error:
            if not is_no_space(error) or self._units_kept > _UNITS_KEPT_MAX:
                raise
            self.refused = error
            grown = self.queues.keep_refused()
        count = sum(map(len, grown.values()))
        self.dispatched += count
        self._units_kept += count if self.refused is not None else 0

    def _is_explained(self, entry: DispatchEntry, number: int) -> bool:
        """True when messages `number` up to this one are missing for a known reason."""
        self._dispatch()
        queue = self.queues.get(entry.topic, entry.queue_id)
        if (entry.topic, entry.queue_id) in self.of_queues.faults or self.start == self.log.min_offset:
            return True  # From the start of the log on there is no more to be had.
        return self.damaged.overlaps(max(queue.max_phy_offset, 0), entry.phy_offset)

    def _fill_gaps(self, gaps: dict[Key, str]) -> None:
        if gaps:
            self.of_queues.faults |= gaps
            self.of_queues.discard(gaps)
            self.of_queues.rebuild(gaps, self.end)

    def _is_stale(self, entries: list[DispatchEntry], offset: int) -> bool:
        """True for stale records behind damage: older than the last one, or their number is taken."""
        later = [file.start for file in self.log.files.files if file.start > offset]
        if any(begins_with_record(self._read, start, self.log.file_size) for start in later):
            return False
        before = self.last.store_timestamp if self.last is not None else self.last_record.store_timestamp
        return not goes_on(head_of(entries), before, self._next_offset, self._place_of)

    def _read(self, offset: int, size: int) -> bytes:
        return read_log(self.log, offset, size)

    def _next_offset(self, key: Key) -> int:
        return self.queues.get(*key).max_offset

    def _place_of(self, key: Key, number: int) -> int | None:
        unit = self.queues.get(*key).unit(number)
        return unit.phy_offset if unit is not None else None

    def _was_kept(self, start: int, end: int) -> bool:
        return any(start == before and end >= after for before, after in self.kept_before)

    def _note_kept_damage(self) -> None:
        """Before anything comes behind it, or the next start could take it for new and cut what came."""
        kept = {*self.kept, *(damaged for damaged in self.kept_before if damaged[1] <= self.start)}
        if kept != set(self.kept_before):
            self.side.save_kept_damage(kept)

    def _keep_damage(self, start: int, end: int) -> None:
        self.damaged.add(start, end)
        self.kept.append((start, end))
        log_lines.error(
            "damaged bytes in the commit log; the messages behind them are kept",
            offset=start,
            bytes=end - start,
            found=self.error,
            advice="copy what is lost from another replica, or this store's files from a backup",
        )

    # The end

    def _compare_ends(self) -> None:
        """Note bytes missing at either end of the log."""
        noted, known = self.noted, self.noted.offset if self.noted is not None else 0
        if not self.log.files.files and self.checkpoint.physic_msg_timestamp > 0:  # The checkpoint covers messages.
            known = max(known, self.queues.max_phy_offset, 1)
        self.durable_end.compare(self.end, known)
        began = begin = self.log.min_offset
        if noted is not None and not self.after_crash and noted.offset == self.end:
            began = noted.log_start
        self.durable_start.compare(begin, began)

    @property
    def _zeros_max(self) -> int:
        return _ZEROS_AFTER_CRASH if self.after_crash else _ZEROS_AFTER_CLEAN_STOP

    def _cut(self) -> None:
        """Cut the log at `end`, durably, and keep a copy of what lies behind."""
        self.cut = keep_behind_end(self.log, self.end, self.side, zeros_max=self._zeros_max, error=self.error)
        if self.noted is not None and self.noted.offset > self.end:
            self.side.drop_point()
        self.log.files.cut(self.end, is_clear=not self.after_crash and self.cut.size == 0)
        if self.after_crash or self.queues.max_phy_offset > self.end:
            self.queues.truncate(self.end)
