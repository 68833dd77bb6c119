"""Keeps the index of keys up to date with the log, as a follower of its own.

Records come from dispatch while the index is caught up. Otherwise (after a start, after RocketMQ ran without an index, when
files were lost or damaged) it reads the log in slices until it has caught up. A start never waits for it, and queries find
what is there. An index can be rebuilt from the log at any time, so an error is logged once and the work retried: it never
stops the broker, and no key is skipped.

Source: IndexService, RocketMQ 4.9.8. That deletes the newest files after a crash, and loses keys that recovery does not walk.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import structlog
import trio
from attrs import define, field, frozen

from twinlog.store.config import StoreConfig
from twinlog.store.errors import StoreDirectoryError
from twinlog.store.index.index_files import IndexFiles, encode_note, load_note, lower_note
from twinlog.store.index.layout import IndexLayout, index_hash
from twinlog.store.index.repair import make_sound, next_sound, read_columns, read_log
from twinlog.store.log.checkpoint import Checkpoint
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.walk import walk
from twinlog.store.record.keys import keys_of
from twinlog.store.record.scan import DispatchEntry, Entries
from twinlog.store.util.sync import save_durably
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger()

_SLICE = 256  # Records that are indexed without a pause: 1 ms or so.
# Keys cost half in batches, and a check every 10 ms cost a lone producer more than its keys. Queries do not wait.
_GATHER_SECONDS, _GATHER_MAX = 0.1, 1_000
_WRITE_SECONDS = 5.0  # Keys touch slots all over the file: one write serves many of them.
_TRY_AGAIN_SECONDS = 1.0
CHECK_SECONDS = 5.0  # How often files are checked for removal, cuts and replacement: a system call for each.
# Pending records. When more arrive, the appender has to wait for them.
_PENDING_MAX = 2_000
_UNWRITTEN_MAX = 8 << 20
# Bytes that are indexed without a pause: else an index never catches up with a log that goes on growing.
_LAST_STRETCH = 512 << 10
_BULK_STRETCH = 4 << 20  # So much is read in columns.


@frozen
class IndexStatistics:
    """A snapshot. The index has the keys of all messages below `phy_offset`, bytes of the log."""

    phy_offset: int
    lag_bytes: int
    files: int
    failure: str


@define(eq=False)
class IndexService:
    """The index, and the task that follows the log.

    `load()` opens it, `run()` follows, `close()` leaves it as a clean stop does.
    """

    directory: Path
    note_path: Path  # Of store/index/index_files.py.
    commit_log: CommitLog
    config: StoreConfig
    checkpoint: Checkpoint
    now: Callable[[], datetime] = field(default=datetime.now, kw_only=True)  # Local time, for names.
    unwritten_max: int = field(default=_UNWRITTEN_MAX, kw_only=True)  # Bytes in memory; the log keeps the rest.
    phy_offset: int = field(default=0, init=False)  # The keys of all messages below are in the index.
    is_caught_up: bool = field(default=False, init=False)  # True while records are taken from dispatch.
    failure: str = field(default="", init=False)  # Why nothing is indexed now.
    _files: IndexFiles = field(init=False)
    _is_off: bool = field(default=True, init=False)
    _has_run: bool = field(default=False, init=False)
    _has_note: bool = field(default=False, init=False)
    _is_sound: bool = field(default=False, init=False)
    _cut_at: int | None = field(default=None, init=False)
    _fault: tuple[int, str] | None = field(default=None, init=False)  # The first file that was changed by others.
    _note_lock: trio.Lock = field(factory=trio.Lock, init=False)
    _pending: list[DispatchEntry] = field(factory=list, init=False)
    _wakeup: Wakeup = field(factory=Wakeup, init=False)
    _enough: Wakeup = field(factory=Wakeup, init=False)  # Set when nothing more is to be waited for.
    _changed: Wakeup = field(factory=Wakeup, init=False)
    _much: Wakeup = field(factory=Wakeup, init=False)  # Set when half of the memory limit is used.

    def __attrs_post_init__(self) -> None:
        layout = IndexLayout(self.config.max_hash_slot_num, self.config.max_index_num)
        self._files = IndexFiles(self.directory, layout, self.checkpoint, self.now)

    # Opening and closing

    def load(self, *, after_crash: bool) -> None:
        """Open the files that are there. Never raises: without an index a broker does all the rest.

        Files that another configuration made are left alone, and so is the index then.
        """
        self._is_off = False
        try:
            self._files.load(after_crash=after_crash)
            if (note := load_note(self.note_path)) is not None:
                self._has_note = True
                self._cut_later(note)
        except (StoreDirectoryError, OSError) as error:
            self._is_off, self.failure = True, str(error)
            log.warning("index unavailable: queries by key find nothing, and no keys are indexed", reason=self.failure)

    async def run(self) -> None:
        """Follow the log until cancelled; return at once when the index is off."""
        self._has_run = True
        if self._is_off or not self.config.message_index_enable:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_task)
            nursery.start_soon(self._write_task)
            nursery.start_soon(self._check_task)

    async def close(self) -> None:
        """Bring everything to the disk, and give the files up."""
        if self._is_off:
            return
        try:
            self._index_pending()
            await self._files.flush()
            if self._has_run and not self.is_caught_up:
                behind = self._files.last_header.end_phy_offset + 1 if self._files.files else 0
                note = encode_note(behind if self._cut_at is None else self._cut_at)
                await trio.to_thread.run_sync(save_durably, self.note_path, note)
        except OSError as error:
            self._fail(error)
        self._files.close()
        self._is_off, self.is_caught_up = True, False

    # Following

    def feed(self, entries: Entries) -> None:
        """Take the records that were dispatched just now."""
        if not self.is_caught_up:
            return
        if not isinstance(entries, list):  # In numbers: to put them costs little, to keep them much.
            self._index_pending()
            self._index(entries)
            self._limit_memory()
            return
        self._pending += entries
        if len(self._pending) > _PENDING_MAX:
            self._index_pending()
        elif len(self._pending) >= _GATHER_MAX:
            self._enough.set()
        self._wakeup.set()

    def truncate(self, phy_offset: int) -> None:
        """Forget keys behind an offset at which the log was cut, as soon as possible."""
        self._fall_behind()
        self._cut_later(phy_offset)
        self._wakeup.set()
        self._enough.set()

    async def note_cut(self, phy_offset: int) -> None:
        """Like truncate(), durably. Raises OSError."""
        async with self._note_lock:
            self._has_note = True
            await trio.to_thread.run_sync(lower_note, self.note_path, phy_offset)
            self.truncate(phy_offset)  # Once more: only a catch-up after this removes the note.

    @property
    def _is_cut(self) -> bool:
        return self._cut_at is not None

    def _cut_later(self, phy_offset: int) -> None:
        self._cut_at = phy_offset if self._cut_at is None else min(phy_offset, self._cut_at)
        self._is_sound = False

    def _fall_behind(self) -> None:
        self._pending.clear()
        self.is_caught_up = False

    async def _follow_task(self) -> None:
        while True:
            try:
                await self._step()
            except OSError as error:
                self._fail(error)
                await trio.sleep(_TRY_AGAIN_SECONDS)

    async def _step(self) -> None:
        if not self._is_sound:
            await self._make_sound()
        elif self.is_caught_up:
            await self._wakeup.wait()
            with trio.move_on_after(_GATHER_SECONDS):
                await self._enough.wait()
            while self._pending:
                self._index_pending(_SLICE)
                await trio.lowlevel.checkpoint()
        else:
            await self._catch_up()

    async def _make_sound(self) -> None:
        limit, self._cut_at = self._cut_at, None
        limit = self.commit_log.max_offset if limit is None else min(limit, self.commit_log.max_offset)
        try:
            if self._fault is not None:
                await self._files.drop(*self._fault)
                self._fault = None
            self.phy_offset = await make_sound(self._files, self.commit_log, limit)
        except BaseException:
            self._cut_later(limit)
            raise
        self._is_sound = not self._is_cut
        self._changed.set()

    async def _catch_up(self) -> None:
        """Index the next stretch of the log."""
        if self._files.unwritten_bytes > self.unwritten_max:
            await self._write()
        offset, end = max(self.phy_offset, self.commit_log.min_offset), self.commit_log.dispatched_offset
        if offset >= end:
            self.phy_offset = offset
            await self._become_caught_up()
            return
        if end - offset <= _LAST_STRETCH and not self._has_note and self._index_to(offset, end):
            self.is_caught_up = not self._is_cut
            return
        entries, offset = await self._read_next(offset, end)
        if self._is_cut:
            return
        started = trio.current_time()
        self._index(entries)
        self.phy_offset = offset
        # Producers get most of the time meanwhile.
        await trio.sleep(2 * (trio.current_time() - started) if end < self.commit_log.dispatched_offset else 0)

    async def _read_next(self, offset: int, end: int) -> tuple[Entries, int]:
        """The records of the next stretch of the log, and where that ends: where it is damaged, behind the damage."""
        if end - offset > _BULK_STRETCH:
            columns, behind = await read_columns(self.commit_log, offset, end)
            if behind > offset:
                return columns, behind
        entries, offset, error = await read_log(self.commit_log, offset, end)
        if error is not None:
            offset = await next_sound(self.commit_log, offset, end)
        return entries, offset

    def _index_to(self, offset: int, end: int) -> bool:
        """Index a short, recently written part of the log without a pause. False when it is not sound."""
        entries: list[DispatchEntry] = []
        for start, scan in walk(self.commit_log, offset, end, check_crc=False):
            if scan.error is not None:
                return False
            entries += scan.entries
            offset = start + scan.consumed
        if offset < end:
            return False
        self._index(entries)
        self.phy_offset = end
        return True

    async def _become_caught_up(self) -> None:
        if self._has_note:
            await self._files.flush()
            async with self._note_lock:
                if self._is_cut:
                    return
                await trio.to_thread.run_sync(partial(self.note_path.unlink, missing_ok=True))
                self._has_note = False
        # Checked now, not before: records may have come meanwhile.
        self.is_caught_up = not self._is_cut and self.phy_offset >= self.commit_log.dispatched_offset

    def _index_pending(self, count: int | None = None) -> None:
        entries = self._pending[:count]
        del self._pending[:count]
        self._index(entries)
        self._limit_memory()

    def _limit_memory(self) -> None:
        """Limit the memory of unwritten items: wake the writer, or fall behind and leave the rest in the log."""
        unwritten = self._files.unwritten_bytes
        if unwritten > self.unwritten_max:
            self._fall_behind()
        elif unwritten * 2 > self.unwritten_max:
            self._much.set()

    def _index(self, entries: Entries) -> None:
        if not len(entries):
            return
        files, last = self._files, entries[-1]
        files.open_newest()  # RocketMQ makes the next file for any record, with keys or without.
        if isinstance(entries, list):
            files.put(keys_of(entries))
        else:
            files.put_columns(entries.keys)
        if last.phy_offset > files.last_header.end_phy_offset:
            files.open_newest()
        self.phy_offset = last.phy_offset + last.size
        self._changed.set()

    # Writing

    async def _write_task(self) -> None:
        while True:
            await self._changed.wait()
            with trio.move_on_after(_WRITE_SECONDS):
                await self._much.wait()
            try:
                await self._write()
            except OSError as error:
                self._fail(error)
                self._changed.set()

    async def _check_task(self) -> None:
        """Find files that were removed, cut or replaced, and have them rebuilt with those behind them."""
        while True:
            await trio.sleep(CHECK_SECONDS)
            try:
                fault = await self._files.first_fault()
            except OSError as error:
                self._fail(error)
                continue
            if fault is not None and self._fault is None:
                self._fall_behind()
                self._is_sound, self._fault = False, fault
                self._wakeup.set()
                self._enough.set()

    async def _write(self) -> None:
        await self._files.write()
        if self.failure:
            self.failure = ""
            log.info("index writes succeed again")

    async def flush(self) -> None:
        """Bring all that is indexed to the disk; says itself when that fails, and tries again with the next write."""
        try:
            await self._files.flush()
        except OSError as error:
            self._fail(error)
            self._changed.set()

    def _fail(self, error: OSError) -> None:
        if not self.failure:
            log.error("index write failed; retrying, its keys are still in the log", error=str(error))
        self.failure = str(error)

    # Asking

    async def find(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Log offsets of messages with a key, stored in a time range, newest first, at most maxMsgsNumBatch.

        Some may have another key with the same hash. Raises OSError. Source: IndexService.queryOffset.
        """
        self._index_pending()  # Messages sent just now.
        count_max = min(count_max, self.config.max_msgs_num_batch)
        return await self._files.find(index_hash(topic, key), count_max, begin_ms, end_ms)

    @property
    def last_indexed(self) -> tuple[int, int]:
        """Store time (ms) and log offset of the newest message in the index."""
        header = self._files.last_header
        return header.end_timestamp, header.end_phy_offset

    def statistics(self) -> IndexStatistics:
        """A snapshot."""
        lag = max(0, self.commit_log.dispatched_offset - self.phy_offset)
        return IndexStatistics(self.phy_offset, lag, len(self._files.files), self.failure)

    def delete_before(self, min_offset: int) -> None:
        """The log was shortened: delete the files with no message at or behind an offset, but never the newest."""
        if not self._is_sound and self.config.message_index_enable:  # The files are being repaired.
            return
        try:
            self._files.delete_before(min_offset)
        except OSError as error:
            log.warning("cannot delete an index file of deleted messages", error=str(error))
