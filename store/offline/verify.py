"""Checks a whole store directory, and reports everything that does not fit. Nothing is written, no lock is taken.

Most facts of a store are in it twice: a place is in the record and in its queue, the tags in both, the keys in record and
index; a body has a CRC, a slot's chain follows from the items. Which bytes that covers is in store/offline/coverage.py. The log
is read once, each of its files apart, in several processes when it is large; then the parts are put together.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from enum import StrEnum
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from store.consume_queue import UNIT
from store.damage import DamagedRanges
from store.digest import Block
from store.index_keys import keys_of
from store.message import RECORD_SIZE_MIN, SIZE_AND_MAGIC
from store.offline.config_check import check_checkpoint, check_config, check_recovery_point, known_topics
from store.offline.digest_check import DigestCheck
from store.offline.directory import DirectoryOptions, StoreDirectory
from store.offline.finding import Finding, Kind, Severity
from store.offline.findings import Findings
from store.offline.index_check import check_index_file, check_times
from store.offline.index_items import IndexView, Stray, find_item, open_index
from store.offline.log_check import QueueKey, Segment, check_log, read_units, time_finding
from store.offline.queue_check import QueueCheck, queue_ends
from store.offline.walk import Gap, Head, goes_on
from store.record_scan import DispatchEntry, scan_records

Progress = Callable[[int, int], None]  # Bytes of log done, in all.
_PARALLEL_FROM = 256 << 20  # Bytes of log from which more processes pay.
_PROGRESS_SECONDS = 0.1
_TAIL_LOOK = 1 << 20
_SETTLE_SECONDS = 0.5  # How long a running broker gets to bring its queues level with the log.


class Verdict(StrEnum):
    """What it comes to."""

    SOUND = "sound"
    WARNINGS = "warnings"  # Worth a look; no message is harmed.
    DAMAGED = "damaged"


@frozen(kw_only=True)
class VerifyReport:
    """What was looked at, and what was found. Offsets and sizes in bytes; of very many findings the first are listed."""

    root: str
    verdict: Verdict
    log_start: int
    log_end: int
    records: int
    queues: int
    units: int
    index_files: int
    index_items: int
    digest_bytes: int
    damaged_bytes: int
    errors: int
    warnings: int
    findings: tuple[Finding, ...]
    findings_omitted: int
    seconds: float


def verify(
    directory: StoreDirectory, *, progress: Progress | None = None, processes: int | None = None
) -> VerifyReport:
    """Check everything. `processes`: at most so many, 1 for none but this; None: as the size of the log suggests.

    A file of the log that the disk does not give is a finding. Raises OSError when it is one of the others.
    """
    return _Verification(directory, progress or (lambda _done, _total: None), processes).run()


@define(eq=False)
class _Verification:
    directory: StoreDirectory
    progress: Progress
    processes: int | None
    findings: Findings = field(factory=Findings)
    damaged: DamagedRanges = field(factory=DamagedRanges)
    digests: DigestCheck = field(init=False)
    queues: QueueCheck = field(init=False)
    strays: list[Stray] = field(factory=list)
    log_start: int = 0
    log_end: int = 0
    records: int = 0
    last_timestamp: int = 0
    _gap: Gap | None = None
    _ended: bool = False

    def run(self) -> VerifyReport:
        started, directory = time.monotonic(), self.directory
        self.log_start = self.log_end = directory.log.min_offset
        self.digests = DigestCheck.open(directory)
        self.queues = QueueCheck(directory, self.findings, self.damaged, known_topics(directory))
        self._add(directory.findings)
        for part in self._parts():
            self._join_part(part)
        self._check_tail()
        self._add(self.digests.findings(self.log_end))
        if directory.is_running:
            time.sleep(_SETTLE_SECONDS)
        self.queues.finish(self.log_start, self.log_end)
        views = open_index(directory)
        self._check_index(views)
        ends = queue_ends(directory) | self.queues.next_offsets
        self._add(check_recovery_point(directory, self.log_end, ends))
        self._add(check_checkpoint(directory, self.last_timestamp))
        self._add(check_config(directory, ends))
        return self._report(views, time.monotonic() - started)

    def _add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.findings.add(finding)

    def _report(self, views: tuple[IndexView, ...], seconds: float) -> VerifyReport:
        errors, warnings = self.findings.total(Severity.ERROR), self.findings.total(Severity.WARNING)
        kept = sorted(self.findings.kept, key=lambda finding: finding.severity is not Severity.ERROR)
        return VerifyReport(
            root=str(self.directory.root),
            verdict=Verdict.DAMAGED if errors else Verdict.WARNINGS if warnings else Verdict.SOUND,
            log_start=self.log_start,
            log_end=self.log_end,
            records=self.records,
            queues=len(self.directory.queues),
            units=self.queues.units,
            index_files=len(views),
            index_items=sum(view.end - 1 for view in views),
            digest_bytes=self.digests.checked_bytes,
            damaged_bytes=self.damaged.total,
            errors=errors,
            warnings=warnings,
            findings=tuple(kept),
            findings_omitted=errors + warnings - sum(finding.count for finding in kept),
            seconds=round(seconds, 3),
        )

    # The log

    def _parts(self) -> Iterator["_Part"]:
        """The log's files one after the other, each checked; missing ones in between, too."""
        log = self.directory.log
        ranges = [(start, start + log.file_size) for start in range(log.min_offset, log.end, log.file_size)]
        size = sum(file.size for file in log.files)
        digests = self.digests.digests
        total = size + (digests.end - digests.start if digests is not None else 0)
        processes = min(self.processes or os.cpu_count() or 1, len(ranges))
        if processes > 1 and (self.processes is not None or size >= _PARALLEL_FROM):
            yield from _check_in_processes(self.directory, ranges, processes, lambda done: self.progress(done, total))
            return
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self.progress(min(done, total), total)

        for start, end in ranges:
            yield _check_part(self.directory, self.digests, start, end, advance)

    def _join_part(self, part: "_Part") -> None:
        self.digests.take(part.differing, part.digest_bytes)
        if part.is_gone and not self.records:
            self.log_start = self.log_end = part.end
        if part.unreadable is not None:
            self.findings.add(self._unreadable(part))
        for piece in part.pieces:
            if not self._ended:
                self._join(piece)

    def _unreadable(self, part: "_Part") -> Finding:
        file = self.directory.log.file_at(part.end - 1)
        return Finding(
            kind=Kind.UNREADABLE_FILE,
            file=self.directory.relative(file.path) if file is not None else None,
            message=f"the disk does not give it: {part.unreadable}",
        )

    def _join(self, piece: Segment | Gap) -> None:
        if isinstance(piece, Gap):
            self._gap = Gap(self._gap.start, piece.end, self._gap.reason) if self._gap is not None else piece
            self._ended = piece.is_end
            return
        if self._gap is not None and piece.head is None:  # A blank alone proves nothing.
            self._gap = Gap(self._gap.start, piece.end, self._gap.reason)
            self.strays += piece.strays
            return
        if self._gap is not None and piece.head is not None:
            if not self._is_damage(self._gap, piece.head):
                self._ended = True
                return
            self._note_damage(self._gap)
            self._gap = None
        self._take(piece)

    def _is_damage(self, gap: Gap, head: Head) -> bool:
        if not goes_on(self.directory.log, self.last_timestamp, self.queues.next_offsets, head, self._place_of):
            return False
        return not (self.directory.is_running and self._record_at(gap.start) is not None)  # Else it was the moving end.

    def _place_of(self, key: QueueKey, number: int) -> int | None:
        raw = read_units(self.directory, key, number, UNIT.size)
        return int(UNIT.unpack(raw)[0]) if len(raw) == UNIT.size else None

    def _note_damage(self, gap: Gap) -> None:
        self.damaged.add(gap.start, gap.end)
        file = self.directory.log.file_at(gap.start)
        self.findings.add(
            Finding(
                kind=Kind.DAMAGED_RECORD,
                file=self.directory.relative(file.path) if file is not None else None,
                position=gap.start - file.start if file is not None else None,
                phy_offset=gap.start,
                message=f"the {gap.end - gap.start} bytes up to {gap.end} hold no sound record: {gap.reason}",
            )
        )

    def _take(self, segment: Segment) -> None:
        if segment.head is not None and segment.head.timestamp < self.last_timestamp:
            segment.times_back += 1
            segment.first_time_back = segment.head.phy_offset, self.last_timestamp, segment.head.timestamp
        self._add(filter(None, [time_finding(segment)]))
        self.queues.join(segment)
        self.findings.merge(segment.findings)
        self.strays += segment.strays
        self.records += segment.records
        self.last_timestamp = segment.last_timestamp if segment.records else self.last_timestamp
        self.log_end = segment.end

    def _check_tail(self) -> None:
        """Something behind the end that is no record: left by a cut, by a crash, or the last message is damaged."""
        piece = self.directory.log.read(self.log_end, _TAIL_LOOK)
        if self._gap is not None and piece.strip(b"\0") and not self.directory.is_running:
            self.findings.add(
                Finding(
                    kind=Kind.LOG_TAIL,
                    severity=Severity.WARNING,
                    phy_offset=self.log_end,
                    message=f"behind the end of the log lies something that is none of its records: {self._gap.reason}",
                )
            )

    def _record_at(self, phy_offset: int) -> DispatchEntry | None:
        """The sound record that begins at an offset, if one does."""
        if self.damaged.overlaps(phy_offset, phy_offset + 1):
            return None
        log = self.directory.log
        head = log.read(phy_offset, SIZE_AND_MAGIC.size)
        size = SIZE_AND_MAGIC.unpack(head)[0] if len(head) == SIZE_AND_MAGIC.size else 0
        if not RECORD_SIZE_MIN <= size <= log.file_size:
            return None
        scan = scan_records(log.read(phy_offset, size), phy_offset, log.file_size, check_crc=True)
        return scan.entries[0] if scan.consumed == size and len(scan.entries) == 1 else None

    # The index

    def _check_index(self, views: tuple[IndexView, ...]) -> None:
        for view in views:
            if view.file.size != view.layout.file_size:
                self.findings.add(self._index_size(view))
            self._add(self._index_findings(view, is_newest=view is views[-1]))
        for stray in self.strays:
            self._check_stray(views, stray)
        self._check_items_behind(views)

    def _index_findings(self, view: IndexView, *, is_newest: bool) -> Iterator[Finding]:
        """What an index file says of itself. The newest is repaired, or dropped, by the start after a crash."""
        severity = Severity.WARNING if is_newest and self.directory.has_crashed else Severity.ERROR
        for finding in check_index_file(view, may_grow=self.directory.is_running):
            yield evolve(finding, severity=severity)
        if view.end > 1 and not self.directory.is_running:
            times = [self._timestamp_at(view.phy_offset(number)) for number in (1, view.end - 1)]
            for finding in check_times(view, *times):
                yield evolve(finding, severity=severity)

    def _index_size(self, view: IndexView) -> Finding:
        return Finding(
            kind=Kind.WRONG_FILE_SIZE,
            file=self.directory.relative(view.file.path),
            message="its length is not that of an index file",
            expected=view.layout.file_size,
            actual=view.file.size,
        )

    def _timestamp_at(self, phy_offset: int) -> int | None:
        entry = self._record_at(phy_offset) if self.log_start <= phy_offset < self.log_end else None
        return entry.store_timestamp if entry is not None else None

    def _check_stray(self, views: tuple[IndexView, ...], stray: Stray) -> None:
        """An item that is not where its record's should be: out of order only, or wrong."""
        if stray.phy_offset >= self.log_end or self.damaged.overlaps(stray.phy_offset, stray.phy_offset + 1):
            return
        entry = self._record_at(stray.phy_offset) if stray.phy_offset >= self.log_start else None
        if entry is not None and stray.key_hash in keys_of([entry]).hashes:
            return
        view = views[stray.file]
        may_be_torn = self.directory.has_crashed and view is views[-1]
        self.findings.add(
            Finding(
                kind=Kind.INDEX_ITEM,
                severity=Severity.WARNING if may_be_torn else Severity.ERROR,
                file=self.directory.relative(view.file.path),
                position=view.layout.item_position(stray.number),
                phy_offset=stray.phy_offset,
                message=f"item {stray.number} is of a key that its record does not have"
                if entry is not None
                else f"item {stray.number} names a place where no record begins",
                actual=stray.key_hash,
            )
        )

    def _check_items_behind(self, views: tuple[IndexView, ...]) -> None:
        file, number = find_item(views, self.log_end)
        count = sum(view.end - 1 for view in views[file:]) - (number - 1)
        if count <= 0 or self.directory.is_running:
            return
        clean = self.directory.stopped_cleanly
        self.findings.add(
            Finding(
                kind=Kind.INDEX_ITEM,
                severity=Severity.ERROR if clean else Severity.WARNING,
                file=self.directory.relative(views[file].file.path),
                position=views[file].layout.item_position(number),
                message="items of messages behind the end of the log" + ("; the log lost its end" if clean else ""),
                count=count,
            )
        )


# Parts, here or in other processes


@frozen
class _Part:
    """What was found in one file of the log. `is_gone`: a running broker removed it."""

    end: int
    pieces: list[Segment | Gap]
    differing: list[Block]
    digest_bytes: int
    is_gone: bool = False
    unreadable: str | None = None  # Why the file cannot be read.


def _check_part(
    directory: StoreDirectory, digests: DigestCheck, start: int, end: int, progress: Callable[[int], None]
) -> _Part:
    part = evolve(digests, differing=[], checked_bytes=0)
    try:
        pieces = list(check_log(directory, start, end, progress))
        part.check(start, end, progress)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and directory.is_running:
            return _Part(end, [], [], 0, is_gone=True)
        return _Part(end, [Gap(start, end, f"it cannot be read: {error}")], [], 0, unreadable=str(error))
    return _Part(end, pieces, part.differing, part.checked_bytes)


_worker: Any = None  # In a process of the pool: directory, digests, counter.


def _open_worker(root: Path, options: DirectoryOptions, done: "Synchronized[int]") -> None:
    global _worker
    directory = StoreDirectory.open(root, options)
    _worker = directory, DigestCheck.open(directory), done


def _check_in_worker(start: int, end: int) -> _Part:
    directory, digests, done = _worker

    def advance(count: int) -> None:
        with done.get_lock():
            done.value += count

    return _check_part(directory, digests, start, end, advance)


def _check_in_processes(
    directory: StoreDirectory, ranges: list[tuple[int, int]], processes: int, progress: Callable[[int], None]
) -> Iterator[_Part]:
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
