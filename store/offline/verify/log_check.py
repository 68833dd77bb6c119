"""Checks the records of one stretch of the log, and the units of consume queues that belong to them.

Stretches, usually files, are checked apart from one another, perhaps in other processes. Each yields segments, runs of sound
records without a gap, with the data to join them. Units and numbers that do not fit are only noted here (a suspect, a jump):
the queue may have been numbered anew later in the log, or the unit may be on its way to the disk.
"""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from attrs import define, evolve, field, frozen

from twinlog.store.integrity.digest import DigestBlock
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.finding import Finding, FindingKind, Findings, Severity, queue_finding
from twinlog.store.offline.queue_view import QueueKey, read_units
from twinlog.store.offline.verify.digest_check import NOTHING_COMPARED, ComparedDigests, DigestCheck
from twinlog.store.offline.verify.index_items import IndexCursor, Stray
from twinlog.store.offline.verify.unit_batch import QueueUnits, UnitBatch, differing
from twinlog.store.offline.verify.window import ColumnWindow, head_of, walk_columns
from twinlog.store.offline.walk import Gap
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.columns import Columns, rows
from twinlog.store.record.message import ANY_V6, QUEUELESS, TRANSACTION_MASK
from twinlog.store.record.multi_dispatch import MULTI_DISPATCHED, dispatched_queues
from twinlog.store.record.resync import Head
from twinlog.store.record.scan import DispatchEntry

_SUSPECT_BYTES_MAX = 16 << 20
_UNITS_AT_ONCE = 1 << 17
_BODY_CRC_AT, _BODY_SIZE_AT, _I32 = 8, 84, 4


class Suspect(NamedTuple):
    """Units from `queue_offset` on of a queue should be `units`, but differ."""

    key: QueueKey
    queue_offset: int
    units: bytes


class Jump(NamedTuple):
    """A record, whose unit is `unit`, has another queue offset than follows from the one before in its queue."""

    key: QueueKey
    expected: int
    found: int
    unit: bytes


def phy_offset_of(units: bytes) -> int:
    """The log offset of the first one's record."""
    return int(UNIT.unpack_from(units)[0])


class FirstMessage(NamedTuple):
    """The first message of a queue in a segment."""

    first: int
    unit: bytes


@define(eq=False)
class Segment:
    """Bytes `start` to `end` of the log hold sound records and blanks only. `gap` follows, if it is not the next segment."""

    start: int
    end: int
    records: int = 0
    last_timestamp: int = 0
    head: Head | None = None  # None: there is no record in it.
    spans: dict[QueueKey, FirstMessage] = field(factory=dict)
    next_offsets: dict[QueueKey, int] = field(factory=dict)
    jumps: list[Jump] = field(factory=list)
    suspects: list[Suspect] = field(factory=list)
    suspect_bytes: int = 0
    strays: list[Stray] = field(factory=list)  # Index items that do not belong to the record they should.
    findings: Findings = field(factory=Findings)
    times_back: int = 0
    first_time_back: tuple[int, int, int] | None = None  # Physical offset, time before, time.


def check_log(
    directories: Sequence[StoreDirectory], start: int, end: int, progress: Callable[[int], None]
) -> list[list[Segment | Gap]]:
    """Segments and gaps of bytes `start` to `end` of the log of each store, in order. Raises OSError.

    Several stores have the same bytes there: the first one's are read, and compared with the queues and the index of each.
    `progress` is called with bytes done. The first segment begins at `start`; when the log begins with damage there, it is empty.
    """
    walked, batch = directories[0], UnitBatch()
    stretches = [_Stretch.at(directory, start, end) for directory in directories]
    pieces = walk_columns(
        walked.log,
        start,
        end,
        delays_ms=walked.options.delays_ms,
        may_grow=any(directory.is_running for directory in directories),
        after_crash=walked.has_crashed,
    )
    for piece in pieces:
        if isinstance(piece, Gap):
            _compare(batch, stretches)
            for stretch in stretches:
                stretch.skip(piece)
        else:
            _check_window(piece, batch, stretches)
        progress((piece.end - piece.start) * len(directories))
    _compare(batch, stretches)
    return [stretch.finish() for stretch in stretches]


def _check_window(window: ColumnWindow, batch: UnitBatch, stretches: "Sequence[_Stretch]") -> None:
    directory = stretches[0].directory
    empty = list(_empty_bodies_with_crc(window))
    for stretch in stretches:
        stretch.take(window, empty)
    if window.has_more_queues:
        _compare(batch, stretches)
        entries = window.entries(directory.log.file_size, directory.options.delays_ms)
        for stretch in stretches:
            stretch.check_entries(entries)
        return
    batch.add(window.records)
    if batch.count >= _UNITS_AT_ONCE:
        _compare(batch, stretches)


def _compare(batch: UnitBatch, stretches: "Sequence[_Stretch]") -> None:
    for units in batch.take():
        for stretch in stretches:
            stretch.check_units(units)
    for stretch in stretches:
        stretch.sort_jumps()


def _empty_bodies_with_crc(window: ColumnWindow) -> Iterator[Finding]:
    """Records without a body whose CRC is not zero: the scan, like RocketMQ, does not look at it."""
    records = window.records
    at = records.phy_offset[records.sys_flag & ANY_V6 == 0] - window.start
    if not len(at):
        return
    at = at[rows(window.data, _I32, at + _BODY_SIZE_AT).view(">i4").ravel() == 0]
    for place, crc in zip(
        at.tolist(), rows(window.data, _I32, at + _BODY_CRC_AT).view(">u4").ravel().tolist(), strict=True
    ):
        if crc:
            yield Finding(
                kind=FindingKind.DAMAGED_RECORD,
                phy_offset=window.start + place,
                message="a record without a body has a CRC",
                expected=0,
                actual=crc,
            )


@define(eq=False)
class _Stretch:
    """The check of one store's part in a stretch of the log."""

    directory: StoreDirectory
    index: IndexCursor
    segment: Segment
    pieces: list[Segment | Gap] = field(factory=list)
    _sorted: int = 0  # Jumps that are in the order of the log.

    @classmethod
    def at(cls, directory: StoreDirectory, start: int, end: int) -> "_Stretch":
        return cls(directory, IndexCursor.at(directory, start, end), Segment(start, start))

    def take(self, window: ColumnWindow, empty_bodies: Sequence[Finding]) -> None:
        """Check all of a window but its units."""
        segment, records = self.segment, window.records
        if len(records):
            if segment.head is None:
                segment.head = head_of(records)
                segment.last_timestamp = segment.head.timestamp
            self._check_times(records)
            segment.records += len(records)
        for finding in empty_bodies:
            segment.findings.add(finding)
        self.index.check(window.start, window.end, records.keys, segment.strays, segment.findings)
        segment.end = window.end

    def _check_times(self, records: Columns) -> None:
        segment, times = self.segment, records.store_timestamp
        before = np.append(segment.last_timestamp, times[:-1])
        back = np.flatnonzero(times < before)
        segment.times_back += len(back)
        if len(back) and segment.first_time_back is None:
            number = int(back[0])
            segment.first_time_back = int(records.phy_offset[number]), int(before[number]), int(times[number])
        segment.last_timestamp = int(times[-1])

    def skip(self, gap: Gap) -> None:
        """End the segment at a gap; the next one begins behind it."""
        self.index.finish(self.segment.findings)
        self.index.skip(gap, self.segment.strays)
        self.pieces += (self.segment, gap)
        self.segment, self._sorted = Segment(gap.end, gap.end), 0

    def finish(self) -> list[Segment | Gap]:
        """All segments and gaps."""
        self.index.finish(self.segment.findings)
        self.segment.strays += self.index.rest()
        return [*self.pieces, self.segment]

    def check_units(self, units: QueueUnits) -> None:
        """Compare the units of some records with their queue."""
        key, nexts = units.key, self.segment.next_offsets
        if key[0] in self.directory.batch_topics:
            return
        first, expected = int(units.offsets[0]), nexts.get(key)
        if not units.is_run or expected not in (None, first):
            raw = units.units
            run = _Run(self, key)
            for number, queue_offset in enumerate(units.offsets.tolist()):
                run.add(queue_offset, raw[number * UNIT.size : (number + 1) * UNIT.size])
            run.compare()
            return
        if expected is None:
            self.segment.spans[key] = FirstMessage(first, units.units[: UNIT.size])
        nexts[key] = first + len(units.offsets)
        self.compare(key, first, units.units)

    def check_entries(self, entries: Sequence[DispatchEntry]) -> None:
        """The same for records of which some may be in further queues."""
        runs: dict[QueueKey, _Run] = {}
        for entry in entries:
            if entry.sys_flag & TRANSACTION_MASK in QUEUELESS or entry.topic in self.directory.batch_topics:
                continue
            key = entry.topic, entry.queue_id
            if key not in runs:
                runs[key] = _Run(self, key)
            runs[key].add(entry.queue_offset, UNIT.pack(entry.phy_offset, entry.size, entry.tags_code))
            if MULTI_DISPATCHED in entry.properties:
                self._check_multi_dispatch(entry)
        for run in runs.values():
            run.compare()

    def sort_jumps(self) -> None:
        """Put the jumps of all queues in the order of the log."""
        jumps, done = self.segment.jumps, self._sorted
        jumps[done:] = sorted(jumps[done:], key=lambda jump: phy_offset_of(jump.unit))
        self._sorted = len(jumps)

    def compare(self, key: QueueKey, queue_offset: int, units: bytes) -> None:
        """Note units that are not those of the queue."""
        found = read_units(self.directory, key, queue_offset, len(units))
        if found == units:
            return
        for number, expected in differing(units, found):
            self._suspect(key, queue_offset + number, expected)

    def _suspect(self, key: QueueKey, queue_offset: int, units: bytes) -> None:
        segment = self.segment
        segment.suspect_bytes += len(units)
        if segment.suspect_bytes <= _SUSPECT_BYTES_MAX:
            segment.suspects.append(Suspect(key, queue_offset, units))
            return
        message = "some of these units are missing or wrong; they are too many to list"
        phy_offset, count = phy_offset_of(units), len(units) // UNIT.size
        segment.findings.add(
            queue_finding(FindingKind.UNIT_WRONG, key, queue_offset, message, phy_offset=phy_offset, count=count)
        )

    def _check_multi_dispatch(self, entry: DispatchEntry) -> None:
        """Check the further queues of a record; one without a directory is not filled by the broker."""
        for topic, queue_id, queue_offset in dispatched_queues(entry):
            key = topic, queue_id
            if key in self.directory.queues:
                self.compare(key, queue_offset, UNIT.pack(entry.phy_offset, entry.size, entry.tags_code))
                self.segment.spans.setdefault(key, FirstMessage(queue_offset, b""))
                self.segment.next_offsets[key] = queue_offset + 1


@define(eq=False)
class _Run:
    """Units of one queue, one by one: where their numbers do not follow."""

    stretch: _Stretch
    key: QueueKey
    start: int = 0
    units: list[bytes] = field(factory=list)

    def add(self, queue_offset: int, unit: bytes) -> None:
        nexts = self.stretch.segment.next_offsets
        if nexts.get(self.key) != queue_offset:
            queue_offset = self._jump(queue_offset, unit)
        nexts[self.key] = queue_offset + 1
        if not self.units:
            self.start = queue_offset
        self.units.append(unit)

    def _jump(self, found: int, unit: bytes) -> int:
        """Handle a record that does not continue its queue; returns the queue offset that it counts as."""
        segment = self.stretch.segment
        expected = segment.next_offsets.get(self.key)
        if expected is None:
            segment.spans[self.key] = FirstMessage(found, unit)
            return found
        if read_units(self.stretch.directory, self.key, expected, len(unit)) == unit:  # Its queue knows better.
            segment.findings.add(wrong_number(self.key, expected, found, phy_offset_of(unit)))
            return expected
        self.compare()
        segment.jumps.append(Jump(self.key, expected, found, unit))
        return found

    def compare(self) -> None:
        """Compare the run so far with the queue."""
        units, self.units = b"".join(self.units), []
        if units:
            self.stretch.compare(self.key, self.start, units)


def wrong_number(key: QueueKey, expected: int, found: int, phy_offset: int) -> Finding:
    """A record names another queue offset than the one where its unit is."""
    message = "the record's queue offset is wrong: its unit is at the expected one"
    return queue_finding(
        FindingKind.QUEUE_OFFSET, key, expected, message, phy_offset=phy_offset, expected=expected, actual=found
    )


def time_finding(segment: Segment) -> Finding | None:
    """The finding about a clock that went back; None if it did not."""
    if segment.first_time_back is None:
        return None
    phy_offset, before, timestamp = segment.first_time_back
    return Finding(
        kind=FindingKind.STORE_TIME,
        severity=Severity.WARNING,
        phy_offset=phy_offset,
        message="stored before the record in front of it: the broker's clock was set back, or the time is damaged",
        expected=f">= {before}",
        actual=timestamp,
        count=segment.times_back,
    )


_PROGRESS_SECONDS = 0.1


@frozen
class CheckedPart:
    """Result for one file of the log. `is_gone`: a running broker removed it."""

    end: int
    pieces: list[Segment | Gap]
    differing: list[DigestBlock]
    digest_bytes: int
    is_gone: bool = False
    unreadable: str | None = None  # Why the file cannot be read.


def check_part(
    directory: StoreDirectory,
    digests: DigestCheck,
    start: int,
    end: int,
    progress: Callable[[int], None],
    known: ComparedDigests = NOTHING_COMPARED,
) -> CheckedPart:
    """Check bytes `start` to `end` of the log of a store; a file that cannot be read is told in the answer."""
    try:
        (part,) = check_parts([(directory, digests, known)], start, end, progress)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and directory.is_running:
            return CheckedPart(end, [], [], 0, is_gone=True)
        return CheckedPart(end, [Gap(start, end, f"it cannot be read: {error}")], [], 0, unreadable=str(error))
    return part


def check_parts(
    stores: Sequence[tuple[StoreDirectory, DigestCheck, ComparedDigests]],
    start: int,
    end: int,
    progress: Callable[[int], None],
) -> list[CheckedPart]:
    """The same for several stores whose logs have the same bytes there, which are read from the first one. Raises OSError.

    Blocks that were not compared with the side file before are read from each store.
    """
    checked = check_log([directory for directory, _, _ in stores], start, end, progress)
    parts = []
    for pieces, (_, digests, known) in zip(checked, stores, strict=True):
        part = evolve(digests, differing=[], checked_bytes=0)
        part.check(start, end, progress, known)
        parts.append(CheckedPart(end, pieces, part.differing, part.checked_bytes))
    return parts


_worker: Any = None  # In a process of the pool: directory, digests, counter.


def _open_worker(root: Path, options: DirectoryOptions, done: "Synchronized[int]") -> None:
    global _worker
    directory = StoreDirectory.open(root, options)
    _worker = directory, DigestCheck.open(directory), done


def _check_in_worker(start: int, end: int) -> CheckedPart:
    directory, digests, done = _worker

    def advance(count: int) -> None:
        with done.get_lock():
            done.value += count

    return check_part(directory, digests, start, end, advance)


def check_in_processes(
    directory: StoreDirectory, ranges: list[tuple[int, int]], processes: int, progress: Callable[[int], None]
) -> Iterator[CheckedPart]:
    """The parts in order. New processes, not forks: this one may have threads."""
    context = multiprocessing.get_context("spawn")
    done = context.Value("q", 0)
    arguments = directory.root, directory.options, done
    with ProcessPoolExecutor(processes, context, _open_worker, arguments) as pool:
        futures = [pool.submit(_check_in_worker, start, end) for start, end in ranges]
        try:
            for future in futures:
                while wait_for([future], timeout=_PROGRESS_SECONDS).not_done:
                    progress(done.value)
                yield future.result()
                progress(done.value)
        finally:
            for future in futures:
                future.cancel()
