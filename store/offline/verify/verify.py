"""Checks a whole store directory, and reports everything that does not fit. Nothing is written, no lock is taken.

Most facts of a store are in it twice: a place is in the record and in its queue, the tags in both, the keys in record and
index; a body has a CRC, a slot's chain follows from the items. Which bytes that covers is in docs/_ext/format_fields.py. The log
is read once, each of its files apart, in several processes when it is large; then the parts are put together.
"""

import os
import time
from collections.abc import Iterable, Iterator
from enum import StrEnum

from attrs import define, field, frozen

from twinlog.store.integrity.damage import DamagedRanges
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.finding import Finding, FindingKind, Findings, Severity
from twinlog.store.offline.index_view import IndexView, open_index
from twinlog.store.offline.queue_view import QueueKey, read_units
from twinlog.store.offline.role_info import check_role_files
from twinlog.store.offline.verify.config_check import check_checkpoint, check_config, check_recovery_point, known_topics
from twinlog.store.offline.verify.digest_check import DigestCheck
from twinlog.store.offline.verify.index_check import LogPlaces, check_index
from twinlog.store.offline.verify.index_items import Stray
from twinlog.store.offline.verify.log_check import CheckedPart, Segment, check_in_processes, check_part, time_finding
from twinlog.store.offline.verify.queue_check import QueueCheck, queue_ends
from twinlog.store.offline.walk import Gap, goes_on_behind
from twinlog.store.queue.layout import UNIT, late_seconds
from twinlog.store.record.resync import Head, entry_at
from twinlog.store.util.progress import Progress, no_progress

_PARALLEL_FROM = 256 << 20  # Bytes of log from which more processes pay.
_TAIL_LOOK = 1 << 20
_SETTLE_SECONDS = 0.5  # Time for a running broker to bring its queues up to the end of the log, beside what units wait.


class VerifyVerdict(StrEnum):
    """The overall result."""

    SOUND = "sound"
    WARNINGS = "warnings"  # To be examined; no message is harmed.
    DAMAGED = "damaged"


@frozen(kw_only=True)
class VerifyReport:
    """The extent of a check, and its findings. Offsets and sizes in bytes; of very many findings the first are listed."""

    root: str
    verdict: VerifyVerdict
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
    directory: StoreDirectory,
    *,
    progress: Progress = no_progress,
    processes: int | None = None,
    parts: Iterable[CheckedPart] | None = None,
) -> VerifyReport:
    """Check everything. `processes`: at most so many, 1 for none but this; None: chosen by the size of the log.

    `parts`: results of check_part() for all files of the log, in order; None: check them now. An unreadable log file is a
    finding. Raises OSError for other unreadable files.
    """
    return _Verification(directory, progress, processes, parts).run()


@define(eq=False)
class _Verification:
    directory: StoreDirectory
    progress: Progress
    processes: int | None
    parts: Iterable[CheckedPart] | None = None
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
        for part in self._parts() if self.parts is None else self.parts:
            self._join_part(part)
        self._check_tail()
        self._add(self.digests.findings(self.log_end))
        if directory.is_running:
            time.sleep(_SETTLE_SECONDS + late_seconds(len(directory.queues)))
        self.queues.finish(self.log_start, self.log_end)
        views = open_index(directory)
        log = LogPlaces(directory, self.log_start, self.log_end, self.damaged)
        self._add(check_index(views, log, self.strays))
        ends = queue_ends(directory) | self.queues.next_offsets
        self._add(check_recovery_point(directory, self.log_end, ends))
        self._add(check_checkpoint(directory, self.last_timestamp))
        self._add(check_config(directory, ends))
        self._add(check_role_files(directory, self.log_end))
        return self._report(views, time.monotonic() - started)

    def _add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.findings.add(finding)

    def _report(self, views: tuple[IndexView, ...], seconds: float) -> VerifyReport:
        errors, warnings = self.findings.total(Severity.ERROR), self.findings.total(Severity.WARNING)
        kept = sorted(self.findings.kept, key=lambda finding: finding.severity is not Severity.ERROR)
        return VerifyReport(
            root=str(self.directory.root),
            verdict=VerifyVerdict.DAMAGED if errors else VerifyVerdict.WARNINGS if warnings else VerifyVerdict.SOUND,
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

    def _parts(self) -> Iterator[CheckedPart]:
        """Results for the log's files, one after the other, missing ones included."""
        log = self.directory.log
        size, low = log.file_size, log.min_offset
        ranges = [(max(start, low), start + size) for start in range(low - low % size, log.end, size)]
        size = sum(file.size for file in log.files)
        digests = self.digests.digests
        total = size + (digests.end - digests.start if digests is not None else 0)
        processes = min(self.processes or os.cpu_count() or 1, len(ranges))
        if processes > 1 and (self.processes is not None or size >= _PARALLEL_FROM):
            yield from check_in_processes(self.directory, ranges, processes, lambda done: self.progress(done, total))
            return
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self.progress(min(done, total), total)

        for start, end in ranges:
            yield check_part(self.directory, self.digests, start, end, advance)

    def _join_part(self, part: CheckedPart) -> None:
        self.digests.differing += part.differing
        self.digests.checked_bytes += part.digest_bytes
        if part.is_gone and not self.records:
            self.log_start = self.log_end = part.end
        if part.unreadable is not None:
            self.findings.add(self._unreadable(part))
        for piece in part.pieces:
            if not self._ended:
                self._join(piece)

    def _unreadable(self, part: CheckedPart) -> Finding:
        file = self.directory.log.file_at(part.end - 1)
        return Finding(
            kind=FindingKind.UNREADABLE_FILE,
            file=self.directory.relative(file.path) if file is not None else None,
            message=f"it cannot be read: {part.unreadable}",
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
        log = self.directory.log

        def next_offset(key: QueueKey) -> int:
            return self.queues.next_offsets.get(key, 0)

        if not goes_on_behind(log, head, self.last_timestamp, next_offset, self._place_of):
            return False
        # Where a running broker has written a record since, the gap was the end of the log.
        return not self.directory.is_running or entry_at(log.read, gap.start, log.file_size, check_crc=True) is None

    def _place_of(self, key: QueueKey, number: int) -> int | None:
        raw = read_units(self.directory, key, number, UNIT.size)
        return int(UNIT.unpack(raw)[0]) if len(raw) == UNIT.size else None

    def _note_damage(self, gap: Gap) -> None:
        self.damaged.add(gap.start, gap.end)
        file = self.directory.log.file_at(gap.start)
        self.findings.add(
            Finding(
                kind=FindingKind.DAMAGED_RECORD,
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
        """Report other bytes behind the end: left by a cut, by a crash, or a damaged last message."""
        piece = self.directory.log.read(self.log_end, _TAIL_LOOK)
        if self._gap is not None and piece.strip(b"\0") and not self.directory.is_running:
            self.findings.add(
                Finding(
                    kind=FindingKind.LOG_TAIL,
                    severity=Severity.WARNING,
                    phy_offset=self.log_end,
                    message=f"behind the end of the log are bytes that are none of its records: {self._gap.reason}",
                )
            )
