"""One file of fixed length: written with pwrite, read through a map, flushed with fdatasync in a thread."""

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from attrs import define, field

from twinlog.store.util.sync import sync_file

_PIECE = 1 << 20  # Read at a time, in a search for data.
# Limit of one call: ext4 allocates it in one piece, and then takes 3 s a GB instead of 0.3 s (Linux 6.18).
WRITE_SIZE_MAX = 512 * 1024
_ZEROS = bytes(_PIECE)  # To compare with takes a fortieth of the time that counting takes.


def _is_zero(piece: bytes) -> bool:
    return piece == (_ZEROS if len(piece) == _PIECE else bytes(len(piece)))


def write_all(fd: int, data: bytes | memoryview, position: int) -> None:
    """Write at a position of a file. Raises OSError; part of it may be written then."""
    rest = memoryview(data)
    while rest:  # The kernel may stop short, at a signal or a full disk.
        done = os.pwrite(fd, rest[:WRITE_SIZE_MAX], position)
        rest, position = rest[done:], position + done


def _open_unnamed(path: Path) -> int:
    """Open a new file that has no name yet, in the directory of `path`; -1 where that cannot be done."""
    if not os.path.isdir("/proc/self/fd"):
        return -1
    try:
        return os.open(path.parent, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            return -1
        raise


def _give_name(fd: int, path: Path) -> None:
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:  # With a directory's descriptor os.link() is linkat(), which alone follows the symbolic link.
        os.link(f"/proc/self/fd/{fd}", path.name, dst_dir_fd=directory, follow_symlinks=True)
    finally:
        os.close(directory)


@define(eq=False)
class MappedFile:
    """A file that holds bytes `start` to `start + size` of an endless sequence. It has its full length from the first.

    `wrote` and `flushed` are positions in the file: the end of the data, and the end of what is on disk. The last data may be
    late: kept in memory, where reads find it, until write_late(). Readers of the descriptor do not see it.
    """

    path: Path
    start: int
    size: int
    fd: int
    wrote: int = 0
    flushed: int = 0
    torn_end: int = 0  # End of the bytes that a refused write left behind `wrote`.
    _view: memoryview | None = field(default=None, init=False)
    _late: tuple[int, bytearray] | None = field(default=None, init=False)  # From which position on, and the bytes.

    @classmethod
    def create(cls, path: Path, start: int, size: int, *, preallocate: bool) -> "MappedFile":
        """Make an all-zero file of full length. `preallocate` takes its disk blocks now, so that no later write lacks room.

        Raises OSError, and leaves no file behind then. A crash in the middle leaves none either, where the file system supports
        it: RocketMQ 4.9 does not start over a file of another length.
        """
        fd = _open_unnamed(path)
        unnamed = fd >= 0
        if not unnamed:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            if preallocate:
                os.posix_fallocate(fd, 0, size)
            else:
                os.ftruncate(fd, size)
            if unnamed:
                _give_name(fd, path)
        except OSError:
            os.close(fd)
            if not unnamed:
                path.unlink()
            raise
        return cls(path, start, size, fd)

    @classmethod
    def open(cls, path: Path, start: int, size: int) -> "MappedFile":
        """Open an existing file, full until recovery finds its end; read-only on a read-only disk."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return cls(path, start, size, fd, wrote=size, flushed=size)

    @property
    def end(self) -> int:
        """The end of the data, as an offset of the endless sequence."""
        return self.start + self.wrote

    def append(self, data: bytes | memoryview) -> None:
        """Write at the end of the data. Raises OSError; `wrote` stays then, and partly written bytes end at `torn_end`."""
        assert self.wrote + len(data) <= self.size
        self.write_late()
        self.write_at(self.wrote, data)
        self.wrote += len(data)

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write at a position of the file. Raises OSError; part of it may be written then, see `torn_end`."""
        done = 0
        try:
            if len(data) <= WRITE_SIZE_MAX:
                done = os.pwrite(self.fd, data, position)
            while done < len(data):  # The kernel may stop short, at a signal or a full disk.
                done += os.pwrite(self.fd, memoryview(data)[done : done + WRITE_SIZE_MAX], position + done)
        except OSError:
            self.torn_end = max(self.torn_end, position + done)
            raise

    def append_late(self, data: bytes, late_max: int) -> bool:
        """Add data at the end that is written by the next write_late() or append().

        False, and nothing is done, when that would fill the file or leave more than `late_max` bytes late.
        """
        late, wrote = self._late, self.wrote + len(data)
        if wrote >= self.size or len(data) > late_max:
            return False
        if late is None:
            self._late = self.wrote, bytearray(data)
        elif len(late[1]) + len(data) <= late_max:
            late[1].extend(data)
        else:
            return False
        self.wrote = wrote
        return True

    @property
    def late_size(self) -> int:
        """The number of late bytes, which the disk lacks."""
        return 0 if self._late is None else len(self._late[1])

    def write_late(self) -> None:
        """Write late data. Raises OSError; it is still late then."""
        if self._late is not None:
            self.write_at(*self._late)
            self._late = None

    def read_late(self, position: int, size: int) -> bytes | None:
        """Bytes of which some are late, without the disk where all are; None when none is. May run in a thread."""
        late = self._late
        if late is None or position + size <= late[0]:
            return None
        start, data = late
        before = os.pread(self.fd, start - position, position) if position < start else b""
        found = before + data[max(0, position - start) : position + size - start]
        return found.ljust(min(size, self.size - position), b"\0")

    def shorten(self, position: int) -> None:
        """Move the end of the data to a position, unless it is before; the bytes behind stay on the disk."""
        assert 0 <= position <= self.size
        self.wrote, self.flushed = min(self.wrote, position), min(self.flushed, position)
        if self._late is not None:
            start, data = self._late
            self._late = (start, data[: position - start]) if start < position else None

    def clear_torn_end(self) -> None:
        """Zero the bytes that a refused write left behind the data. Raises OSError: try again later."""
        if self.torn_end > self.wrote:
            self.write_at(self.wrote, bytes(self.torn_end - self.wrote))
        self.torn_end = 0

    def view(self, position: int, size: int) -> memoryview:
        """The bytes from a position on, without a copy; they stay readable while the view lives."""
        if self._view is None:
            # By a read-only descriptor: ext4 refuses to map another one after it turned read-only because of an error.
            fd = os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._view = memoryview(mmap.mmap(fd, self.size, prot=mmap.PROT_READ))
            finally:
                os.close(fd)
        return self._view[position : position + size]

    def take_map(self) -> mmap.mmap | None:
        """Give up the map, if any, and return it: closing it fails while somebody has a view of it."""
        if self._view is None:
            return None
        view, self._view = self._view, None
        found = view.obj
        view.release()
        assert isinstance(found, mmap.mmap)
        return found

    def read(self, position: int, size: int) -> bytes:
        """A copy of the bytes from a position on."""
        if self._late is not None and (found := self.read_late(position, size)) is not None:
            return found
        return os.pread(self.fd, size, position)

    def is_clear_from(self, position: int, look_max: int | None = None) -> bool:
        """True when all bytes from a position on are zero, or the first `look_max` of those that had to be read.

        Holes in the file cost nothing; preallocated space counts as data on some file systems.
        """
        left = self.size if look_max is None else look_max
        for at, end in self.data_ranges(position):
            while at < end and left > 0:
                piece = os.pread(self.fd, min(_PIECE, end - at), at)
                if not _is_zero(piece):
                    return False
                at += len(piece)
                left -= len(piece)
        return True

    def is_zero(self, position: int, size: int) -> bool:
        """True when these bytes, at most 1 MiB, are all zero."""
        return _is_zero(os.pread(self.fd, size, position))

    def data_ranges(self, position: int) -> Iterator[tuple[int, int]]:
        """Ranges of data from a position on: start and end of each range that is no hole."""
        while position < self.size:
            try:
                start = os.lseek(self.fd, position, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # No data behind the position.
                    return
                raise
            position = min(self.size, os.lseek(self.fd, start, os.SEEK_HOLE))
            yield start, position

    def data_end(self, position: int) -> int:
        """The position behind the last byte that is not zero, `position` when all from there on are."""
        for begin, end in reversed(list(self.data_ranges(position))):
            while end > begin:
                start = max(begin, end - _PIECE)
                piece = os.pread(self.fd, end - start, start)
                if not _is_zero(piece):
                    return start + len(piece.rstrip(b"\0"))
                end = start
        return position

    def clear_from(self, position: int) -> None:
        """Zero all bytes from a position on, durably, so that cut data cannot be read again. Raises OSError.

        The file keeps its length at every moment, because a short file cannot be opened. From its end to the front, so that the
        rest left by a crash looks to the next start as it looked to this one.
        """
        self.clear(position, self.size, durably=True)

    def clear(self, position: int, end: int, *, durably: bool) -> None:
        """Zero bytes `position` to `end`, as clear_from() does. Raises OSError."""
        for begin, data_end in reversed(list(self.data_ranges(position))):
            at = min(data_end, end)
            while at > begin:
                start = max(begin, at - _PIECE)
                if not self.is_zero(start, at - start):
                    self.write_at(start, _ZEROS[: at - start])
                at = start
        if durably:
            sync_file(self.fd)

    def twin(self) -> "MappedFile":
        """The same file by another descriptor, for a thread; the caller closes it. Raises OSError."""
        return MappedFile(self.path, self.start, self.size, os.dup(self.fd), self.wrote, self.flushed, self.torn_end)

    def move(self, path: Path, start: int) -> None:
        """Rename the file, and change its place in the sequence. Raises OSError."""
        self.path.rename(path)
        self.path, self.start = path, start

    def close(self) -> None:
        """Close the descriptor; late data is dropped. Views in use stay valid."""
        self._view = self._late = None
        os.close(self.fd)

    def delete(self) -> None:
        """Close the file and remove it from its directory."""
        self.close()
        self.path.unlink(missing_ok=True)
