"""Keeps the index of keys level with the log, as a follower of its own.

Records come from dispatch while the index is level with it. Otherwise (after a start, after RocketMQ ran without an index, when
the files were lost or were no longer right) it reads the log from where it is, in slices, until it is level again. A start never
waits for it, and queries find what is there. An index can be made again from the log at any time, so whatever goes wrong
here is said once and tried again; it never stops the broker, and no key is passed over.

Source: IndexService, RocketMQ 4.9.8. That deletes the newest files after a crash, and loses what recovery does not walk again.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import structlog
import trio
from attrs import define, field, frozen

from store.checkpoint import Checkpoint
from store.commit_log import CommitLog
from store.config import StoreConfig
from store.index_check import (
    entry_at,
    first_misfit,
    last_sound_item,
    load_image,
    missing_keys,
    next_sound,
    read_log,
    rebuild_image,
)
from store.index_file import IndexFile, Look
from store.index_image import IndexImage
from store.index_keys import Keyed, keys_of
from store.index_layout import NAME_LENGTH, IndexLayout, index_hash, next_name
from store.record_scan import DispatchEntry
from store.sync import SyncError, sync_directory
from store.wakeup import Wakeup

log = structlog.get_logger()

_SLICE = 256  # Records that are indexed before others have their turn: 1 ms or so.
_GATHER_SECONDS = 0.01  # Keys cost half when they come in numbers.
_WRITE_SECONDS = 1.0
_TRY_AGAIN_SECONDS = 1.0
_PENDING_MAX = 20_000  # Records that wait to be indexed; from there on they are read from the log instead.
_UNWRITTEN_MAX = 8 << 20  # Bytes of items in memory.
_UNFINISHED_MAX = 1 << 20
_QUERIES_AT_ONCE = 2


@frozen
class IndexStatistics:
    """A snapshot. The index has the keys of all messages below `phy_offset`, bytes of the log."""

    phy_offset: int
    lag_bytes: int
    files: int
    failure: str


@define(eq=False)
class IndexService:
    """The files of the index, oldest first, and the task that follows the log.

    `load()` opens them, `run()` follows, `close()` leaves them as a clean stop does.
    """

    directory: Path
    commit_log: CommitLog
    config: StoreConfig
    checkpoint: Checkpoint
    dispatched_offset: Callable[[], int]  # How far to follow.
    now: Callable[[], datetime] = field(default=datetime.now, kw_only=True)  # Local time, for names.
    files: list[IndexFile] = field(factory=list, init=False)
    phy_offset: int = field(default=0, init=False)  # The keys of all messages below are in the index.
    failure: str = field(default="", init=False)  # Why nothing is indexed now.
    _layout: IndexLayout = field(init=False)
    _is_off: bool = field(default=True, init=False)
    _is_checked: bool = field(default=False, init=False)
    is_level: bool = field(default=False, init=False)  # Whether records are taken from dispatch.
    _cut_at: int | None = field(default=None, init=False)
    _unsure: set[IndexFile] = field(factory=set, init=False)
    _pending: list[DispatchEntry] = field(factory=list, init=False)
    _wakeup: Wakeup = field(factory=Wakeup, init=False)
    _changed: Wakeup = field(factory=Wakeup, init=False)
    _disk: trio.Lock = field(factory=trio.Lock, init=False)
    _sync_failed: bool = field(default=False, init=False)
    _queries: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(_QUERIES_AT_ONCE), init=False)

    def __attrs_post_init__(self) -> None:
        self._layout = IndexLayout(self.config.max_hash_slot_num, self.config.max_index_num)

    # Opening and closing

    def load(self, *, after_crash: bool) -> None:
        """Open the files that are there. Never raises: without an index a broker does all the rest.

        Files of another size are left alone, and so is the index then: they would mean something else here.
        """
        try:
            self.failure = self._load() or ""
        except OSError as error:
            self.failure = f"the index cannot be opened: {error}"
        self._is_off = bool(self.failure)
        if self.failure:
            self.files.clear()
            log.warning("queries by key find nothing, and no keys are indexed", reason=self.failure)
        vouched_ms = self.checkpoint.index_msg_timestamp
        for file in self.files:
            file.is_durable = not after_crash or file.header.end_timestamp <= vouched_ms
        self._unsure = {file for file in self.files if not file.is_durable}

    def _load(self) -> str | None:
        """Open them; a text when they do not suit the configuration."""
        paths = []
        for path in sorted(self.directory.iterdir()) if self.directory.is_dir() else ():
            if path.is_file() and path.name.isdecimal() and len(path.name) == NAME_LENGTH:
                paths.append(path)
            else:
                log.warning("a foreign entry among the index files is ignored", path=str(path))
        if paths and self._is_unfinished(paths[-1]):
            log.warning("an unfinished last index file, left by a crash, is removed", path=str(paths[-1]))
            paths.pop().unlink()
        for path in paths:
            size, expected = path.stat().st_size, self._layout.file_size
            if size != expected:
                return (
                    f"{path} has {size} bytes, but maxHashSlotNum and maxIndexNum make {expected}. Set them to what this index "
                    f"was made with, or move {self.directory} away to have it made anew from the log."
                )
            self.files.append(IndexFile.open(path, self._layout))
        return None

    def _is_unfinished(self, path: Path) -> bool:
        size = path.stat().st_size
        return size < min(self._layout.file_size, _UNFINISHED_MAX) and not path.read_bytes().strip(b"\0")

    async def run(self) -> None:
        """Follow the log until cancelled; return at once when there is nothing to follow for."""
        if self._is_off or not self.config.message_index_enable:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_task)
            nursery.start_soon(self._write_task)

    async def close(self) -> None:
        """Bring everything to the disk, and give the files up."""
        if self._is_off:
            return
        try:
            if self._is_checked:
                self._index_pending()
            await self.flush()
        except OSError as error:
            self._fail(error)
        self.files.clear()
        self._is_off = True

    # Following

    def feed(self, entries: Sequence[DispatchEntry]) -> None:
        """Take the records that were dispatched just now."""
        if not self.is_level:
            return
        self._pending += entries
        if len(self._pending) > _PENDING_MAX:
            self._fall_behind()
        self._wakeup.set()

    def truncate(self, phy_offset: int) -> None:
        """The log was cut at an offset: forget what lies behind, as soon as possible."""
        self._fall_behind()
        self._cut_at = phy_offset if self._cut_at is None else min(phy_offset, self._cut_at)
        self._is_checked = False
        self._wakeup.set()

    def _fall_behind(self) -> None:
        self._pending.clear()
        self.is_level = False

    async def _follow_task(self) -> None:
        while True:
            try:
                await self._step()
            except OSError as error:
                self._fail(error)
                await trio.sleep(_TRY_AGAIN_SECONDS)

    async def _step(self) -> None:
        if not self._is_checked:
            await self._check()
        elif not self.is_level:
            await self._catch_up()
        else:
            await self._wakeup.wait()
            await trio.sleep(_GATHER_SECONDS)
            while self._pending:
                self._index_pending(_SLICE)
                await trio.lowlevel.checkpoint()
            if self._unwritten_bytes > _UNWRITTEN_MAX:
                self._fall_behind()

    def _index_pending(self, count: int = _PENDING_MAX) -> None:
        entries = self._pending[:count]
        del self._pending[:count]
        self._index(entries)

    async def _catch_up(self) -> None:
        """Index the next stretch of the log."""
        if self._unwritten_bytes > _UNWRITTEN_MAX:
            await self._write_all()
        offset = max(self.phy_offset, self.commit_log.min_offset)
        end = self.dispatched_offset()
        if offset >= end:
            self.is_level = True
            return
        entries, offset, error = await read_log(self.commit_log, offset, end)
        if error is not None:
            offset = await next_sound(self.commit_log, offset, end)
        if self._cut_at is not None:
            return
        started = trio.current_time()
        self._index(entries)
        self.phy_offset = offset
        # Whoever sends meanwhile has most of the time.
        await trio.sleep(2 * (trio.current_time() - started) if end < self.dispatched_offset() else 0)

    def _index(self, entries: Sequence[DispatchEntry]) -> None:
        if not entries:
            return
        self._newest()  # RocketMQ makes the next file for any record, with keys or without.
        self._put(keys_of(entries))
        last = entries[-1]
        if last.phy_offset > self.files[-1].header.end_phy_offset:
            self._newest()
        self.phy_offset = last.phy_offset + last.size
        self._changed.set()

    def _put(self, keyed: Keyed) -> None:
        hashes, phy_offsets, timestamps = keyed
        done, count = 0, len(hashes)
        while done < count:
            image = self._newest()
            end = min(count, done + image.room)
            image.put(hashes[done:end], phy_offsets[done:end], timestamps[done:end])
            done = end

    def _newest(self) -> IndexImage:
        """The image of the file that takes the next key."""
        newest = self.files[-1] if self.files else None
        if newest is None or newest.is_full:
            image = IndexImage.after(self._layout, newest.header if newest is not None else None)
            name = next_name(self.now(), newest.path.name if newest is not None else None)
            newest = IndexFile(self.directory / name, self._layout, image)
            self.files.append(newest)
        assert newest.image is not None
        return newest.image

    # Checking

    async def _check(self) -> None:
        """Hold the files against the log, drop what is not sound, and find where to go on."""
        await self._write_all()
        cut, self._cut_at = self._cut_at, None
        limit = self.commit_log.max_offset if cut is None else min(cut, self.commit_log.max_offset)
        misfit = await first_misfit(self.files, self.commit_log, self._unsure)
        if misfit is not None:
            await self._drop(misfit.index, misfit.why)
        await self._check_unsure()
        while (last_used := self._last_used()) is not None:
            file = self.files[last_used]
            sound = await last_sound_item(file, self.commit_log, limit)
            if sound == file.header.next_item - 1:
                break
            why = f"{file.path.name} names messages that the log does not have"
            await self._drop(last_used if sound == 0 else last_used + 1, why)
            if sound:
                await self._rebuild(file, sound + 1, why)
        newest = self.files[-1] if self.files else None
        if newest is not None and newest.header.is_empty:  # What a crash left in it does not count.
            newest.image = IndexImage.after(self._layout, self.files[-2].header if len(self.files) > 1 else None)
            newest.image.change_all()
        elif newest is not None and newest.image is None and not newest.is_full:
            newest.image = await load_image(newest)
            if newest.image is None:
                await self._rebuild(newest, newest.header.next_item, "its slots name items that it does not have")
                return  # And once more.
        await self._find_position()
        self._is_checked = self._cut_at is None

    def _last_used(self) -> int | None:
        return next((i for i in reversed(range(len(self.files))) if not self.files[i].header.is_empty), None)

    async def _check_unsure(self) -> None:
        """Go through the items of files that a crash may have torn."""
        for file in [file for file in self.files if file in self._unsure]:
            expected = file.header.next_item
            if expected > 1 and file in self.files:
                await self._rebuild(file, expected, "a crash tore it")
                if file in self.files and file.header.next_item < expected:
                    await self._drop(self.files.index(file) + 1, f"{file.path.name} before them was torn by a crash")
            self._unsure.discard(file)
        if any(file.image is not None for file in self.files[:-1]):
            await self._write_all()

    async def _rebuild(self, file: IndexFile, next_item: int, why: str) -> None:
        """Make a file's slots anew, from items up to one."""
        had = file.header.next_item
        async with self._disk:
            file.image = None
        image = await rebuild_image(file, next_item)
        if image.next_item <= 1:
            await self._drop(self.files.index(file), why)
            return
        if image.next_item < had:
            log.warning(
                "items of an index file are dropped; they are made anew from the log",
                file=file.path.name,
                items=had - image.next_item,
                reason=why,
            )
            last = await trio.to_thread.run_sync(file.item, image.next_item - 1)
            entry = await entry_at(self.commit_log, last.phy_offset)
            about_ms = image.begin_timestamp + last.seconds * 1000
            image.end_timestamp = entry.store_timestamp if entry is not None else about_ms
        file.image = image
        self._changed.set()

    async def _drop(self, index: int, why: str) -> None:
        """Delete files from a number on."""
        if index >= len(self.files):
            return
        async with self._disk:
            dropped = self.files[index:]
            del self.files[index:]
            for file in dropped:
                file.delete()
        self._unsure.difference_update(dropped)
        names = [file.path.name for file in dropped]
        log.warning("index files are dropped; they are made anew from the log", files=names, reason=why)

    async def _find_position(self) -> None:
        last_used = self._last_used()
        self.phy_offset = self.commit_log.min_offset
        if last_used is None:
            return
        entry = await entry_at(self.commit_log, self.files[last_used].header.end_phy_offset)
        if entry is not None:
            # A crash may have come between two keys of one message.
            missing = await missing_keys(self.files, entry)
            self._put(Keyed(missing, [entry.phy_offset] * len(missing), [entry.store_timestamp] * len(missing)))
            self.phy_offset = entry.phy_offset + entry.size

    # Writing

    @property
    def _unwritten_bytes(self) -> int:
        return sum(file.image.unwritten_bytes for file in self.files[-3:] if file.image is not None)

    async def _write_task(self) -> None:
        while True:
            await self._changed.wait()
            await trio.sleep(_WRITE_SECONDS)
            try:
                await self._write_all()
            except OSError as error:
                self._fail(error)
                self._changed.set()

    async def _write_all(self) -> None:
        """Bring the images to their files, oldest first, and full ones to the disk. Raises OSError; nothing is lost then."""
        async with self._disk:
            for file in list(self.files):
                if file.image is None:
                    continue
                unwritten = file.image.take_unwritten()
                if unwritten is not None:
                    file.is_durable = False
                    try:
                        await trio.to_thread.run_sync(file.write, unwritten)
                    except BaseException:
                        file.image.not_written(unwritten)
                        raise
                    file.image.wrote(unwritten)
                if file is not self.files[-1]:
                    await self._finish(file)
        if self.failure:
            self.failure = ""
            log.info("the index is written again")

    async def _finish(self, file: IndexFile) -> None:
        """A file is full and another follows: let the checkpoint vouch for it."""
        await self._sync(file)
        file.settle()
        if file.is_durable and not self._sync_failed:
            end_timestamp = file.header.end_timestamp
            self.checkpoint.index_msg_timestamp = max(self.checkpoint.index_msg_timestamp, end_timestamp)
            await trio.to_thread.run_sync(self.checkpoint.save)

    async def _sync(self, file: IndexFile) -> None:
        try:
            await trio.to_thread.run_sync(file.sync)
            await trio.to_thread.run_sync(sync_directory, self.directory)
            file.is_durable = True
        except SyncError as error:
            if not self._sync_failed:
                log.error("an index file may not be on the disk; it is looked through after a crash", error=str(error))
            self._sync_failed = True

    async def flush(self) -> None:
        """Bring the whole index to the disk. Raises OSError."""
        await self._write_all()
        async with self._disk:
            for file in [file for file in self.files if not file.is_durable and file.is_on_disk]:
                await self._sync(file)

    def _fail(self, error: OSError) -> None:
        if not self.failure:
            log.error("the index cannot be written; its keys stay in the log, and it is tried again", error=str(error))
        self.failure = str(error)

    # Asking

    async def find(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Where messages with a key lie that were stored in a span of time, newest first.

        Some of them may have another key with the same hash. Raises OSError. Source: IndexService.queryOffset.
        """
        if self._is_checked:
            self._index_pending()  # What was sent just now.
        count_max = min(count_max, self.config.max_msgs_num_batch)
        key_hash = index_hash(topic, key)
        looks = [file.look(key_hash) for file in reversed(self.files)]
        return await trio.to_thread.run_sync(_walk, looks, begin_ms, end_ms, count_max, limiter=self._queries)

    @property
    def last_indexed(self) -> tuple[int, int]:
        """When the newest message in the index was stored (ms), and where it lies."""
        header = self.files[-1].header if self.files else None
        return (header.end_timestamp, header.end_phy_offset) if header is not None else (0, 0)

    def statistics(self) -> IndexStatistics:
        """A snapshot."""
        lag = max(0, self.dispatched_offset() - self.phy_offset)
        return IndexStatistics(self.phy_offset, lag, len(self.files), self.failure)

    # Clean-up

    def delete_before(self, min_offset: int) -> int:
        """Delete the files with no message at or behind an offset, never the newest; how many. Raises OSError."""
        deleted = 0
        while self._is_checked and len(self.files) > 1 and self.files[0].header.end_phy_offset < min_offset:
            if self.files[0].image is not None:  # Not written yet.
                break
            self.files[0].delete()
            del self.files[0]
            deleted += 1
        return deleted


def _walk(looks: Sequence[Look], begin_ms: int, end_ms: int, count_max: int) -> list[int]:
    found: list[int] = []
    for look in looks:
        if look.is_within(begin_ms, end_ms):
            look.find(begin_ms, end_ms, count_max, found)
        if look.header.begin_timestamp < begin_ms or len(found) >= count_max:
            break
    return found
