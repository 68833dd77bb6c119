"""The store's lock: one process at a time, RocketMQ's included.

Source: DefaultMessageStore.start, RocketMQ 4.9.8: a POSIX record lock on the first byte of `lock`, then 4 bytes "lock".
"""

import fcntl
import os
from pathlib import Path

from twinlog.store.errors import StoreLockedError


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
