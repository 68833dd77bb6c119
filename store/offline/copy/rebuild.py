"""Rebuilds consume queues and index from the log alone, and replaces the old ones.

Everything is built in ROOT/twinlog/rebuild/new and synced. Then each old directory moves to .../old and the new one to its
place; finally the old ones are deleted. After an interruption another run moves old directories back, and begins again.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from attrs import define, field, frozen

from twinlog.store.config import StoreConfig
from twinlog.store.errors import StoreError
from twinlog.store.index.layout import IndexLayout
from twinlog.store.offline.copy.builders import IndexBuilder, KeptQueue, QueueBuilder, queues_to_keep
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.file_series import FileSeries
from twinlog.store.offline.finding import doc
from twinlog.store.offline.index_view import find_layout
from twinlog.store.offline.walk import Gap, find_log_end, walk_log
from twinlog.store.recovery.side_files import SideFiles
from twinlog.store.util.progress import Progress, no_progress
from twinlog.store.util.sync import sync_directory, take_lock

QUEUES, INDEX = "consumequeue", "index"


class NothingToRebuildError(StoreError):
    """The log has no message: the result would be empty, and the present files may be all that is left."""


def _pairs(ranges: Iterable[Iterable[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((start, end) for start, end in ranges)


@frozen(kw_only=True)
class Rebuilt:
    """Result of a rebuild; null: that part was not asked for."""

    min_offset: int
    end_offset: int
    records: int
    damaged_ranges: tuple[tuple[int, int], ...] = field(
        converter=_pairs, metadata={"doc": "bytes of the log that hold no sound message"}
    )
    last_stored_ms: int | None
    queues: int | None
    queue_messages: int | None
    kept_queues: int | None = doc("queues without messages in the log, which keep their numbers")
    index_files: int | None
    index_keys: int | None
    index_end_ms: int | None = doc("when the newest message in the index was stored")


@frozen(kw_only=True)
class RebuildReport:
    """The scope of a rebuild, and its result."""

    root: str
    parts: tuple[str, ...] = doc("what is made anew: consumequeue, index")
    log_files: int
    log_bytes: int = doc("that are read")
    process_id: int | None = doc("of a broker that has the store open, and must be stopped first")
    done: Rebuilt | None = doc("null: only looked at (--dry-run)")


@frozen(kw_only=True)
class Shape:
    """Sizes and formats of the files to build."""

    queue_file_size: int
    index: IndexLayout
    delays_ms: tuple[int, ...]

    @classmethod
    def of(cls, directory: StoreDirectory) -> "Shape":
        """The shape of the store's files; RocketMQ's defaults where there are none."""
        default = StoreConfig()
        sizes = {series.file_size for series in directory.queues.values() if series.files}
        options = directory.options
        return cls(
            queue_file_size=options.queue_file_size or min(sizes, default=default.consume_queue_file_size),
            index=find_layout(directory.index_files, options.index_slots, directory.reader)
            if directory.index_files
            else IndexLayout(options.index_slots or default.max_hash_slot_num, default.max_index_num),
            delays_ms=options.delays_ms,
        )


@define
class Plan:
    """The directories to build, and how."""

    queues: Path | None
    index: Path | None
    shape: Shape
    kept: tuple[KeptQueue, ...] = ()
    after_crash: bool = False  # The broker was not started since.


def build(log: FileSeries, plan: Plan, progress: Progress) -> Rebuilt:
    """Walk the log once and carry out the plan, durably. Raises OSError."""
    shape = plan.shape
    queues = QueueBuilder(plan.queues, shape.queue_file_size, log) if plan.queues is not None else None
    index = IndexBuilder(plan.index, shape.index) if plan.index is not None else None
    if queues is not None:
        queues.keep(plan.kept)
    records, damaged, newest, end = 0, [], None, log.min_offset
    total = sum(min(file.size, log.file_size) for file in log.files)
    for piece in walk_log(log, delays_ms=shape.delays_ms, after_crash=plan.after_crash):
        end = piece.end
        if isinstance(piece, Gap):
            damaged.append((piece.start, piece.end))
        elif piece.entries:
            records += len(piece.entries)
            newest = piece.entries[-1].store_timestamp
            for builder in (queues, index):
                if builder is not None:
                    builder.feed(piece.entries)
        progress(end - log.min_offset, total)
    queue_count = queues.finish() if queues is not None else None
    if index is not None:
        index.finish()
    return Rebuilt(
        min_offset=log.min_offset,
        end_offset=end,
        records=records,
        damaged_ranges=tuple(damaged),
        last_stored_ms=newest,
        queues=queue_count,
        queue_messages=queues.messages if queues is not None else None,
        kept_queues=len(plan.kept) if queues is not None else None,
        index_files=index.files if index is not None else None,
        index_keys=index.keys if index is not None else None,
        index_end_ms=index.last_header.end_timestamp if index is not None and index.last_header is not None else None,
    )


def plan_rebuild(directory: StoreDirectory, *, queues: bool, index: bool) -> RebuildReport:
    """A dry run of rebuild(). Raises OSError."""
    log = directory.log
    return RebuildReport(
        root=str(directory.root.absolute()),
        parts=tuple(name for name, is_wanted in ((QUEUES, queues), (INDEX, index)) if is_wanted),
        log_files=len(log.files),
        log_bytes=find_log_end(log, may_grow=directory.is_running, after_crash=directory.has_crashed).offset
        - log.min_offset,
        process_id=directory.lock_holder,
        done=None,
    )


def rebuild(
    root: Path,
    options: DirectoryOptions,
    *,
    queues: bool,
    index: bool,
    progress: Progress = no_progress,
) -> Rebuilt:
    """Rebuild a stopped store's queues, index or both.

    Raises StoreLockedError while a broker has it open, NothingToRebuildError, StoreDirectoryError, OSError; the store is as it
    was then, or another run makes it so.
    """
    lock = take_lock(root / "lock")
    try:
        work = root / "twinlog" / "rebuild"
        put_back(root, work)
        with StoreDirectory.open(root, options) as directory:
            if not directory.log.files:
                raise NothingToRebuildError(f"{root} holds no commit log to rebuild from")
            after_crash = directory.abort is not None  # Its lock is ours.
            kept = tuple(queues_to_keep(directory.queues, directory.log.min_offset)) if queues else ()
            new = work / "new"
            plan = Plan(
                new / QUEUES if queues else None, new / INDEX if index else None, Shape.of(directory), kept, after_crash
            )
            rebuilt = build(directory.log, plan, progress)
        if not rebuilt.records:
            raise NothingToRebuildError(f"{root}: no sound message was found in the commit log")
        SideFiles(root / "twinlog").drop_point()  # Its queue states are of the old queues.
        for name in [name for name, is_wanted in ((QUEUES, queues), (INDEX, index)) if is_wanted]:
            swap(root, work, name)
        shutil.rmtree(work)
        sync_directory(work.parent)
        return rebuilt
    finally:
        os.close(lock)


def swap(root: Path, work: Path, name: str) -> None:
    """Replace a directory by the new one; the old one stays in `work`. Raises OSError."""
    old = work / "old"
    old.mkdir(exist_ok=True)
    sync_directory(work)
    if (root / name).exists():
        (root / name).rename(old / name)
    (work / "new" / name).rename(root / name)
    for directory in (old, work / "new", root):
        sync_directory(directory)


def put_back(root: Path, work: Path) -> None:
    """Undo an interrupted run. Raises OSError."""
    for name in (QUEUES, INDEX):
        old = work / "old" / name
        if old.exists() and not (root / name).exists():
            old.rename(root / name)
            sync_directory(root)
    if work.exists():
        shutil.rmtree(work)
