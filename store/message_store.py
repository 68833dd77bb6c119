"""The one way into a store directory: put, read, replicate, and everything that goes on behind.

Source: DefaultMessageStore, RocketMQ 4.9.8. All methods run on the event loop's thread, except load().
"""

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import structlog
import trio
from attrs import define, field, frozen

from store import disk_space
from store.checkpoint import Checkpoint
from store.commit_log import CommitLog, PutMessage, PutResult
from store.config import BrokerRole, StoreConfig
from store.consume_queue import ConsumeQueue
from store.consume_queue_table import ConsumeQueueTable
from store.damage import DamagedRanges
from store.delay_level import parse_delay_levels
from store.digest_service import DIGEST_BYTES_PER_SECOND, DigestService
from store.errors import LogFileError, NoBufferError, StoreNotWritableError
from store.flush import FlushConsumeQueueService, FlushService
from store.get_message import GetResult, get_message, memory_bytes_max, offset_by_time, store_timestamp
from store.index_service import IndexService
from store.known_damage import KnownDamage
from store.lock_file import take_lock
from store.mapped_file import MappedFile
from store.mapped_file_queue import MappedFileQueue
from store.offset_waiters import PutStatus
from store.query_message import QueryResult, query_message
from store.read_check import ReadCheck
from store.record_scan import DispatchEntry
from store.recovery import recover
from store.recovery_points import RecoveryPoints
from store.retention import NO_FLOOR
from store.retention_service import RetentionService
from store.running_flags import Condition, RunningFlags
from store.scrub import ScrubService
from store.side_files import SideFiles
from store.sync import is_no_space, is_passing, make_directory, sync_directory
from store.transient_store_pool import CommitService, TransientStorePool, UncommittedEnd
from store.wakeup import Wakeup

log = structlog.get_logger()

TOPIC_LENGTH_MAX, PROPERTIES_SIZE_MAX = 127, 32767
RECORD_OVERHEAD_MAX = 115 + TOPIC_LENGTH_MAX * 3 + PROPERTIES_SIZE_MAX + 8  # With IPv6 hosts and the room for a blank.
_DISPATCH_BATCH = 4096
_TRY_AGAIN_SECONDS = 1.0  # While the disk refuses.

ArrivalListener = Callable[[str, int, int, list[int]], None]


@frozen
class StoreStatistics:
    """A snapshot for people and metrics. Offsets and sizes in bytes."""

    min_offset: int
    max_offset: int
    flushed_offset: int
    dispatched_offset: int
    put_messages: int
    put_bytes: int
    get_messages: int
    writable: bool
    why_not_writable: str
    scrubbed_offset: int  # From here on all bytes were read, or written, since the start.
    unscrubbed_bytes: int
    damaged_bytes: int
    in_doubt_bytes: int  # Differ from their digest, where no CRC covers them.
    wrong_units: int


@define(eq=False)
class MessageStore:
    """A store directory that is open.

    `load()` opens it, `run()` serves it, `close()` leaves it as a clean stop does. Listeners in `on_arrival` are told (topic,
    queue id, new end of the queue, tags codes of the new units) after dispatch; each function in `appended` is called after bytes
    were added to the log.
    """

    config: StoreConfig
    now_ms: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000, kw_only=True)
    disk_usage: Callable[[Path], float] = field(default=lambda path: disk_space.usage_ratio(path), kw_only=True)
    clock: Callable[[], float] = field(default=time.monotonic, kw_only=True)  # Seconds, for how long a write takes.
    retention_floor: Callable[[], int] = field(
        default=lambda: NO_FLOOR, init=False
    )  # The lowest byte replicas still need.
    on_arrival: list[ArrivalListener] = field(factory=list, init=False)
    appended: list[Callable[[], None]] = field(factory=list, init=False)
    commit_log: CommitLog = field(init=False)
    flusher: FlushService = field(init=False)
    delays_ms: tuple[int, ...] = field(init=False)
    dispatched_offset: int = field(default=0, init=False)
    damaged: DamagedRanges = field(factory=DamagedRanges, init=False)  # Bytes of the log that are not served.
    dispatch_limit: Callable[[], int] | None = field(
        default=None, init=False
    )  # Consumers are shown bytes below it only.
    # Told where the log is cut, before anything is written there.
    on_truncate: list[Callable[[int], None]] = field(factory=list, init=False)
    digest: DigestService = field(init=False)
    scrub: ScrubService = field(init=False)
    index: IndexService = field(init=False)
    retention: RetentionService = field(init=False)
    flags: RunningFlags = field(factory=RunningFlags, init=False)
    _root: Path = field(init=False)
    _spare_path: Path = field(init=False)
    _busy_after: float = field(init=False)  # Seconds that a write may take.
    _body_size_unchecked: int = field(init=False)  # A record with a body up to this size fits any file.
    _queues: ConsumeQueueTable = field(init=False)
    _queue_flusher: FlushConsumeQueueService = field(init=False)
    _checkpoint: Checkpoint = field(init=False)
    _points: RecoveryPoints = field(init=False)
    _read_check: ReadCheck = field(init=False)
    _lock_fd: int = field(default=-1, init=False)
    _pending: list[DispatchEntry] = field(factory=list, init=False)  # Written, not yet in the queues.
    _uncommitted: deque[DispatchEntry] = field(factory=deque, init=False)  # Still in a buffer.
    _committer: CommitService | None = field(default=None, init=False)
    _dispatch: Wakeup = field(factory=Wakeup, init=False)
    _roll: Wakeup = field(factory=Wakeup, init=False)
    _spare_lock: trio.Lock = field(factory=trio.Lock, init=False)
    _refused: Wakeup = field(factory=Wakeup, init=False)
    _lacks_file: bool = field(default=False, init=False)  # The disk refused the log's next file.
    _puts: int = field(default=0, init=False)
    _put_bytes: int = field(default=0, init=False)
    _gets: int = field(default=0, init=False)
    _busy_until: float = field(default=0.0, init=False)  # By clock().

    def __attrs_post_init__(self) -> None:
        config = self.config
        self.flags.set(Condition.NOT_OPEN, "the store is not open")
        self._root = config.root.expanduser()
        self.delays_ms = parse_delay_levels(config.message_delay_level)
        directory, *others = config.commit_log_paths
        files = MappedFileQueue(
            directory,
            config.mapped_file_size_commit_log,
            "mappedFileSizeCommitLog",
            preallocate=True,
            others=tuple(others),
            read_only=config.read_only_commit_log_paths,
            has_room=lambda path: self.disk_usage(path) * 100 <= config.disk_limits.forced,
        )
        self.commit_log = CommitLog(files, self.delays_ms)
        room = config.mapped_file_size_commit_log - RECORD_OVERHEAD_MAX
        self._body_size_unchecked = min(config.max_message_size, room)
        self._busy_after = config.os_page_cache_busy_timeout_ms / 1000 or math.inf
        # Beside commitlog/, never in it: RocketMQ 4.9 does not start over a file that it does not know.
        self._spare_path = directory.parent / "twinlog" / "spare"
        self._queues = ConsumeQueueTable(self._root / "consumequeue", config.consume_queue_file_size)
        self._checkpoint = Checkpoint(self._root / "checkpoint")
        self.flusher = FlushService(self.commit_log, config, self._checkpoint, self.fail)
        side = SideFiles(self._root / "twinlog")
        self._points = RecoveryPoints(self.commit_log, self._queues, side, self.damaged)
        self._queue_flusher = FlushConsumeQueueService(
            self._queues,
            config,
            self._checkpoint,
            self.fail,
            self._points,
            self.flusher,
            level_offset=lambda: self.dispatched_offset,
        )
        self._read_check = ReadCheck(self.commit_log, KnownDamage(self.damaged))
        self.digest = DigestService(
            self.commit_log,
            self._root / "twinlog" / "digest",
            now_ms=self.now_ms,
            old_bytes_per_second=config.scrub_bytes_per_second or DIGEST_BYTES_PER_SECOND,
        )
        self.scrub = ScrubService(
            self.commit_log,
            self._queues,
            self.digest,
            self._read_check,
            config.scrub_bytes_per_second,
            config.scrub_interval_hours,
            self.delays_ms,
            memory_bytes_max(config.access_message_in_memory_max_ratio),
        )
        self.on_truncate += [self._points.truncated, self.digest.truncated, self.scrub.truncated]
        self.retention = RetentionService(
            log=self.commit_log,
            queues=self._queues,
            config=config,
            flags=self.flags,
            fail=self.fail,
            floor=lambda: min(self.retention_floor(), self.dispatched_offset, self.flushed_offset),
            now_s=lambda: self.now_ms() / 1000,
            disk_usage=lambda path: self.disk_usage(path),
            clock_path=self._root / "twinlog" / "clock",
        )
        self.index = IndexService(
            self._root / "index",
            self._root / "twinlog" / "index-behind",
            self.commit_log,
            config,
            self._checkpoint,
            lambda: self.dispatched_offset,
        )
        self.on_truncate.append(self.index.truncate)
        self.retention.shortened.append(self.index.delete_before)

    # Opening and closing

    def load(self) -> None:
        """Open the directory and recover what a crash left. May block for seconds: run it in a thread.

        Raises StoreDirectoryError when the directory cannot be opened as it lies, OSError when the disk refuses.
        """
        for directory in (self._root, *self.commit_log.files.writable, self._queues.directory):
            make_directory(directory)
        self._lock_fd = take_lock(self._root / "lock")
        try:
            self._load()
        except BaseException:
            self._release()
            raise

    def _load(self) -> None:
        after_crash = (self._root / "abort").exists()
        self.commit_log.files.load()
        self._checkpoint.load()
        self._spare_path.unlink(missing_ok=True)
        started = time.monotonic()
        recovered = recover(
            self.commit_log,
            self._queues,
            self._checkpoint,
            self._points.side,
            self.damaged,
            after_crash=after_crash,
            is_slave=self.config.broker_role is BrokerRole.SLAVE,
            check_crc=self.config.check_crc_on_recover,
            delays_ms=self.delays_ms,
        )
        log.info(
            "store recovered" if after_crash else "store opened",
            root=str(self._root),
            log=f"{self.commit_log.min_offset}..{recovered.end_offset}",
            walked_from=recovered.start_offset,
            walked=recovered.records,
            dispatched=recovered.dispatched,
            seconds=round(time.monotonic() - started, 3),
        )
        self.dispatched_offset = recovered.end_offset
        self._points.last = recovered.last
        self._points.offset = recovered.start_offset
        self.flusher.last_store_timestamp = recovered.last.store_timestamp
        self._queue_flusher.last_dispatched_timestamp = recovered.last.store_timestamp
        # After a crash what was read may still be in memory only.
        self.flusher.flushed_offset = self.commit_log.min_offset if after_crash else recovered.end_offset
        if after_crash:
            for files in (self.commit_log.files, *(queue.files for queue in self._queues)):
                for file in files.files:
                    file.flushed = 0
        self.digest.open(after_crash=after_crash, durable_offset=recovered.start_offset)
        self.scrub.begin()
        self.index.load(after_crash=after_crash)
        (self._root / "abort").touch()
        sync_directory(self._root)  # Without its abort file a crash would look like a clean stop.
        if self.config.uses_transient_store_pool:
            self._use_buffers()
        self.flags.clear(Condition.NOT_OPEN)

    def _use_buffers(self) -> None:
        config = self.config
        pool = TransientStorePool(config.transient_store_pool_size, self.commit_log.file_size)
        pending = UncommittedEnd(self.commit_log, pool, config.fast_fail_if_no_buffer_in_store_pool)
        self.commit_log.pending = pending
        self._committer = CommitService(
            pending=pending,
            interval_ms=config.commit_interval_commit_log_ms,
            least_pages=config.commit_commit_log_least_pages,
            thorough_interval_ms=config.commit_commit_log_thorough_interval_ms,
            committed=self._committed,
            refused=lambda error: self._commit_refused(error),
            may_write=lambda: not self.flags.why_not_appendable,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Dispatch, flush and make files ahead until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._dispatch_task)
            if self._committer is not None:
                nursery.start_soon(self._committer.run)
            nursery.start_soon(self.flusher.run)
            nursery.start_soon(self._queue_flusher.run)
            nursery.start_soon(self._allocate_task)
            nursery.start_soon(self._resume_task)
            nursery.start_soon(self.retention.run)
            nursery.start_soon(self.index.run)
            nursery.start_soon(self.digest.run)
            nursery.start_soon(self.scrub.run)
            task_status.started()

    async def close(self) -> None:
        """Stop taking messages, bring everything to the disk and leave the marks of a clean stop."""
        self.commit_pending()
        self.dispatch_pending()
        was_well = not self.flags.why_not_appendable
        self.flags.set(Condition.CLOSED, "the store is closed")
        await self.flusher.flush()
        await self.index.close()
        queues_are_flushed = await self._queue_flusher.flush(thorough=True)
        clean = was_well and queues_are_flushed and self.flusher.failure is None
        await self.digest.close(clean=clean)
        if clean:
            (self._root / "abort").unlink(missing_ok=True)
        self._release()

    def _release(self) -> None:
        self.retention.close()
        self.digest.release()
        self.commit_log.close()
        self._queues.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    # Writing

    @property
    def why_not_writable(self) -> str:
        """Why producers are refused, whatever this broker's role; empty: they are not."""
        return self.flags.why_not_writable

    @property
    def writable(self) -> bool:
        """Whether producers may write here."""
        return not self.flags.why_not_writable and self.config.broker_role is not BrokerRole.SLAVE

    def fail(self, reason: str) -> None:
        """Take no more bytes: the disk refused some, and what it holds now is not known."""
        if self.flags.set(Condition.FAILED, reason):
            log.error("the store takes no more messages; restart the broker once the disk is well", reason=reason)

    def _disk_refuses(self, what: str, error: OSError) -> PutStatus:
        """Take no bytes for now, or no more at all where something may be lost; what a producer is told."""
        reason = f"{what} failed: {error}"
        lacks_file = isinstance(error, LogFileError)
        if not is_passing(error):
            self.fail(reason)
        elif self.flags.set(Condition.DISK_REFUSES, reason):
            log.error("the store takes no messages until the disk takes bytes again", reason=reason)
            self._lacks_file = lacks_file
            self._refused.set()
        if is_no_space(error):
            self.retention.make_room()
        stays = lacks_file or not is_passing(error)
        return PutStatus.CREATE_MAPPED_FILE_FAILED if stays else PutStatus.SERVICE_NOT_AVAILABLE

    def put(self, messages: Sequence[PutMessage], *, together: bool = False) -> list[PutResult]:
        """Append messages with one system call; each has its own status. Never waits: flush and replicas come after.

        `together`: these are one batch request and go into one file.
        """
        if not self.writable:
            return [PutResult(PutStatus.SERVICE_NOT_AVAILABLE)] * len(messages)
        if not messages:
            return []
        if self._busy_until and self._is_busy():
            return [PutResult(PutStatus.OS_PAGECACHE_BUSY)] * len(messages)
        body_max = self._body_size_unchecked
        for topic, _, body, properties, *_ in messages:
            if len(body) > body_max or len(properties) > PROPERTIES_SIZE_MAX or len(topic) > TOPIC_LENGTH_MAX:
                return self._put_some(messages, together=together)
        return self._append(messages, together=together)

    def _put_some(self, messages: Sequence[PutMessage], *, together: bool) -> list[PutResult]:
        """As put(), when some of them may be too large."""
        statuses = [self._check(message) for message in messages]
        refused = [status for status in statuses if status is not PutStatus.PUT_OK]
        if together and refused:  # All or none.
            return [PutResult(refused[0])] * len(messages)
        fitting = [m for m, status in zip(messages, statuses, strict=True) if status is PutStatus.PUT_OK]
        good = iter(self._append(fitting, together=together))
        return [next(good) if status is PutStatus.PUT_OK else PutResult(status) for status in statuses]

    def _append(self, messages: Sequence[PutMessage], *, together: bool = False) -> list[PutResult]:
        if not messages:
            return []
        now_ms, began = self.now_ms(), self.clock()
        try:
            results, entries = self.commit_log.append(messages, now_ms, together=together)
        except OSError as error:
            return [PutResult(self._disk_refuses("writing the commit log", error))] * len(messages)
        except NoBufferError:
            return [PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED)] * len(messages)
        if (took := self.clock() - began) > self._busy_after:
            self._busy_until = began + took + min(took - self._busy_after, self._busy_after)
        self._puts += len(results)
        self._put_bytes += results[-1].end_offset - results[0].phy_offset
        if self._committer is None:
            self._after_append(entries, now_ms)
        else:
            self._uncommitted += entries
            self._committed()
            self._committer.appended()
        return results

    def _committed(self) -> None:
        """Go on with what is written now."""
        end, entries = self.commit_log.max_offset, []
        while self._uncommitted and self._uncommitted[0].phy_offset < end:
            entries.append(self._uncommitted.popleft())
        if entries:
            self._after_append(entries, entries[-1].store_timestamp)

    def commit_pending(self) -> None:
        """Write what producers were answered for and what lies in a buffer still; nothing without buffers."""
        if self.commit_log.pending is not None:
            try:
                self.commit_log.pending.commit()
            except OSError as error:
                self._commit_refused(error)
            self._committed()

    async def flush(self) -> None:
        """Bring all that was put so far to the disk, as far as it lets itself be written."""
        self.commit_pending()
        await self.flusher.flush()

    def _commit_refused(self, error: OSError) -> None:
        self._disk_refuses("writing the commit log", error)
        if Condition.FAILED in self.flags and self.commit_log.pending is not None:
            log.error("messages that were in memory only are lost", bytes=self.commit_log.pending.size)

    def _is_busy(self) -> bool:
        """Whether the disk took so long that others should have their turn first.

        RocketMQ refuses a put while another one has been writing for more than osPageCacheBusyTimeOutMills. Here one comes after
        the other on one thread, so the refusals come right after it, for as long as theirs would have lasted, at most that time:
        a disk that takes seconds for every write leaves room for those who read, and for replicas.
        """
        if self.clock() < self._busy_until:
            return True
        self._busy_until = 0.0
        return False

    def _check(self, message: PutMessage) -> PutStatus:
        """The limits of one message. Source: DefaultMessageStore.checkMessage, MessageExtEncoder."""
        if java_length(message.topic) > TOPIC_LENGTH_MAX or len(message.topic.encode()) > TOPIC_LENGTH_MAX:
            return PutStatus.MESSAGE_ILLEGAL
        if len(message.properties) > PROPERTIES_SIZE_MAX:
            length = java_length(message.properties.decode(errors="replace"))
            return PutStatus.MESSAGE_ILLEGAL if length > PROPERTIES_SIZE_MAX else PutStatus.PROPERTIES_SIZE_EXCEEDED
        if len(message.body) > self.config.max_message_size:
            return PutStatus.MESSAGE_ILLEGAL
        return PutStatus.PUT_OK if self.commit_log.fits(message) else PutStatus.MESSAGE_ILLEGAL

    def append_replicated(self, data: bytes | memoryview, entries: list[DispatchEntry]) -> None:
        """Append whole, verified records of the master at the end of a slave's log.

        Raises StoreNotWritableError; nothing of `data` counts as written then.
        """
        if self.config.broker_role is not BrokerRole.SLAVE:
            raise StoreNotWritableError("this broker is a master, whose log is written by producers only")
        if self.flags.why_not_appendable:
            raise StoreNotWritableError(self.flags.why_not_appendable)
        try:
            self.commit_log.append_raw(data)
        except OSError as error:
            self._disk_refuses("writing the commit log", error)
            raise StoreNotWritableError(self.flags.why_not_appendable) from error
        self._after_append(entries, entries[-1].store_timestamp if entries else 0)

    def start_at(self, phy_offset: int) -> None:
        """Let the log of a fresh slave begin at the start of a file. Raises StoreNotWritableError."""
        try:
            self.commit_log.start_at(phy_offset)
        except OSError as error:
            self._disk_refuses("creating the first commit log file", error)
            raise StoreNotWritableError(self.flags.why_not_appendable) from error
        self.dispatched_offset = self.flusher.flushed_offset = phy_offset

    def _after_append(self, entries: list[DispatchEntry], timestamp: int) -> None:
        self.flusher.last_store_timestamp = timestamp or self.flusher.last_store_timestamp
        self._pending += entries
        self._dispatch.set()
        for listener in self.appended:
            listener()
        if self.commit_log.spare is None and self._wants_spare():
            self._roll.set()

    # Reading

    @property
    def min_offset(self) -> int:
        """The first byte of the log that is still there."""
        return self.commit_log.min_offset

    @property
    def max_offset(self) -> int:
        """The end of the log."""
        return self.commit_log.max_offset

    @property
    def flushed_offset(self) -> int:
        """All bytes below are on disk."""
        return self.flusher.flushed_offset

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A queue; one that nobody wrote to is empty."""
        return self._queues.get(topic, queue_id)

    def queues(self) -> Iterator[tuple[str, int, ConsumeQueue]]:
        """All queues that are known."""
        return ((queue.topic, queue.queue_id, queue) for queue in self._queues)

    def get_message(
        self, topic: str, queue_id: int, offset: int, count_max: int, tags_codes: frozenset[int] | None
    ) -> GetResult:
        """Answer a pull; see store.get_message."""
        queue = self._queues.get(topic, queue_id)
        check = self._read_check if offset < self._read_check.trusted_from.get(queue, 0) else None
        limit = self.dispatch_limit() if self.dispatch_limit is not None else None
        result = get_message(
            queue, self.commit_log, self.config, offset, count_max, tags_codes, check=check, limit=limit
        )
        self._gets += result.message_count
        return result

    def message_at(self, phy_offset: int) -> memoryview | None:
        """The record at a physical offset, as it is stored; None when no sound one starts there."""
        return self._read_check.view(phy_offset)

    def message_of(self, topic: str, queue_id: int, queue_offset: int) -> memoryview | None:
        """The record of a message, as it is stored; None when it is not there, or not sound."""
        queue = self._queues.get(topic, queue_id)
        unit = queue.unit(queue_offset)
        sound = self._read_check.unit(queue, queue_offset, *unit) if unit is not None else None
        return self.commit_log.read(unit.phy_offset, sound[0]) if unit is not None and sound is not None else None

    async def query(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> QueryResult:
        """The newest messages with a key, stored in a span of time; see store.query_message. Raises OSError."""
        index, log = self.index, self.commit_log
        return await query_message(index, log, self.message_at, topic, key, count_max, begin_ms, end_ms)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The message of the queue that was stored nearest to `timestamp`, ms."""
        return offset_by_time(self.queue(topic, queue_id), self.commit_log, timestamp)

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a message was stored, ms; -1 when it is not there."""
        return store_timestamp(self.queue(topic, queue_id), self.commit_log, queue_offset)

    def statistics(self) -> StoreStatistics:
        """A snapshot."""
        return StoreStatistics(
            min_offset=self.min_offset,
            max_offset=self.max_offset,
            flushed_offset=self.flushed_offset,
            dispatched_offset=self.dispatched_offset,
            put_messages=self._puts,
            put_bytes=self._put_bytes,
            get_messages=self._gets,
            writable=self.writable,
            why_not_writable=self.why_not_writable,
            scrubbed_offset=self.scrub.scrubbed_from,
            unscrubbed_bytes=self.scrub.unscrubbed_bytes,
            damaged_bytes=self.damaged.total,
            in_doubt_bytes=self._read_check.known.in_doubt.total,
            wrong_units=self._read_check.known.wrong_units,
        )

    # Tasks

    def dispatch_pending(self) -> None:
        """Bring the queues level with the log and tell the listeners."""
        while self._pending:
            batch = self._pending[:_DISPATCH_BATCH]
            try:
                grown = self._queues.put(batch)
            except OSError as error:  # The batch stays: nothing is ever passed over.
                self._disk_refuses("writing a consume queue", error)
                return
            del self._pending[:_DISPATCH_BATCH]
            self.dispatched_offset = batch[-1].phy_offset + batch[-1].size
            self._queue_flusher.last_dispatched_timestamp = batch[-1].store_timestamp
            self._points.note(batch[-1].phy_offset, batch[-1].size, batch[-1].store_timestamp)
            self.index.feed(batch)
            for queue, codes in grown.items():
                for listener in self.on_arrival:
                    listener(queue.topic, queue.queue_id, queue.max_offset, codes)
        if not self._pending:
            self.dispatched_offset = self.commit_log.max_offset

    async def _dispatch_task(self) -> None:
        while True:
            await self._dispatch.wait()
            self.dispatch_pending()

    async def _resume_task(self) -> None:
        """While the disk refuses, ask it again and again; producers go on once it takes all that it refused."""
        while True:
            await self._refused.wait()
            while Condition.DISK_REFUSES in self.flags and Condition.FAILED not in self.flags:
                await trio.sleep(_TRY_AGAIN_SECONDS)
                await self._try_again()

    async def _try_again(self) -> None:
        try:
            self.commit_log.mend()
            if self.commit_log.pending is not None:
                self.commit_log.pending.commit()
                self._committed()
            if self._lacks_file and self._takes_spares:
                await self._make_spare()
        except OSError as error:
            self._disk_refuses("writing the commit log", error)
            return
        self.dispatch_pending()
        if not self._pending:
            self._lacks_file = False
            if self.flags.clear(Condition.DISK_REFUSES) and not self.flags.why_not_appendable:
                log.info("the disk takes bytes again, and so does the store")

    @property
    def _takes_spares(self) -> bool:
        return self.commit_log.takes_spares and not self.commit_log.files.others  # Those may be on another disk.

    def _wants_spare(self) -> bool:
        files = self.commit_log.files.files
        return self._takes_spares and bool(files) and files[-1].wrote * 2 > files[-1].size

    async def _allocate_task(self) -> None:
        """Make the next file once the last one is half full, so that no producer waits for it."""
        while True:
            await self._roll.wait()
            try:
                if self._wants_spare():
                    await self._make_spare()
            except OSError as error:
                log.warning("the next commit log file cannot be made ahead", error=str(error))
                if is_no_space(error):
                    self.retention.make_room()
                await trio.sleep(1)

    async def _make_spare(self) -> None:
        """Have the log's next file ready. Raises OSError."""
        async with self._spare_lock:
            if self.commit_log.spare is None:
                size = self.commit_log.file_size
                self.commit_log.spare = await trio.to_thread.run_sync(_make_file, self._spare_path, size)


def _make_file(path: Path, size: int) -> MappedFile:
    path.parent.mkdir(exist_ok=True)
    return MappedFile.create(path, 0, size, preallocate=True)


def java_length(text: str) -> int:
    """Characters as Java counts them: those beyond 16 bits are two."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
