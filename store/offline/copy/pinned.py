"""Log files that stay readable while a broker goes on: retention takes a name, never the bytes of one who has them open."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from attrs import define, field

from twinlog.store.offline.copy.copying import read_what_can_be_read
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.file_series import FileReader, FileSeries, StoreFile, list_files


@define(eq=False)
class PinnedReader(FileReader):
    """Keeps every file open that was given to pin()."""

    _pinned: dict[Path, int] = field(factory=dict, init=False)

    def pin(self, path: Path) -> None:
        """Open a file and keep it. Raises FileNotFoundError when it is gone already."""
        if path not in self._pinned:
            self._pinned[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def fd(self, path: Path) -> int:
        """The descriptor of a file; of a pinned one as long as this lives."""
        return self._pinned[path] if path in self._pinned else FileReader.fd(self, path)

    def read(self, path: Path, position: int, size: int) -> bytes:
        """Like FileReader.read; unreadable sectors of pinned files are zeros."""
        fd = self._pinned.get(path)
        if fd is None:
            return FileReader.read(self, path, position, size)
        return read_what_can_be_read(fd, size, position)

    def close(self) -> None:
        """Close all descriptors."""
        while self._pinned:
            os.close(self._pinned.popitem()[1])
        FileReader.close(self)


@contextmanager
def pinned_log(directory: StoreDirectory) -> Iterator[FileSeries]:
    """The log of a store, for as long as the block lasts. Raises OSError."""
    with closing(PinnedReader()) as reader:
        log = directory.log
        yield pin_series(log_directories(directory), log.file_size, reader, first=log.first)


def log_directories(directory: StoreDirectory) -> tuple[Path, ...]:
    """The directories of a store's log."""
    return directory.options.commit_log_dirs or (directory.root / "commitlog",)


def pin_series(directories: tuple[Path, ...], file_size: int, reader: PinnedReader, *, first: int = 0) -> FileSeries:
    """Open every file of a log that may grow at its end and lose files at its start meanwhile. Raises OSError."""
    while True:
        files = _listed(directories)
        try:
            for file in files:
                reader.pin(file.path)
        except FileNotFoundError:
            continue  # Deleted since it was listed: list again.
        return FileSeries(directories[0], file_size, tuple(files), reader, first)


def pin_growth(series: FileSeries, directories: tuple[Path, ...], reader: PinnedReader) -> FileSeries:
    """The same files, and newer ones behind them. Raises OSError."""
    last = series.files[-1].start if series.files else -1
    new = [file for file in _listed(directories) if file.start > last]
    for file in new:
        reader.pin(file.path)
    return FileSeries(series.directory, series.file_size, (*series.files, *new), reader, series.first)


def _listed(directories: tuple[Path, ...]) -> list[StoreFile]:
    found = [file for each in directories if each.is_dir() for file in list_files(each, ignore_directories=True)[0]]
    return sorted(found, key=lambda file: file.start)
