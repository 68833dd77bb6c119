"""fsync and fdatasync, durable replacement of files, the store's lock, and the meaning of disk errors.

A failed sync is final: the kernel may have dropped the pages and marked them clean, so a second call may claim success (the
PostgreSQL finding of 2018). A refused write is different: where the error says that nothing was taken, the same bytes can be
written again once there is room.
"""

import errno
import fcntl
import os
import stat
from pathlib import Path

from twinlog.store.errors import StoreLockedError

# Errors that mean: nothing was written, nothing is lost, try again later.
_PASSING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR}
)
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class SyncError(OSError):
    """The disk may have lost earlier writes. The catcher takes no more bytes, and never tries again."""


def sync_data(fd: int) -> None:
    """Bring a file's bytes, and its length, to the disk. Raises SyncError."""
    try:
        os.fdatasync(fd)
    except OSError as error:
        raise SyncError(error.errno, f"fdatasync: {error.strerror}") from error


def sync_file(fd: int) -> None:
    """Bring a file with all that is known of it to the disk. Raises SyncError."""
    try:
        os.fsync(fd)
    except OSError as error:
        raise SyncError(error.errno, f"fsync: {error.strerror}") from error


def sync_directory(path: Path) -> None:
    """Make names that were added to or removed from a directory durable. Raises SyncError, OSError if it cannot be opened."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file(fd)
    finally:
        os.close(fd)


def write_durably(path: Path, data: bytes, *, new_mode: int = 0o666) -> None:
    """Replace a file atomically and durably. Raises OSError.

    It keeps the mode of the old one, and the owner where possible; `new_mode`, less the umask: the mode of a new one.
    """
    scratch = path.with_name(f"{path.name}.tmp")
    scratch.unlink(missing_ok=True)  # Never into a foreign file, or through a link.
    try:
        old = path.stat()
    except FileNotFoundError:
        old = None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(scratch, flags, new_mode if old is None else 0o600)
    try:
        if old is not None:
            _be_like(fd, old)
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        sync_data(fd)
    finally:
        os.close(fd)
    os.replace(scratch, path)
    sync_directory(path.parent)


def _be_like(fd: int, old: os.stat_result) -> None:
    """Copy owner and mode. Only the super-user gives files away; a group that cannot be kept gets no more than everybody."""
    mode = stat.S_IMODE(old.st_mode)
    try:
        os.fchown(fd, old.st_uid, old.st_gid)
    except OSError:
        try:
            os.fchown(fd, -1, old.st_gid)
        except OSError:
            mode &= ~0o070 | (mode & 0o007) << 3
    os.fchmod(fd, mode)


def make_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing, durably. Raises OSError."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        sync_directory(path.parent)


def save_durably(path: Path, data: bytes) -> None:
    """Like write_durably(), and make the directory if need be."""
    make_directory(path.parent)
    write_durably(path, data)


def remove_durably(path: Path) -> None:
    """Remove a file, if it is there. Raises OSError."""
    if path.exists():
        path.unlink()
        sync_directory(path.parent)


def is_passing(error: OSError) -> bool:
    """True when the disk refused something without losing anything, so that it can be tried again."""
    return not isinstance(error, SyncError) and error.errno in _PASSING


def is_no_space(error: OSError) -> bool:
    """True when there is too little room, on the disk or within a quota."""
    return is_passing(error) and error.errno in _NO_SPACE


def take_lock(path: Path) -> int:
    """Lock the file, made if need be; the descriptor holds the lock until it is closed. Raises StoreLockedError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        os.close(fd)
        raise StoreLockedError(
            f"{path.parent} is in use by another broker process ({error.strerror}). Stop that one, or use another directory."
        ) from error
    os.pwrite(fd, b"lock", 0)
    os.fdatasync(fd)
    return fd
