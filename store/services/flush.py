"""Brings written bytes to the disk, in threads, and answers producers that wait for that.

The first fdatasync that fails ends it: pages that could not be written may be dropped by the kernel and a second call may
claim success, so nothing is retried. Sources: CommitLog.GroupCommitService and FlushRealTimeService, RocketMQ 4.9.8.
"""

import os
import time
from collections.abc import Callable, Collection
from os.path import dirname
from pathlib import Path

import structlog
import trio
from attrs import define, field

from twinlog.store.config import FlushDiskType, StoreConfig
from twinlog.store.log.checkpoint import Checkpoint
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.log.offset_waiters import AckSink, OffsetWaiters, PutStatus, by_sink
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.recovery.points import RecoveryPoints
from twinlog.store.util.histogram import Histogram
from twinlog.store.util.sync import is_passing, sync_data, sync_directory
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger()

_PAGE = 4096
_CONSUME_QUEUE_LEAST_PAGES = 2
# With so many queues points are twice as far apart. At most three times: a start takes what is 1 GiB behind one for RocketMQ's.
_QUEUES_OF_DISTANCE, _DISTANCES_MAX = 5_000, 3
_LATE_SLICE = 256  # Queues that late units are written to in one turn of the loop.


@define(eq=False)
class FlushService:
    """Flushes the commit log. wait() is group commit: one fdatasync answers all who came before it."""

    log: CommitLog
    config: StoreConfig
    checkpoint: Checkpoint
    fail: Callable[[str], None]  # Called once, with the reason, when the disk refuses.
    flushed_offset: int = 0
    last_store_timestamp: int = 0  # Of the newest message in the log, ms.
    on_flushed: list[Callable[[], None]] = field(factory=list, init=False)  # Called when flushed_offset rose.
    _requested: bool = field(default=False, init=False)
    _synced_directory_end: int = field(default=-1, init=False)
    _waiters: OffsetWaiters = field(factory=OffsetWaiters, init=False)
    _wakeup: Wakeup = field(factory=Wakeup, init=False)
    _expiry: Wakeup = field(factory=Wakeup, init=False)
    lock: trio.Lock = field(factory=trio.Lock, init=False)  # Held while a sync is under way.
    failure: str | None = field(default=None, init=False)  # Why nothing is flushed any more.
    times: Histogram = field(factory=Histogram, init=False)  # Durations of syncs of the log.
    sync_errors: int = field(default=0, init=False)  # Of the log.
    busy_since: float | None = field(default=None, init=False)  # Start of the present sync, time.monotonic().

    def wait(self, end_offset: int, sink: AckSink, frame: bytes) -> None:
        """Answer `sink` with `frame` once all bytes below `end_offset` are on disk; refuse it after syncFlushTimeout."""
        if self.failure is not None:
            sink.refuse([frame], PutStatus.FLUSH_DISK_TIMEOUT, self.failure)
        elif end_offset <= self.flushed_offset:
            sink.answer([frame])
        else:
            if not self._waiters:
                self._expiry.set()
            deadline = trio.current_time() + self.config.sync_flush_timeout_ms / 1000
            self._waiters.add(end_offset, deadline, sink, frame)
            self._wakeup.set()

    @property
    def waiting(self) -> int:
        """The number of messages that wait."""
        return len(self._waiters)

    def request(self) -> None:
        """Flush soon. Requests that come while a sync is under way share the next one."""
        self._requested = True
        self._wakeup.set()

    async def run(self) -> None:
        """Flush until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._expire)
            last_thorough = trio.current_time()
            while self.failure is None:
                with trio.move_on_after(self.config.flush_interval_commit_log_ms / 1000):
                    await self._wakeup.wait()
                passed_ms = (trio.current_time() - last_thorough) * 1000
                thorough = passed_ms >= self.config.flush_commit_log_thorough_interval_ms
                if thorough or self._is_due():
                    last_thorough = trio.current_time() if thorough else last_thorough
                    await self.flush()

    def _is_due(self) -> bool:
        if self._waiters or self._requested:
            return True
        if self.log.tail is not None:  # A sync would write all of it, too, for the little that is verified.
            return False
        dirty_pages = (self.log.max_offset - self.flushed_offset) // _PAGE
        return dirty_pages >= self.config.flush_commit_log_least_pages

    async def flush(self) -> None:
        """One fdatasync of everything written so far; nothing once one has failed.

        Of two concurrent syncs of a file the kernel reports lost bytes to one only: so they run one after the other.
        """
        async with self.lock:
            await self._flush()

    def truncated(self, offset: int) -> None:
        """The log was cut at `offset`; the caller holds `lock`."""
        self.flushed_offset = min(self.flushed_offset, offset)
        files = self.log.files.files
        self._synced_directory_end = min(self._synced_directory_end, files[-1].start if files else -1)

    async def _flush(self) -> None:
        if self.failure is not None:
            return
        self._requested = False
        end, timestamp = self.log.max_offset, self.last_store_timestamp
        dirty = [(file, file.wrote) for file in self.log.files.files if file.flushed < file.wrote]
        if not dirty:
            return
        new_files = self._synced_directory_end < dirty[-1][0].start
        self.busy_since = began = time.monotonic()
        try:
            await _sync(dirty, {dirname(file.path) for file, _ in dirty} if new_files else ())
        except OSError as error:
            self.sync_errors += 1
            if not is_passing(error):
                self.failure = f"flushing the commit log failed: {error}"
                self.fail(self.failure)
                self.refuse_all(self.failure)
            self._requested = True
            return  # Else: no descriptor for the directory. The next round tries again.
        finally:
            self.busy_since = None
        self.times.note(time.monotonic() - began)
        for file, wrote in dirty:
            file.flushed = wrote
        self._synced_directory_end = dirty[-1][0].start
        assert self.flushed_offset <= end <= self.log.max_offset, "the lock keeps cuts out, and only they lower either"
        rose, self.flushed_offset = end > self.flushed_offset, end
        self.checkpoint.physic_msg_timestamp = max(self.checkpoint.physic_msg_timestamp, timestamp)
        for sink, frames in by_sink(self._waiters.release(end)):
            sink.answer(frames)
        for listener in self.on_flushed if rose else ():
            listener()

    def refuse_all(self, why: str) -> None:
        """Refuse all waiters, at once. Their messages are stored."""
        for sink, frames in by_sink(self._waiters.drain()):
            sink.refuse(frames, PutStatus.FLUSH_DISK_TIMEOUT, why)

    async def _expire(self) -> None:
        while True:
            deadline = self._waiters.next_deadline
            if deadline is None:
                await self._expiry.wait()
                continue
            await trio.sleep_until(deadline)
            reason = f"not on disk after syncFlushTimeout={self.config.sync_flush_timeout_ms} ms"
            for sink, frames in by_sink(self._waiters.expire(trio.current_time())):
                sink.refuse(frames, PutStatus.FLUSH_DISK_TIMEOUT, reason)

    @property
    def is_synchronous(self) -> bool:
        """True when producers wait for the disk."""
        return self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH


@define(eq=False)
class FlushConsumeQueueService:
    """Flushes the consume queues and, on its thorough rounds, the checkpoint that covers them."""

    log: CommitLog
    queues: ConsumeQueueTable
    config: StoreConfig
    checkpoint: Checkpoint
    fail: Callable[[str], None]
    points: RecoveryPoints
    flusher: FlushService
    last_dispatched_timestamp: int = 0  # Store time of the newest message that the queues have, ms.
    lock: trio.Lock = field(factory=trio.Lock, init=False)  # Held while a flush is under way.
    sync_errors: int = field(default=0, init=False)
    _failed: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Flush until cancelled."""
        last_thorough = trio.current_time()
        while True:
            await trio.sleep(self.config.flush_interval_consume_queue_ms / 1000)
            interval_ms = self.config.flush_consume_queue_thorough_interval_ms
            thorough = (trio.current_time() - last_thorough) * 1000 >= interval_ms
            distance = point_distance(self.config.recovery_point_bytes, len(self.queues))
            if thorough or self.log.dispatched_offset - self.points.offset >= distance:
                thorough = True
                last_thorough = trio.current_time()
            await self.flush(thorough=thorough)
            if self._failed:
                return

    async def flush(self, *, thorough: bool) -> bool:
        """Sync dirty files; `thorough` syncs all of them, saves the checkpoint and notes a recovery point.

        False when the disk refused.
        """
        async with self.lock:
            return await self._flush(thorough=thorough)

    async def _flush(self, *, thorough: bool) -> bool:
        if self._failed:
            return False
        try:
            if thorough:
                await write_late(self.queues)
                self.queues.write_late()  # What has come meanwhile.
            # Taken before the dirty files are listed: everything in the point is on the disk once these are synced.
            point = self.points.take(self.log.dispatched_offset) if thorough else None
            timestamp = self.last_dispatched_timestamp
            least = 1 if thorough else _CONSUME_QUEUE_LEAST_PAGES * _PAGE
            files = (file for queue in self.queues for file in queue.files.files)
            dirty = [(file, file.wrote) for file in files if file.wrote - file.flushed >= least]
            for file, _ in dirty:
                file.write_late()
        except OSError:  # ReputMessageService reports it, and tries again.
            return False
        try:
            if dirty:
                await _sync(dirty, _new_directories(dirty))
                for file, wrote in dirty:
                    file.flushed = wrote
            if thorough:
                self.checkpoint.logics_msg_timestamp = max(self.checkpoint.logics_msg_timestamp, timestamp)
                await trio.to_thread.run_sync(self.checkpoint.save)
            if point is not None:
                if self.flusher.flushed_offset < point.offset:
                    await self.flusher.flush()
                if self.flusher.flushed_offset >= point.offset:
                    assert all(queue.max_phy_offset <= point.offset for queue in point.queues)
                    await self.points.save(point)
        except OSError as error:
            self.sync_errors += 1
            if is_passing(error):  # No room for the checkpoint, for example. The next round tries again.
                log.warning("cannot write the checkpoint; a start after a crash would take longer", error=str(error))
            else:
                self._failed = True
                self.fail(f"flushing the consume queues failed: {error}")
            return False
        return True


def point_distance(least: int, queues: int) -> int:
    """Bytes of the log from one recovery point to the next. A thorough flush takes 60 us a queue: many take it less often."""
    return round(least * min(1 + queues / _QUEUES_OF_DISTANCE, _DISTANCES_MAX))


async def write_late(queues: ConsumeQueueTable) -> None:
    """Write the late units that there are now, and let the loop go on between many queues. Raises OSError."""
    for _ in range(0, queues.late_count, _LATE_SLICE):
        queues.write_late(_LATE_SLICE)
        await trio.lowlevel.checkpoint()


def _new_directories(dirty: list[tuple[MappedFile, int]]) -> set[str]:
    """The directories that name a file, or the directory of a file, which was never flushed."""
    # Names take a tenth of the time of Paths, and there may be thousands.
    queues = {dirname(file.path) for file, _ in dirty if file.flushed == 0}
    topics = set(map(dirname, queues))
    return queues | topics | set(map(dirname, topics))


async def _sync(dirty: list[tuple[MappedFile, int]], directories: Collection[str]) -> None:
    """Bring files and names to the disk. Descriptors of our own: a file may be deleted and closed while others are synced."""
    held: list[int] = []
    try:
        held += (os.dup(file.fd) for file, _ in dirty)
        await trio.to_thread.run_sync(_sync_files, held, directories)
    finally:
        for fd in held:
            os.close(fd)


def _sync_files(fds: list[int], directories: Collection[str]) -> None:
    for fd in fds:
        sync_data(fd)
    for directory in directories:
        sync_directory(Path(directory))
