"""Wiring of a store: its parts, in the order in which they need each other."""

from twinlog.store.config import StoreConfig, parse_delay_levels
from twinlog.store.hooks import StoreHooks
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
from twinlog.store.log.running_flags import DiskRefusal, RunningFlags
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.read.get_message import memory_bytes_max
from twinlog.store.record.multi_dispatch import MoreQueues
from twinlog.store.record.scan import DispatchEntry, Entries
from twinlog.store.recovery.durable_end import DurableEnd, DurableStart
from twinlog.store.recovery.points import RecoveryPoints
from twinlog.store.recovery.side_files import SideFiles
from twinlog.store.services.dispatch import ReputMessageService
from twinlog.store.services.flush import FlushConsumeQueueService, FlushService
from twinlog.store.services.retention_service import RetentionService
from twinlog.store.truncation.truncation import TruncationService


class StoreParts:
    """The parts of one store. MessageStore is their user, and opens and runs them.

    `config` is that of the start: parts that follow a change of it have their own.
    """

    def __init__(self, config: StoreConfig, hooks: StoreHooks) -> None:
        self.config, self.hooks = config, hooks
        self.root = config.root.expanduser()
        self.delays_ms = parse_delay_levels(config.message_delay_level)
        self.damaged = DamagedRanges()  # Bytes of the log that are not served.
        self.flags = RunningFlags()
        side = SideFiles(self.root / "twinlog")
        self._make_log_and_queues(side)
        self._make_flush_and_retention()
        self._make_checks()
        self._make_put_and_dispatch(side)
        self.hooks.on_truncate += [
            self.points.truncated,
            self.digest.truncated,
            self.scrub.truncated,
            self.flusher.truncated,
            self.index.truncate,
            self.retention.truncated,
            self.durable_end.truncated,
            self.durable_start.truncated,
        ]
        self.retention.shortened += [self.index.delete_before, self.durable_start.shortened]

    def _make_log_and_queues(self, side: SideFiles) -> None:
        config = self.config
        directory, *others = config.commit_log_paths
        files = MappedFileQueue(
            directory,
            config.mapped_file_size_commit_log,
            "mappedFileSizeCommitLog",
            preallocate=True,
            others=tuple(others),
            read_only=config.read_only_commit_log_paths,
        )
        self.commit_log = CommitLog(files, self.delays_ms)
        self.ahead = directory.parent / "twinlog" / "ahead"  # For log files with bytes that are not verified yet.
        self.queues = ConsumeQueueTable(self.root / "consumequeue", config.consume_queue_file_size)
        self.checkpoint = Checkpoint(self.root / "checkpoint")
        self.durable_end = DurableEnd(side.directory)
        self.durable_start = DurableStart(side.directory, self.commit_log)
        self.points = RecoveryPoints(self.commit_log, self.queues, side, self.damaged)

    def _make_flush_and_retention(self) -> None:
        config, log = self.config, self.commit_log
        self.refusal = DiskRefusal(flags=self.flags, ask_again=self._write_what_was_refused)
        self.flusher = FlushService(log, config, self.checkpoint, self.refusal.fail)
        self.queue_flusher = FlushConsumeQueueService(
            log, self.queues, config, self.checkpoint, self.refusal.fail, self.points, self.flusher
        )
        self.retention = RetentionService(
            log=log,
            queues=self.queues,
            flusher=self.flusher,
            config=config,
            flags=self.flags,
            fail=self.refusal.fail,
            hooks=self.hooks,
            clock_path=self.root / "twinlog" / "clock",
        )
        self.refusal.make_room = self.retention.make_room
        log.files.has_room = self.retention.has_room
        spare = log.files.directory.parent / "twinlog" / "spare"
        self.allocator = AllocateMappedFileService(log, spare, self.retention.make_room)
        self.pages = PageAheadService(log)

    def _make_checks(self) -> None:
        """Parts that find and repair bytes that have changed on the disk."""
        config, log = self.config, self.commit_log
        self.read_check = ReadCheck(log, KnownDamage(self.damaged))
        self.check_ahead = CheckAhead(self.read_check)
        self.digest = DigestService(
            log,
            self.root / "twinlog" / "digest",
            self.hooks,
            old_bytes_per_second=config.scrub_bytes_per_second or DIGEST_BYTES_PER_SECOND,
        )
        self.range_digester = RangeDigester(log, self.digest)
        self.repairs = LogRepair(log, self.queues, self.digest, self.read_check.known, self.delays_ms)
        self.scrub = ScrubService(
            log,
            self.queues,
            self.digest,
            self.read_check,
            config.scrub_bytes_per_second,
            config.scrub_interval_hours,
            self.delays_ms,
            memory_bytes_max(config.access_message_in_memory_max_ratio),
        )

    def _make_put_and_dispatch(self, side: SideFiles) -> None:
        config, log = self.config, self.commit_log
        note = side.directory / "index-behind"
        self.index = IndexService(self.root / "index", note, log, config, self.checkpoint)
        self.reput = ReputMessageService(
            log=log,
            queues=self.queues,
            queue_flusher=self.queue_flusher,
            points=self.points,
            index=self.index,
            refused=self.refusal.refused,
        )
        self.putter = PutService(
            log=log,
            config=config,
            flags=self.flags,
            hooks=self.hooks,
            written=self._after_put,
            refused=self.refusal.refused,
        )
        self.truncation = TruncationService(
            side=side.directory,
            log=log,
            queues=self.queues,
            flags=self.flags,
            flusher=self.flusher,
            queue_flusher=self.queue_flusher,
            reput=self.reput,
            putter=self.putter,
            points=self.points,
            digest=self.digest,
            index=self.index,
            retention=self.retention,
            checkpoint=self.checkpoint,
            fail=self.refusal.fail,
            hooks=self.hooks,
            repairing=self.repairs.turn,
        )

    # Callbacks

    def _after_put(self, entries: list[DispatchEntry], timestamp: int) -> None:
        self.pages.appended()
        self.after_append(entries, timestamp)

    def after_append(self, entries: "Entries | MoreQueues", timestamp: int) -> None:
        """Hand records that are in the log now to dispatch, flush and replication."""
        self.flusher.last_store_timestamp = timestamp or self.flusher.last_store_timestamp
        self.reput.add(entries)
        for listener in self.hooks.appended:
            listener()
        self.allocator.appended()

    async def _write_what_was_refused(self, lacks_file: bool) -> bool:
        """Write again what the disk refused; True once all of it is written. Raises OSError."""
        self.commit_log.clear_torn_end()
        if self.commit_log.pending is not None:
            self.commit_log.pending.commit()
            self.putter.committed()
        if lacks_file and self.commit_log.makes_files_ahead:
            await self.allocator.make()
        self.reput.dispatch()
        self.queues.write_late()
        return not self.reput.pending
