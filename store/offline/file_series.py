"""The files of one directory that make up an endless sequence of bytes, as they lie there: read only, with whatever is wrong.

Unlike twinlog.store.log.mapped_file_queue nothing is configured: the size of a file follows from names and lengths of all
of them.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from attrs import define, field, frozen

from twinlog.store.errors import StoreDirectoryError
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.offline.finding import Finding, FindingKind, Severity, stray_entry
from twinlog.store.record.resync import next_record
from twinlog.store.util.text import agreeing, counted

_NAME_LENGTH = 20
_OPEN_FILES = 128


@frozen
class StoreFile:
    """One file: its name says that bytes `start` and following are in it; `size` bytes are there."""

    path: Path
    start: int
    size: int

    @property
    def end(self) -> int:
        """The end of the file's bytes in the sequence."""
        return self.start + self.size


@define(eq=False)
class FileReader:
    """Reads pieces of files that are opened O_RDONLY; keeps the descriptors of those used last."""

    _fds: dict[Path, int] = field(factory=dict, init=False)

    def fd(self, path: Path) -> int:
        """The descriptor of a file, until the next call. Raises OSError."""
        fd = self._fds.pop(path, None)
        if fd is None:
            if len(self._fds) >= _OPEN_FILES:
                os.close(self._fds.pop(next(iter(self._fds))))
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._fds[path] = fd  # At the end: the first one is the one not used for longest.
        return fd

    def read(self, path: Path, position: int, size: int) -> bytes:
        """Up to `size` bytes of a file; fewer where it ends. Raises OSError."""
        return os.pread(self.fd(path), size, position)

    def read_into(self, path: Path, position: int, buffer: memoryview) -> int:
        """The same into a buffer; returns the number of bytes. Raises OSError."""
        return os.preadv(self.fd(path), [buffer], position)

    def is_clear_from(self, path: Path, position: int) -> bool:
        """True when all bytes of a file from a position on are zero; holes are not read. Raises OSError."""
        fd = self.fd(path)
        return MappedFile(path, 0, os.fstat(fd).st_size, fd).is_clear_from(position)

    def close(self) -> None:
        """Close all descriptors."""
        while self._fds:
            os.close(self._fds.popitem()[1])


@define(eq=False)
class FileSeries:
    """Files of `file_size` bytes in order of their start; some may be missing, short or long.

    Bytes below `first` are none of the sequence: the first file may begin with a hole.
    """

    directory: Path
    file_size: int
    files: tuple[StoreFile, ...]
    reader: FileReader
    first: int = 0
    _by_start: dict[int, StoreFile] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._by_start = {file.start: file for file in self.files}

    @property
    def min_offset(self) -> int:
        """The first byte that is there; 0 without files."""
        return max(self.files[0].start, self.first) if self.files else 0

    @property
    def end(self) -> int:
        """The end of the last file at full length; 0 without files."""
        return self.files[-1].start + self.file_size if self.files else 0

    def file_at(self, offset: int) -> StoreFile | None:
        """The file that byte `offset` of the sequence belongs to, if it is there."""
        return self._by_start.get(offset - offset % self.file_size) if self.file_size else None

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset` on, at most to the end of the file that holds the first one; none where none are.

        Raises OSError.
        """
        file = self.file_at(offset)
        if file is None:
            return b""
        position = offset - file.start
        return self.reader.read(file.path, position, max(0, min(size, self.file_size - position)))

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Like read(), into a buffer; returns the number of bytes. Raises OSError."""
        file = self.file_at(offset)
        if file is None:
            return 0
        room = self.file_size - offset % self.file_size
        return self.reader.read_into(file.path, offset - file.start, buffer[:room])

    def is_clear_from(self, offset: int) -> bool:
        """True when all bytes from `offset` on are zero, to the end of its file. Raises OSError."""
        file = self.file_at(offset)
        return file is None or self.reader.is_clear_from(file.path, offset - file.start)

    def next_record(self, start: int, end: int, heads_end: int) -> int | None:
        """The first sound record in bytes `start` to `end` of one file that begins before `heads_end`. Raises OSError."""
        if self.is_clear_from(start - 1):
            return None
        return next_record(self.read, start, end, self.file_size, heads_end=heads_end)

    def read_across(self, offset: int, size: int) -> bytes:
        """Like read(), across the ends of files. Raises OSError."""
        pieces = []
        while size > 0 and (piece := self.read(offset, size)):
            pieces.append(piece)
            offset += len(piece)
            size -= len(piece)
        return b"".join(pieces)


def list_files(directory: Path, *, ignore_directories: bool = False) -> tuple[list[StoreFile], list[Path]]:
    """The files of a series in a directory, in order, and the entries that do not belong there. Raises OSError."""
    files, strays = [], []
    with os.scandir(directory) as entries:
        for entry in entries:
            if len(entry.name) == _NAME_LENGTH and entry.name.isdecimal() and entry.is_file():
                files.append(StoreFile(Path(entry.path), int(entry.name), entry.stat().st_size))
            elif not (ignore_directories and entry.is_dir()):
                strays.append(Path(entry.path))
    return sorted(files, key=lambda file: file.start), sorted(strays)


def guess_file_size(serieses: Iterable[list[StoreFile]], *, by_name: bool = True) -> int:
    """The configured file size of some series: the most frequent length and distance; 0 without files.

    `by_name`: files are named by their start.
    """
    votes: Counter[int] = Counter()
    lengths: set[int] = set()
    starts: list[int] = []
    for files in serieses:
        lengths.update(file.size for file in files)
        votes.update(file.size for file in files)
        votes.update(b.start - a.start for a, b in pairwise(files))
        starts += (file.start for file in files if by_name and file.start)
    votes.pop(0, None)

    def merits(size: int) -> tuple[int, int, bool, int]:
        return sum(start % size == 0 for start in starts), votes[size], size in lengths, size

    return max(votes, key=merits, default=0)


def check_series(series: FileSeries, strays: Iterable[Path], size_key: str) -> Iterator[Finding]:
    """Findings about names and lengths."""
    for path in strays:
        yield stray_entry(path, "foreign entry; RocketMQ 4.9 does not start with it there")
    expected = series.files[0].start if series.files else 0
    for file in series.files:
        if file.start % series.file_size:
            yield Finding(
                kind=FindingKind.STRAY_ENTRY,
                file=str(file.path),
                message=f"its name is no multiple of {size_key}",
                expected=series.file_size,
                actual=file.start,
            )
            continue
        if file.start > expected:
            missing = (file.start - expected) // series.file_size
            yield Finding(
                kind=FindingKind.MISSING_FILE,
                file=str(series.directory / f"{expected:020d}"),
                message=f"{counted(missing, 'file')} {agreeing(missing, 'is', 'are')} missing before {file.path.name}",
                expected=expected,
                actual=file.start,
            )
        if file.size != series.file_size:
            is_unfinished = file.size == 0 and file is series.files[-1]  # A crash while the file was made.
            yield Finding(
                kind=FindingKind.WRONG_FILE_SIZE,
                severity=Severity.WARNING if is_unfinished else Severity.ERROR,
                file=str(file.path),
                message=f"its length is not {size_key}, as that of the others",
                expected=series.file_size,
                actual=file.size,
            )
        expected = file.start + series.file_size


@define(eq=False)
class CutSeries(FileSeries):
    """One piece of a log with files of `file_size` bytes; its bounds are arbitrary."""

    @property
    def end(self) -> int:
        """Behind the last byte that was kept."""
        return self.files[0].end

    def file_at(self, offset: int) -> StoreFile | None:
        """The only file, where the byte is in it."""
        file = self.files[0]
        return file if file.start <= offset < file.end else None

    def read(self, offset: int, size: int) -> bytes:
        """Like FileSeries.read: never across the end of a file of the log. Raises OSError."""
        file = self.file_at(offset)
        if file is None:
            return b""
        room = self.file_size - offset % self.file_size
        return self.reader.read(file.path, offset - file.start, min(size, room))


def open_cut(path: Path, file_size: int) -> CutSeries:
    """The bytes in a file named by their offset. Raises StoreDirectoryError for another name."""
    offset = path.name.partition("-")[0]
    if not offset.isdecimal():
        raise StoreDirectoryError(
            f"{path} is neither a store directory nor a file of cut bytes, whose name begins with their offset"
        )
    return CutSeries(path.parent, file_size, (StoreFile(path, int(offset), path.stat().st_size),), FileReader())
