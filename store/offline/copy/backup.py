"""Makes a consistent copy of a store, running or stopped, from which a broker can be started: see restore.py.

The order makes it consistent while producers, consumers and retention go on:

1. configuration files first, so that no offset in them (of a group, of a delay level) is ahead of the copied log: messages behind
   an old offset are delivered once more, messages below a newer one would never be delivered;
2. then every log file is opened, so that retention can remove no more than its name;
3. then the queues: one whose messages are all gone is copied, because nothing else has the number of its next message;
4. last the end of the log: everything that producers were answered for before the backup began lies below it.

Then bytes are copied up to there, read again from the disk, compared with what was read before, and walked record by record.
"""

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path

import orjson
import xxhash
from attrs import asdict, define, field

from twinlog.store.offline.copy import manifest
from twinlog.store.offline.copy.copying import copy_file, digest_of, read_stable, write_durably
from twinlog.store.offline.copy.manifest import (
    BackedUpDamage,
    BackedUpFile,
    BackupError,
    BackupRefusedError,
    BackupSource,
    Manifest,
)
from twinlog.store.offline.copy.pinned import PinnedReader, log_directories, pin_growth, pin_series
from twinlog.store.offline.copy.rebuild import Shape, queues_to_keep
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.file_series import FileReader, FileSeries, list_files
from twinlog.store.offline.walk import Gap, find_log_end, walk_log
from twinlog.store.util.progress import Progress, no_progress
from twinlog.store.util.sync import sync_directory

# Entries that a backup holds or a restore rebuilds; all others are listed as left out.
_TAIL = 1 << 20  # Bytes before the end that are compared once more after copying.
_COVERED = {
    *("commitlog", "consumequeue", "consumequeue_ext", "index", "config", "checkpoint"),
    *("abort", "abort.bak", "lock", "twinlog"),
}

UNFINISHED = "unfinished.jsonl"  # While a backup is made: whose it is, then one line for each log file that is whole.


@define
class BackupTarget:
    """A backup in progress. `finished` is a complete one that an earlier run made."""

    directory: Path
    finished: Manifest | None = None
    _whole: dict[str, BackedUpFile] = field(factory=dict)  # By path: files copied by an earlier run.
    _journal: int = -1

    def copied(self, path: str, size: int, mtime_ns: int) -> BackedUpFile | None:
        """A whole file that an earlier run copied, if the store's has not changed since."""
        found = self._whole.get(path)
        if found is None or (found.data_size, found.mtime_ns) != (size, mtime_ns):
            return None
        return found if (self.directory / path).is_file() else None

    @property
    def whole_bytes(self) -> int:
        """Bytes that an earlier run copied."""
        return sum(file.data_size for file in self._whole.values())

    def note(self, file: BackedUpFile) -> None:
        """Remember a file that is whole and on disk. Raises OSError."""
        os.write(self._journal, orjson.dumps(asdict(file), option=orjson.OPT_APPEND_NEWLINE))
        os.fdatasync(self._journal)

    def write(self, path: str, data: bytes, mtime_ns: int, *, size: int | None = None) -> BackedUpFile:
        """Write a small file to the backup, of `size` bytes where that is more than its data. Raises OSError."""
        place = self.directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        write_durably(place, data, size=size)
        os.utime(place, ns=(mtime_ns, mtime_ns))
        return BackedUpFile(
            path=path,
            size=len(data) if size is None else size,
            data_size=len(data),
            mtime_ns=mtime_ns,
            xxh3_128=xxhash.xxh3_128_hexdigest(data),
        )

    def remove_all_but(self, paths: set[str]) -> None:
        """Remove copies of an earlier run that are not wanted any more. Raises OSError."""
        for place in [each for each in self.directory.rglob("*") if each.is_file()]:
            path = str(place.relative_to(self.directory))
            if path not in paths and path != UNFINISHED:
                place.unlink()

    def finish(self, made: Manifest) -> None:
        """Mark the backup as complete. Raises OSError."""
        manifest.save(made, self.directory)
        self._end()

    def _end(self) -> None:
        (self.directory / UNFINISHED).unlink()
        sync_directory(self.directory)


@contextmanager
def open_target(directory: Path, source: Path) -> Iterator[BackupTarget]:
    """Open a directory that is new, empty, or holds an interrupted backup of the same store.

    Raises BackupRefusedError, OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    names = set(os.listdir(directory))
    if UNFINISHED not in names and names:
        what = "holds a backup" if manifest.NAME in names else "is not empty"
        raise BackupRefusedError(f"{directory} {what}")
    journal = os.open(directory / UNFINISHED, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupRefusedError(f"another process is writing a backup to {directory}") from None
        target = BackupTarget(directory, journal=journal)
        if manifest.NAME in names:
            target.finished = manifest.load(directory)
            target._end()
        else:
            target._whole = _begin(journal, str(source.absolute()), directory)
        yield target
    finally:
        os.close(journal)


def _begin(journal: int, source: str, directory: Path) -> dict[str, BackedUpFile]:
    """The files that an earlier run completed; without one, begin the journal with a line that names the store."""
    with open(journal, "rb", closefd=False) as file:
        lines = file.read().split(b"\n")
    whole = {}
    if len(lines) == 1:  # Nothing that ends in a line feed.
        os.ftruncate(journal, 0)
        os.write(journal, orjson.dumps({"source": source}, option=orjson.OPT_APPEND_NEWLINE))
        os.fdatasync(journal)
        sync_directory(directory)
        return {}
    begun = orjson.loads(lines[0])["source"]
    if begun != source:
        raise BackupRefusedError(f"{directory} holds an unfinished backup of another store, {begun}")
    for line in lines[1:-1]:  # The last one may be unfinished itself.
        noted = BackedUpFile(**orjson.loads(line))
        whole[noted.path] = noted
    os.ftruncate(journal, sum(len(line) + 1 for line in lines[:-1]))
    return whole


def back_up(directory: StoreDirectory, target: Path, progress: Progress = no_progress) -> Manifest:
    """Copy a store to `target`, a directory that is new, empty or holds an unfinished backup of the same store.

    Raises BackupRefusedError when it is none of these, BackupError when the copy is not what was read, OSError.
    """
    if target.resolve().is_relative_to(directory.root.resolve()):
        raise BackupRefusedError(f"{target} lies in the store itself")
    with open_target(target, directory.root) as opened:
        return opened.finished or _Backup(directory, opened, progress).run()


@define
class _Backup:
    """One backup on its way. `_total` and `_done` count bytes: each is copied, and then read again."""

    directory: StoreDirectory
    target: BackupTarget
    progress: Progress
    _total: int = 0
    _done: int = 0

    def run(self) -> Manifest:
        created_ms = time.time_ns() // 1_000_000
        was_running = self.directory.is_running
        shape = Shape.of(self.directory)
        files = list(self._copy_config())
        reader = PinnedReader()
        try:
            log = pin_series(log_directories(self.directory), self.directory.log.file_size, reader)
            files += self._copy_queues_without_messages(log)
            log = pin_growth(log, log_directories(self.directory), reader)
            end = find_log_end(log, may_grow=was_running, after_crash=self.directory.has_crashed).offset
            self._total = 2 * (end - log.min_offset)
            self._check_room(log, end)
            log_files = list(self._copy_log(log, end, reader))
            self._compare_last_record(log, end)
        finally:
            reader.close()
        self.target.remove_all_but({file.path for file in (*files, *log_files)})
        walked = self._verify(log_files, log, end)
        result = Manifest(
            version=manifest.VERSION,
            twinlog=version("twinlog"),
            created_ms=created_ms,
            source=BackupSource(
                root=str(self.directory.root.absolute()),
                host=socket.gethostname(),
                writer=self.directory.writer.value,
                was_running=was_running,
            ),
            commit_log_file_size=log.file_size,
            consume_queue_file_size=shape.queue_file_size,
            index_slots=shape.index.slots,
            index_items=shape.index.items,
            message_delay_level=self.directory.options.message_delay_level,
            min_offset=log.min_offset,
            end_offset=end,
            records=walked.records,
            first_stored_ms=walked.first_stored_ms,
            last_stored_ms=walked.last_stored_ms,
            damage=walked.damage,
            left_out=tuple(sorted(set(os.listdir(self.directory.root)) - _COVERED)),
            files=(*files, *log_files),
        )
        self.target.finish(result)
        return result

    def _check_room(self, log: FileSeries, end: int) -> None:
        """Fail early when the target lacks room for the rest of the log. Raises BackupError."""
        place = os.statvfs(self.target.directory)
        needed = end - log.min_offset - self.target.whole_bytes
        if (free := place.f_bavail * place.f_frsize) < needed:
            raise BackupError(f"{self.target.directory} has room for {free} bytes, the log takes {needed} more")

    def _add(self, count: int) -> None:
        self._done += count
        self.progress(self._done, self._total)

    def _copy_config(self) -> Iterator[BackedUpFile]:
        for path in self.directory.config_files:
            if path.suffix == ".tmp" or (found := read_stable(path)) is None:
                continue
            yield self.target.write(f"config/{path.name}", *found)

    def _copy_queues_without_messages(self, log: FileSeries) -> Iterator[BackedUpFile]:
        """The last file of each queue without messages in the log, to keep the queue's numbering."""
        for queue in queues_to_keep(self.directory.queues, log.min_offset):
            name = f"consumequeue/{queue.topic}/{queue.queue_id}/{queue.name}"
            yield self.target.write(name, queue.units, queue.mtime_ns, size=queue.file_size)

    def _copy_log(self, log: FileSeries, end: int, reader: PinnedReader) -> Iterator[BackedUpFile]:
        """All files with a byte below the end; those that an earlier run copied as a whole are kept."""
        directory = self.target.directory / "commitlog"
        directory.mkdir(exist_ok=True)
        for file in log.files:
            data_size = min(log.file_size, end - file.start)
            if data_size <= 0:
                break
            fd = reader.fd(file.path)
            mtime_ns = os.fstat(fd).st_mtime_ns
            name = f"commitlog/{file.path.name}"
            found = self.target.copied(name, log.file_size, mtime_ns)
            if found is not None:
                self._add(data_size)
                yield found
                continue
            digest = copy_file(
                fd,
                directory / file.path.name,
                data_size=data_size,
                size=log.file_size,
                mtime_ns=mtime_ns,
                on_bytes=self._add,
            )
            copied = BackedUpFile(
                path=name, size=log.file_size, data_size=data_size, mtime_ns=mtime_ns, xxh3_128=digest
            )
            if data_size == log.file_size:
                self.target.note(copied)
            yield copied
        sync_directory(directory)

    def _compare_last_record(self, log: FileSeries, end: int) -> None:
        """Detect a slave's log that was cut and rewritten during the copy. Raises BackupError."""
        start = max(log.min_offset, end - _TAIL)
        there, copied = log.read_across(start, end - start), self._copied_log(log.file_size)
        with closing(copied.reader):
            if there != copied.read_across(start, end - start):
                raise BackupError("the end of the log was cut and written anew while it was copied")

    def _copied_log(self, file_size: int, reader: FileReader | None = None) -> FileSeries:
        directory = self.target.directory / "commitlog"
        return FileSeries(directory, file_size, tuple(list_files(directory)[0]), reader or FileReader())

    def _verify(self, files: list[BackedUpFile], log: FileSeries, end: int) -> "Walked":
        """Read the copy again from the disk: digests, and every record. Raises BackupError."""
        by_name = {Path(file.path).name: file for file in files}

        def check(path: Path) -> None:
            file = by_name[path.name]
            if digest_of(path, file.data_size, self._add) != file.xxh3_128:
                raise BackupError(f"{file.path} reads otherwise from the backup's disk than from the store's")

        copied = self._copied_log(log.file_size, _CheckingReader(check))
        with closing(copied.reader):
            walked = walk_copy(copied)
        if walked.end_offset != end:
            raise BackupError(
                f"behind offset {walked.end_offset} lies what an earlier log left there, up to {end}; "
                "a broker that is started once on the store cuts it"
            )
        return walked


@define(eq=False)
class _CheckingReader(FileReader):
    """Checks each file as a whole before its first byte is handed out: afterwards the kernel has it in memory."""

    check: Callable[[Path], None]
    _checked: set[Path] = field(factory=set, init=False)

    def read(self, path: Path, position: int, size: int) -> bytes:
        if path not in self._checked:
            self._checked.add(path)
            self.check(path)
        return FileReader.read(self, path, position, size)


@define
class Walked:
    """Result of a walk over a whole log."""

    end_offset: int
    records: int = 0
    first_stored_ms: int | None = None
    last_stored_ms: int | None = None
    damage: tuple[BackedUpDamage, ...] = ()


def walk_copy(log: FileSeries) -> Walked:
    """Walk every record of a copy. Raises OSError."""
    found = Walked(log.min_offset)
    for piece in walk_log(log):
        found.end_offset = piece.end
        if isinstance(piece, Gap):
            found.damage += (BackedUpDamage(start_offset=piece.start, end_offset=piece.end, reason=piece.reason),)
        elif piece.entries:
            found.records += len(piece.entries)
            found.last_stored_ms = piece.entries[-1].store_timestamp
            if found.first_stored_ms is None:
                found.first_stored_ms = piece.entries[0].store_timestamp
    return found
