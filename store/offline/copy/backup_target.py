"""The target directory of a backup: its owner, the files copied so far, and completion."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import xxhash
from attrs import asdict, define, field

from twinlog.store.offline.copy import manifest
from twinlog.store.offline.copy.copying import write_durably
from twinlog.store.offline.copy.manifest import BackedUpFile, BackupError, Manifest
from twinlog.store.util.sync import sync_directory

UNFINISHED = "unfinished.jsonl"  # While a backup is made: whose it is, then one line for each log file that is whole.


class BackupRefusedError(BackupError):
    """The directory holds other files, which must not be changed."""


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
