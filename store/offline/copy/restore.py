"""Makes a store directory from a backup: a broker, ours or RocketMQ's, starts from it as after a clean stop.

All of it is made in DIR/restoring. When it is whole, DIR/restoring.json says so, and everything is moved to its place. Ended at
any step, another run begins again, or goes on with the moves.
"""

import os
import shutil
from pathlib import Path

import attrs
import orjson
import xxhash
from attrs import define, frozen

from twinlog.store.config import parse_delay_levels
from twinlog.store.index.layout import IndexLayout
from twinlog.store.log.checkpoint import Checkpoint
from twinlog.store.offline.copy import manifest
from twinlog.store.offline.copy.copying import copy_file, write_durably
from twinlog.store.offline.copy.manifest import BackedUpFile, BackupError, BackupRefusedError, Manifest
from twinlog.store.offline.copy.rebuild import INDEX, QUEUES, KeptQueue, Plan, Rebuilt, Shape, build
from twinlog.store.offline.file_series import FileReader, FileSeries, list_files
from twinlog.store.util.progress import Progress, no_progress
from twinlog.store.util.sync import sync_directory, take_lock

WORK, WHOLE = "restoring", "restoring.json"
_NOT_OURS = {"lock", "lost+found"}  # May lie in a directory that counts as empty.
_PLACES = ("config", "commitlog", QUEUES)  # The directories of a backup's files.


@frozen(kw_only=True)
class Restored:
    """A restored store, and what was rebuilt in it."""

    manifest: Manifest
    rebuilt: Rebuilt


def restore(backup: Path, root: Path, progress: Progress = no_progress) -> Restored:
    """Make a store in `root`, which is new, empty, or holds an interrupted restore of the same backup.

    Raises BackupRefusedError when it is none of these, BackupError when the backup differs from its manifest, StoreLockedError,
    OSError.
    """
    made = manifest.load(backup)
    root.mkdir(parents=True, exist_ok=True)
    names = set(os.listdir(root))
    if WHOLE not in names and names - _NOT_OURS - {WORK, f"{WHOLE}.new"}:
        raise BackupRefusedError(f"{root} is not empty")
    lock = take_lock(root / "lock")
    try:
        if WHOLE not in names:
            if WORK in names:
                shutil.rmtree(root / WORK)
            (root / WORK).mkdir()
            rebuilt = _Restore(backup, root / WORK, made, progress).run()
            write_durably(root / WHOLE, orjson.dumps({"id": made.backup_id, "rebuilt": attrs.asdict(rebuilt)}))
        noted = orjson.loads((root / WHOLE).read_bytes())
        if noted["id"] != made.backup_id:
            raise BackupRefusedError(f"{root} holds the unfinished restore of another backup")
        _move_up(root)
        return Restored(manifest=made, rebuilt=Rebuilt(**noted["rebuilt"]))
    finally:
        os.close(lock)


def _move_up(root: Path) -> None:
    """Every entry to its place. Raises OSError."""
    work = root / WORK
    if work.exists():
        for entry in sorted(work.iterdir()):
            entry.rename(root / entry.name)
        work.rmdir()
        sync_directory(root)
    (root / WHOLE).unlink()  # It may come back after a crash, which does no harm.


@define
class _Restore:
    backup: Path
    work: Path
    manifest: Manifest
    progress: Progress
    _done: int = 0

    def run(self) -> Rebuilt:
        made = self.manifest
        kept = []
        for place in ("config", "commitlog"):
            (self.work / place).mkdir()
        for file in made.files:
            if _place(file) == QUEUES:
                kept.append(self._kept_queue(file))
            else:
                self._copy(file)
        for place in ("config", "commitlog"):
            sync_directory(self.work / place)
        rebuilt = self._build(tuple(kept))
        if (rebuilt.end_offset, rebuilt.records) != (made.end_offset, made.records):
            raise BackupError(
                f"the log restored ends at {rebuilt.end_offset} with {rebuilt.records} messages; the backup's manifest says "
                f"{made.end_offset} and {made.records}"
            )
        checkpoint = Checkpoint(self.work / "checkpoint")
        checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = rebuilt.last_stored_ms or 0
        checkpoint.index_msg_timestamp = rebuilt.index_end_ms or 0
        checkpoint.save()
        sync_directory(self.work)
        return rebuilt

    @property
    def _total(self) -> int:
        """Each byte of the log is copied, then read again for the queues."""
        return 2 * (self.manifest.end_offset - self.manifest.min_offset)

    def _add(self, count: int) -> None:
        self._done += count
        self.progress(self._done, self._total)

    def _copy(self, file: BackedUpFile) -> None:
        try:
            fd = os.open(self.backup / file.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise BackupError(f"{file.path} is missing in the backup") from None
        try:
            digest = copy_file(
                fd,
                self.work / file.path,
                data_size=file.data_size,
                size=file.size,
                mtime_ns=file.mtime_ns,
                on_bytes=self._add if _place(file) == "commitlog" else lambda _count: None,
            )
        finally:
            os.close(fd)
        _check(file, digest)

    def _kept_queue(self, file: BackedUpFile) -> KeptQueue:
        _, topic, queue_id, name = Path(file.path).parts
        with (self.backup / file.path).open("rb") as opened:
            units = opened.read(file.data_size)
        _check(file, xxhash.xxh3_128_hexdigest(units))
        return KeptQueue(topic, int(queue_id), name, file.size, units, file.mtime_ns)

    def _build(self, kept: tuple[KeptQueue, ...]) -> Rebuilt:
        made, directory = self.manifest, self.work / "commitlog"
        shape = Shape(
            queue_file_size=made.consume_queue_file_size,
            index=IndexLayout(made.index_slots, made.index_items),
            delays_ms=parse_delay_levels(made.message_delay_level),
        )
        copied = self._done
        reader = FileReader()
        try:
            log = FileSeries(directory, made.commit_log_file_size, tuple(list_files(directory)[0]), reader)
            plan = Plan(self.work / QUEUES, self.work / INDEX, shape, kept)
            return build(log, plan, lambda done, _: self.progress(copied + done, self._total))
        finally:
            reader.close()


def _place(file: BackedUpFile) -> str:
    """The directory of a store that a file belongs to. Raises BackupError for a path that no backup has."""
    parts = Path(file.path).parts
    if parts[0] not in _PLACES or ".." in parts or len(parts) != (4 if parts[0] == QUEUES else 2):
        raise BackupError(f"the manifest names {file.path}, which no backup holds")
    return parts[0]


def _check(file: BackedUpFile, digest: str) -> None:
    if digest != file.xxh3_128:
        raise BackupError(f"{file.path} is not what it was when the backup was made")
