"""Summary of a store directory: who wrote it, its log, its queues. Cheap facts only.

Checksums of records are checked only behind the last message in the queues, where the end of the log is found.
"""

import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from attrs import frozen

from twinlog.store.errors import SideFileError
from twinlog.store.integrity import digest
from twinlog.store.offline.directory import StoreDirectory, Writer
from twinlog.store.offline.file_series import FileSeries, StoreFile
from twinlog.store.offline.finding import Finding, FindingKind, Severity, doc
from twinlog.store.offline.index_view import read_header
from twinlog.store.offline.queue_view import QueueView, view_queue
from twinlog.store.offline.role_info import (
    HistoryInfo,
    MemberInfo,
    RoleInfo,
    check_role_files,
    history_info,
    member_info,
    role_info,
)
from twinlog.store.offline.walk import LogEnd, find_log_end, stored_ms
from twinlog.store.recovery.point import decode_point
from twinlog.store.truncation.divergent import Divergent


class State(StrEnum):
    """The state of a store: open now, or how the last broker left it."""

    RUNNING = "running"
    STOPPED = "stopped"
    CRASHED = "crashed"


@frozen(kw_only=True)
class LogFileInfo:
    """One file of the commit log."""

    name: str
    start_offset: int
    size_bytes: int
    disk_bytes: int = doc("what the file takes on the disk")
    modified_ms: int = doc("when it was last written; RocketMQ's retention and time search go by this")
    first_stored_ms: int | None = doc("when its first message was stored; null: it begins with no message")


@frozen(kw_only=True)
class LogInfo:
    """The commit log. Offsets count bytes."""

    directories: tuple[str, ...]
    file_size: int
    min_offset: int
    end_offset: int = doc("behind the last message")
    is_clear_behind_end: bool = doc("zeros follow, as where nothing was ever written")
    files: tuple[LogFileInfo, ...]


@frozen(kw_only=True)
class QueueInfo:
    """One consume queue. Offsets count messages."""

    topic: str
    queue_id: int
    min_offset: int = doc("the first message that the log still has")
    max_offset: int = doc("the number of the next message")
    messages: int
    last_stored_ms: int | None
    files: int
    disk_bytes: int


@frozen(kw_only=True)
class IndexFileInfo:
    """One index file, by its header."""

    name: str
    size_bytes: int
    disk_bytes: int
    keys: int
    begin_ms: int
    end_ms: int
    begin_phy_offset: int
    end_phy_offset: int


@frozen(kw_only=True)
class CheckpointInfo:
    """Up to which store time log, queues and index were on the disk; 0: not said."""

    physic_ms: int
    logics_ms: int
    index_ms: int
    master_flushed_offset: int = doc("5.x")
    confirm_phy_offset: int = doc("5.x")


@frozen(kw_only=True)
class FileInfo:
    """A file of the configuration, or one that twinlog keeps for itself."""

    name: str
    size_bytes: int
    modified_ms: int


@frozen(kw_only=True)
class DigestInfo:
    """The side file of digests: which part of the log it covers."""

    start_offset: int | None
    end_offset: int | None
    error: str | None


@frozen(kw_only=True)
class RecoveryPointInfo:
    """The side file that says from where a start after a crash walks, and which damage is known."""

    offset: int | None = doc("everything below is in the log and in the queues, on the disk")
    damaged_ranges: tuple[tuple[int, int], ...] = doc("bytes of the log that were found to hold no sound message")
    error: str | None


@frozen(kw_only=True)
class DivergentInfo:
    """Bytes that were cut from the log, because the master's differ, and are kept in a directory of their own."""

    path: str = doc("log dump and log diff take it as a store")
    first_offset: int
    size_bytes: int
    cut_ms: int
    why: str


@frozen(kw_only=True)
class StoreInfo:
    """A store directory. Times are ms since 1970, sizes bytes."""

    root: str
    writer: Writer = doc("the last broker that wrote to it, as far as the files show")
    state: State = doc("crashed: not stopped cleanly")
    process_id: int | None = doc("of the broker that has it open now")
    log: LogInfo
    first_stored_ms: int | None
    last_stored_ms: int | None
    messages: int = doc("in all queues")
    queues: tuple[QueueInfo, ...]
    index_files: tuple[IndexFileInfo, ...]
    checkpoint: CheckpointInfo | None
    config_files: tuple[FileInfo, ...]
    side_files: tuple[FileInfo, ...]
    digest: DigestInfo | None
    recovery_point: RecoveryPointInfo | None
    divergent: tuple[DivergentInfo, ...]
    member: MemberInfo | None = doc("null: no twinlog broker has run on it since members have ids")
    history: HistoryInfo | None = doc("null: no other member ever became master")
    role: RoleInfo | None = doc("null: it never belonged to a group whose roles can change")
    problems: tuple[Finding, ...] = doc("what was noticed on the way; log verify looks at everything")


def inspect(directory: StoreDirectory) -> StoreInfo:
    """Gather the facts. Raises OSError."""
    log = directory.log
    views = {key: view_queue(series, log.min_offset) for key, series in sorted(directory.queues.items())}
    end = find_log_end(log, views.values(), may_grow=directory.is_running, after_crash=directory.has_crashed)
    return StoreInfo(
        root=str(directory.root.absolute()),
        writer=directory.writer,
        state=_state(directory),
        process_id=directory.lock_holder,
        log=_log_info(directory, end),
        first_stored_ms=next(filter(None, (stored_ms(log, file.start) for file in log.files)), None),
        last_stored_ms=end.last_stored_ms,
        messages=sum(view.messages for view in views.values()),
        queues=tuple(_queue_info(*key, view, log) for key, view in views.items()),
        index_files=tuple(_index_info(directory, file) for file in directory.index_files),
        checkpoint=_checkpoint_info(directory),
        config_files=tuple(map(_file_info, directory.config_files)),
        side_files=tuple(map(_file_info, directory.side_files)),
        digest=_digest_info(directory.root / "twinlog" / "digest"),
        recovery_point=_recovery_point_info(directory.root / "twinlog" / "recovery-point"),
        divergent=tuple(map(_divergent_info, directory.divergent)),
        member=member_info(directory.root / "twinlog"),
        history=history_info(directory.root / "twinlog"),
        role=role_info(directory.root / "twinlog"),
        problems=(
            *directory.findings,
            *_problems(directory, end, views),
            *check_role_files(directory, end.offset if end.is_clear else None),
        ),
    )


def _state(directory: StoreDirectory) -> State:
    if directory.is_running:
        return State.RUNNING
    return State.STOPPED if directory.stopped_cleanly else State.CRASHED


def _log_info(directory: StoreDirectory, end: LogEnd) -> LogInfo:
    log = directory.log
    return LogInfo(
        directories=tuple(str(path) for path in sorted({file.path.parent for file in log.files})),
        file_size=log.file_size,
        min_offset=log.min_offset,
        end_offset=end.offset,
        is_clear_behind_end=end.is_clear,
        files=tuple(
            LogFileInfo(
                name=file.path.name,
                start_offset=file.start,
                size_bytes=file.size,
                disk_bytes=_disk_bytes(file),
                modified_ms=file.path.stat().st_mtime_ns // 1_000_000,
                first_stored_ms=stored_ms(log, file.start),
            )
            for file in log.files
        ),
    )


def _queue_info(topic: str, queue_id: int, view: QueueView, log: FileSeries) -> QueueInfo:
    return QueueInfo(
        topic=topic,
        queue_id=queue_id,
        min_offset=view.min_offset,
        max_offset=view.max_offset,
        messages=view.messages,
        last_stored_ms=stored_ms(log, view.last.phy_offset) if view.last is not None else None,
        files=len(view.series.files),
        disk_bytes=sum(map(_disk_bytes, view.series.files)),
    )


def _index_info(directory: StoreDirectory, file: StoreFile) -> IndexFileInfo:
    header = read_header(directory.reader, file)
    return IndexFileInfo(
        name=file.path.name,
        size_bytes=file.size,
        disk_bytes=_disk_bytes(file),
        keys=header.next_item - 1,  # Item 0 is never used.
        begin_ms=header.begin_timestamp,
        end_ms=header.end_timestamp,
        begin_phy_offset=header.begin_phy_offset,
        end_phy_offset=header.end_phy_offset,
    )


def _checkpoint_info(directory: StoreDirectory) -> CheckpointInfo | None:
    checkpoint = directory.checkpoint
    if checkpoint is None:
        return None
    return CheckpointInfo(
        physic_ms=checkpoint.physic_msg_timestamp,
        logics_ms=checkpoint.logics_msg_timestamp,
        index_ms=checkpoint.index_msg_timestamp,
        master_flushed_offset=checkpoint.master_flushed_offset,
        confirm_phy_offset=checkpoint.confirm_phy_offset,
    )


def _digest_info(path: Path) -> DigestInfo | None:
    try:
        found = digest.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    if isinstance(found, str):
        return DigestInfo(start_offset=None, end_offset=None, error=found)
    return DigestInfo(start_offset=found.digests.start, end_offset=found.digests.end, error=found.error)


def _recovery_point_info(path: Path) -> RecoveryPointInfo | None:
    try:
        found = decode_point(path.read_bytes())
    except FileNotFoundError:
        return None
    except SideFileError as error:
        return RecoveryPointInfo(offset=None, damaged_ranges=(), error=str(error))
    return RecoveryPointInfo(offset=found.offset, damaged_ranges=found.damaged, error=None)


def _divergent_info(cut: Divergent) -> DivergentInfo:
    return DivergentInfo(
        path=str(cut.path), first_offset=cut.first, size_bytes=cut.size, cut_ms=cut.when_ms, why=cut.why
    )


def _file_info(path: Path) -> FileInfo:
    status = path.stat()
    return FileInfo(name=path.name, size_bytes=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)


def _disk_bytes(file: StoreFile) -> int:
    return os.stat(file.path).st_blocks * 512


def _problems(directory: StoreDirectory, end: LogEnd, views: dict[tuple[str, int], QueueView]) -> Iterable[Finding]:
    """Findings that need no walk."""
    if not directory.log.files:
        yield Finding(kind=FindingKind.MISSING_FILE, severity=Severity.WARNING, message="the log has no file")
    if not end.is_clear and not directory.is_running:  # Else a broker is writing there.
        yield Finding(
            kind=FindingKind.LOG_TAIL,
            severity=Severity.WARNING,
            phy_offset=end.offset,
            message="bytes after the last valid message are not a message; a broker cuts them when it starts",
        )
    for (topic, queue_id), view in views.items():
        if view.last is not None and view.last.phy_offset + view.last.size > end.offset:
            yield Finding(
                kind=FindingKind.UNIT_DANGLING,
                topic=topic,
                queue_id=queue_id,
                queue_offset=view.max_offset - 1,
                phy_offset=view.last.phy_offset,
                message="its last message lies behind the end of the log",
            )
