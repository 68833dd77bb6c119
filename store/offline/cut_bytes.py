"""Bytes that were cut off a log and kept, ROOT/twinlog/cut/OFFSET-TIME, as a log of their own."""

from pathlib import Path

from attrs import define

from twinlog.store.errors import StoreDirectoryError
from twinlog.store.offline.file_series import FileReader, FileSeries, StoreFile


@define(eq=False)
class CutSeries(FileSeries):
    """One piece of a log with files of `file_size` bytes; it begins and ends anywhere."""

    @property
    def end(self) -> int:
        """Behind the last byte that was kept."""
        return self.files[0].end

    def file_at(self, offset: int) -> StoreFile | None:
        """The only file, where the byte is in it."""
        file = self.files[0]
        return file if file.start <= offset < file.end else None

    def read(self, offset: int, size: int) -> bytes:
        """As FileSeries.read: never across the end of a file of the log. Raises OSError."""
        file = self.file_at(offset)
        if file is None:
            return b""
        room = self.file_size - offset % self.file_size
        return self.reader.read(file.path, offset - file.start, min(size, room))


def open_cut(path: Path, file_size: int) -> CutSeries:
    """The bytes in a file, which is called after the offset where they lay. Raises StoreDirectoryError for another name."""
    offset = path.name.partition("-")[0]
    if not offset.isdecimal():
        raise StoreDirectoryError(
            f"{path} is neither a store directory nor a file of cut bytes, whose name begins with their offset"
        )
    return CutSeries(path.parent, file_size, (StoreFile(path, int(offset), path.stat().st_size),), FileReader())
