"""A stretch of the log for a thread to read: with descriptors of its own, so that the loop may close files meanwhile."""

import os

from attrs import define

from twinlog.store.log.commit_log import CommitLog


@define(eq=False)
class LogRange:
    """Bytes `start` to `end` of the log, by pread. Use it in a with statement."""

    start: int
    end: int
    _file_size: int
    _fds: dict[int, int]  # By the start of the file.

    @classmethod
    def open(cls, log: CommitLog, start: int, end: int) -> "LogRange":
        """Only on the loop's thread. The range is narrowed to what the log has. Raises OSError."""
        start, end = max(start, log.min_offset), min(end, log.max_offset)
        found = cls(start, max(start, end), log.file_size, {})
        try:
            for file in log.files.files:
                if file.start < end and file.start + file.size > start:
                    found._fds[file.start] = os.dup(file.fd)
        except OSError:
            found.close()
            raise
        return found

    def read(self, offset: int, size: int) -> bytes:
        """The bytes at `offset`, across files, cut at the end of the range. Raises OSError, also when a file has become short."""
        pieces = []
        end = min(offset + size, self.end)
        while offset < end:
            position = offset % self._file_size
            piece = os.pread(self._fd(offset), min(end - offset, self._file_size - position), position)
            if not piece:
                raise OSError(f"the log ends before offset {offset}")
            pieces.append(piece)
            offset += len(piece)
        return b"".join(pieces)

    def forget_cached(self, offset: int, size: int) -> None:
        """Let the kernel drop what it holds of these bytes, which lie in one file, so that the next read is from the disk."""
        os.posix_fadvise(self._fd(offset), offset % self._file_size, size, os.POSIX_FADV_DONTNEED)

    def _fd(self, offset: int) -> int:
        fd = self._fds.get(offset - offset % self._file_size)
        if fd is None:  # It was deleted before the range was opened.
            raise OSError(f"the log has no file with byte {offset}")
        return fd

    def close(self) -> None:
        """Give the descriptors back."""
        while self._fds:
            os.close(self._fds.popitem()[1])

    def __enter__(self) -> "LogRange":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
