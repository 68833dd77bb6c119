"""Cuts the log of a slave while it is in use, so that the cut bytes never come back.

    1 copy      the bytes to be cut go to twinlog/divergent/ (store/truncation/divergent.py), under a name that is not final
    2 intent    twinlog/truncate describes the cut (store/truncation/intent.py): from here on it is carried out in any case
    3 memory    log, queues and all their followers end at the cut: the rest is not served any more
    4 disk      later files are removed, the rest of the last one is zeroed, as in the queues; index note, checkpoint, digests
    5 done      the intent is removed

A crash before 2 leaves everything as it was; after a later one the next start finishes the cut (store/truncation/resume.py).
RocketMQ only moves positions: the bytes stay valid on the disk, and come back after a crash behind shorter new ones (its issue
10666).
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import structlog
import trio
from attrs import define, field

from twinlog.store.errors import StoreError, StoreNotWritableError
from twinlog.store.hooks import StoreHooks
from twinlog.store.index.service import IndexService
from twinlog.store.integrity.digest_service import DigestService
from twinlog.store.log.checkpoint import Checkpoint
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.log.mapped_file_queue import MappedFileQueue
from twinlog.store.log.put_service import PutService
from twinlog.store.log.range import LogRange, record_before
from twinlog.store.log.running_flags import RunningFlags, StoreCondition
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.record.scan import DispatchEntry
from twinlog.store.recovery.point import PointRecord
from twinlog.store.recovery.points import RecoveryPoints
from twinlog.store.services.dispatch import ReputMessageService
from twinlog.store.services.flush import FlushConsumeQueueService, FlushService
from twinlog.store.services.retention_service import RetentionService
from twinlog.store.truncation.divergent import CutFile, Divergent, DivergentDirectory
from twinlog.store.truncation.intent import NAME, CutKind, TruncateIntent, encode_intent
from twinlog.store.truncation.resume import lower_checkpoint, remove_intent
from twinlog.store.util.sync import sync_directory, write_durably


@define(eq=False)
class CutFiles:
    """Files that go, in order, and files whose rest becomes zero; all of them end at the cut in memory already."""

    removed: list[MappedFile] = field(factory=list)  # Of the log.
    log_tail: MappedFile | None = None
    queue_tails: list[MappedFile] = field(factory=list)
    directories: set[Path] = field(factory=set)  # Of queues that lost files, maybe.

    def cut_log(self, files: MappedFileQueue, offset: int) -> None:
        """Cut the log at `offset`. Raises OSError."""
        self.removed = files.take_behind(offset)
        self.log_tail = files.files[-1].twin() if files.files else None

    def empty_log(self, files: MappedFileQueue) -> None:
        """Empty the log."""
        self.removed = list(files.files)
        files.files.clear()

    def cut_queue(self, queue: ConsumeQueue, phy_offset: int) -> None:
        """End a queue before the messages at or behind an offset of the log. Raises OSError."""
        had_messages, end = queue.max_phy_offset >= 0, queue.max_offset
        queue.rewind(phy_offset)
        if had_messages and queue.max_phy_offset < 0:
            self.empty_queue(queue)  # Only blanks are left: its messages may come back with other numbers.
        elif queue.max_offset < end:
            self.directories.add(queue.files.directory)
            if queue.files.files:
                self.queue_tails.append(queue.files.files[-1].twin())

    def empty_queue(self, queue: ConsumeQueue) -> None:
        """Empty a queue, as if it had never been written to. Raises OSError."""
        if queue.files.files:
            self.directories.add(queue.files.directory)
        queue.clear()

    def close(self) -> None:
        """Close the descriptors."""
        for file in (self.log_tail, *self.queue_tails):
            if file is not None:
                file.close()


def cut_on_disk(cut: CutFiles, log: MappedFileQueue) -> None:
    """Make the cut durable, the queues' first: a unit without its message is worse than the reverse. Raises OSError."""
    for file in cut.queue_tails:
        file.clear_from(file.wrote)
    for directory in cut.directories:
        sync_directory(directory)
    for file in reversed(cut.removed):
        file.path.unlink(missing_ok=True)
        if log.others:  # After a power loss each disk is at a moment of its own.
            sync_directory(file.path.parent)
    log.sync()
    if cut.log_tail is not None:
        cut.log_tail.clear_from(cut.log_tail.wrote)


log_lines = structlog.get_logger()

_READERS_SECONDS = 2.0  # Time for senders of cut bytes. A slower one sends zeros, which match no CRC.
_POLL_SECONDS = 0.02


@define(eq=False, kw_only=True)
class TruncationService:
    """Cuts the log of a slave; hooks.on_truncate are called before anything is written behind the cut."""

    side: Path  # ROOT/twinlog.
    log: CommitLog
    queues: ConsumeQueueTable
    flags: RunningFlags
    flusher: FlushService
    queue_flusher: FlushConsumeQueueService
    reput: ReputMessageService
    putter: PutService
    points: RecoveryPoints
    digest: DigestService
    index: IndexService
    retention: RetentionService
    checkpoint: Checkpoint
    hooks: StoreHooks
    fail: Callable[[str], None]
    repairing: trio.Lock  # Held while a thread repairs damaged bytes: a late write would come back behind the cut.
    divergent: DivergentDirectory = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.divergent = DivergentDirectory(self.side / "divergent")

    async def truncate(self, phy_offset: int, why: str) -> None:
        """Cut the log where a record begins, durably. Raises StoreError: nothing was changed, or the store failed."""
        async with self._alone("the log is being cut"):
            low, high = self.log.min_offset, self.log.max_offset
            if not low <= phy_offset <= high:
                raise StoreError(f"the log cannot be cut at {phy_offset}: it holds bytes {low} to {high}")
            if phy_offset < high:
                await self._cut(CutKind.CUT, phy_offset, await self._last_below(phy_offset), why)

    async def reset(self, why: str) -> None:
        """Empty log, queues and index. Raises as truncate() does."""
        async with self._alone("the log begins anew"):
            if self.log.files.files:
                await self._cut(CutKind.BEGIN_ANEW, self.log.min_offset, None, why)

    @asynccontextmanager
    async def _alone(self, what: str) -> AsyncIterator[None]:
        """Keep appends and retention out meanwhile."""
        await self.putter.settle()
        async with self.repairing, self.retention.lock:
            if not self.putter.config.is_slave:
                raise StoreError("only a slave's log can be cut: a master's holds acknowledged messages")
            await self.log.tail_ended()
            self.reput.dispatch()
            if self.flags.why_not_appendable or self.log.pending is not None:
                raise StoreNotWritableError(self.flags.why_not_appendable or "write buffers are in use, as on a master")
            self.flags.set(StoreCondition.CUTTING, what)
            try:
                yield
            finally:
                self.flags.clear(StoreCondition.CUTTING)

    async def _last_below(self, phy_offset: int) -> DispatchEntry | None:
        """The last record below a cut. Raises StoreError unless a record, a blank or a file begins there."""
        known = self.queues.newest_below(phy_offset)
        with LogRange.open(self.log, 0, self.log.max_offset) as bytes_:
            found = await trio.to_thread.run_sync(record_before, bytes_, phy_offset, self.log.file_size, known)
        if isinstance(found, str):
            raise StoreError(f"the log cannot be cut at {phy_offset}: {found}")
        return found

    async def _cut(self, kind: CutKind, offset: int, last: DispatchEntry | None, why: str) -> None:
        end = self.log.max_offset
        intent = TruncateIntent(
            kind=kind,
            offset=offset,
            old_end=end,
            last_timestamp=last.store_timestamp if last is not None else 0,
            when_ms=self.hooks.now_ms(),
            kept_in=self.divergent.free_name(offset, end - offset),
            why=why,
        )
        await self._keep(intent)
        with trio.CancelScope(shield=True):
            async with self.queue_flusher.lock, self.flusher.lock:
                await self._decide(intent)
                try:
                    await self._carry_out(intent, last)
                except OSError as error:
                    reason = f"the cut of the log at {offset} failed on the disk ({error}): the next start finishes it"
                    self.fail(reason)
                    raise StoreError(reason) from error
        log_lines.warning(
            "the log was cut" if kind is CutKind.CUT else "the log begins anew",
            offset=offset,
            bytes=end - offset,
            why=why,
            kept_in=str(self.divergent.path / intent.kept_in),
        )

    # 1 and 2

    async def _keep(self, intent: TruncateIntent) -> None:
        """Copy the bytes to be cut. Raises StoreError, and leaves nothing behind then."""
        files, is_cut = self.log.files, intent.kind is CutKind.CUT
        what = Divergent(self.divergent.path, intent.offset, intent.old_end - intent.offset, intent.when_ms, intent.why)
        cut_files: list[CutFile] = []
        try:
            for number, file in enumerate(files.files):
                if is_cut and file.end <= intent.offset:
                    continue
                if file.path.parent not in files.writable:
                    raise StoreError(f"the log was not cut: {file.path} is in a read-only directory")
                # The first file keeps the numbering, unless it starts at 0.
                goes = not is_cut or (file.start >= intent.offset and (number > 0 or file.start == 0))
                cut_files.append(CutFile(file.path, os.dup(file.fd), file.start, file.end, goes))
            keep = partial(self.divergent.keep, may_copy=is_cut)
            await trio.to_thread.run_sync(keep, intent.kept_in, what, cut_files, self.log.file_size)
        except BaseException as error:
            await self._drop_kept()
            if isinstance(error, OSError):
                raise StoreError(
                    f"the log was not cut: its bytes from {intent.offset} on cannot be kept in {self.divergent.path}: {error}"
                ) from error
            raise
        finally:
            for each in cut_files:
                os.close(each.fd)

    async def _drop_kept(self) -> None:
        with trio.CancelScope(shield=True), suppress(OSError):
            await trio.to_thread.run_sync(self.divergent.drop_unfinished)

    async def _decide(self, intent: TruncateIntent) -> None:
        path = self.side / NAME
        try:
            await trio.to_thread.run_sync(write_durably, path, encode_intent(intent))
        except OSError as error:
            if path.exists():  # The intent may or may not survive a crash.
                reason = f"the intent to cut the log at {intent.offset} may not be durable ({error}): the next start finds out"
                self.fail(reason)
                raise StoreError(reason) from error
            await self._drop_kept()
            raise StoreError(f"the log was not cut: {path} cannot be written: {error}") from error

    # 3 to 5

    async def _carry_out(self, intent: TruncateIntent, last: DispatchEntry | None) -> None:
        await trio.to_thread.run_sync(self.divergent.settle, intent.kept_in)
        if self.points.offset > intent.offset or intent.kind is CutKind.BEGIN_ANEW:
            await trio.to_thread.run_sync(self.points.side.drop_point)
        offset = intent.offset if intent.kind is CutKind.CUT else 0
        await trio.to_thread.run_sync(self.points.side.cut_kept_damage, offset)
        cut = CutFiles()
        try:
            self._cut_in_memory(cut, intent.kind, offset, last)
            for listener in self.hooks.on_truncate:
                listener(offset)
            assert max(self.flusher.flushed_offset, self.log.dispatched_offset, self.points.offset) <= offset
            if cut.log_tail is not None:
                await _readers_left(self.log.files.files[-1])
            await trio.to_thread.run_sync(cut_on_disk, cut, self.log.files)
        finally:
            cut.close()
            self.retention.close_later(cut.removed)
        lower_checkpoint(self.checkpoint, intent)
        await trio.to_thread.run_sync(self.checkpoint.save)
        await self.index.note_cut(offset)
        await self.digest.sync()
        await trio.to_thread.run_sync(remove_intent, self.side)

    def _cut_in_memory(self, cut: CutFiles, kind: CutKind, offset: int, last: DispatchEntry | None) -> None:
        """End everything at the cut, in one turn of the event loop, and collect the work to be done on the disk."""
        if kind is CutKind.CUT:
            cut.cut_log(self.log.files, offset)
        else:
            cut.empty_log(self.log.files)
        for queue in self.queues:
            if kind is CutKind.BEGIN_ANEW:
                cut.empty_queue(queue)
            else:
                cut.cut_queue(queue, offset)
        self.log.next_queue_offsets = self.queues.next_offsets()
        timestamp = last.store_timestamp if last is not None else 0
        self.log.dispatched_offset = min(self.log.dispatched_offset, offset)
        self.queue_flusher.last_dispatched_timestamp = min(self.queue_flusher.last_dispatched_timestamp, timestamp)
        self.flusher.last_store_timestamp = timestamp
        assert self.log.max_offset == offset if kind is CutKind.CUT else not self.log.files.files
        assert all(queue.max_phy_offset <= offset for queue in self.queues)
        self.points.last = PointRecord(last.phy_offset, last.size, 0, timestamp) if last is not None else PointRecord()


async def _readers_left(file: MappedFile) -> None:
    """Wait a limited time for senders of a file before its bytes become zeros."""
    taken = file.take_map()
    with trio.move_on_after(_READERS_SECONDS):
        while taken is not None:
            try:
                taken.close()
                return
            except BufferError:  # A view is in use.
                await trio.sleep(_POLL_SECONDS)
