"""Reliable copies: with digests of what was read, holes for zeros, original times, and synced to the disk."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import xxhash

from twinlog.store.log.mapped_file import write_all
from twinlog.store.util.sync import sync_directory

_PIECE = 4 << 20
_ZEROS = bytes(_PIECE)
_SECTORS = 4096  # The least that is read of a broken disk.
_TRIES, _PAUSE_SECONDS = 50, 0.02

OnBytes = Callable[[int], None]  # Called with the number of bytes done since the last call.


def read_what_can_be_read(fd: int, size: int, position: int) -> bytes:
    """Like os.pread, with zeros for unreadable sectors. Raises OSError."""
    try:
        return os.pread(fd, size, position)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    if size > _SECTORS:  # Halves, until it is clear which sectors are broken.
        half = size // 2 // _SECTORS * _SECTORS or _SECTORS
        first = read_what_can_be_read(fd, half, position)
        return first if len(first) < half else first + read_what_can_be_read(fd, size - half, position + half)
    return bytes(max(0, min(size, os.fstat(fd).st_size - position)))


def copy_file(fd: int, target: Path, *, data_size: int, size: int, mtime_ns: int, on_bytes: OnBytes) -> str:
    """Copy the first `data_size` bytes behind `fd` to a new file of `size` bytes; return their digest, as hex.

    Zeros become holes, and so do unreadable sectors. The file is synced, its name only by a sync of the directory. Raises
    OSError.
    """
    digest = xxhash.xxh3_128()
    out = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        position = 0
        while position < data_size:
            piece = read_what_can_be_read(fd, min(_PIECE, data_size - position), position)
            if not piece:
                raise OSError(f"{target.name} ends at {position}, before the {data_size} bytes that it should have")
            digest.update(piece)
            if piece != _ZEROS[: len(piece)]:
                write_all(out, piece, position)
            position += len(piece)
            on_bytes(len(piece))
        os.ftruncate(out, size)
        os.utime(out, ns=(mtime_ns, mtime_ns))
        os.fsync(out)
    finally:
        os.close(out)
    return digest.hexdigest()


def digest_of(path: Path, data_size: int, on_bytes: OnBytes) -> str:
    """The digest of a file's first `data_size` bytes, read from the disk where the kernel lets us, not from memory."""
    digest = xxhash.xxh3_128()
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        position = 0
        while position < data_size and (piece := os.pread(fd, min(_PIECE, data_size - position), position)):
            digest.update(piece)
            position += len(piece)
            on_bytes(len(piece))
    finally:
        os.close(fd)
    return digest.hexdigest()


def write_durably(path: Path, data: bytes, *, size: int | None = None) -> None:
    """Write a file in one step: after a crash it is there as a whole or not at all. Raises OSError.

    `size` is its length, where that is more than its data: the rest is a hole.
    """
    beside = path.with_name(f"{path.name}.new")
    with beside.open("wb") as file:
        file.write(data)
        if size is not None:
            file.truncate(size)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
    sync_directory(path.parent)


def read_stable(path: Path) -> tuple[bytes, int] | None:
    """Content and time (ns) of a small file between two writes of a running broker; None when there is no file.

    RocketMQ 4.9 deletes a configuration file before it puts the new one there, 5.x writes into it. Raises OSError when the
    file changes without a pause.
    """
    last = None
    for _ in range(_TRIES):
        found = _read_once(path)
        if found is not None and found == last:
            return found
        last = found
        if found is None and not path.exists() and not path.with_name(f"{path.name}.bak").exists():
            return None
        time.sleep(_PAUSE_SECONDS)
    if path.exists():
        raise OSError(f"{path} is being written without a pause")
    return None


def _read_once(path: Path) -> tuple[bytes, int] | None:
    """The same, None when the file was changed during the read."""
    try:
        before = path.stat()
        data = path.read_bytes()
        after = path.stat()
    except FileNotFoundError:
        return None
    same = (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino) and after.st_size == len(data)
    return (data, after.st_mtime_ns) if same else None
