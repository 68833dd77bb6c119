"""Recovery of the consume queues: their ends, and the rebuilding of those that are lost or damaged.

See store/recovery/recovery.py. The caller holds the store's lock."""

import os
from collections.abc import Collection, Iterable

import structlog
from attrs import define, field

from twinlog.store.integrity.damage import DamagedRanges
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.log.walk import read_log, walk_in_bulk
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.queue.layout import BLANK_SIZE, UNIT
from twinlog.store.record.multi_dispatch import with_more_queues
from twinlog.store.record.resync import Key
from twinlog.store.record.scan import DispatchEntry, scan_records
from twinlog.store.recovery.point import RecoveryPoint
from twinlog.store.recovery.side_files import SideFiles
from twinlog.store.util.sync import sync_data, sync_directory

log_lines = structlog.get_logger()

_MULTI_DISPATCH = b"INNER_MULTI_DISPATCH\x01"  # A message that RocketMQ puts into more queues than its own.
_DROPPED_MAX = 1000  # Units at the end of a queue.
_REMEMBERED_MAX = 4096  # Units at the end of a queue that are put again; without a checkpoint those are all units.


@define(eq=False)
class QueueRecovery:
    """Open, then settle() or find_ends(), then rebuild() and, once the log was walked, keep_numbers() and finish()."""

    log: CommitLog
    queues: ConsumeQueueTable
    side: SideFiles
    damaged: DamagedRanges
    point: RecoveryPoint | None
    after_crash: bool
    check_crc: bool
    delays_ms: tuple[int, ...]
    faults: dict[Key, str] = field(factory=dict, init=False)  # Queues to rebuild, and why.
    # Units that are put again: the number of the first, and the units.
    rewound: dict[Key, tuple[int, bytes]] = field(factory=dict, init=False)

    def open(self) -> None:
        """Open all queues. Raises StoreDirectoryError when the configuration does not fit them; nothing was changed then."""
        sizes_are_known = self.point is not None and self.point.queue_file_size == self.queues.file_size
        faults = self.queues.open(sizes_are_known=sizes_are_known)
        for key in self.side.load_rebuild():
            self.queues.get(*key)
            faults.setdefault(key, "its rebuild was not finished")
        for state in self.point.queues if self.point is not None else ():
            if state.max_offset > 0 and state.key not in faults and not self.queues.get(*state.key).files.files:
                faults[state.key] = "its files are gone"
        self.faults = faults

    def settle(self, point: RecoveryPoint) -> None:
        """End all queues where they ended at the point."""
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

    def find_ends(self) -> None:
        """Find the end of each queue in its files."""
        least = {state.key: state for state in self.point.queues} if self.point is not None else {}
        for queue in self._sound_queues():
            fault = queue.recover()
            state = least.get((queue.topic, queue.queue_id))
            if state is not None and queue.max_offset < state.max_offset:
                fault = f"{queue.max_offset} units are there, where {state.max_offset} were"
            if queue.files.min_offset and not self.log.min_offset:
                fault = "its first files are gone, though the log has all messages"
            self._note_fault(queue, fault or self._drop_wrong_end(queue))

    def rewind(self, start: int) -> None:
        """End all queues before the messages at or behind `start`, which are put again."""
        for queue in self._sound_queues():
            self._rewind(queue, start)

    def _rewind(self, queue: ConsumeQueue, phy_offset: int) -> None:
        self._remember(queue, max(queue.first_behind(phy_offset), queue.max_offset - _REMEMBERED_MAX))
        queue.rewind(phy_offset)

    def _remember(self, queue: ConsumeQueue, queue_offset: int) -> None:
        if self.after_crash and (units := queue.sound_from(queue_offset)):
            self.rewound[queue.topic, queue.queue_id] = queue_offset, units

    def keep_numbers(self, end_of_log: int) -> None:
        """Put blanks for damaged messages at a queue's end, so that their numbers are not used again."""
        for key, (number, units) in self.rewound.items() if self.damaged else ():
            queue = self.queues.get(*key)
            max_offset = queue.max_offset
            for phy_offset, size, _ in UNIT.iter_unpack(units):
                number += 1
                blank = size == BLANK_SIZE and phy_offset == 0
                if number > max_offset and (
                    blank or (phy_offset < end_of_log and self.damaged.overlaps(phy_offset, phy_offset + size))
                ):
                    queue.pad(number)

    def _sound_queues(self) -> Iterable[ConsumeQueue]:
        return (queue for queue in self.queues if (queue.topic, queue.queue_id) not in self.faults)

    def _note_fault(self, queue: ConsumeQueue, fault: str | None) -> None:
        if fault is not None:
            self.faults[queue.topic, queue.queue_id] = fault

    def _drop_wrong_end(self, queue: ConsumeQueue) -> str | None:
        """Drop last units that lead to no message; the walk finds the right ones. Returns the fault of other units."""
        dropped = 0
        while (unit := queue.unit(queue.max_offset - 1)) is not None:
            if unit.is_blank or unit.phy_offset < self.log.min_offset:
                return None
            raw = read_log(self.log, unit.phy_offset, unit.size)
            entries = scan_records(raw, unit.phy_offset, self.log.file_size, check_crc=False).entries
            if entries and entries[0].size == unit.size:
                return _wrong_owner(queue, entries[0])
            if self.after_crash:
                return None  # The walk puts its records again in any case.
            if dropped == _DROPPED_MAX:
                return f"its last {dropped} units lead to no message"
            queue.rewind(unit.phy_offset)
            dropped += 1
        return None

    def discard(self, keys: Iterable[Key]) -> None:
        """Empty queues, after noting that they are incomplete from now on."""
        keys = list(keys)
        if keys:
            self.side.save_rebuild(self.faults)
            for key in keys:
                self.queues.get(*key).discard()

    def rebuild(self, keys: Collection[Key], end: int) -> None:
        """Put every record of the log below `end` into its queue, if that is one of these, which are empty.

        Units are written byte for byte as they were: a queue whose first messages the log no longer has begins behind blanks,
        and blanks stand for messages that are damaged. Raises OSError; call again with emptied queues then.
        """
        begin, wanted = self.log.min_offset, set(keys)
        if not wanted or end <= begin:
            return
        damage: int | None = None
        for offset, scan in walk_in_bulk(self.log, begin, end, check_crc=self.check_crc, delays_ms=self.delays_ms):
            if damage is not None:
                self.damaged.add(damage, offset)
            damage = offset + scan.consumed if scan.error is not None else None
            if isinstance(scan.entries, list):
                self.queues.put(entry for entry in with_more_queues(scan.entries) if entry[:2] in wanted)
            else:
                from twinlog.store.queue.columns import of_queues

                self.queues.put_columns(of_queues(scan.entries, wanted))
        if damage is not None and damage < end:
            self.damaged.add(damage, end)

    def finish(self, end_of_log: int) -> None:
        """Pad rebuilt queues, so that no number is used twice, and bring them to the disk."""
        for state in self.point.queues if self.point is not None else ():
            # Unless the log was cut below.
            if state.key in self.faults and state.max_phy_offset <= end_of_log:
                self.queues.get(*state.key).pad(state.max_offset)
        if not self.faults:
            return
        directories = {self.queues.directory}
        for key in self.faults:
            for file in self.queues.get(*key).files.files:
                file.write_late()
                self._set_time(file)
                sync_data(file.fd)
                directories |= {file.path.parent, file.path.parent.parent}
        for directory in directories:
            sync_directory(directory)
        self.side.save_rebuild(())
        names = [f"{topic}/{queue_id}: {fault}" for (topic, queue_id), fault in sorted(self.faults.items())]
        log_lines.warning(
            "consume queues were rebuilt from the commit log",
            queues=len(names),
            units=sum(self.queues.get(*key).max_offset for key in self.faults),
            why=names[:10],
        )

    def _set_time(self, file: MappedFile) -> None:
        """A file's time becomes that of its last message: RocketMQ 4.9 finds messages by time with it."""
        raw = file.read(file.wrote - UNIT.size, UNIT.size) if file.wrote else b""
        phy_offset, size, _ = UNIT.unpack(raw) if raw else (0, 0, 0)
        record = read_log(self.log, phy_offset, size) if 0 < size < BLANK_SIZE else b""
        entries = scan_records(record, phy_offset, self.log.file_size, check_crc=False).entries
        if entries:
            nanoseconds = entries[0].store_timestamp * 1_000_000
            os.utime(file.fd, ns=(nanoseconds, nanoseconds))


def _wrong_owner(queue: ConsumeQueue, entry: DispatchEntry) -> str | None:
    """The fault of a last unit that leads to this message."""
    expected = queue.topic, queue.queue_id, queue.max_offset - 1
    if entry[:3] == expected or (entry.topic != queue.topic and _MULTI_DISPATCH in entry.properties):
        return None
    return f"its last unit leads to message {entry.queue_offset} of {entry.topic}/{entry.queue_id}"
