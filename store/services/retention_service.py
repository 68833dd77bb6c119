"""Deletes old files, and watches how full the disk is.

A file is unlinked, which is fast while it is open, and closed later in a thread: only the close frees its space, and is slow.
Until then senders and syncs under way can go on. Sources: CleanCommitLogService, CleanConsumeQueueService (4.9.8).
"""

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

import structlog
import trio
from attrs import define, field

from twinlog.store.config import CONSUME_QUEUE_UNIT, StoreConfig
from twinlog.store.hooks import StoreHooks
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.log.mapped_file_queue import MappedFileQueue
from twinlog.store.log.running_flags import RunningFlags, StoreCondition
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.retention import FileAge, RetentionClock, count_to_delete, decode_clock, encode_clock, parse_hours
from twinlog.store.services.flush import FlushService
from twinlog.store.util.disk_space import DiskState, judge
from twinlog.store.util.sync import SyncError, sync_directory
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger()

_FIRST_CLEAN_SECONDS, _FIRST_CHECK_SECONDS, _CHECK_SECONDS = 60.0, 1.0, 10.0
_CLOSE_SECONDS = 10.0  # After a file was deleted.
_MANUAL_ROUNDS = 20  # As RocketMQ: a request deletes so many times deleteFileBatchMax.
_SAVE_CLOCK_SECONDS = 600.0
_LEAP_SECONDS = 3600.0  # A clock that is so far ahead of the time that passed is worth a line.


@define(eq=False, kw_only=True)
class RetentionService:
    """Carries out retention. Everything runs on the event loop's thread but unlink and close."""

    log: CommitLog
    queues: ConsumeQueueTable
    flusher: FlushService
    config: StoreConfig
    flags: RunningFlags
    fail: Callable[[str], None]
    hooks: StoreHooks
    clock_path: Path
    shortened: list[Callable[[int], object]] = field(factory=list, init=False)  # Called with the log's new first byte.
    deleted_files: int = field(default=0, init=False)
    lock: trio.Lock = field(factory=trio.Lock, init=False)  # Held while files of the log go.
    disk: DiskState = field(default=DiskState(0.0, False, False, False), init=False)
    _clock: RetentionClock | None = field(default=None, init=False)
    _clock_saved: float = field(default=0.0, init=False)
    _closing: list[tuple[float, MappedFile]] = field(factory=list, init=False)  # Deleted files, and when to close them.
    _cleaned_below: int = field(default=0, init=False)  # The log's first byte when the queues were cleaned.
    _manual_rounds: int = field(default=0, init=False)
    _not_before: float = field(default=0.0, init=False)
    _needs_room: bool = field(default=False, init=False)
    _logged_floor: int = field(default=-1, init=False)
    _logged_leap: bool = field(default=False, init=False)
    _now: Wakeup = field(factory=Wakeup, init=False)

    def has_room(self, directory: Path) -> bool:
        """True unless the disk of a directory is so full that files are deleted whatever their age."""
        return self.hooks.disk_usage(directory) * 100 <= self.config.disk_limits.forced

    def request(self) -> None:
        """Delete old files now, whatever the hour."""
        self._manual_rounds = _MANUAL_ROUNDS
        self._now.set()

    def make_room(self) -> None:
        """The disk refused a write for want of room: delete the oldest file that may go."""
        self._needs_room = True
        self._now.set()

    async def run(self) -> None:
        """Watch and clean until cancelled."""
        self._cleaned_below = self.log.min_offset
        await trio.to_thread.run_sync(self._start_clock, trio.current_time())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_disk)
            nursery.start_soon(self._close_deleted)
            pause = _FIRST_CLEAN_SECONDS
            while True:
                with trio.move_on_after(pause):
                    await self._now.wait()
                await self.clean()
                pause = self.config.clean_resource_interval_ms / 1000

    def truncated(self, _offset: int) -> None:
        """Follow a cut of the log; an empty log may begin anywhere."""
        self._cleaned_below = min(self._cleaned_below, self.log.min_offset)

    def close_later(self, files: list[MappedFile]) -> None:
        """Take deleted files, to close them once senders under way have had time to finish."""
        self._closing += [(trio.current_time() + _CLOSE_SECONDS, file) for file in files]

    def close(self) -> None:
        """Close deleted files and save the clock. May block."""
        for _, file in self._closing:
            file.close()
        self._closing.clear()
        self._save_clock()

    # The disk

    async def _watch_disk(self) -> None:
        await trio.sleep(_FIRST_CHECK_SECONDS)
        while True:
            self.check_disk()
            await trio.sleep(_CHECK_SECONDS)

    def check_disk(self) -> DiskState:
        """Refuse producers while the disk is too full."""
        root = self.config.root.expanduser()
        limits = self.config.disk_limits
        # Of several directories the emptiest one counts.
        least = min(map(self.hooks.disk_usage, self.log.files.writable))
        queues = self.hooks.disk_usage(self.queues.directory if self.queues.directory.exists() else root)
        self.disk = judge([least, queues], limits)
        if self.disk.is_full:
            reason = f"{self.disk.ratio:.0%} of the disk is used, more than diskSpaceWarningLevelRatio={limits.full} %: make room"
            if self.flags.set(StoreCondition.DISK_FULL, reason):
                log.error("producers are refused", reason=reason)
        elif self.flags.clear(StoreCondition.DISK_FULL):
            log.info("the disk has room again: producers may write", used=f"{self.disk.ratio:.0%}")
        return self.disk

    # Cleaning

    async def clean(self) -> None:
        """One round: log files, then queues."""
        disk = self.check_disk()
        needs_room, self._needs_room = self._needs_room, False
        forced = (disk.must_force or needs_room) and self.config.clean_file_forcibly_enable
        now = self._read_clock()
        hour = time.localtime(self._now_s()).tm_hour
        manual = self._manual_rounds > 0
        if self._closing:  # Their space is not free yet: no more files are deleted for space.
            forced, for_room = False, False
        else:
            for_room = disk.must_clean or needs_room
        if manual or for_room or hour in parse_hours(self.config.delete_when):
            self._manual_rounds = max(0, self._manual_rounds - 1)
            why = "asked for" if manual else "the disk needs room" if for_room else f"{hour} o'clock"
            few = needs_room and not disk.must_force
            async with self.lock:
                await self._clean_log(
                    now,
                    forced=forced,
                    with_soft=not disk.must_force and not needs_room,
                    why=why,
                    count_max=1 if few else self.config.delete_file_batch_max,
                )
        if self.log.min_offset > self._cleaned_below:
            await self.clean_queues()

    async def _clean_log(self, now: float, *, forced: bool, with_soft: bool, why: str, count_max: int) -> None:
        if trio.current_time() < self._not_before:
            return
        hours, floor = self.config.file_reserved_time_hours, self._floor(with_soft=with_soft)
        ages = [FileAge(file.start + file.size, _modified(file)) for file in self.log.files.files]

        def count(floor: int) -> int:
            return count_to_delete(
                ages, now_s=now, reserved_s=hours * 3600, floor=floor, forced=forced, count_max=count_max
            )

        allowed, wanted = count(floor), count(sys.maxsize)
        if allowed < wanted and floor != self._logged_floor:
            self._logged_floor = floor
            log.warning(
                "old commit log files are kept: they are still needed", files=wanted - allowed, from_offset=floor
            )
        if allowed:
            for file in self.log.files.files[:allowed]:
                if file.start + file.size > self._floor(
                    with_soft=with_soft
                ):  # The log was cut meanwhile, or a replica came.
                    break
                if not self._delete(self.log.files, file, soon=forced):
                    break
                await self._sync(file.path.parent)  # Before the next deletion, which may be in another directory.
                self._notify()
                age = (self._now_s() - ages.pop(0).modified_s) / 3600
                log.info(
                    "commit log file deleted",
                    file=file.path.name,
                    age_hours=round(age, 1),
                    fileReservedTime=hours,
                    whatever_age=forced,
                    why=why,
                )
                await trio.sleep(self.config.delete_commit_log_files_interval_ms / 1000)

    def _floor(self, *, with_soft: bool) -> int:
        """The lowest byte of the log that is still needed."""
        floor = min(self.hooks.retention_floor(), self.log.dispatched_offset, self.flusher.flushed_offset)
        return min(floor, self.hooks.soft_retention_floor()) if with_soft else floor

    def _now_s(self) -> float:
        return self.hooks.now_ms() / 1000

    def _notify(self) -> None:
        for listener in self.shortened:
            try:
                listener(self.log.min_offset)
            except OSError as error:
                log.warning("cleaning up after deleted log files failed", error=str(error))

    async def clean_queues(self) -> None:
        """Queues begin at the first message that the log still has; files without any such message go."""
        self._cleaned_below = min_offset = self.log.min_offset
        for number, queue in enumerate(self.queues):
            deleted = 0
            while _is_dead(queue, min_offset) and self._delete(queue.files, queue.files.files[0]):
                deleted += 1
            queue.correct_min_offset(min_offset)
            queue.clean_ext()
            if deleted:
                log.info("consume queue files deleted", topic=queue.topic, queue=queue.queue_id, files=deleted)
                await self._sync(queue.files.directory)
                await trio.sleep(self.config.delete_consume_queue_files_interval_ms / 1000)
            elif number % 64 == 0:
                await trio.lowlevel.checkpoint()

    def _delete(self, files: MappedFileQueue, file: MappedFile, *, soon: bool = False) -> bool:
        if not files.files or files.files[0] is not file:
            return False
        try:
            file.path.unlink(missing_ok=True)
        except OSError as error:
            pause = self.config.redelete_hanged_file_interval_ms / 1000
            self._not_before = trio.current_time() + pause
            log.warning(
                "a file could not be deleted", path=str(file.path), error=str(error), next_try=f"in {pause:.0f} s"
            )
            return False
        files.drop_first()
        self.deleted_files += 1
        delay = 1.0 if soon else min(_CLOSE_SECONDS, self.config.destroy_mapped_file_interval_forcibly_ms / 1000)
        self._closing.append((trio.current_time() + delay, file))
        return True

    async def _sync(self, directory: Path) -> None:
        """Make deletions durable: a file must not come back after a power loss with newer files before it missing."""
        try:
            await trio.to_thread.run_sync(sync_directory, directory)
        except SyncError as error:
            self.fail(f"syncing {directory} failed: {error}")
        except OSError as error:
            log.warning("a directory cannot be synced", path=str(directory), error=str(error))

    async def _close_deleted(self) -> None:
        while True:
            await trio.sleep(1)
            for entry in [entry for entry in self._closing if entry[0] <= trio.current_time()]:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(entry[1].close)
                    self._closing.remove(entry)

    # The clock

    def _start_clock(self, monotonic: float) -> None:
        last = None
        with contextlib.suppress(OSError):
            last = decode_clock(self.clock_path.read_bytes())
        if last is None:
            last = max((_modified(file) for file in self.log.files.files), default=None)
        self._clock = RetentionClock.start(wall_s=self._now_s(), monotonic=monotonic, last_s=last)

    def _read_clock(self) -> float:
        wall, monotonic = self._now_s(), trio.current_time()
        if self._clock is None:
            self._start_clock(monotonic)
        assert self._clock is not None
        now = self._clock.read(wall_s=wall, monotonic=monotonic)
        leaps = wall - now > _LEAP_SECONDS
        if leaps and not self._logged_leap:
            log.warning(
                "the wall clock jumped ahead; files age at most twice as fast until retention has caught up",
                ahead_hours=round((wall - now) / 3600, 1),
            )
        self._logged_leap = leaps
        if monotonic - self._clock_saved >= _SAVE_CLOCK_SECONDS:
            self._clock_saved = monotonic
            self._save_clock()
        return now

    def _save_clock(self) -> None:
        if self._clock is None:
            return
        scratch = self.clock_path.with_suffix(".tmp")
        try:
            self.clock_path.parent.mkdir(exist_ok=True)
            scratch.write_bytes(encode_clock(self._clock.now_s))
            scratch.replace(self.clock_path)
        except OSError as error:
            log.warning("cannot save the retention clock", path=str(self.clock_path), error=str(error))


def _modified(file: MappedFile) -> float:
    try:
        return file.path.stat().st_mtime
    except OSError:
        return sys.float_info.max  # Gone, or out of reach: that is no reason to delete it.


def _is_dead(queue: ConsumeQueue, min_offset: int) -> bool:
    """True when the queue's first file is not its last, and the last of its messages is gone from the log.

    RocketMQ reads the last unit, which may be a blank for a damaged message.
    """
    if len(queue.files.files) < 2:
        return False
    last = queue.last_message(queue.files.files[1].start // CONSUME_QUEUE_UNIT)
    return last is None or last.phy_offset < min_offset
