"""Write buffers in front of the commit log (transientStorePoolEnable): producers are answered once their messages are in memory.

    append -> buffer -> commit: pwrite in a thread, each 200 ms or 4 pages -> flush

Committed bytes are readable, dispatched and replicated; the rest is in this process alone, and kill -9 loses it. The bytes on
disk are those of a log without buffers. Sources: TransientStorePool, CommitLog.CommitRealTimeService, MappedFile.commit0
(RocketMQ 4.9.8). Unlike there, memory is freed as it is committed, and bytes pending at the end of a file are committed at once.
"""

import mmap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from twinlog.store.errors import NoBufferError
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.log.running_flags import RunningFlags
from twinlog.store.util.wakeup import Wakeup

if TYPE_CHECKING:
    from twinlog.store.log.commit_log import CommitLog

_PAGE = 4096
_GIVE_BACK_BYTES = 1 << 20  # Committed bytes, before their memory is freed.


@define(eq=False)
class TransientStorePool:
    """`count` buffers, each as large as a log file; only written pages take memory."""

    count: int
    buffer_size: int
    _free: list[mmap.mmap] = field(init=False)

    def __attrs_post_init__(self) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._free = [mmap.mmap(-1, self.buffer_size, flags=flags) for _ in range(self.count)]

    @property
    def available(self) -> int:
        """The number of free buffers."""
        return len(self._free)

    def borrow(self) -> mmap.mmap | None:
        """A buffer; None: all are in use."""
        return self._free.pop() if self._free else None

    def give_back(self, buffer: mmap.mmap) -> None:
        """Free a buffer and its memory."""
        buffer.madvise(mmap.MADV_DONTNEED)
        self._free.append(buffer)


@define(eq=False)
class UncommittedEnd:
    """The end of a log in a buffer: bytes `log.files.max_offset` to `end`, all of one file."""

    log: "CommitLog"
    pool: TransientStorePool
    fast_fail: bool  # Refuse rather than write without a buffer.
    end: int = field(init=False)  # End of the log, buffered bytes included: the next byte goes here.
    _buffer: mmap.mmap | None = field(default=None, init=False)  # Its positions are those of the last file.
    _given_back: int = field(default=0, init=False)  # The position up to which its memory is given back.
    _in_thread: mmap.mmap | None = field(default=None, init=False)  # The buffer that a thread writes from.

    def __attrs_post_init__(self) -> None:
        self.end = self.log.files.max_offset

    @property
    def size(self) -> int:
        """Bytes that are not committed."""
        return self.end - self.log.files.max_offset

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """Take bytes for the log's end, each part for a file of its own.

        Raises OSError as CommitLog.append, NoBufferError; none of the bytes are taken then.
        """
        position = self.end % self.log.files.file_size
        if len(parts) > 1 or not position:
            self._write_through(parts)
            return
        if self._buffer is None:
            self._buffer = self.pool.borrow()
            self._given_back = -(-position // _PAGE) * _PAGE
        if self._buffer is not None:
            self._buffer[position : position + len(parts[0])] = parts[0]
            self.end += len(parts[0])
        elif self.fast_fail:
            raise NoBufferError(f"all {self.pool.count} buffers are in use")
        else:
            self._write_through(parts)

    def _write_through(self, parts: Sequence[bytes | memoryview]) -> None:
        """A file ends or begins, or no buffer is free."""
        self.commit()
        self.log.write_now(parts)
        self.end = self.log.files.max_offset
        self._drop_buffer()

    def _drop_buffer(self) -> None:
        buffer, self._buffer = self._buffer, None
        if buffer is not None and buffer is not self._in_thread:
            self.pool.give_back(buffer)

    def begin_anew(self) -> None:
        """Continue at the log's present end: replication has written there meanwhile."""
        self.end = self.log.files.max_offset
        self._drop_buffer()

    def commit(self) -> None:
        """Write all pending bytes. Raises OSError; unwritten bytes are still pending then."""
        if self.size:
            file, position, data = self._pending()
            file.write_at(position, data)
            self._committed(file, position + len(data))

    async def commit_in_thread(self) -> None:
        """Like commit(), without blocking the event loop; bytes added meanwhile stay pending. One call at a time."""
        if not self.size:
            return
        file, position, data = self._pending()
        buffer = self._in_thread = self._buffer
        try:
            await trio.to_thread.run_sync(file.write_at, position, data)
        finally:
            self._in_thread = None
            if buffer is not None and buffer is not self._buffer:  # Its file ended meanwhile.
                self.pool.give_back(buffer)
        self._committed(file, position + len(data))

    def _pending(self) -> tuple[MappedFile, int, memoryview]:
        assert self._buffer is not None
        file = self.log.files.files[-1]
        return file, file.wrote, memoryview(self._buffer)[file.wrote : self.end - file.start]

    def _committed(self, file: MappedFile, position: int) -> None:
        assert position <= file.size
        file.wrote = max(file.wrote, position)  # commit() may have been quicker.
        if self._buffer is None or self._in_thread is not None or file is not self.log.files.files[-1]:
            return
        whole_pages = file.wrote // _PAGE * _PAGE
        if whole_pages - self._given_back >= _GIVE_BACK_BYTES:
            self._buffer.madvise(mmap.MADV_DONTNEED, self._given_back, whole_pages - self._given_back)
            self._given_back = whole_pages


@define(kw_only=True, eq=False)
class CommitService:
    """Commits in time. `committed` is called after something was, `refused` with the error when the disk refused."""

    pending: UncommittedEnd
    interval_ms: int
    least_pages: int
    thorough_interval_ms: int
    committed: Callable[[], None]
    refused: Callable[[OSError], None]
    flags: RunningFlags
    writing: trio.Lock = field(factory=trio.Lock, init=False)  # Held while a thread may write.
    _wakeup: Wakeup = field(factory=Wakeup, init=False)

    def appended(self) -> None:
        """There is more to commit."""
        if self.pending.size >= self.least_pages * _PAGE:
            self._wakeup.set()

    async def run(self) -> None:
        """Commit until cancelled."""
        last_thorough = trio.current_time()
        while True:
            with trio.move_on_after(self.interval_ms / 1000):
                await self._wakeup.wait()
            thorough = (trio.current_time() - last_thorough) * 1000 >= self.thorough_interval_ms
            if thorough:
                last_thorough = trio.current_time()
            least = 1 if thorough else max(1, self.least_pages * _PAGE)
            if not self.flags.why_not_appendable and self.pending.size >= least:
                await self._commit()

    async def _commit(self) -> None:
        try:
            async with self.writing:
                await self.pending.commit_in_thread()
        except OSError as error:
            self.refused(error)
        else:
            self.committed()
