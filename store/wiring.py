"""What a store consists of, how its parts are put together, and what they ask of each other."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field

from twinlog.store.config import BrokerRole, StoreConfig, parse_delay_levels
from twinlog.store.index.service import IndexService
from twinlog.store.integrity.damage import DamagedRanges, KnownDamage
from twinlog.store.integrity.digest_service import DIGEST_BYTES_PER_SECOND, DigestService
from twinlog.store.integrity.pull_check import CheckAhead
from twinlog.store.integrity.range_digests import RangeDigester
from twinlog.store.integrity.read_check import ReadCheck
from twinlog.store.integrity.repair import LogRepair
from twinlog.store.integrity.scrub import ScrubService
from twinlog.store.log.checkpoint import Checkpoint
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.mapped_file_queue import MappedFileQueue
from twinlog.store.log.preallocate import AllocateMappedFileService, PageAheadService
from twinlog.store.log.put_service import PutService
from twinlog.store.log.running_flags import Condition, DiskRefusal, RunningFlags
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.read.get_message import memory_bytes_max
from twinlog.store.record.scan import DispatchEntry
from twinlog.store.recovery.durable_end import KnownEnd, KnownStart
from twinlog.store.recovery.points import RecoveryPoints
from twinlog.store.recovery.side_files import SideFiles
from twinlog.store.retention import NO_FLOOR
from twinlog.store.services.dispatch import ReputMessageService
from twinlog.store.services.flush import FlushConsumeQueueService, FlushService
from twinlog.store.services.retention_service import RetentionService
from twinlog.store.truncation.truncation import TruncationService
from twinlog.store.util import disk_space

if TYPE_CHECKING:
    from twinlog.store.record.columns import Columns
    from twinlog.store.record.multi_dispatch import MoreQueues


@define(eq=False)
class StoreParts:
    """See MessageStore, which is what others use. Listeners and limits are set before it runs."""

    config: StoreConfig
    now_ms: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000, kw_only=True)
    disk_usage: Callable[[Path], float] = field(default=lambda path: disk_space.usage_ratio(path), kw_only=True)
    clock: Callable[[], float] = field(default=time.monotonic, kw_only=True)  # Seconds, for how long a write takes.
    is_replicated: bool = field(default=False, kw_only=True)  # Nothing is acknowledged that other members do not hold.
    retention_floor: Callable[[], int] = field(
        default=lambda: NO_FLOOR, init=False
    )  # The lowest byte replicas still need.
    retention_wish: Callable[[], int] = field(default=lambda: NO_FLOOR, init=False)  # As long as the disk has room.
    appended: list[Callable[[], None]] = field(factory=list, init=False)
    commit_log: CommitLog = field(init=False)
    flusher: FlushService = field(init=False)
    delays_ms: tuple[int, ...] = field(init=False)
    damaged: DamagedRanges = field(factory=DamagedRanges, init=False)  # Bytes of the log that are not served.
    dispatch_limit: Callable[[], int] | None = field(
        default=None, init=False
    )  # Consumers are shown bytes below it only.
    # Told where the log is cut, before anything is written there.
    on_truncate: list[Callable[[int], None]] = field(factory=list, init=False)
    digest: DigestService = field(init=False)
    range_digester: RangeDigester = field(init=False)
    repairs: LogRepair = field(init=False)
    scrub: ScrubService = field(init=False)
    index: IndexService = field(init=False)
    retention: RetentionService = field(init=False)
    flags: RunningFlags = field(factory=RunningFlags, init=False)
    _root: Path = field(init=False)
    _ahead: Path = field(init=False)
    _queues: ConsumeQueueTable = field(init=False)
    _queue_flusher: FlushConsumeQueueService = field(init=False)
    _checkpoint: Checkpoint = field(init=False)
    _known_end: KnownEnd = field(init=False)
    _known_start: KnownStart = field(init=False)
    _points: RecoveryPoints = field(init=False)
    _read_check: ReadCheck = field(init=False)
    _check_ahead: CheckAhead = field(init=False)
    _refusal: DiskRefusal = field(init=False)
    _allocator: AllocateMappedFileService = field(init=False)
    _pages: PageAheadService = field(init=False)
    _reput: ReputMessageService = field(init=False)
    _truncation: TruncationService = field(init=False)
    _putter: PutService = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.flags.set(Condition.NOT_OPEN, "the store is not open")
        self._root = self.config.root.expanduser()
        self.delays_ms = parse_delay_levels(self.config.message_delay_level)
        side = SideFiles(self._root / "twinlog")
        self._make_log()
        self._make_queues(side)
        self._make_checks()
        self._make_services(side)
        self.on_truncate += [
            self._points.truncated,
            self.digest.truncated,
            self.scrub.truncated,
            self.flusher.truncated,
            self.index.truncate,
            self.retention.truncated,
            lambda _offset: self._known_end.forget(),
            self._forget_start,
        ]
        self.retention.shortened.append(self.index.delete_before)
        self.retention.shortened.append(lambda _min_offset: self._known_start.forget())

    def _forget_start(self, offset: int) -> None:
        if offset <= self.commit_log.min_offset:  # The whole log: what comes now begins where it is told to.
            self._known_start.forget()

    def _make_log(self) -> None:
        """The log, its files, and what happens when the disk refuses."""
        config = self.config
        directory, *others = config.commit_log_paths
        files = MappedFileQueue(
            directory,
            config.mapped_file_size_commit_log,
            "mappedFileSizeCommitLog",
            preallocate=True,
            others=tuple(others),
            read_only=config.read_only_commit_log_paths,
            has_room=lambda path: self.disk_usage(path) * 100 <= self.config.disk_limits.forced,
        )
        self.commit_log = CommitLog(files, self.delays_ms)
        self._ahead = directory.parent / "twinlog" / "ahead"
        self._refusal = DiskRefusal(
            flags=self.flags, ask_again=self._write_what_was_refused, make_room=lambda: self.retention.make_room()
        )
        self._allocator = AllocateMappedFileService(
            self.commit_log, directory.parent / "twinlog" / "spare", make_room=lambda: self.retention.make_room()
        )
        self._pages = PageAheadService(self.commit_log)

    def _make_queues(self, side: SideFiles) -> None:
        """Queues, and how all comes to the disk."""
        config = self.config
        self._queues = ConsumeQueueTable(self._root / "consumequeue", config.consume_queue_file_size)
        self._checkpoint = Checkpoint(self._root / "checkpoint")
        self.flusher = FlushService(self.commit_log, config, self._checkpoint, self.fail)
        self._known_end = KnownEnd(side.directory)
        self._known_start = KnownStart(side.directory)
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

    def _make_checks(self) -> None:
        """What finds bytes that have changed."""
        config = self.config
        self._read_check = ReadCheck(self.commit_log, KnownDamage(self.damaged))
        self._check_ahead = CheckAhead(self._read_check)
        self.digest = DigestService(
            self.commit_log,
            self._root / "twinlog" / "digest",
            now_ms=self.now_ms,
            old_bytes_per_second=config.scrub_bytes_per_second or DIGEST_BYTES_PER_SECOND,
        )
        self.range_digester = RangeDigester(self.commit_log, self.digest)
        self.repairs = LogRepair(self.commit_log, self._queues, self.digest, self._read_check.known, self.delays_ms)
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

    def _make_services(self, side: SideFiles) -> None:
        """What writes, dispatches, deletes and cuts."""
        config = self.config
        self.retention = RetentionService(
            log=self.commit_log,
            queues=self._queues,
            config=config,
            flags=self.flags,
            fail=self.fail,
            floor=lambda: min(self.retention_floor(), self.dispatched_offset, self.flushed_offset),
            wish=lambda: self.retention_wish(),
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
        self._reput = ReputMessageService(
            log=self.commit_log,
            queues=self._queues,
            queue_flusher=self._queue_flusher,
            points=self._points,
            index=self.index,
            refused=self._refusal.refused,
        )
        self._putter = PutService(
            log=self.commit_log,
            config=config,
            flags=self.flags,
            now_ms=lambda: self.now_ms(),
            clock=lambda: self.clock(),
            written=self._after_put,
            refused=self._refusal.refused,
        )
        self._truncation = TruncationService(
            side=side.directory,
            log=self.commit_log,
            queues=self._queues,
            flags=self.flags,
            flusher=self.flusher,
            queue_flusher=self._queue_flusher,
            reput=self._reput,
            points=self._points,
            digest=self.digest,
            index=self.index,
            retention=self.retention,
            checkpoint=self._checkpoint,
            is_slave=lambda: self.config.broker_role is BrokerRole.SLAVE,
            tail_ended=self.tail_ended,
            now_ms=lambda: self.now_ms(),
            fail=self.fail,
            on_truncate=self.on_truncate,
            repairing=self.repairs.turn,
        )

    # What they ask of each other

    def fail(self, reason: str) -> None:
        """Take no more bytes: the disk refused some, and what it holds now is not known."""
        self._refusal.fail(reason)

    @property
    def dispatched_offset(self) -> int:
        """All bytes below are in the queues."""
        return self._reput.dispatched_offset

    @property
    def flushed_offset(self) -> int:
        """All bytes below are on disk."""
        return self.flusher.flushed_offset

    def dispatch_pending(self) -> None:
        """Bring the queues level with the log and tell the listeners."""
        self._reput.dispatch()

    async def tail_ended(self) -> None:
        """Have no more bytes written behind the log's end, and wait until none are there."""
        while self.commit_log.tail is not None:
            self.commit_log.tail.is_unwanted = True
            await self.commit_log.tail.ended.wait()

    def _after_put(self, entries: list[DispatchEntry], timestamp: int) -> None:
        self._pages.appended()
        self._after_append(entries, timestamp)

    def _after_append(self, entries: "list[DispatchEntry] | Columns | MoreQueues", timestamp: int) -> None:
        self.flusher.last_store_timestamp = timestamp or self.flusher.last_store_timestamp
        self._reput.add(entries)
        for listener in self.appended:
            listener()
        self._allocator.appended()

    async def _write_what_was_refused(self, lacks_file: bool) -> bool:
        """Whether nothing is left of it. Raises OSError."""
        self.commit_log.mend()
        if self.commit_log.pending is not None:
            self.commit_log.pending.commit()
            self._putter.committed()
        if lacks_file and self._allocator.takes_spares:
            await self._allocator.make()
        self.dispatch_pending()
        self._queues.write_late()
        return not self._reput.pending
