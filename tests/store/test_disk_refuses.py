"""A disk that refuses bytes for a while: nothing is torn, lost or doubled, and the store goes on by itself."""

import errno
import os
import random
import time

import pytest
import trio
from attrs import define, field

from tests.store.records import put_message, record_size
from tests.support.disk.faults import tmpfs
from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.errors import StoreNotWritableError
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.log.running_flags import StoreCondition
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import decode_message
from twinlog.store.record.scan import scan_records
from twinlog.store.util.sync import SyncError, is_no_space, is_passing, sync_data

FILE_SIZE = 1 << 14


@define
class Disk:
    """Stands between the store and the kernel. `room`: bytes that pwrite takes before it stops, short, then with `error`."""

    room: int | None = None
    error: int = errno.ENOSPC
    allocates: bool = True
    pwrite = staticmethod(os.pwrite)
    fallocate = staticmethod(os.posix_fallocate)
    refusals: int = field(default=0, init=False)

    def write(self, fd, data, position):
        if self.room is None:
            return Disk.pwrite(fd, data, position)
        if self.room == 0 and len(data):
            self.refusals += 1
            raise OSError(self.error, os.strerror(self.error))
        done = Disk.pwrite(fd, memoryview(data)[: self.room], position)
        self.room -= done
        return done

    def allocate(self, fd, offset, size):
        if not self.allocates:
            raise OSError(self.error, os.strerror(self.error))
        Disk.fallocate(fd, offset, size)

    def recover(self):
        self.room, self.allocates = None, True


@pytest.fixture
def disk(monkeypatch):
    disk = Disk()
    monkeypatch.setattr(os, "pwrite", disk.write)
    monkeypatch.setattr(os, "posix_fallocate", disk.allocate)
    return disk


def opened(root, **options):
    sizes = {"mapped_file_size_commit_log": FILE_SIZE, "mapped_file_size_consume_queue": 200}
    store = MessageStore(StoreConfig(root=root, **{**sizes, **options}))
    store.load()
    return store


def statuses(results):
    return [result.status for result in results]


def bodies(store, queue_id=0):
    queue = store.queue("T1", queue_id)
    found = [store.message_at(queue.unit(n).phy_offset) for n in range(queue.min_offset, queue.max_offset)]
    return [decode_message(record).body for record in found]


def behind_end(store):
    """All bytes of the files behind the log's end."""
    return b"".join(file.path.read_bytes()[file.wrote :] for file in store.commit_log.files.files)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
async def test_a_write_that_stops_half_way_leaves_nothing(tmp_path, disk, error, nursery, autojump_clock):
    store = opened(tmp_path)
    await nursery.start(store.run)
    (good,) = store.put([put_message(body=b"good")])
    store.dispatch_pending()
    disk.room, disk.error = 1500, error
    assert (
        statuses(store.put([put_message(body=bytes([n]) * 300) for n in range(9)]))
        == [PutStatus.SERVICE_NOT_AVAILABLE] * 9
    )
    assert store.max_offset == good.end_offset
    assert os.strerror(error) in store.why_not_writable
    assert store.flags.is_passing
    assert statuses(store.put([put_message()])) == [PutStatus.SERVICE_NOT_AVAILABLE]
    assert bodies(store) == [b"good"]
    await trio.sleep(5)
    assert not store.writable
    disk.recover()
    await trio.sleep(1.5)
    assert store.writable
    assert behind_end(store).count(0) == len(behind_end(store))
    (after,) = store.put([put_message(body=b"after")])
    assert (after.phy_offset, after.queue_offset) == (good.end_offset, 1)
    store.dispatch_pending()
    assert bodies(store) == [b"good", b"after"]


async def test_a_file_that_cannot_be_made_takes_back_the_whole_batch(tmp_path, disk, nursery, autojump_clock):
    """The first half of the batch was in the old file already, with a blank behind it."""
    store = opened(tmp_path)
    await nursery.start(store.run)
    (good,) = store.put([put_message(body=bytes(6000))])
    disk.allocates = False
    results = store.put([put_message(body=bytes([1]) * 5000)] * 3)
    assert statuses(results) == [PutStatus.CREATE_MAPPED_FILE_FAILED] * 3
    assert store.max_offset == good.end_offset
    assert behind_end(store).count(0) == FILE_SIZE - good.end_offset
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == [f"{0:020}"]
    assert store.flags.is_passing
    await trio.sleep(3)
    assert not store.writable
    disk.recover()
    while not store.writable:  # The file is made in a thread.
        await trio.to_thread.run_sync(time.sleep, 0.001)
    results = store.put([put_message(body=bytes([2]) * 5000)] * 3)
    assert statuses(results) == [PutStatus.PUT_OK] * 3
    assert [result.queue_offset for result in results] == [1, 2, 3]
    store.dispatch_pending()
    assert [body[:1] for body in bodies(store)] == [b"\0", b"\2", b"\2", b"\2"]


async def test_queue_units_wait_for_room(tmp_path, disk, nursery, autojump_clock):
    """Stored and answered; they are found once the store runs, and the disk gets each once and in order, a half one anew."""
    store = opened(tmp_path)
    told = []
    store.on_arrival.append(lambda *arrival: told.append(arrival[1:3]))
    assert (
        statuses(store.put([put_message(body=b"%d" % n, queue_id=n % 2) for n in range(30)])) == [PutStatus.PUT_OK] * 30
    )
    disk.room = 215
    store.dispatch_pending()
    assert (store.dispatched_offset, told) == (0, [])
    assert statuses(store.put([put_message()])) == [PutStatus.SERVICE_NOT_AVAILABLE]
    assert bodies(store) == [b"%d" % n for n in range(0, 20, 2)]  # What fitted.
    await nursery.start(store.run)
    await trio.sleep(3)
    assert not store.writable
    assert bodies(store) == [b"%d" % n for n in range(0, 30, 2)]
    assert not any(units_on_disk(store, 0)[11 * 20 :] + units_on_disk(store, 1))
    disk.recover()
    await trio.sleep(1.5)
    assert store.writable
    assert store.dispatched_offset == store.max_offset
    assert bodies(store, queue_id=1) == [b"%d" % n for n in range(1, 30, 2)]
    assert [units_on_disk(store, number) for number in (0, 1)] == [queue_units(store, number) for number in (0, 1)]
    assert sorted(told) == [(0, 15), (1, 15)]


async def test_late_units_wait_for_room(tmp_path, disk, nursery, autojump_clock):
    """The disk refuses reported units: producers are refused until it has them, and nothing claims before that it has."""
    store = opened(tmp_path)
    await nursery.start(store.run)
    await trio.sleep(3)
    store.put([put_message(body=b"%d" % n) for n in range(5)])
    disk.room = 0
    store.dispatch_pending()
    assert bodies(store) == [b"%d" % n for n in range(5)]
    assert store.writable
    await trio.sleep(0.05)
    assert not store.writable
    assert not await store._parts.queue_flusher.flush(thorough=True)
    assert store._parts.points.take(store.dispatched_offset) is None
    assert not any(units_on_disk(store, 0))
    disk.recover()
    await trio.sleep(1.5)
    assert store.writable
    assert units_on_disk(store, 0) == queue_units(store, 0)
    assert await store._parts.queue_flusher.flush(thorough=True)
    assert store._parts.points.offset == store.max_offset


def units_on_disk(store, queue_id):
    queue = store.queue("T1", queue_id)
    return b"".join(file.path.read_bytes() for file in queue.files.files)[: queue.max_offset * 20]


def queue_units(store, queue_id):
    queue = store.queue("T1", queue_id)
    return b"".join(queue.read(n, 1) for n in range(queue.max_offset))


async def test_a_slave_waits_for_room(tmp_path, disk, nursery, autojump_clock):
    master = opened(tmp_path / "master")
    results = master.put([put_message(body=bytes([n]) * 3000) for n in range(8)])
    data = b"".join(file.path.read_bytes()[: file.wrote] for file in master.commit_log.files.files)
    assert len(data) > FILE_SIZE
    slave = opened(tmp_path / "slave", broker_role=BrokerRole.SLAVE)
    await nursery.start(slave.run)
    entries = scan_records(memoryview(data), 0, FILE_SIZE, check_crc=True).entries
    disk.room = FILE_SIZE + 100
    with pytest.raises(StoreNotWritableError, match="No space"):
        slave.append_replicated(memoryview(data), entries)
    assert slave.max_offset == 0
    with pytest.raises(StoreNotWritableError, match="No space"):
        slave.append_replicated(memoryview(data), entries)
    disk.recover()
    await trio.sleep(1.5)
    slave.append_replicated(memoryview(data), entries)
    assert slave.max_offset == results[-1].end_offset
    slave.dispatch_pending()
    assert slave.queue("T1", 0).max_offset == 8


async def test_a_checkpoint_without_room_is_written_later(tmp_path, disk):
    store = opened(tmp_path)
    store.put([put_message()])
    store.dispatch_pending()
    disk.room = 0
    assert not await store._parts.queue_flusher.flush(thorough=True)
    assert store.writable
    disk.recover()
    assert await store._parts.queue_flusher.flush(thorough=True)
    await store.close()
    assert not (tmp_path / "abort").exists()


async def test_a_stop_while_the_disk_refuses_is_no_clean_one(tmp_path, disk):
    store = opened(tmp_path)
    store.put([put_message(body=b"1")])
    store.dispatch_pending()
    store.put([put_message(body=b"2")])
    disk.room = 10
    await store.close()
    disk.recover()
    assert (tmp_path / "abort").exists()
    again = opened(tmp_path)
    assert bodies(again) == [b"1", b"2"]


async def test_a_start_without_room_for_queue_units(tmp_path, disk, nursery, autojump_clock):
    """It opens: the units are read from memory, and written once there is room. A queue that needs one file more does not fit."""
    store = opened(tmp_path)
    store.put([put_message(body=b"%d" % n, queue_id=n % 2) for n in range(18)])
    store._release()  # As where the process dies.
    disk.room = 30  # One unit, and a half one.
    store = opened(tmp_path)
    assert [bodies(store, number) for number in (0, 1)] == [
        [b"%d" % n for n in range(first, 18, 2)] for first in (0, 1)
    ]
    assert statuses(store.put([put_message()])) == [PutStatus.SERVICE_NOT_AVAILABLE]
    assert "consume queue failed: [Errno 28]" in store.why_not_writable
    await nursery.start(store.run)
    await trio.sleep(5)
    assert (store.writable, any(units_on_disk(store, 1))) == (False, False)
    assert not await store._parts.queue_flusher.flush(thorough=True)
    disk.recover()
    await trio.sleep(1.5)
    assert store.writable
    assert [units_on_disk(store, number) for number in (0, 1)] == [queue_units(store, number) for number in (0, 1)]


def test_a_start_without_room_for_a_new_queue_file(tmp_path, disk):
    """It is refused and changes nothing that a later one would miss."""
    store = opened(tmp_path)
    store.put([put_message(body=b"%d" % n) for n in range(11)])  # Ten units fill a file.
    store._release()  # As where the process dies.
    disk.room = 0
    with pytest.raises(OSError, match="No space left"):
        opened(tmp_path)
    disk.recover()
    assert bodies(opened(tmp_path)) == [b"%d" % n for n in range(11)]


async def test_what_does_not_pass(tmp_path, disk, nursery, autojump_clock):
    """EIO: the content of the disk is unknown. It is not asked again."""
    store = opened(tmp_path)
    await nursery.start(store.run)
    disk.room, disk.error = 100, errno.EIO
    assert statuses(store.put([put_message(body=bytes(300))])) == [PutStatus.CREATE_MAPPED_FILE_FAILED]
    disk.recover()
    await trio.sleep(10)
    assert StoreCondition.FAILED in store.flags
    assert not store.writable


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_failed_sync_never_passes(monkeypatch, number):
    """Not even for want of room: the pages that found none may be gone."""

    def refuse(fd):
        raise OSError(number, "refused")

    monkeypatch.setattr(os, "fdatasync", refuse)
    with pytest.raises(SyncError, match="fdatasync") as caught:
        sync_data(1)
    assert not is_passing(caught.value)
    assert not is_no_space(caught.value)
    assert is_passing(OSError(number, "pwrite")) == (number != errno.EIO)


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_is_refused_what_was_taken_stays(tmp_path, disk, seed):
    """Random batches and a disk that fills up anywhere: the store holds what it said it had taken, and nothing else."""
    rng = random.Random(seed)
    store = opened(tmp_path)
    taken = {0: [], 1: []}
    for number in range(150):
        if rng.random() < 0.3:
            disk.room = rng.choice([0, 7, 19, 20, 100, 1000, 9000, 30_000])
            disk.allocates = rng.random() < 0.5
        batch = [
            put_message(body=b"%d.%d." % (number, n) + bytes(rng.randrange(1500)), queue_id=rng.randrange(2))
            for n in range(rng.choice([1, 1, 3, 20]))
        ]
        for message, result in zip(batch, store.put(batch, together=rng.random() < 0.3), strict=True):
            if result.status is PutStatus.PUT_OK:
                assert result.size == record_size(message)
                assert result.queue_offset == len(taken[message.queue_id])
                taken[message.queue_id].append(message.body)
        if rng.random() < 0.7:
            store.dispatch_pending()
        if not store.writable:
            await store._parts.refusal._try_again()  # In vain, or not.
            if rng.random() < 0.6:
                disk.recover()
                await store._parts.refusal._try_again()
                assert store.writable
    assert disk.refusals > 5
    disk.recover()
    await store._parts.refusal._try_again()
    store.dispatch_pending()
    assert [bodies(store, n) for n in taken] == list(taken.values())
    assert behind_end(store).count(0) == len(behind_end(store))
    store._release()
    again = opened(tmp_path)
    assert [bodies(again, n) for n in taken] == list(taken.values())
    again._release()


@pytest.mark.root
@pytest.mark.parametrize("with_room", [True, False])
async def test_a_log_on_a_disk_of_its_own(tmp_path, nursery, with_room):
    """commitlog/ itself is a mount: no file that lies beside it can be moved in. Writing goes on as long as there is room."""
    with tmpfs(tmp_path / "commitlog", megabytes=1 if with_room else 0.0625) as log_disk:
        store = opened(tmp_path)
        await nursery.start(store.run)
        refused = []
        for number in range(20):
            (result,) = store.put([put_message(body=b"%d" % number + bytes(7000))])
            if result.status is not PutStatus.PUT_OK:
                refused.append(result.status)
            await trio.sleep(0.01)
        assert refused == ([] if with_room else [PutStatus.CREATE_MAPPED_FILE_FAILED] * 1 + refused[1:])
        assert bool(refused) != with_room
        assert store.flags.is_passing
        store.dispatch_pending()
        assert len(bodies(store)) == 20 - len(refused)
        assert len(list(log_disk.path.iterdir())) == len(store.commit_log.files.files)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await store.close()
