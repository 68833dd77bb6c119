"""Checks the records of one stretch of the log, and the units of consume queues that belong to them.

Stretches, usually files, are checked apart from one another, perhaps in other processes. Each yields segments, runs of sound
records without a gap, with the data to join them. Units and numbers that do not fit are only noted here (a suspect, a jump):
the queue may have been numbered anew later in the log, or the unit may be on its way to the disk.
"""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, NamedTuple

from attrs import define, evolve, field, frozen

from twinlog.store.integrity.digest import DigestBlock
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.finding import Finding, FindingKind, Findings, Severity, queue_finding
from twinlog.store.offline.queue_view import QueueKey, read_units
from twinlog.store.offline.verify.digest_check import DigestCheck
from twinlog.store.offline.verify.index_items import IndexCursor, Stray
from twinlog.store.offline.walk import Gap, Window, walk
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.message import FIXED_SIZE, QUEUELESS, TRANSACTION_MASK
from twinlog.store.record.multi_dispatch import MULTI_DISPATCHED, dispatched_queues
from twinlog.store.record.resync import Head, head_of
from twinlog.store.record.scan import DispatchEntry

_SUSPECT_BYTES_MAX = 16 << 20
_BODY_CRC_AT = 8


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
    directory: StoreDirectory, start: int, end: int, progress: Callable[[int], None]
) -> Iterator[Segment | Gap]:
    """Segments and gaps of bytes `start` to `end` of the log, in order. `progress` is called with bytes done. Raises OSError.

    The first segment begins at `start`; when the log begins with damage there, it is empty.
    """
    segment = Segment(start, start)
    index = IndexCursor.at(directory, start, end)
    pieces = walk(
        directory.log,
        start,
        end,
        delays_ms=directory.options.delays_ms,
        may_grow=directory.is_running,
        after_crash=directory.has_crashed,
    )
    for piece in pieces:
        if isinstance(piece, Gap):
            index.finish(segment.findings)
            index.skip(piece, segment.strays)
            yield segment
            yield piece
            segment = Segment(piece.end, piece.end)
        else:
            if segment.head is None and piece.entries:
                segment.head = head_of(piece.entries)
            _Checker(directory, segment).check(piece)
            index.check(piece, segment.strays, segment.findings)
            segment.end = piece.end
        progress(piece.end - piece.start)
    index.finish(segment.findings)
    segment.strays += index.rest()
    yield segment


@define(eq=False)
class _Checker:
    """Adds windows of records to a segment."""

    directory: StoreDirectory
    segment: Segment
    _runs: dict[QueueKey, list[bytes]] = field(factory=dict)
    _starts: dict[QueueKey, int] = field(factory=dict)

    def check(self, window: Window) -> None:
        segment, runs, starts, nexts = self.segment, self._runs, self._starts, self.segment.next_offsets
        pack, batch_topics = UNIT.pack, self.directory.batch_topics
        last_timestamp = segment.last_timestamp
        if segment.head is not None and not segment.records:
            last_timestamp = segment.head.timestamp
        segment.records += len(window.entries)
        for entry in window.entries:
            topic, queue_id, queue_offset, phy_offset, size, code, timestamp, sys_flag, properties = entry
            if timestamp < last_timestamp:
                self._note_time(phy_offset, last_timestamp, timestamp)
            last_timestamp = timestamp
            if size - len(topic) - len(properties) == FIXED_SIZE:
                self._check_empty_body(window, phy_offset)
            if sys_flag & TRANSACTION_MASK in QUEUELESS or topic in batch_topics:
                continue
            key = topic, queue_id
            unit = pack(phy_offset, size, code)
            if nexts.get(key) != queue_offset:
                queue_offset = self._jump(key, queue_offset, unit)
            nexts[key] = queue_offset + 1
            run = runs.get(key)
            if run is None:
                runs[key], starts[key] = [unit], queue_offset
            else:
                run.append(unit)
            if MULTI_DISPATCHED in properties:
                self._check_multi_dispatch(entry)
        segment.last_timestamp = last_timestamp
        for key in runs:
            self._compare(key, starts[key], b"".join(runs[key]))

    def _note_time(self, phy_offset: int, before: int, timestamp: int) -> None:
        self.segment.times_back += 1
        if self.segment.first_time_back is None:
            self.segment.first_time_back = phy_offset, before, timestamp

    def _check_empty_body(self, window: Window, phy_offset: int) -> None:
        at = phy_offset - window.start + _BODY_CRC_AT
        if any(window.data[at : at + 4]):
            crc = int.from_bytes(window.data[at : at + 4])
            self.segment.findings.add(
                Finding(
                    kind=FindingKind.DAMAGED_RECORD,
                    phy_offset=phy_offset,
                    message="a record without a body has a CRC",
                    expected=0,
                    actual=crc,
                )
            )

    def _jump(self, key: QueueKey, found: int, unit: bytes) -> int:
        """Handle a record that does not continue its queue; returns the queue offset that it counts as."""
        expected = self.segment.next_offsets.get(key)
        if expected is None:
            self.segment.spans[key] = FirstMessage(found, unit)
            return found
        if read_units(self.directory, key, expected, len(unit)) == unit:  # Its queue knows better.
            self.segment.findings.add(wrong_number(key, expected, found, phy_offset_of(unit)))
            return expected
        if key in self._runs:
            self._compare(key, self._starts.pop(key), b"".join(self._runs.pop(key)))
        self.segment.jumps.append(Jump(key, expected, found, unit))
        return found

    def _compare(self, key: QueueKey, queue_offset: int, units: bytes) -> None:
        if read_units(self.directory, key, queue_offset, len(units)) == units:
            return
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
                self._compare(key, queue_offset, UNIT.pack(entry.phy_offset, entry.size, entry.tags_code))
                self.segment.spans.setdefault(key, FirstMessage(queue_offset, b""))
                self.segment.next_offsets[key] = queue_offset + 1


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
    directory: StoreDirectory, digests: DigestCheck, start: int, end: int, progress: Callable[[int], None]
) -> CheckedPart:
    part = evolve(digests, differing=[], checked_bytes=0)
    try:
        pieces = list(check_log(directory, start, end, progress))
        part.check(start, end, progress)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and directory.is_running:
            return CheckedPart(end, [], [], 0, is_gone=True)
        return CheckedPart(end, [Gap(start, end, f"it cannot be read: {error}")], [], 0, unreadable=str(error))
    return CheckedPart(end, pieces, part.differing, part.checked_bytes)


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
