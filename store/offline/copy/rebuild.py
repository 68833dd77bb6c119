"""Rebuilds consume queues and index from the log alone, and replaces the old ones.

Everything is built in ROOT/twinlog/rebuild/new and synced. Then each old directory moves to .../old and the new one to its
place; finally the old ones are deleted. After an interruption another run moves old directories back, and begins again.
"""

import os
import shutil
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from attrs import define, field, frozen

from twinlog.store.config import StoreConfig
from twinlog.store.errors import StoreError
from twinlog.store.index.image import IndexImage
from twinlog.store.index.index_file import IndexFile
from twinlog.store.index.layout import IndexHeader, IndexLayout, next_name
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.file_series import FileSeries
from twinlog.store.offline.finding import doc
from twinlog.store.offline.index_view import find_layout
from twinlog.store.offline.queue_view import view_queue
from twinlog.store.offline.walk import Gap, find_log_end, stored_ms, walk_log
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.keys import Keyed, keys_of
from twinlog.store.record.scan import DispatchEntry
from twinlog.store.recovery.side_files import SideFiles
from twinlog.store.util.progress import Progress, no_progress
from twinlog.store.util.sync import sync_data, sync_directory, take_lock

QUEUES, INDEX = "consumequeue", "index"


@define(eq=False)
class QueueBuilder:
    """Builds in `directory`, which holds nothing yet; `log` is where the entries come from."""

    directory: Path
    file_size: int
    log: FileSeries
    messages: int = field(default=0, init=False)
    _table: ConsumeQueueTable = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.directory.mkdir(parents=True)
        self._table = ConsumeQueueTable(self.directory, self.file_size)

    def keep(self, kept: Iterable["KeptQueue"]) -> None:
        """Begin with these queues, to keep their numbering. Before any feed(). Raises OSError."""
        for queue in kept:
            directory = self.directory / queue.topic / str(queue.queue_id)
            directory.mkdir(parents=True)
            path = directory / queue.name
            with path.open("wb") as file:
                file.write(queue.units)
                file.truncate(self.file_size)
        self._table.load()

    def feed(self, entries: Iterable[DispatchEntry]) -> None:
        """Take the next records of the log. Raises OSError."""
        self.messages += sum(map(len, self._table.put(entries).values()))

    def finish(self) -> int:
        """Bring everything to the disk and close it; how many queues there are. Raises OSError.

        A file's time becomes that of its last message: RocketMQ 4.9 finds messages by time with it.
        """
        queues = 0
        for queue in self._table:
            queues += bool(queue.files.files)
            for file in queue.files.files:
                self._set_time(file)
                sync_data(file.fd)
        self._table.close()
        for directory, _, _ in os.walk(self.directory):
            sync_directory(Path(directory))
        return queues

    def _set_time(self, file: MappedFile) -> None:
        raw = file.read(file.wrote - UNIT.size, UNIT.size) if file.wrote else b""
        timestamp = stored_ms(self.log, UNIT.unpack(raw)[0]) if raw else None
        if timestamp is not None:
            os.utime(file.fd, ns=(timestamp * 1_000_000, timestamp * 1_000_000))


@define
class KeptQueue:
    """A queue whose messages are all gone from the log: its last file, `units` of it, says which number the next one has."""

    topic: str
    queue_id: int
    name: str
    file_size: int
    units: bytes
    mtime_ns: int


def queues_to_keep(queues: dict[tuple[str, int], FileSeries], min_phy_offset: int) -> Iterable[KeptQueue]:
    """The queues without messages of a store whose log begins at `min_phy_offset`. Raises OSError."""
    for (topic, queue_id), series in sorted(queues.items()):
        view = view_queue(series, min_phy_offset)
        end = view.max_offset * UNIT.size
        if view.messages or not end:
            continue
        file = series.file_at(end - UNIT.size)
        if file is not None:
            units = series.read(file.start, end - file.start)
            mtime_ns = file.path.stat().st_mtime_ns
            yield KeptQueue(topic, queue_id, file.path.name, series.file_size, units, mtime_ns)


_UNWRITTEN_MAX = 16 << 20  # Bytes of items in memory: each write takes many pages of slots, too.


@define(eq=False)
class IndexBuilder:
    """Builds in `directory`, which holds nothing yet.

    A file is called after the time of its first message, where a broker takes the time of day: the order is the same.
    """

    directory: Path
    layout: IndexLayout
    keys: int = field(default=0, init=False)
    files: int = field(default=0, init=False)
    last_header: IndexHeader | None = field(default=None, init=False)  # Of the newest file that is written.
    _file: IndexFile | None = field(default=None, init=False)
    _last_name: str | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.directory.mkdir(parents=True)

    def feed(self, entries: Sequence[DispatchEntry]) -> None:
        """Take the next records of the log. Raises OSError."""
        keyed = keys_of(entries)
        self.keys += len(keyed.hashes)
        at = 0
        while at < len(keyed.hashes):
            image = self._image(keyed.timestamps[at])
            end = at + image.room
            part = Keyed(*(values[at:end] for values in keyed))
            image.put(*part)
            at = end
            if not image.room:
                self._finish_file()
            elif image.unwritten_bytes >= _UNWRITTEN_MAX:
                self._write()

    def finish(self) -> None:
        """Bring everything to the disk. Raises OSError."""
        self._finish_file()
        sync_directory(self.directory)

    def _image(self, first_ms: int) -> IndexImage:
        if self._file is None:
            self._last_name = next_name(datetime.fromtimestamp(first_ms / 1000), self._last_name)
            image = IndexImage.after(self.layout, self.last_header)
            self._file = IndexFile(self.directory / self._last_name, self.layout, image)
            self.files += 1
        assert self._file.image is not None
        return self._file.image

    def _write(self) -> None:
        assert self._file is not None
        assert self._file.image is not None
        if (unwritten := self._file.image.take_unwritten()) is not None:
            self._file.write(unwritten)
            self._file.image.wrote(unwritten)

    def _finish_file(self) -> None:
        if self._file is not None:
            self._write()
            self._file.sync()
            self.last_header = self._file.header
            self._file = None


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
    root: Path, options: DirectoryOptions, *, queues: bool, index: bool, progress: Progress = no_progress
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
