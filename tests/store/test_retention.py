"""Retention: decisions with plain numbers, then a store whose files are days old."""

import os
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from tests.store.records import put_message
from twinlog.store.config import StoreConfig
from twinlog.store.hooks import StoreHooks
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.log.running_flags import StoreCondition
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.layout import BLANK
from twinlog.store.read.get_message import GetStatus
from twinlog.store.retention import (
    NO_FLOOR,
    FileAge,
    RetentionClock,
    count_to_delete,
    decode_clock,
    encode_clock,
    parse_hours,
)
from twinlog.store.util.disk_space import UNKNOWN, DiskLimits, DiskState, judge, usage_ratio, used_ratio

HOUR = 3600.0
FILE_SIZE = 1 << 14
NOW_MS = 1_700_000_000_000


# Decisions


@pytest.mark.parametrize(
    ("total", "free", "usable", "ratio"),
    [(100, 100, 100, 0.0), (100, 25, 25, 0.75), (1000, 249, 249, 0.76), (100, 20, 10, 0.89), (0, 0, 0, UNKNOWN)],
)
def test_what_counts_as_used(total, free, usable, ratio):
    """Rounded up; what is kept for the super-user is not there at all."""
    assert used_ratio(total=total, free=free, usable=usable) == ratio


def test_a_real_disk_and_none(tmp_path):
    assert 0 <= usage_ratio(tmp_path) <= 1
    assert usage_ratio(tmp_path / "none") == UNKNOWN


LIMITS = DiskLimits(clean=75, forced=85, full=90)


@pytest.mark.parametrize(
    ("ratios", "state"),
    [
        ((0.75, 0.1), DiskState(0.75, False, False, False)),
        ((0.76, 0.1), DiskState(0.76, True, False, False)),
        ((0.1, 0.86), DiskState(0.86, True, True, False)),
        ((0.9, 0.1), DiskState(0.9, True, True, False)),
        ((0.91, 0.1), DiskState(0.91, True, True, True)),
        ((0.1, UNKNOWN), DiskState(0.1, True, False, False)),
    ],
)
def test_what_a_disk_demands(ratios, state):
    assert judge(ratios, LIMITS) == state


@pytest.mark.parametrize(
    ("key", "given", "limits"),
    [
        ("disk_max_used_space_ratio", 5, DiskLimits(10, 85, 90)),
        ("disk_max_used_space_ratio", 99, DiskLimits(95, 85, 90)),
        ("disk_space_clean_forcibly_ratio", 10, DiskLimits(75, 30, 90)),
        ("disk_space_warning_level_ratio", 10, DiskLimits(75, 85, 35)),
        ("disk_space_warning_level_ratio", 100, DiskLimits(75, 85, 100)),
    ],
)
def test_limits_are_kept_within_bounds(key, given, limits):
    assert StoreConfig(**{key: given}).disk_limits == limits


@pytest.mark.parametrize(("text", "hours"), [("04", {4}), ("4;16", {4, 16}), (" 0 ; 23;", {0, 23}), ("", set())])
def test_hours(text, hours):
    assert parse_hours(text) == hours
    assert StoreConfig(delete_when=text).delete_when == text


@pytest.mark.parametrize("text", ["24", "noon", "4,5", "-1"])
def test_no_hours(text):
    with pytest.raises(ValueError):
        StoreConfig(delete_when=text)


def test_which_files_go():
    files = [FileAge(end=100 * (n + 1), modified_s=10.0 * n) for n in range(20)]

    def count(now_s, *, reserved_s=50, floor=NO_FLOOR, forced=False, count_max=10):
        return count_to_delete(
            files, now_s=now_s, reserved_s=reserved_s, floor=floor, forced=forced, count_max=count_max
        )

    assert [count(now) for now in (49, 50, 59, 60, 90)] == [0, 1, 1, 2, 5]
    assert count(1e9) == 10  # Per round.
    assert count(1e9, count_max=99) == 19  # Never the last.
    assert count(0, forced=True) == 10
    assert count(1e9, floor=299) == 2
    assert count(0, floor=300, forced=True) == 3
    files[0] = FileAge(100, 1e9)  # Written to not long ago: it and what follows stay.
    assert count(500) == 0
    assert count_to_delete([], now_s=1e9, reserved_s=0, floor=NO_FLOOR, forced=True, count_max=9) == 0


class TestClock:
    def test_it_shows_the_wall_clock(self):
        clock = RetentionClock.start(wall_s=1000.0, monotonic=5.0, last_s=990.0)
        assert clock.now_s == 1000.0
        assert clock.read(wall_s=1060.0, monotonic=65.0) == 1060.0
        assert clock.read(wall_s=1061.9, monotonic=66.0) == 1061.9  # A little unevenness is nothing.

    def test_a_leap_ahead_is_caught_up_with_slowly(self):
        clock = RetentionClock.start(wall_s=0.0, monotonic=0.0, last_s=None)
        assert clock.read(wall_s=100 * HOUR, monotonic=10.0) == 20.0
        assert clock.read(wall_s=136 * HOUR, monotonic=36 * HOUR) == 72 * HOUR
        assert clock.read(wall_s=200 * HOUR, monotonic=100 * HOUR) == 200 * HOUR
        assert clock.read(wall_s=201 * HOUR, monotonic=101 * HOUR) == 201 * HOUR

    def test_a_clock_that_goes_back_is_believed(self):
        clock = RetentionClock.start(wall_s=100 * HOUR, monotonic=0.0, last_s=None)
        assert clock.read(wall_s=HOUR, monotonic=10.0) == HOUR
        assert clock.read(wall_s=2 * HOUR, monotonic=HOUR) == 2 * HOUR

    def test_a_long_stop_counts_as_an_hour(self):
        assert RetentionClock.start(wall_s=100 * HOUR, monotonic=0.0, last_s=HOUR).now_s == 2 * HOUR
        assert RetentionClock.start(wall_s=HOUR, monotonic=0.0, last_s=100 * HOUR).now_s == HOUR

    @pytest.mark.parametrize("damage", [b"", b"x", b"x" * 32])
    def test_its_file(self, damage):
        data = encode_clock(1234.5)
        assert (len(data), decode_clock(data)) == (32, 1234.5)
        assert decode_clock(damage) is None
        assert all(decode_clock(data[:n] + bytes([data[n] ^ 1]) + data[n + 1 :]) is None for n in range(len(data)))


# A store


class Disk:
    """The disk usage that the store sees."""

    def __init__(self):
        self.ratio = 0.5

    def __call__(self, path):
        return self.ratio


@pytest.fixture
def disk():
    return Disk()


@pytest.fixture
def wall():
    """The wall clock, at four o'clock, local time: [seconds]."""
    day = time.mktime((2023, 11, 14, 4, 30, 0, 0, 0, -1))
    return [day]


FILES = 12


async def filled(root, disk, wall, **options):
    """A store of FILES files of two messages each, alternately in queue 0 and 1, half an hour apart in age, the newest now."""
    sizes = {"mapped_file_size_commit_log": FILE_SIZE, "mapped_file_size_consume_queue": 100}
    pauses = {"delete_commit_log_files_interval_ms": 0, "delete_consume_queue_files_interval_ms": 0}
    store = MessageStore(
        StoreConfig(root=root, **{**sizes, **pauses, **options}),
        StoreHooks(now_ms=lambda: int(wall[0] * 1000), disk_usage=disk),
    )
    store.load()
    for number in range(2 * FILES):
        (result,) = store.put([put_message(body=bytes([number]) * 7000, queue_id=number % 2)])
        assert result.status is PutStatus.PUT_OK
    await flush(store)
    for number, file in enumerate(store.commit_log.files.files):
        age = (FILES - 1 - number) * HOUR / 2
        os.utime(file.path, (wall[0] - age, wall[0] - age))
    assert len(store.commit_log.files.files) == FILES
    return store


async def flush(store):
    """What is not on the disk yet does not go."""
    store.dispatch_pending()
    await store.flusher.flush()
    await store._parts.queue_flusher.flush(thorough=True)


async def settled(condition):
    """Wait for what a thread brings about, while virtual time runs on. pytest's own time limit ends it."""
    while not condition():
        await trio.to_thread.run_sync(time.sleep, 0.001)


def open_files():
    """The paths of what this process has open."""
    paths = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # The directory itself, for one.
            paths.append(os.readlink(link))
    return paths


def names(store):
    return sorted(int(path.name) // FILE_SIZE for path in (store._parts.root / "commitlog").iterdir())


async def test_files_that_are_old_enough_go_at_their_hour(tmp_path, disk, wall, autojump_clock):
    store = await filled(tmp_path, disk, wall, file_reserved_time_hours=4)
    wall[0] += HOUR  # Half past five: not the hour. Five files are older than four hours now.
    await store.retention.clean()
    assert names(store) == list(range(FILES))
    wall[0] -= HOUR
    with capture_logs() as lines:
        await store.retention.clean()
    assert names(store) == list(range(4, FILES))
    assert store.min_offset == 4 * FILE_SIZE
    deleted = [line for line in lines if line["event"] == "commit log file deleted"]
    assert [(line["file"], line["age_hours"], line["why"]) for line in deleted] == [
        (f"{n * FILE_SIZE:020}", 5.5 - n / 2, "4 o'clock") for n in range(4)
    ]


async def test_queues_begin_where_the_log_does(tmp_path, disk, wall, autojump_clock):
    """Their files are deleted, too, and consumers below the new start get its offset."""
    store = await filled(tmp_path, disk, wall, file_reserved_time_hours=2)
    told = []
    store.retention.shortened.append(told.append)
    await store.retention.clean()
    gone = 8
    assert store.min_offset == gone * FILE_SIZE
    assert told == [n * FILE_SIZE for n in range(1, gone + 1)]
    for queue_id in (0, 1):
        queue = store.queue("T1", queue_id)
        assert (queue.min_offset, queue.max_offset) == (gone, FILES)
        # 5 units to a file, 12 in all: the first file only has messages that are gone.
        files = sorted(path.name for path in (tmp_path / "consumequeue" / "T1" / str(queue_id)).iterdir())
        assert files == [f"{100:020}", f"{200:020}"]
        result = store.get_message("T1", queue_id, 0, 32, None)
        assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, gone)
        result = store.get_message("T1", queue_id, gone, 32, None)
        assert (result.status, result.message_count) == (GetStatus.FOUND, 2)  # To the end of the queue's file.
    await store.close()
    again = MessageStore(store.config)
    again.load()
    assert again.min_offset == gone * FILE_SIZE
    assert (again.queue("T1", 0).min_offset, again.queue("T1", 0).max_offset) == (gone, FILES)
    again._release()


async def test_a_blank_at_a_files_end_does_not_take_the_messages_before_it_along(tmp_path, disk, wall, autojump_clock):
    """It stands for a message that was damaged, and leads to the log's first byte, which is gone."""
    store = await filled(tmp_path, disk, wall, file_reserved_time_hours=2)
    queue = store.queue("T1", 0)
    queue.files.files[1].write_at(4 * 20, BLANK)  # Message 9, the last of its file.
    await store.retention.clean()
    assert (queue.min_offset, queue.files.min_offset) == (8, 100)
    assert store.get_message("T1", 0, 8, 32, None).message_count == 1
    store._release()


async def test_a_queue_whose_messages_are_all_gone_keeps_its_number(tmp_path, disk, wall, autojump_clock):
    """Offsets are never given twice: the next message goes on where the lost ones ended."""
    store = await filled(tmp_path, disk, wall)
    first = store.put([put_message("Old", queue_id=7)])[0]
    store.dispatch_pending()
    for _ in range(2 * FILES):
        store.put([put_message(body=bytes(7000))])
    await flush(store)
    disk.ratio = 0.86
    while store.min_offset <= first.phy_offset:
        await store.retention.clean()
        store.retention.close()
    queue = store.queue("Old", 7)
    assert (queue.min_offset, queue.max_offset) == (1, 1)
    assert store.put([put_message("Old", queue_id=7)])[0].queue_offset == 1
    store.dispatch_pending()
    result = store.get_message("Old", 7, 0, 32, None)
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 1)
    assert store.get_message("Old", 7, 1, 32, None).message_count == 1
    await store.close()


@pytest.mark.parametrize(("ratio", "left"), [(0.75, 12), (0.76, 12), (0.85, 12), (0.86, 2), (0.91, 2)])
async def test_a_disk_that_fills_up(tmp_path, disk, wall, ratio, left, autojump_clock):
    """Above 75 % what is old enough goes at any hour, which is nothing here; above 85 % ten files of any age."""
    store = await filled(tmp_path, disk, wall)
    disk.ratio = ratio
    wall[0] += 12 * HOUR
    await store.retention.clean()
    assert len(names(store)) == left
    assert store.writable == (ratio <= 0.9)


async def test_at_any_hour_if_the_disk_demands_it(tmp_path, disk, wall, autojump_clock):
    store = await filled(tmp_path, disk, wall, file_reserved_time_hours=4)
    disk.ratio = 0.76
    wall[0] += HOUR
    store.retention._read_clock()
    await trio.sleep(HOUR)
    await store.retention.clean()
    assert names(store) == list(range(6, FILES))


async def test_nothing_by_force_where_that_is_forbidden(tmp_path, disk, wall, autojump_clock):
    store = await filled(tmp_path, disk, wall, clean_file_forcibly_enable=False)
    disk.ratio = 0.95
    await store.retention.clean()
    assert len(names(store)) == FILES


async def test_room_is_waited_for_before_more_goes(tmp_path, disk, wall, autojump_clock):
    """A deleted file takes room until it is closed: counting it as used would delete ever more."""
    store = await filled(tmp_path, disk, wall, delete_file_batch_max=2)
    disk.ratio = 0.86
    await store.retention.clean()
    await store.retention.clean()
    assert len(names(store)) == FILES - 2
    store.retention.close()
    await store.retention.clean()
    assert len(names(store)) == FILES - 4


async def test_the_service_looks_and_cleans_by_itself(tmp_path, disk, wall, nursery, autojump_clock):
    """The disk after a second and each ten; files after a minute and each ten seconds; a deleted file is closed soon."""
    store = await filled(tmp_path, disk, wall, delete_file_batch_max=2)
    files = list(store.commit_log.files.files)
    await nursery.start(store.run)
    began = trio.current_time()
    disk.ratio = 0.91
    await settled(lambda: StoreCondition.DISK_FULL in store.flags)
    assert [r.status for r in store.put([put_message()])] == [PutStatus.SERVICE_NOT_AVAILABLE]
    assert "91% of the disk" in store.why_not_writable
    await settled(lambda: len(names(store)) < FILES)  # Virtual time runs on while a thread works: no fixed pauses here.
    assert trio.current_time() - began >= 60
    disk.ratio = 0.86
    await settled(lambda: store.writable)
    await settled(lambda: len(names(store)) <= FILES - 2)
    disk.ratio = 0.5
    await settled(lambda: not store.retention._closing)
    assert not any(target.startswith(str(files[0].path)) for target in open_files())
    assert [r.status for r in store.put([put_message()])] == [PutStatus.PUT_OK]


async def test_who_reads_a_deleted_file_may_finish(tmp_path, disk, wall, autojump_clock):
    store = await filled(tmp_path, disk, wall)
    view, chunk = store.commit_log.read(0, 7000), store.commit_log.chunk(0, 7000)
    raw = bytes(view)
    disk.ratio = 0.86
    await store.retention.clean()
    assert store.commit_log.read(0, 7000) is None
    assert os.pread(chunk.fd, 7000, 0) == raw
    store.retention.close()
    assert view == raw


async def test_what_a_replica_needs_stays(tmp_path, disk, wall, autojump_clock):
    store = await filled(tmp_path, disk, wall)
    store.hooks.retention_floor = lambda: 3 * FILE_SIZE + 1
    disk.ratio = 0.95
    with capture_logs() as lines:
        await store.retention.clean()
        store.retention.close()
        await store.retention.clean()
    assert names(store) == list(range(3, FILES))
    assert [line["event"] for line in lines].count("old commit log files are kept: they are still needed") == 1


async def test_what_is_not_in_the_queues_yet_stays(tmp_path, disk, wall, autojump_clock):
    store = await filled(tmp_path, disk, wall)
    store.commit_log.dispatched_offset = FILE_SIZE + 5
    disk.ratio = 0.95
    await store.retention.clean()
    assert names(store) == list(range(1, FILES))


async def test_what_is_not_on_the_disk_yet_stays(tmp_path, disk, wall, autojump_clock):
    """A sync may be under way in a thread."""
    store = await filled(tmp_path, disk, wall)
    store.flusher.flushed_offset = FILE_SIZE
    disk.ratio = 0.95
    await store.retention.clean()
    assert names(store) == list(range(1, FILES))


async def test_a_crash_after_files_went(tmp_path, disk, wall, autojump_clock):
    """What was noted about the store before does not fit any more, in parts; nothing that is there is lost over it."""
    store = await filled(tmp_path, disk, wall)
    disk.ratio = 0.86
    await store.retention.clean()
    for number in range(8):
        store.put([put_message(body=bytes([100 + number]) * 700)])
    await store.flusher.flush()
    first, end = store.min_offset, store.max_offset
    store._release()  # No clean stop.
    again = MessageStore(store.config, StoreHooks(disk_usage=disk))
    again.load()
    assert (again.min_offset, again.max_offset, again.dispatched_offset) == (first, end, end)
    queue = again.queue("T1", 0)
    assert (queue.min_offset, queue.max_offset) == (10, FILES + 8)
    records = [again.message_at(queue.unit(n).phy_offset) for n in range(queue.min_offset, queue.max_offset)]
    assert [bytes(record)[88] for record in records] == [20, 22, *range(100, 108)]
    again._release()


async def test_on_request(tmp_path, disk, wall, nursery, autojump_clock):
    """Now, and in the next rounds, whatever the hour; what is not old enough stays."""
    store = await filled(tmp_path, disk, wall, file_reserved_time_hours=2, delete_file_batch_max=3)
    wall[0] += HOUR
    await nursery.start(store.run)
    await settled(lambda: store.retention.disk.ratio)  # It runs.
    assert len(names(store)) == FILES
    gone = []
    store.retention.shortened.append(lambda _: gone.append(trio.current_time()))
    store.retention.request()
    await wait_all_tasks_blocked()  # No time has passed.
    assert names(store)[0] > 0
    await settled(lambda: names(store) == list(range(10, FILES)))
    await trio.sleep(100)
    assert names(store) == list(range(10, FILES))
    rounds = [gone[n : n + 3] for n in range(0, len(gone), 3)]
    pause = store.config.clean_resource_interval_ms / 1000
    assert all(later[0] - earlier[-1] >= pause for earlier, later in pairwise(rounds))


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_clock_that_leaps_ahead_wipes_nothing(tmp_path, disk, wall, restarts, autojump_clock):
    """A year ahead at four o'clock: nothing is older than it was. Later files go as time really passes, at twice its speed."""
    store = await filled(tmp_path, disk, wall, file_reserved_time_hours=72)
    await store.retention.clean()
    wall[0] += 365 * 24 * HOUR
    with capture_logs() as lines:
        for _ in range(10):
            await trio.sleep(10)
            wall[0] += 10
            await store.retention.clean()
    assert len(names(store)) == FILES
    assert [line["ahead_hours"] for line in lines if "ahead_hours" in line] == [8760]
    if restarts:
        store.put([put_message()])  # A file that says it was written in a year.
        await store.close()
        store = MessageStore(store.config, StoreHooks(now_ms=store.now_ms, disk_usage=disk))
        store.load()
        await store.retention.clean()
        assert len(names(store)) == FILES
    await trio.sleep(34 * HOUR)
    await store.retention.clean()
    left = len(names(store))
    assert 2 < left < FILES


async def test_a_file_that_cannot_be_deleted(tmp_path, disk, wall, autojump_clock, monkeypatch):
    """It is tried again after redeleteHangedFileInterval; nothing behind it goes before."""
    store = await filled(tmp_path, disk, wall, file_reserved_time_hours=4)
    first = store.commit_log.files.files[0]
    moved = first.path
    (tmp_path / "directory").mkdir()
    first.path = tmp_path / "directory"  # No unlink takes a directory.
    os.utime(first.path, (0, 0))
    with capture_logs() as lines:
        await store.retention.clean()
        first.path = moved
        await store.retention.clean()
    assert len(names(store)) == FILES
    assert [line["event"] for line in lines] == ["a file could not be deleted"]
    await trio.sleep(120)
    await store.retention.clean()
    assert names(store) == list(range(4, FILES))


async def test_a_disk_without_room_for_the_next_file(tmp_path, disk, wall, autojump_clock, monkeypatch):
    """Far below every limit, but the next file does not fit: the oldest one makes room, and producers go on."""
    store = await filled(tmp_path, disk, wall)
    create = MappedFile.create.__func__
    present = FILES

    def limited(cls, path, start, size, *, preallocate):
        used = len(names(store)) + len(store.retention._closing)
        if preallocate and used >= present:
            raise OSError(28, "No space left on device", str(path))
        return create(cls, path, start, size, preallocate=preallocate)

    monkeypatch.setattr(MappedFile, "create", classmethod(limited))
    assert [r.status for r in store.put([put_message(body=bytes(7000))])] == [PutStatus.CREATE_MAPPED_FILE_FAILED]
    await store.retention.clean()
    assert names(store) == list(range(1, FILES))
    await store._parts.refusal._try_again()
    assert not store.writable
    store.retention.close()
    await store._parts.refusal._try_again()
    assert store.writable
    assert [r.status for r in store.put([put_message(body=bytes(7000))])] == [PutStatus.PUT_OK]
    assert names(store) == list(range(1, FILES + 1))
