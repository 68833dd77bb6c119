"""Files of one size that make up an endless sequence of bytes. Names are the start offset in 20 digits.

Source: MappedFileQueue, RocketMQ 4.9.8.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import structlog
from attrs import define, field
from xxhash import xxh3_64

from twinlog.store.errors import StoreDirectoryError
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.util.sync import sync_directory

log = structlog.get_logger()

_PIECE = 1 << 20


@define(eq=False)
class MappedFileQueue:
    """The files of one directory in order; bytes `min_offset` to `max_offset` of the sequence are in them.

    Several directories take turns: file n goes to the one at n mod their count, in the order of their names, of those that
    `has_room`; to any when none has. Files may also lie in `read_only` ones. Source: MultiPathMappedFileQueue, RocketMQ 4.9.8.
    No file is made before the name of the one before it is durable, and none is deleted before that of the one behind it is
    gone: of disks that lose power each goes back to a moment of its own, and a start needs all files of the sequence.
    """

    directory: Path
    file_size: int
    size_key: str  # The configuration key of file_size, for messages.
    preallocate: bool = False
    others: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    has_room: Callable[[Path], bool] | None = None
    files: list[MappedFile] = field(factory=list, init=False)

    def load(self) -> None:
        """Open the files in the directories; a missing directory is an empty queue.

        Raises StoreDirectoryError when the files cannot be a queue of this file size. Foreign names are left alone, with one
        line in the log. An empty last file that is too short, left by a crash during its creation, is removed.
        """
        found = []
        for directory in (*self.writable, *self.read_only):
            for path in sorted(directory.iterdir()) if directory.is_dir() else ():
                if _is_ours(path):
                    found.append(path)
                else:
                    log.warning(
                        "a foreign entry in the store is ignored; RocketMQ 4.9 would not start over it", path=str(path)
                    )
        found.sort(key=lambda path: path.name)
        if found and self._is_unfinished(found[-1]):
            log.warning("an unfinished last file, left by a crash, is removed", path=str(found[-1]))
            found.pop().unlink()
        try:
            sizes = {path: path.stat().st_size for path in found}
            for path in found:
                self._check_size(path, sizes)
                self._check_start(path, expected_start=int(found[0].name) + self.file_size * len(self.files))
                self.files.append(MappedFile.open(path, int(path.name), self.file_size))
        except (OSError, StoreDirectoryError):
            self.close()
            raise

    def _is_unfinished(self, path: Path) -> bool:
        if path.stat().st_size >= self.file_size:
            return False
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                if piece.strip(b"\0"):
                    return False
        return True

    def _check_size(self, path: Path, sizes: Mapping[Path, int]) -> None:
        size = sizes[path]
        if size == self.file_size:
            return
        if self.file_size not in sizes.values():
            raise StoreDirectoryError(
                f"{path} has {size} bytes, but {self.size_key} is {self.file_size}. "
                f"Set {self.size_key} to the size that this store was made with."
            )
        if size < self.file_size:
            raise StoreDirectoryError(
                f"{path} is too short: it has {size} bytes, and other files have the {self.file_size} of {self.size_key}. "
                "The missing bytes are lost here: copy this file from another member of the group or restore a backup, "
                "and check the store with twinlog log verify; a slave may also start with an empty directory."
            )
        raise StoreDirectoryError(
            f"{path} is too long: it has {size} bytes, and other files have the {self.file_size} of {self.size_key}. "
            f"The excess bytes are no part of it: truncate -s {self.file_size} {path} removes them."
        )

    def _check_start(self, path: Path, expected_start: int) -> None:
        if int(path.name) != expected_start or expected_start % self.file_size:
            raise StoreDirectoryError(
                f"{path} should be the file that starts at {expected_start}. A file before it is missing, or was made with "
                f"another {self.size_key}. Put the missing file back, or move this and the later files away."
            )

    @property
    def min_offset(self) -> int:
        """The first byte of the first file; 0 without files."""
        return self.files[0].start if self.files else 0

    @property
    def max_offset(self) -> int:
        """The end of the written data; 0 without files."""
        return self.files[-1].end if self.files else 0

    def file_at(self, offset: int) -> MappedFile | None:
        """The file that byte `offset` belongs to, if there is one."""
        if not self.files:
            return None
        index = (offset - self.files[0].start) // self.file_size
        return self.files[index] if 0 <= index < len(self.files) else None

    @property
    def writable(self) -> tuple[Path, ...]:
        """The directories in which files are made."""
        return (self.directory, *self.others)

    def path_of(self, start: int) -> Path:
        """The path for the new file that starts at `start`."""
        if not self.others:
            return self.directory / f"{start:020d}"
        directories = sorted(self.writable)
        if self.has_room is not None:
            directories = list(filter(self.has_room, directories)) or directories
        return directories[start // self.file_size % len(directories)] / f"{start:020d}"

    def create(self, start: int) -> MappedFile:
        """Make the file that starts at `start` and put it at the end. Raises OSError."""
        assert self._continues_at(start)
        path = self.path_of(start)
        if self.others and self.files:
            sync_directory(self.files[-1].path.parent)
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
        file = MappedFile.create(path, start, self.file_size, preallocate=self.preallocate)
        self.files.append(file)
        return file

    def adopt(self, file: MappedFile, start: int) -> None:
        """Append an all-zero file made elsewhere, as the one that starts at `start`. Raises OSError."""
        assert self._continues_at(start)
        file.move(self.path_of(start), start)
        self.files.append(file)

    def _continues_at(self, start: int) -> bool:
        """True when a file that starts there leaves no gap in the sequence."""
        return start == self.files[-1].start + self.file_size if self.files else start % self.file_size == 0

    def rewind(self, offset: int) -> bool:
        """Move the end of the data back to `offset`, and delete later files; True if there were any.

        A first file that starts behind 0 stays, even empty, to keep the numbering. Bytes behind `offset` stay on the disk, for
        append() to overwrite or cut() to remove.
        """
        removed = self.take_behind(offset)
        for file in reversed(removed):
            file.delete()
            if self.others:
                sync_directory(file.path.parent)
        return bool(removed)

    def take_behind(self, offset: int) -> list[MappedFile]:
        """Like rewind(), but later files are left to the caller: to delete, the last one first."""
        removed: list[MappedFile] = []
        while self.files and self.files[-1].start >= offset and (len(self.files) > 1 or self.files[0].start == 0):
            removed.insert(0, self.files.pop())
        if self.files:
            self.files[-1].shorten(max(0, min(offset - self.files[-1].start, self.file_size)))
        assert self.max_offset <= max(offset, self.min_offset)
        return removed

    def cut(self, offset: int, *, is_clear: bool | None = None) -> None:
        """Remove everything from `offset` on, durably: delete later files, and zero the rest of the last one.

        `is_clear`: that rest is known to be zero (True) or not (False); None: find out, which takes time in a large file.
        """
        removed = self.rewind(offset)
        if self.files and not is_clear:
            last, position = self.files[-1], min(max(0, offset - self.files[-1].start), self.file_size)
            if is_clear is False or not last.is_clear_from(position):
                last.clear_from(position)
        if removed:
            self.sync()

    def sync(self) -> None:
        """Make durable which files there are. Raises OSError."""
        for directory in self.writable:
            sync_directory(directory)

    def drop_first(self) -> MappedFile:
        """Remove the first file, which was deleted, from the list. The caller closes it."""
        return self.files.pop(0)

    def clear(self) -> None:
        """Delete all files."""
        while self.files:
            self.files.pop().delete()

    def discard(self) -> None:
        """Delete all files of the directory that are named as such, also those that could not be opened."""
        self.clear()
        for path in list(self.directory.iterdir()) if self.directory.is_dir() else ():
            if _is_ours(path):
                path.unlink()
        if self.directory.is_dir():
            sync_directory(self.directory)

    def close(self) -> None:
        """Close all files."""
        for file in self.files:
            file.close()
        self.files.clear()


def _is_ours(path: Path) -> bool:
    return len(path.name) == 20 and path.name.isdecimal() and path.is_file()


def file_sizes(directory: Path) -> set[int]:
    """The sizes of the files in a queue's directory."""
    return {path.stat().st_size for path in directory.iterdir() if _is_ours(path)}


def fingerprint(paths: Iterable[str]) -> int:
    """A number for these files, in order, as they are now: it is another one once any was written, added or removed.

    0 when one of them is gone.
    """
    found = xxh3_64()
    try:
        for path in paths:
            found.update(f"{os.path.basename(path)} {os.stat(path).st_mtime_ns} ".encode())
    except OSError:
        return 0
    return found.intdigest()
