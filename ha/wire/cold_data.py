"""Whether bytes of a file are in memory, and how to get them there: sendfile would wait for the disk, and so would the loop."""

import os
from contextlib import suppress

import trio

LOOK_EVERY = 128 * 1024  # Bytes. The kernel reads so many at once by itself.
_PIECE = 1024 * 1024


def is_cold(fd: int, position: int, size: int) -> bool:
    """Whether some of these bytes have to be read from the disk, as far as a few looks tell; False where nobody knows."""
    byte = [bytearray(1)]
    for at in (*range(position, position + size, LOOK_EVERY), position + size - 1):
        try:
            os.preadv(fd, byte, at, os.RWF_NOWAIT)
        except BlockingIOError:
            return True
        except (OSError, AttributeError):  # The file system, or the system, cannot tell; or it is for sendfile to say.
            return False
    return False


async def warm(fd: int, position: int, size: int) -> None:
    """Have a thread read these bytes, for the kernel to keep; the descriptor may be closed meanwhile."""
    own = os.dup(fd)
    try:
        await trio.to_thread.run_sync(_read, own, position, size)
    finally:
        os.close(own)


def _read(fd: int, position: int, size: int) -> None:
    end = position + size
    with suppress(OSError):  # Sendfile will meet it, too, and tell.
        while position < end and (data := os.pread(fd, min(_PIECE, end - position), position)):
            position += len(data)
