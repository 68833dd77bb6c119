"""Prepares what the commit log needs next: its next file, and memory for the pages it writes next.

A write into a page that is not in the page cache waits until the kernel has found and zeroed one; on a virtual machine also
until the host has found memory for it. The event loop does the writing, so all connections would wait. A thread asks the kernel
to read ahead where the log will be written: there is nothing to read, so the disk does no work. RocketMQ's warmMapedFileEnable
has the same purpose; it writes a zero into each page of a new file. Source: AllocateMappedFileService, RocketMQ 4.9.8."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog
import trio
from attrs import define, field

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.util.sync import is_no_space
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger()


@define(eq=False)
class AllocateMappedFileService:
    """Keeps `log.spare` filled. It lies beside the log's directory, where RocketMQ 4.9 does not tolerate foreign files."""

    log: CommitLog
    path: Path
    make_room: Callable[[], None]  # Called when there was no space.
    _roll: Wakeup = field(factory=Wakeup, init=False)
    _lock: trio.Lock = field(factory=trio.Lock, init=False)

    def appended(self) -> None:
        """Begin, once the last file is half full."""
        if self.log.spare is None and self._wants_spare():
            self._roll.set()

    def _wants_spare(self) -> bool:
        files = self.log.files.files
        is_half_full = bool(files) and files[-1].wrote * 2 > files[-1].size
        return is_half_full and self.log.makes_files_ahead and not self.log.ahead

    async def run(self) -> None:
        """Make files until cancelled."""
        while True:
            await self._roll.wait()
            try:
                if self._wants_spare():
                    await self.make()
            except OSError as error:
                log.warning("cannot preallocate the next commit log file; retrying", error=str(error))
                if is_no_space(error):
                    self.make_room()
                await trio.sleep(1)

    async def make(self) -> None:
        """Make the log's next file now, unless it is there. Raises OSError."""
        async with self._lock:
            if self.log.spare is None:
                self.log.spare = await trio.to_thread.run_sync(_make_file, self.path, self.log.file_size)


def _make_file(path: Path, size: int) -> MappedFile:
    path.parent.mkdir(exist_ok=True)
    return MappedFile.create(path, 0, size, preallocate=True)


AHEAD_BYTES, LOW_BYTES = 16 << 20, 12 << 20  # So much is made ready, once there is less than that.
_STEP = 128 << 10  # The kernel cuts a longer request to its read-ahead limit.


def next_range(end: int, ready: int, size: int) -> tuple[int, int] | None:
    """The next positions to make ready in a file of `size` bytes, with data up to `end`; None for none.

    Positions before `ready` are ready.
    """
    start = max(end, ready)
    return (start, min(end + AHEAD_BYTES, size)) if start < min(end + LOW_BYTES, size) else None


@define(eq=False)
class PageAheadService:
    """Follows a log that producers append to. A slave's log is written by a thread, which may wait."""

    log: CommitLog
    _file: MappedFile | None = field(default=None, init=False)
    _ready: int = field(default=0, init=False)  # The position of that file up to which pages were made ready.
    _wakeup: Wakeup = field(factory=Wakeup, init=False)

    def appended(self) -> None:
        """Wake the service when few ready pages are left."""
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
                with suppress(OSError):  # Too many open files, for example: writes wait then as without this service.
                    await _make_ready(file.fd, *found)


async def _make_ready(of_file: int, start: int, end: int) -> None:
    fd = os.dup(of_file)  # Whose it is may close it meanwhile.
    try:
        await trio.to_thread.run_sync(read_ahead, fd, start, end)
    finally:
        os.close(fd)


def read_ahead(fd: int, start: int, end: int) -> None:
    """Bring these positions of a file into the page cache; the thread sleeps as long as it works."""
    for position in range(start, end, _STEP):
        began = time.perf_counter()
        os.posix_fadvise(fd, position, min(_STEP, end - position), os.POSIX_FADV_WILLNEED)
        time.sleep(time.perf_counter() - began)  # All at once would keep the loop waiting for a CPU.
