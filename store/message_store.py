"""The one way into a store directory: put, read, replicate, and everything that goes on behind.

Source: DefaultMessageStore, RocketMQ 4.9.8. All methods run on the event loop's thread, except load().
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import structlog
import trio
from attrs import evolve, frozen

from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.errors import StoreError, StoreNotWritableError
from twinlog.store.hooks import StoreHooks
from twinlog.store.log.commit_log import PutMessage, PutResult
from twinlog.store.log.put_service import PutTimes
from twinlog.store.log.running_flags import StoreCondition
from twinlog.store.log.unverified_tail import LogTail, remove_ahead_files
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.read.get_message import GetResult, PropertyFilter, any_accepted, get_message
from twinlog.store.read.query import QueryResult, offset_by_time, query_message, store_timestamp
from twinlog.store.record.multi_dispatch import replicated
from twinlog.store.record.scan import Entries
from twinlog.store.recovery.recovery import Recovery
from twinlog.store.services.dispatch import ArrivalListener
from twinlog.store.truncation.divergent import Divergent
from twinlog.store.truncation.resume import UnfinishedCut
from twinlog.store.util.sync import make_directory, sync_directory, take_lock
from twinlog.store.wiring import StoreParts


@frozen
class StoreStatistics:
    """A snapshot for people and metrics. Offsets and sizes in bytes."""

    min_offset: int
    max_offset: int
    flushed_offset: int
    dispatched_offset: int
    put_messages: int
    put_bytes: int
    put_failed: int
    why_not_writable: str
    unscrubbed_bytes: int  # Neither read nor written since the start.
    damaged_bytes: int
    lost_bytes: int  # Of the log's end, which were on the disk.
    lost_start_bytes: int  # Of its start, of which the files are gone.
    in_doubt_bytes: int  # Bytes that differ from their digest, where no CRC covers them.
    wrong_units: int
    divergent: tuple[Divergent, ...]  # Kept cuts.


log = structlog.get_logger()


class MessageStore:
    """A store directory that is open.

    `load()` opens it, `run()` serves it, `close()` leaves it as a clean stop does. Listeners in `on_arrival` get (topic, queue
    id, new end of the queue, tags codes of the new units) after dispatch, those in `on_dispatched` once all of these were
    called, in the same turn of the event loop or, after dispatch_pending(), in the next.
    """

    def __init__(self, config: StoreConfig, hooks: StoreHooks | None = None, *, is_replicated: bool = False) -> None:
        """`is_replicated`: nothing is acknowledged that other members do not hold."""
        self.config, self.is_replicated = config, is_replicated
        self.hooks = hooks or StoreHooks()
        parts = self._parts = StoreParts(config, self.hooks)
        self.commit_log, self.delays_ms = parts.commit_log, parts.delays_ms
        self.damaged = parts.damaged  # Bytes of the log that are not served.
        self.flusher, self.retention, self.index = parts.flusher, parts.retention, parts.index
        self.digest, self.range_digester = parts.digest, parts.range_digester
        self.repairs, self.scrub, self.flags = parts.repairs, parts.scrub, parts.flags
        self._queues, self._putter, self._reput = parts.queues, parts.putter, parts.reput
        self._read_check = parts.read_check
        self._lock_fd = -1
        self.flags.set(StoreCondition.NOT_OPEN, "the store is not open")

    # Opening and closing

    def load(self) -> None:
        """Open the directory and recover from a crash. May block for seconds: run it in a thread.

        Raises StoreDirectoryError when the directory cannot be opened in its present state, OSError when the disk refuses.
        """
        for directory in (self._parts.root, *self.commit_log.files.writable, self._queues.directory):
            make_directory(directory)
        self._lock_fd = take_lock(self._parts.root / "lock")
        try:
            self._load()
        except BaseException:
            self._release()
            raise

    def _load(self) -> None:
        unfinished = UnfinishedCut.find(self._parts.points.side.directory)
        after_crash = (self._parts.root / "abort").exists() or unfinished is not None
        self.commit_log.files.load()
        self._parts.checkpoint.load()
        if unfinished is not None:
            unfinished.cut_log(self.commit_log, self._parts.checkpoint, self._queues.directory)
        self._parts.allocator.path.unlink(missing_ok=True)
        remove_ahead_files(self._parts.ahead)
        self._parts.durable_end.load()
        self._parts.durable_start.load()
        started = time.monotonic()
        recovery = Recovery(
            log=self.commit_log,
            queues=self._queues,
            checkpoint=self._parts.checkpoint,
            side=self._parts.points.side,
            damaged=self.damaged,
            durable_end=self._parts.durable_end,
            durable_start=self._parts.durable_start,
            after_crash=after_crash,
            others_have_it=self.is_replicated or self.config.is_slave,
            check_crc=self.config.check_crc_on_recover,
            delays_ms=self.delays_ms,
        )
        recovery.run()
        if unfinished is not None:
            unfinished.finish(self._queues)
            self.commit_log.next_queue_offsets = self._queues.next_offsets()
        log.info(
            "store recovered" if after_crash else "store opened",
            root=str(self._parts.root),
            log=f"{self.commit_log.min_offset}..{recovery.end}",
            walked_from=recovery.start,
            walked=recovery.records,
            dispatched=recovery.dispatched,
            seconds=round(time.monotonic() - started, 3),
        )
        assert self.commit_log.min_offset <= recovery.end
        self.commit_log.dispatched_offset = recovery.end
        self._parts.points.last = recovery.last_record
        self._parts.points.offset = recovery.start
        self.flusher.last_store_timestamp = recovery.last_record.store_timestamp
        self._parts.queue_flusher.last_dispatched_timestamp = recovery.last_record.store_timestamp
        # After a crash, bytes that were read may be in the page cache only.
        self.flusher.flushed_offset = self.commit_log.min_offset if after_crash else recovery.end
        if after_crash:
            for files in (self.commit_log.files, *(queue.files for queue in self._queues)):
                for file in files.files:
                    file.flushed = 0
        self.digest.open(after_crash=after_crash, durable_offset=recovery.start)
        self.scrub.begin()
        self.index.load(after_crash=after_crash)
        (self._parts.root / "abort").touch()
        sync_directory(self._parts.root)  # Without its abort file a crash would look like a clean stop.
        if self.config.uses_transient_store_pool:
            self._putter.use_buffers()
        self.flags.clear(StoreCondition.NOT_OPEN)
        if recovery.refused is not None:
            self._parts.refusal.refused("writing a consume queue", recovery.refused)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the background services until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._reput.run)
            if self._putter.committer is not None:
                nursery.start_soon(self._putter.committer.run)
            nursery.start_soon(self.flusher.run)
            nursery.start_soon(self._parts.queue_flusher.run)
            nursery.start_soon(self._parts.allocator.run)
            nursery.start_soon(self._parts.pages.run)
            nursery.start_soon(self._parts.refusal.run)
            nursery.start_soon(self.retention.run)
            nursery.start_soon(self.index.run)
            nursery.start_soon(self.digest.run)
            nursery.start_soon(self.scrub.run)
            nursery.start_soon(self._parts.check_ahead.run)
            task_status.started()

    async def close(self) -> None:
        """Stop taking messages, bring everything to the disk and leave the marks of a clean stop."""
        self.commit_pending()
        self.dispatch_pending()
        was_well = not self.flags.why_not_appendable
        self.flags.set(StoreCondition.CLOSED, "the store is closed")
        await self.flusher.flush()
        await self.index.close()
        queues_are_flushed = await self._parts.queue_flusher.flush(thorough=True)
        clean = was_well and queues_are_flushed and self.flusher.failure is None
        await self.digest.close(clean=clean)
        if clean:
            (self._parts.root / "abort").unlink(missing_ok=True)
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
        """The reason for refusing producers, whatever this broker's role; empty when they may write."""
        return self.flags.why_not_writable

    @property
    def writable(self) -> bool:
        """True when producers may write here."""
        return self._putter.writable

    @property
    def lost_bytes(self) -> int:
        """Bytes missing at the end of the log that were on its disk, until the log has grown as far again."""
        return max((self._parts.durable_end.offset or 0) - self.max_offset, 0)

    @property
    def lost_start(self) -> tuple[int, int] | None:
        """The range of missing first bytes of the log, whose files were removed by others; None for none."""
        began = self._parts.durable_start.offset
        return (began, self.min_offset) if began is not None and began < self.min_offset else None

    def accept_end(self) -> None:
        """Clear lost_bytes: they are back, or given up. Raises OSError."""
        self._parts.durable_end.forget()

    def put(self, messages: Sequence[PutMessage], *, together: bool = False) -> list[PutResult]:
        """Append messages with one system call; each has its own status. Never waits: flush and replicas come after.

        `together`: these are one batch request and go into one file.
        """
        return self._putter.put(messages, together=together)

    @property
    def put_times(self) -> PutTimes:
        """Durations of writes."""
        return self._putter.times

    def commit_pending(self) -> None:
        """Write buffered messages that producers were answered for; nothing without buffers."""
        self._putter.commit_pending()

    async def flush(self) -> None:
        """Sync everything put so far, as far as the disk takes it."""
        self.commit_pending()
        await self.flusher.flush()

    def append_replicated(self, data: bytes | memoryview, entries: Entries) -> None:
        """Append whole, verified records of the master at the end of a slave's log.

        Raises StoreNotWritableError; nothing of `data` counts as written then.
        """
        self._replicate(partial(self.commit_log.append_raw, data), entries)

    def _replicate(self, write: Callable[[], None], entries: Entries) -> None:
        self._check_replicates()
        start = self.max_offset
        try:
            write()
        except OSError as error:
            self._parts.refusal.refused("writing the commit log", error)
            raise StoreNotWritableError(self.flags.why_not_appendable) from error
        if len(entries):
            assert start <= entries[0].phy_offset < entries[-1].phy_offset + entries[-1].size <= self.max_offset
        self._putter.count(len(entries), self.max_offset - start)
        self._parts.after_append(replicated(entries), entries[-1].store_timestamp if len(entries) else 0)

    def _check_replicates(self) -> None:
        if not self.config.is_slave:
            raise StoreNotWritableError("this broker is a master, whose log is written by producers only")
        if self.flags.why_not_appendable:
            raise StoreNotWritableError(self.flags.why_not_appendable)

    def begin_tail(self) -> LogTail:
        """Begin to take bytes of the master behind the log's end before they are verified; close_tail() must follow.

        Raises StoreNotWritableError.
        """
        self._check_replicates()
        if not self.commit_log.files.files:
            raise StoreNotWritableError("an empty log has no file to write behind")
        return LogTail(self.commit_log, self._parts.ahead)

    def take_of_tail(self, size: int, entries: Entries) -> None:
        """Like append_replicated(), with whole, verified records at the beginning of the tail, in one file."""
        self._replicate(partial(self.commit_log.take_of_tail, size), entries)

    async def close_tail(self, tail: LogTail, *, durably: bool) -> None:
        """Clear the rest of the tail, `durably` unless it is a part of one record. When that fails, the store fails."""
        with trio.CancelScope(shield=True):
            try:
                await trio.to_thread.run_sync(partial(tail.clear, durably=durably))
            except OSError as error:
                self.fail(f"bytes behind the log's end, which were not verified, cannot be cleared: {error}")
            finally:
                tail.done()

    @property
    def unverified_bytes(self) -> int:
        """Bytes received behind the log's end that are not verified yet."""
        return self.commit_log.tail.size if self.commit_log.tail is not None else 0

    def start_at(self, phy_offset: int) -> None:
        """Start the log of a fresh slave at the start of a file. Raises StoreNotWritableError."""
        try:
            self.commit_log.start_at(phy_offset)
        except OSError as error:
            self._parts.refusal.refused("creating the first commit log file", error)
            raise StoreNotWritableError(self.flags.why_not_appendable) from error
        self.commit_log.dispatched_offset = self.flusher.flushed_offset = phy_offset

    async def truncate(self, phy_offset: int, why: str) -> None:
        """Cut a slave's log where a record begins, durably; the cut bytes are kept in twinlog/divergent/.

        See store/truncation/truncation.py. Raises StoreError: nothing was changed, or, as `flags` show, the store failed and
        the next start finishes the cut.
        """
        await self._parts.truncation.truncate(phy_offset, why)

    async def reset(self, why: str) -> None:
        """Empty a slave's log, as truncate() cuts it; start_at() may follow."""
        await self._parts.truncation.reset(why)

    async def become_master(self, role: BrokerRole) -> None:
        """Take messages from producers from now on, behind all replicated bytes. Nobody may append meanwhile.

        Raises StoreError: the log is still a slave's. Write buffers are used if they were at the start.
        """
        assert role is not BrokerRole.SLAVE
        async with self.repairs.turn:  # No cut and no repair is under way.
            if self.flags.why_not_appendable:
                raise StoreError(f"this log cannot be a master's: {self.flags.why_not_appendable}")
            self.dispatch_pending()
            if self._reput.pending:
                raise StoreError(f"this log cannot be a master's: its queues end at byte {self.dispatched_offset}")
            assert self.dispatched_offset == self.max_offset
            assert self.commit_log.tail is None
            if self.config.is_slave:
                self.commit_log.next_queue_offsets = self._queues.next_offsets()
                self.config = evolve(self.config, broker_role=role)
                self._putter.become_master(self.config)
            else:
                self.config = self._putter.config = evolve(self.config, broker_role=role)

    def reconfigure(self, **values: Any) -> None:
        """Change configuration fields that services read at each use."""
        self.config = evolve(self.config, **values)
        self._putter.take_config(evolve(self._putter.config, **values))
        self.flusher.config = evolve(self.flusher.config, **values)
        self._parts.queue_flusher.config = evolve(self._parts.queue_flusher.config, **values)
        self.retention.config = evolve(self.retention.config, **values)
        self.index.config = evolve(self.index.config, **values)

    def become_slave(self) -> None:
        """Take replicated bytes from now on, no producers' messages. All messages put before are in the log then."""
        if not self.config.is_slave:
            self.config = evolve(self.config, broker_role=BrokerRole.SLAVE)
            self._putter.become_slave(self.config)

    # Hooks and frontiers

    @property
    def now_ms(self) -> Callable[[], int]:
        """The wall clock, ms since 1970."""
        return self.hooks.now_ms

    @property
    def appended(self) -> list[Callable[[], None]]:
        """Functions that are called after bytes were added to the log."""
        return self.hooks.appended

    @property
    def on_truncate(self) -> list[Callable[[int], None]]:
        """Functions that are called with the log's new end after a cut, before the log grows again."""
        return self.hooks.on_truncate

    def fail(self, reason: str) -> None:
        """Take no more bytes: the disk refused some, and its present content is unknown."""
        self._parts.refusal.fail(reason)

    @property
    def dispatched_offset(self) -> int:
        """All bytes below are in the queues."""
        return self.commit_log.dispatched_offset

    @property
    def flushed_offset(self) -> int:
        """All bytes below are on disk."""
        return self.flusher.flushed_offset

    def defer_dispatch(self) -> None:
        """Let what is appended from now on wait for dispatch_deferred(), which must follow before anything waits."""
        self._reput.defer()

    def dispatch_deferred(self) -> None:
        """Bring what was deferred into the queues, now or in the next turn of the event loop."""
        self._reput.dispatch_deferred()

    def dispatch_pending(self) -> None:
        """Bring the queues up to the end of the log, and call the listeners."""
        self._reput.dispatch()

    # Reading

    @property
    def on_arrival(self) -> list[ArrivalListener]:
        """Listeners that are called after dispatch."""
        return self._reput.on_arrival

    @property
    def on_dispatched(self) -> list[Callable[[], None]]:
        """Listeners that are called after those of on_arrival."""
        return self._reput.on_dispatched

    @property
    def min_offset(self) -> int:
        """The first byte of the log that is still there."""
        return self.commit_log.min_offset

    @property
    def max_offset(self) -> int:
        """The end of the log."""
        return self.commit_log.max_offset

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A queue; one that was never written to is empty."""
        return self._queues.get(topic, queue_id)

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue that exists; None for any other."""
        return self._queues.find(topic, queue_id)

    @property
    def sync_errors(self) -> int:
        """The number of failed syncs of log and queues since the start."""
        return self.flusher.sync_errors + self._parts.queue_flusher.sync_errors

    @property
    def put_counts(self) -> tuple[int, int]:
        """Messages and bytes added to the log since the start, by producers or by replication."""
        return self._putter.messages, self._putter.bytes

    def queues(self) -> Iterator[tuple[str, int, ConsumeQueue]]:
        """All known queues."""
        return ((queue.topic, queue.queue_id, queue) for queue in self._queues)

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        tags_codes: frozenset[int] | None,
        accepts: PropertyFilter | None = None,
    ) -> GetResult:
        """Answer a pull; see twinlog.store.read.get_message."""
        queue = self._queues.get(topic, queue_id)
        check = self._read_check if offset < self._read_check.trusted_from.get(queue, 0) else None
        limit = self.hooks.dispatch_limit() if self.hooks.dispatch_limit is not None else None
        result = get_message(
            queue,
            self.commit_log,
            self.config,
            offset,
            count_max,
            tags_codes,
            accepts=accepts,
            check=check,
            limit=limit,
        )
        if check is not None and result.message_count:
            self._parts.check_ahead.pulled(queue, result.next_offset)
        return result

    def any_accepted(self, topic: str, queue_id: int, start: int, end: int, accepts: PropertyFilter) -> bool:
        """True when a filter accepts one of these messages of a queue; see twinlog.store.read.get_message."""
        return any_accepted(self._queues.get(topic, queue_id), self.commit_log, start, end, accepts)

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
        """The newest messages with a key, stored in a span of time; see twinlog.store.read.query. Raises OSError."""
        index, log = self.index, self.commit_log
        return await query_message(index, log, self.message_at, topic, key, count_max, begin_ms, end_ms)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The message of the queue that was stored nearest to `timestamp`, ms."""
        return offset_by_time(self.queue(topic, queue_id), self.commit_log, timestamp)

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """The store time of a message, ms; -1 when it is not there."""
        return store_timestamp(self.queue(topic, queue_id), self.commit_log, queue_offset)

    def statistics(self) -> StoreStatistics:
        """A snapshot."""
        return StoreStatistics(
            min_offset=self.min_offset,
            max_offset=self.max_offset,
            flushed_offset=self.flushed_offset,
            dispatched_offset=self.dispatched_offset,
            put_messages=self._putter.messages,
            put_bytes=self._putter.bytes,
            put_failed=self._putter.failed,
            why_not_writable=self.why_not_writable,
            unscrubbed_bytes=self.scrub.unscrubbed_bytes,
            damaged_bytes=self.damaged.total,
            lost_bytes=self.lost_bytes,
            lost_start_bytes=lost[1] - lost[0] if (lost := self.lost_start) is not None else 0,
            in_doubt_bytes=self._read_check.known.in_doubt.total,
            wrong_units=self._read_check.known.wrong_units,
            divergent=self._parts.truncation.divergent.list(),
        )
