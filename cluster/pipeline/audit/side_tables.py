"""Checks consume queues, index and small files of one store directory against its log.

The checks are those of `twinlog log verify` (store/offline/verify/verify.py). Their findings become findings of the audit, except
those that only follow from damage to the log which the comparison has found already.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import evolve

from twinlog.cluster.pipeline.audit.completeness import StoreExtent, cut_file
from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.cluster.pipeline.sources.files import SIDE, StoreFiles
from twinlog.cluster.pipeline.sources.log_bytes import Split
from twinlog.cluster.pipeline.sources.log_end import LogFile, PlaceReader
from twinlog.cluster.pipeline.sources.places import (
    ListedFile,
    StoreUri,
    UnreadableError,
    list_files,
    list_tree,
    open_file,
    read_all,
)
from twinlog.store.index.layout import HEADER, IndexHeader
from twinlog.store.integrity.digest import BLOCK_SIZE, Decoded, LogDigests, decode
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.finding import KEPT_MAX, Finding, FindingKind, Severity
from twinlog.store.offline.verify.digest_check import NOTHING_COMPARED, ComparedDigests, DigestCheck
from twinlog.store.offline.verify.log_check import CheckedPart, check_part, check_parts
from twinlog.store.offline.verify.verify import VerifyReport, verify

_READ_IN_PLACE = ("commitlog/", "consumequeue/", "consumequeue_ext/", "index/")
_COPIED = ("config/", "twinlog/", "checkpoint", "abort")
_NOT_COPIED = "twinlog/divergent/"
_DIGEST_FILE_MAX = 1 << 30
_CLASSES = {
    FindingKind.QUEUE_OFFSET: FindingClass.QUEUE,
    FindingKind.UNIT_MISSING: FindingClass.QUEUE,
    FindingKind.UNIT_WRONG: FindingClass.QUEUE,
    FindingKind.UNIT_DANGLING: FindingClass.QUEUE,
    FindingKind.INDEX_HEADER: FindingClass.INDEX,
    FindingKind.INDEX_SLOT: FindingClass.INDEX,
    FindingKind.INDEX_ITEM: FindingClass.INDEX,
    FindingKind.INDEX_GAP: FindingClass.INDEX,
    FindingKind.DAMAGED_RECORD: FindingClass.BIT_ROT,
    FindingKind.DIGEST: FindingClass.BIT_ROT,
    FindingKind.STORE_TIME: FindingClass.BIT_ROT,
    FindingKind.LOG_TAIL: FindingClass.TRUNCATED,
    FindingKind.UNREADABLE_FILE: FindingClass.UNREADABLE,
}
_FILES = {"consumequeue": FindingClass.QUEUE, "index": FindingClass.INDEX, "commitlog": FindingClass.HOLE}
_BESIDE_LOG = ("consumequeue/", "consumequeue_ext/", "index/")
# Queues and index may refer to records that the log has lost.
_AFTER_LOSS = (FindingClass.TRUNCATED, FindingClass.QUEUE, FindingClass.INDEX)
_OFFSET_FILES = ("config/consumerOffset.json", "config/delayOffset.json")
_OF_LOG = (FindingClass.BIT_ROT, FindingClass.HOLE, FindingClass.TRUNCATED)
_REPORTED_WARNINGS = (FindingKind.INDEX_GAP, FindingKind.CONFIG_FILE)  # Warnings that are reported.


@contextmanager
def open_directory(files: StoreFiles) -> Iterator[StoreDirectory]:
    """Open a store directory on any kind of storage for the tools of store/offline. Raises OSError, StoreDirectoryError.

    Of a remote one the small files are copied; the others are represented by empty files, and read where they are.
    """
    uri = files.uri
    if uri.is_local and all(place.is_local for place in uri.log_places):
        places = tuple(place.path for place in uri.log_places)
        with StoreDirectory.open(uri.path, _options(files, places)) as directory:
            yield directory
        return
    with TemporaryDirectory(prefix="twinlog-audit-") as name:
        root, reader = Path(name), PlaceReader()
        (root / "commitlog").mkdir()
        for info in list_tree(uri.root):
            _stand_in(root, uri.root, info, reader)
        for file in files.log if uri.log_places else ():
            _place(root / "commitlog" / file.uri.name, file, reader)
        with StoreDirectory.open(root, _options(files, ())) as directory:
            directory.reader = reader
            for series in (directory.log, *directory.queues.values(), *directory.ext_queues.values()):
                series.reader = reader
            yield directory


def _options(files: StoreFiles, places: tuple[Path, ...]) -> DirectoryOptions:
    return DirectoryOptions(commit_log_dirs=places, log_file_size=files.file_size if files.log else None)


def _stand_in(root: Path, uri: StoreUri, info: ListedFile, reader: PlaceReader) -> None:
    path, child = root / info.name, uri.child(info.name)
    if info.name.startswith(_READ_IN_PLACE):
        _place(path, LogFile(child, 0, info.size), reader)
    elif info.name.startswith(_COPIED) and not info.name.startswith(_NOT_COPIED):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(read_all(child) or b"")
        os.utime(path, ns=(info.mtime_ns, info.mtime_ns))


def _place(path: Path, file: LogFile, reader: PlaceReader) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stand_in:
        stand_in.truncate(file.size)
    reader.places[path] = file


def file_ranges(files: StoreFiles) -> list[Split]:
    """Parts of a log that are checked separately: its files, and missing files in between."""
    size = files.file_size
    end = files.log[-1].start + size if files.log else 0
    starts = range(files.first - files.first % size, end, size)
    return [Split(max(start, files.first), start + size) for start in starts]


def check_range(
    files: StoreFiles,
    part: Split,
    progress: Callable[[int], None] = lambda _: None,
    known: ComparedDigests = NOTHING_COMPARED,
) -> CheckedPart:
    """Check a part of a log that begins and ends with a record: these, and their entries in queues and index. Raises OSError.

    `known`: blocks that were compared with the member's own digests before. The result can be sent to another process;
    check_tables() combines those of all parts.
    """
    with open_directory(files) as directory:
        return check_part(directory, DigestCheck.open(directory), part.start, part.end, progress, known)


def check_ranges(
    stores: Sequence[StoreFiles],
    part: Split,
    known: Sequence[ComparedDigests],
    progress: Callable[[int], None] = lambda _: None,
) -> list[CheckedPart]:
    """The same for several stores whose logs have the same bytes there: the records of the first one are read for all.

    Raises OSError, when one of them cannot be read.
    """
    with ExitStack() as opened:
        directories = [opened.enter_context(open_directory(files)) for files in stores]
        checks = map(DigestCheck.open, directories)
        return check_parts(list(zip(directories, checks, known, strict=True)), part.start, part.end, progress)


def own_digests(files: StoreFiles) -> LogDigests | None:
    """The digests that a twinlog member keeps of its log; None without usable ones. Raises UnreadableError."""
    if files.digests is None:
        return None
    place = next((info for info in list_files(files.uri.child(SIDE)) if info.name == "digest"), None)
    return _decoded(files.digests, place) if place is not None else None


@lru_cache(maxsize=8)
def _decoded(uri: StoreUri, place: ListedFile) -> LogDigests | None:
    """Decode a side file; `place` tells which one, when it was written anew."""
    raw = read_all(uri, _DIGEST_FILE_MAX)
    found = decode(raw) if raw is not None else None
    return found.digests if isinstance(found, Decoded) else None


def check_tables(files: StoreFiles, parts: Sequence[CheckedPart] | None = None) -> VerifyReport:
    """Check everything. `parts`: results of check_range() for file_ranges(), in order; None: check now. Raises OSError."""
    with open_directory(files) as directory:
        return verify(directory, processes=1, parts=parts)


# Findings of an audit


def own_findings(name: str, report: VerifyReport, log: Sequence[AuditFinding] = ()) -> list[AuditFinding]:
    """Findings in a member's directory. `log`: findings of the log comparison, of any member."""
    mine = [
        finding
        for finding in log
        if finding.cls is FindingClass.DIFFERS or (finding.member == name and finding.cls is not FindingClass.LAG)
    ]
    cuts = [finding for finding in report.findings if _is_cut_behind_records(finding, report, mine)]
    found = [
        audit_finding(name, finding, cls)
        for finding in report.findings
        if (cls := class_of(finding)) is not None
        and finding not in cuts
        and not _follows(finding, cls, mine, report.log_end)
        and not any(_is_digest_of(finding, *_missing_part(cut)) for cut in cuts)
    ]
    lost_records = any(finding.cls in _AFTER_LOSS for finding in found)
    found += [_cut_finding(name, cut, report.log_end, lost_records=lost_records) for cut in cuts]
    return found + _rest(name, found, report.findings_omitted)


def _is_cut_behind_records(finding: Finding, report: VerifyReport, log: Sequence[AuditFinding]) -> bool:
    """True if a log file is too short and nothing shows that it held records in the missing part."""
    if finding.kind is not FindingKind.WRONG_FILE_SIZE or not _is_log_file(finding.file or ""):
        return False
    if finding.severity is Severity.WARNING or int(finding.actual or 0) > int(finding.expected or 0):
        return False
    start, (cut, end) = _start_of(finding), _missing_part(finding)
    return not any(_overlaps(known, cut, end) for known in log) and not any(
        other.kind is FindingKind.DAMAGED_RECORD and start <= (other.phy_offset or 0) < end for other in report.findings
    )


def _start_of(finding: Finding) -> int:
    return int((finding.file or "").rpartition("/")[2])


def _missing_part(finding: Finding) -> tuple[int, int]:
    """Bytes of the log that are missing from a short file."""
    start = _start_of(finding)
    return start + int(finding.actual or 0), start + int(finding.expected or 0)


def _is_digest_of(finding: Finding, start: int, end: int) -> bool:
    """True if the finding only says that these bytes do not match their digest."""
    at = finding.phy_offset
    return finding.kind is FindingKind.DIGEST and at is not None and at < end and start < at + BLOCK_SIZE


def _cut_finding(name: str, finding: Finding, log_end: int, *, lost_records: bool) -> AuditFinding:
    start, size = _start_of(finding), int(finding.expected or 0)
    end, is_last = start + int(finding.actual or 0), log_end <= start + size
    audit_finding = cut_file(name, start, end, size, is_last=is_last, log_end=log_end, lost_records=lost_records)
    return evolve(audit_finding, file=finding.file)


def _rest(name: str, found: Sequence[AuditFinding], omitted: int) -> list[AuditFinding]:
    """One finding for the many that the check counts but does not list."""
    (most, count), *_ = Counter(finding.cls for finding in found).most_common(1) or [(FindingClass.QUEUE, 0)]
    if not omitted or count < KEPT_MAX:  # The omitted ones follow from other damage.
        return []
    what, why = "more findings, most of them of this class", "`twinlog log verify` counts them"
    return [AuditFinding(cls=most, member=name, what=what, why=why, count=omitted)]


def class_of(finding: Finding) -> FindingClass | None:
    """Class of the finding in an audit; None when it does not concern the equality of replicas."""
    if finding.severity is Severity.WARNING and finding.kind not in _REPORTED_WARNINGS:
        return None
    if finding.kind is FindingKind.CONFIG_FILE:
        return _of_config(finding)
    if finding.kind in (FindingKind.MISSING_FILE, FindingKind.WRONG_FILE_SIZE, FindingKind.STRAY_ENTRY):
        file = finding.file or ""
        of_log = FindingClass.HOLE if _is_log_file(file) else FindingClass.CONFIG
        return _FILES.get(file.partition("/")[0], of_log)
    return _CLASSES.get(finding.kind, FindingClass.CONFIG)


def _is_log_file(file: str) -> bool:
    """True if a file belongs to the log, which may lie in directories of its own."""
    return not file.startswith(_BESIDE_LOG) and bool(re.fullmatch(r"\d{20}", file.rpartition("/")[2]))


def _of_config(finding: Finding) -> FindingClass | None:
    name = finding.file or ""
    if finding.severity is Severity.WARNING and not name.endswith(".json"):
        return None  # A damaged backup of a file.
    return FindingClass.OFFSETS if name in _OFFSET_FILES and finding.topic is not None else FindingClass.CONFIG


def _follows(finding: Finding, cls: FindingClass, log: Sequence[AuditFinding], log_end: int) -> bool:
    """True if the finding follows from known damage to the log."""
    offset = finding.phy_offset
    if offset is not None:
        end = offset + (BLOCK_SIZE if finding.kind is FindingKind.DIGEST else 1)
        return any(_overlaps(known, offset, end) for known in log)
    if not log:
        return False
    if cls in _OF_LOG or cls is FindingClass.OFFSETS:
        return True
    if cls is FindingClass.QUEUE:
        return finding.kind in (FindingKind.UNIT_DANGLING, FindingKind.QUEUE_OFFSET, FindingKind.UNIT_MISSING)
    is_short = any(known.cls is FindingClass.TRUNCATED or (known.end or 0) >= log_end for known in log)
    return is_short and finding.kind is FindingKind.INDEX_ITEM


def _overlaps(known: AuditFinding, start: int, end: int) -> bool:
    """True if a range overlaps the records of a finding."""
    low = known.record if known.record is not None else known.offset
    high = known.record_end if known.record_end is not None else known.end
    return low is not None and low < end and (high is None or start < high or known.cls is FindingClass.TRUNCATED)


def audit_finding(name: str, finding: Finding, cls: FindingClass) -> AuditFinding:
    """Convert a finding of the offline check."""
    why = (
        "checked against the log beside it" if cls in (FindingClass.QUEUE, FindingClass.INDEX) else "checked by itself"
    )
    if finding.expected is not None or finding.actual is not None:
        why = f"{why}: expected {_value(finding.expected)}, found {_value(finding.actual)}"
    return AuditFinding(
        cls=cls,
        member=name,
        offset=finding.phy_offset,
        what=finding.message,
        why=why,
        topic=finding.topic,
        queue_id=finding.queue_id,
        queue_offset=finding.queue_offset,
        file=finding.file,
        count=finding.count,
    )


def _value(value: int | str | None) -> str:
    return "nothing" if value is None else str(value)


# Input of completeness.py


def members_with_losses(log: Iterable[AuditFinding], own: Iterable[AuditFinding]) -> set[str]:
    """Members that lost the end of their log by any evidence. `own`: findings beside the logs."""
    truncated = {finding.member for finding in log if finding.cls is FindingClass.TRUNCATED}
    return truncated | {finding.member for finding in own if finding.cls in _AFTER_LOSS}


def extent_of(name: str, files: StoreFiles, log_end: int) -> StoreExtent:
    """Extent of a store's parts. `log_end`: the end of its log."""
    last = files.log[-1] if files.log else None
    try:
        index = files.index() if files.queues() else None
        indexed = _indexed(index or ())
    except UnreadableError:  # Reported by the member's own check.
        index = indexed = None
    return StoreExtent(
        name=name,
        file_size=files.file_size,
        log_start=files.first,
        log_end=log_end,
        files=len(files.log),
        last_file=(last.start, last.start + last.size) if last is not None else None,
        index_files=len(index) if index is not None else None,
        indexed=indexed,
    )


def _indexed(files: Sequence[LogFile]) -> tuple[int, int] | None:
    """First and last record with a key in the index, from the headers of its files. Raises UnreadableError."""
    heads = []
    for file in files:
        with closing(open_file(file.uri)) as opened:
            raw = opened.read(0, HEADER.size)
        if len(raw) == HEADER.size and not (head := IndexHeader.unpack(raw)).is_empty:
            heads.append(head)
    if not heads:
        return None
    return min(head.begin_phy_offset for head in heads), max(head.end_phy_offset for head in heads)
