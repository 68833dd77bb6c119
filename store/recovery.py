"""Finds the end of the log after a start, and brings the queues level with it.

Where the walk begins:
- at our recovery point, when it fits the log: all below it is on the disk, and the queues are as it says. After a clean stop
  it is the log's end, and nothing is walked;
- else, when RocketMQ wrote last and stopped cleanly, with the third last file, or where the queues end, if that is earlier;
- after a crash of RocketMQ with the newest file that its checkpoint vouches for.

Queues that are lost, or of which anything is wrong, are made anew from the whole log.

Behind bytes that are no record the next sound record is looked for. Where it goes on from what lies before the damage,
the log does, too: only the damaged bytes are lost. Where it is older, or its place in its queue is taken, it is what an
earlier cut by RocketMQ left behind, which clears nothing: the log ends before the damage. So it does when nothing sound
follows. What is cut is kept in a side file, and the cut is durable. After a crash a slave's log ends before the damage in
any case: its master sends the rest again, whole.

Sources: CommitLog.recoverNormally and recoverAbnormally, DefaultMessageStore.recover; RocketMQ 4.9.8. RocketMQ cuts at the
first bytes that are no record, rebuilds no single queue, and forgets a blank at the very end, which stays here: a replica
may already hold it.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import structlog
from attrs import define, field, frozen
from xxhash import xxh3_64_intdigest

from store.checkpoint import Checkpoint
from store.commit_log import CommitLog
from store.consume_queue import ConsumeQueue
from store.consume_queue_table import ConsumeQueueTable
from store.damage import DamagedRanges
from store.log_walk import walk as walk
from store.mapped_file import MappedFile
from store.message import MAGIC_V1, MAGIC_V2, QUEUELESS, RECORD_V4, SIZE_AND_MAGIC, TRANSACTION_MASK, decode_message
from store.queue_manifest import QueueState
from store.queue_rebuild import rebuild_queues
from store.record_scan import DispatchEntry, scan_records
from store.recovery_point import LastRecord, RecoveryPoint
from store.resync import is_record
from store.side_files import SideFiles
from store.sync import sync_data, sync_directory
from store.unit_check import BLANK_SIZE, UNIT

log_lines = structlog.get_logger()

_RECOVER_FILES = 3
# Zeros that are read behind the end, where they are no hole, before the rest is taken for zeros, too. What an earlier cut of
# RocketMQ's left behind begins right at the end; after a crash, bytes in between may be missing.
_LOOK_AFTER_CLEAN_STOP = 8 << 20
_LOOK_AFTER_CRASH = 64 << 20
_SECTOR = 512  # The most that a disk writes as a whole, as far as anybody promises.
# We note a recovery point each 256 MiB. When more of the log than this follows it, RocketMQ wrote that.
_FOLLOWS_POINT_MAX = 1 << 30

_MULTI_DISPATCH = b"INNER_MULTI_DISPATCH\x01"  # A message that RocketMQ puts into more queues than its own.
_DISPATCH_BATCH = 32_768
_DROPPED_MAX = 1000  # Units at the end of a queue.

Key = tuple[str, int]


@frozen
class Cut:
    """Bytes behind the end of the log that were none of it: `size` of them, of which the first `kept` are in `path`, too."""

    size: int = 0
    found: str = ""
    path: Path | None = None
    kept: int = 0


@frozen
class Recovered:
    """What was done: the log ends at `end_offset`; `damaged` are the ranges found in it that hold no record."""

    start_offset: int
    end_offset: int
    records: int
    dispatched: int
    cut: Cut
    last: LastRecord
    damaged: tuple[tuple[int, int], ...] = ()
    rebuilt: dict[Key, str] = field(factory=dict)  # Queues that were made anew, and why.
    from_point: bool = False


def recover(
    log: CommitLog,
    queues: ConsumeQueueTable,
    checkpoint: Checkpoint,
    side: SideFiles,
    damaged: DamagedRanges,
    *,
    after_crash: bool,
    is_slave: bool = False,
    check_crc: bool,
    delays_ms: tuple[int, ...],
) -> Recovered:
    """Open the queues of a log that is open, walk, dispatch what the queues lack, rebuild, cut. `damaged` is filled.

    Raises OSError, and StoreDirectoryError while nothing was changed yet.
    """
    return _Recovery(log, queues, checkpoint, side, damaged, after_crash, is_slave, check_crc, delays_ms).run()


@define
class _Recovery:
    log: CommitLog
    queues: ConsumeQueueTable
    checkpoint: Checkpoint
    side: SideFiles
    damaged: DamagedRanges
    after_crash: bool
    is_slave: bool
    check_crc: bool
    delays_ms: tuple[int, ...]
    point: RecoveryPoint | None = None
    faults: dict[Key, str] = field(factory=dict)  # Queues to make anew, and why.
    start: int = 0
    end: int = 0
    records: int = 0
    dispatched: int = 0
    error: str | None = None
    last: DispatchEntry | None = None
    last_of_point: LastRecord = field(factory=LastRecord)
    newest_timestamp: int = 0
    undispatched: list[DispatchEntry] = field(factory=list)
    rewound: dict[Key, tuple[int, bytes]] = field(
        factory=dict
    )  # Units that are put anew: the first one's number; they.

    def run(self) -> Recovered:
        self.point = self._trusted_point()
        for damaged in self.point.damaged if self.point is not None else ():
            if damaged[1] > self.log.min_offset:
                self.damaged.add(*damaged)
        self.faults = self._open_queues()
        from_point = self.point is not None and self._starts_at(self.point)
        if self.point is not None and from_point:
            self.start = self.point.offset
            self.last_of_point = self.point.last
            self._settle_queues(self.point)
        else:
            self._find_queue_ends()
            self.start = self._start_without_point()
            if self.after_crash:
                for queue in self._sound_queues():
                    self._rewind(queue, self.start)
        self._discard(self.faults)
        self._rebuild_below_start()
        self._walk()
        if self._checkpoint_is_wrong() and not from_point:
            log_lines.warning("the checkpoint is wrong; the whole log is walked", start=self.start)
            self.start = self.log.min_offset
            self.queues.rewind(self.start)
            self._walk()
        self._keep_numbers()
        cut = self._cut()
        self._finish_rebuild()
        self.queues.correct_min_offsets(self.log.min_offset)
        self.log.next_queue_offsets = self.queues.next_offsets()
        return Recovered(
            self.start,
            self.end,
            self.records,
            self.dispatched,
            cut,
            self._last_record(),
            tuple(self.damaged),
            self.faults,
            from_point,
        )

    # Where to begin

    def _trusted_point(self) -> RecoveryPoint | None:
        """The recovery point, if it belongs to this log."""
        point = self.side.load_point()
        if point is None or point.log_file_size != self.log.file_size:
            return None
        if not self.log.min_offset <= point.offset <= self.log.max_offset:
            return None
        last = point.last
        if last.phy_offset < self.log.min_offset:  # Nothing left to recognise the log by.
            return point if last.size == 0 or point.offset == self.log.min_offset else None
        raw = self._read(last.phy_offset, last.size)
        known = xxh3_64_intdigest(raw) == last.digest and is_record(raw, last.phy_offset, self.log.file_size)
        return point if known else None

    def _read(self, offset: int, size: int) -> bytes:
        file = self.log.files.file_at(offset)
        return file.read(offset - file.start, size) if file is not None else b""

    def _starts_at(self, point: RecoveryPoint) -> bool:
        """Whether to begin at the point: unless RocketMQ wrote much behind it."""
        if self.after_crash:
            return self.log.max_offset - point.offset <= _FOLLOWS_POINT_MAX + 2 * self.log.file_size
        if point.offset == self.log.max_offset:
            return True
        head = self._read(point.offset, SIZE_AND_MAGIC.size)
        file = self.log.files.files[-1]
        return not any(head) and point.offset >= file.start

    def _open_queues(self) -> dict[Key, str]:
        sizes_are_known = self.point is not None and self.point.queue_file_size == self.queues.file_size
        faults = self.queues.open(sizes_are_known=sizes_are_known)
        for key in self.side.load_rebuild():
            self.queues.get(*key)
            faults.setdefault(key, "making it anew came to no end")
        for state in self.point.queues if self.point is not None else ():
            if state.max_offset > 0 and state.key not in faults and not self.queues.get(*state.key).files.files:
                faults[state.key] = "its files are gone"
        return faults

    def _settle_queues(self, point: RecoveryPoint) -> None:
        noted = {state.key: state for state in point.queues}
        for queue in self._sound_queues():
            state = noted.get((queue.topic, queue.queue_id))
            if state is None:  # Made after the point was noted.
                fault = queue.recover()
                self._rewind(queue, point.offset)
                fault = fault if queue.max_offset else None
            else:
                self._remember(queue, state.max_offset)
                fault = queue.settle(state, may_begin_later=self.log.min_offset > point.log_start)
            self._note_fault(queue, fault or (self._drop_wrong_end(queue) if state is None else None))

    def _find_queue_ends(self) -> None:
        least = {state.key: state for state in self.point.queues} if self.point is not None else {}
        for queue in self._sound_queues():
            fault = queue.recover()
            state = least.get((queue.topic, queue.queue_id))
            if state is not None and queue.max_offset < state.max_offset:
                fault = f"{queue.max_offset} units are there, where {state.max_offset} were"
            if queue.files.min_offset and not self.log.min_offset:
                fault = "its first files are gone, though the log has all messages"
            self._note_fault(queue, fault or self._drop_wrong_end(queue))

    def _rewind(self, queue: ConsumeQueue, phy_offset: int) -> None:
        self._remember(queue, queue.first_behind(phy_offset))
        queue.rewind(phy_offset)

    def _remember(self, queue: ConsumeQueue, queue_offset: int) -> None:
        if self.after_crash and (units := queue.sound_from(queue_offset)):
            self.rewound[queue.topic, queue.queue_id] = queue_offset, units

    def _keep_numbers(self) -> None:
        """Give no number again that a damaged message at a queue's end had: blanks take its place."""
        for key, (number, units) in self.rewound.items() if self.damaged else ():
            queue = self.queues.get(*key)
            end = queue.max_offset
            for phy_offset, size, _ in UNIT.iter_unpack(units):
                number += 1
                blank = size == BLANK_SIZE and phy_offset == 0
                if number > end and (
                    blank or (phy_offset < self.end and self.damaged.overlaps(phy_offset, phy_offset + size))
                ):
                    queue.pad(number)

    def _sound_queues(self) -> Iterable[ConsumeQueue]:
        return (queue for queue in self.queues if (queue.topic, queue.queue_id) not in self.faults)

    def _note_fault(self, queue: ConsumeQueue, fault: str | None) -> None:
        if fault is not None:
            self.faults[queue.topic, queue.queue_id] = fault

    def _drop_wrong_end(self, queue: ConsumeQueue) -> str | None:
        """Leave out last units that lead to no message, for the walk to find what belongs there; what is wrong with others."""
        dropped = 0
        while (unit := queue.unit(queue.max_offset - 1)) is not None:
            if unit.is_blank or unit.phy_offset < self.log.min_offset:
                return None
            raw = self._read(unit.phy_offset, unit.size)
            entries = scan_records(raw, unit.phy_offset, self.log.file_size, check_crc=False).entries
            if entries and entries[0].size == unit.size:
                return _wrong_owner(queue, entries[0])
            if self.after_crash:
                return None  # What the walk finds is put anew in any case.
            if dropped == _DROPPED_MAX:
                return f"its last {dropped} units lead to no message"
            queue.rewind(unit.phy_offset)
            dropped += 1
        return None

    def _start_without_point(self) -> int:
        behind = max(self.queues.max_phy_offset, self.log.min_offset)
        files = self.log.files.files
        if self.after_crash:
            # Not behind the queues' end: somebody may have deleted them, for us to make them anew.
            start = min(self._vouched_for(), self._file_start(behind))
        else:
            start = min(files[-_RECOVER_FILES:][0].start if files else 0, self._file_start(behind))
        return max(start, self.point.offset) if self.point is not None and not self.faults else start

    def _file_start(self, offset: int) -> int:
        """The start of the file that holds `offset`; the walk begins at a record's start, whatever a queue says."""
        return max(self.log.min_offset, offset - offset % self.log.file_size)

    def _vouched_for(self) -> int:
        """The start of the newest file whose first record is old enough to be on disk; the first file when none is."""
        for file in reversed(self.log.files.files):
            fields = RECORD_V4.unpack(file.read(0, RECORD_V4.size))
            if fields[1] in (MAGIC_V1, MAGIC_V2) and 0 < fields[10] <= self.checkpoint.recover_from_ms:
                return file.start
        return self.log.min_offset

    def _checkpoint_is_wrong(self) -> bool:
        """Whether it vouches for messages newer than any that there is."""
        return (
            self.after_crash
            and self.start > self.log.min_offset
            and self.checkpoint.recover_from_ms > max(self.newest_timestamp, 0)
        )

    # Queues made anew

    def _discard(self, keys: Iterable[Key]) -> None:
        """Empty queues; that they are incomplete from now on is noted first."""
        keys = list(keys)
        if keys:
            self.side.save_rebuild(self.faults)
            for key in keys:
                self.queues.get(*key).discard()

    def _rebuild_below_start(self) -> None:
        if self.faults and self.start > self.log.min_offset:
            self._rebuild(self.faults, self.start)

    def _rebuild(self, keys: Iterable[Key], end: int) -> None:
        rebuilt = rebuild_queues(
            self.log, self.queues, set(keys), end=end, check_crc=self.check_crc, delays_ms=self.delays_ms
        )
        for damaged in rebuilt.damaged:
            self.damaged.add(*damaged)

    def _finish_rebuild(self) -> None:
        """No number is given twice, though the log may no longer have its message. Then all of it goes to the disk."""
        for state in self.point.queues if self.point is not None else ():
            if state.key in self.faults:
                self.queues.get(*state.key).pad(self._padded(state))
        if not self.faults:
            return
        directories = {self.queues.directory}
        for key in self.faults:
            for file in self.queues.get(*key).files.files:
                self._set_time(file)
                sync_data(file.fd)
                directories |= {file.path.parent, file.path.parent.parent}
        for directory in directories:
            sync_directory(directory)
        self.side.save_rebuild(())
        names = [f"{topic}/{queue_id}: {fault}" for (topic, queue_id), fault in sorted(self.faults.items())]
        log_lines.warning(
            "consume queues were made anew from the commit log",
            queues=len(names),
            units=sum(self.queues.get(*key).max_offset for key in self.faults),
            why=names[:10],
        )

    def _set_time(self, file: MappedFile) -> None:
        """A file's time becomes that of its last message: RocketMQ 4.9 finds messages by time with it."""
        raw = file.read(file.wrote - UNIT.size, UNIT.size) if file.wrote else b""
        phy_offset, size, _ = UNIT.unpack(raw) if raw else (0, 0, 0)
        entries = (
            scan_records(self._read(phy_offset, size), phy_offset, self.log.file_size, check_crc=False).entries
            if 0 < size < BLANK_SIZE
            else []
        )
        if entries:
            nanoseconds = entries[0].store_timestamp * 1_000_000
            os.utime(file.fd, ns=(nanoseconds, nanoseconds))

    def _padded(self, state: QueueState) -> int:
        """Up to where numbers were given: all that was noted, unless the log was cut below it."""
        return state.max_offset if state.max_phy_offset <= self.end else 0

    # The walk

    def _walk(self) -> None:
        """From `start` to the end of the log, which becomes `end`."""
        self.end, self.error = self.start, None
        numbers = self.queues.next_offsets()
        damage: int | None = None  # Where the bytes begin that are no record, until it is known what follows.
        gaps: dict[Key, str] = {}
        for offset, scan in walk(
            self.log, self.start, check_crc=self.check_crc, delays_ms=self.delays_ms, zeros_max=self._zeros_max
        ):
            entries, end = scan.entries, offset + scan.consumed
            if scan.error is not None and self.after_crash and entries and self._is_torn(entries[-1], end):
                end, entries = entries[-1].phy_offset, entries[:-1]
            if damage is not None and entries:
                self._dispatch()
                if self._is_left_over(entries, offset):
                    self.error = f"{self.error}, then messages that were cut before"
                    break
                if self.after_crash and self.is_slave:
                    self.error = f"{self.error}; what follows is for the master to send again"
                    break
                self._keep_damage(damage, offset)
                damage = None
            self._take(entries, numbers, gaps)
            if damage is None:
                self.end, self.error = end, scan.error
                damage = end if scan.error is not None else None
        self._dispatch()
        self._fill_gaps(gaps)

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

    def _dispatch(self) -> None:
        """Many messages at a time: with a thousand queues there is a system call for each of them."""
        self.dispatched += sum(map(len, self.queues.put(self.undispatched).values()))
        self.undispatched = []

    def _is_explained(self, entry: DispatchEntry, number: int) -> bool:
        """Whether it is known why messages `number` up to this one are not in its queue."""
        self._dispatch()
        queue = self.queues.get(entry.topic, entry.queue_id)
        if (entry.topic, entry.queue_id) in self.faults or self.start == self.log.min_offset:
            return True  # From the start of the log on there is no more to be had.
        return self.damaged.overlaps(max(queue.max_phy_offset, 0), entry.phy_offset)

    def _fill_gaps(self, gaps: dict[Key, str]) -> None:
        if gaps:
            self.faults |= gaps
            self._discard(gaps)
            self._rebuild(gaps, self.end)

    def _is_left_over(self, entries: list[DispatchEntry], offset: int) -> bool:
        """Whether sound records behind damage are from before a cut: older than the last one, or their number is taken.

        Such records lie in the last file only: a cut deletes all files behind it.
        """
        for file in self.log.files.files:
            if file.start > offset and self._begins_with_record(file.start):
                return False
        before = self.last.store_timestamp if self.last is not None else self.last_of_point.store_timestamp
        if entries[0].store_timestamp < before:
            return True
        seen = set()
        for entry in entries:
            if entry[:2] in seen or entry.sys_flag & TRANSACTION_MASK in QUEUELESS:
                continue
            seen.add(entry[:2])
            queue = self.queues.get(*entry[:2])
            if entry.queue_offset < queue.max_offset:
                unit = queue.unit(entry.queue_offset)
                if unit is None or unit.phy_offset != entry.phy_offset:
                    return True
        return False

    def _begins_with_record(self, offset: int) -> bool:
        size, magic = SIZE_AND_MAGIC.unpack(self._read(offset, SIZE_AND_MAGIC.size))
        if magic not in (MAGIC_V1, MAGIC_V2) or not 0 < size <= self.log.file_size:
            return False
        return is_record(self._read(offset, size), offset, self.log.file_size)

    def _keep_damage(self, start: int, end: int) -> None:
        self.damaged.add(start, end)
        log_lines.error(
            "damaged bytes in the commit log; the messages behind them are kept",
            offset=start,
            bytes=end - start,
            found=self.error,
            advice="copy what is lost from another replica, or this store's files from a backup",
        )

    def _is_torn(self, entry: DispatchEntry, end: int) -> bool:
        """Whether a record's properties end in a sector that was not written: nothing else in a record lacks a check."""
        if entry.phy_offset + entry.size != end:
            return False
        in_last_sector = end % self.log.file_size % _SECTOR or _SECTOR
        raw = self._read(entry.phy_offset, entry.size)
        if in_last_sector >= entry.size or any(raw[-in_last_sector:]):
            return False
        return decode_message(raw, check_crc=False).properties_raw.endswith(b"\0")

    # The end

    def _cut(self) -> Cut:
        """Let the log end at `end`: keep what lies behind it elsewhere, then remove it, durably."""
        cut = self._keep_behind_end()
        if self.point is not None and self.point.offset > self.end:
            self.side.drop_point()
        self.log.files.cut(self.end, is_clear=not self.after_crash and cut.size == 0)
        if self.after_crash or self.queues.max_phy_offset > self.end:
            self.queues.truncate(self.end)
        return cut

    @property
    def _zeros_max(self) -> int:
        return _LOOK_AFTER_CRASH if self.after_crash else _LOOK_AFTER_CLEAN_STOP

    def _keep_behind_end(self) -> Cut:
        size = 0
        for file in self.log.files.files:
            position = max(0, self.end - file.start)
            if position < file.size and not file.is_clear_from(position, self._zeros_max):
                size = file.start + file.data_end(position) - self.end
        if not size:
            return Cut()
        found = self.error or "an unfinished record"
        path, kept = None, 0
        try:
            path, kept = self.side.keep_cut(self.end, size, self._read_behind_end)
        except OSError as error:
            found = f"{found}; not kept: {error}"
        log_lines.warning(
            "bytes behind the last whole record were cut",
            offset=self.end,
            bytes=size,
            found=found,
            kept_in=str(path),
            bytes_kept=kept,
        )
        return Cut(size, found, path, kept)

    def _read_behind_end(self, offset: int, size: int) -> bytes:
        return self._read(offset, min(size, self.log.file_size - offset % self.log.file_size))

    def _last_record(self) -> LastRecord:
        """For the next recovery point."""
        if self.last is None:
            return self.last_of_point
        raw = self._read(self.last.phy_offset, self.last.size)
        return LastRecord(self.last.phy_offset, self.last.size, xxh3_64_intdigest(raw), self.last.store_timestamp)


def _wrong_owner(queue: ConsumeQueue, entry: DispatchEntry) -> str | None:
    """What is wrong when the last unit of a queue leads to this message."""
    expected = queue.topic, queue.queue_id, queue.max_offset - 1
    if entry[:3] == expected or (entry.topic != queue.topic and _MULTI_DISPATCH in entry.properties):
        return None
    return f"its last unit leads to message {entry.queue_offset} of {entry.topic}/{entry.queue_id}"
