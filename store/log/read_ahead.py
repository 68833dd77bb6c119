"""Has memory ready for what the commit log takes next.

A write into a page that the kernel does not hold yet waits until there is one, and until it is zero; on a virtual machine
also until the host has found memory for it. The loop writes, so all connections would wait. A thread asks the kernel to read
ahead where the log will be written. There is nothing to read there, so no disk is asked, and none has more to write.
RocketMQ's warmMapedFileEnable has the same purpose; that writes a zero into each page of a new file.
"""

import os
import time
from contextlib import suppress

import trio
from attrs import define, field

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.util.wakeup import Wakeup

AHEAD_BYTES, LOW_BYTES = 16 << 20, 12 << 20  # So much is made ready, once there is less than that.
_STEP = 128 << 10  # The kernel cuts a longer request to what its read-ahead allows.


def next_range(end: int, ready: int, size: int) -> tuple[int, int] | None:
    """Which positions of a file of `size` bytes to make ready; None: none, yet.

    Its data ends at `end`; all before `ready` was made ready.
    """
    start = max(end, ready)
    return (start, min(end + AHEAD_BYTES, size)) if start < min(end + LOW_BYTES, size) else None


@define(eq=False)
class PageAheadService:
    """Follows a log that is appended to. What a slave receives is written by a thread, which may wait."""

    log: CommitLog
    _file: MappedFile | None = field(default=None, init=False)
    _ready: int = field(default=0, init=False)  # The position of that file up to which pages were made ready.
    _wakeup: Wakeup = field(factory=Wakeup, init=False)

    def appended(self) -> None:
        """See whether there is enough left."""
        file = self.log.files.files[-1]
        if file is not self._file or (self._ready - LOW_BYTES < file.wrote and self._ready < file.size):
            self._wakeup.set()

    async def run(self) -> None:
        """Make pages ready until cancelled."""
        while True:
            await self._wakeup.wait()
            if not self.log.files.files:
                continue
            file = self.log.files.files[-1]
            if file is not self._file:
                self._file, self._ready = file, 0
            if (found := next_range(file.wrote, self._ready, file.size)) is not None:
                self._ready = found[1]
                with suppress(OSError):  # Too many open files, say: writes wait as they would without this.
                    await _make_ready(file.fd, *found)


async def _make_ready(of_file: int, start: int, end: int) -> None:
    fd = os.dup(of_file)  # Whose it is may close it meanwhile.
    try:
        await trio.to_thread.run_sync(read_ahead, fd, start, end)
    finally:
        os.close(fd)


def read_ahead(fd: int, start: int, end: int) -> None:
    """Have the kernel hold these positions of a file; the thread rests as long as it works."""
    for position in range(start, end, _STEP):
        began = time.perf_counter()
        os.posix_fadvise(fd, position, min(_STEP, end - position), os.POSIX_FADV_WILLNEED)
        time.sleep(time.perf_counter() - began)  # All at once would keep the loop waiting for a CPU.
