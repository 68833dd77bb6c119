"""MessageStore: accepted and refused messages, listeners, and the files that it leaves."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.store.message_stores import FILE_SIZE, make, opened
from tests.store.records import put_message, record_size
from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.errors import StoreDirectoryError, StoreLockedError, StoreNotWritableError
from twinlog.store.hooks import StoreHooks
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.log.running_flags import StoreCondition
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import decode_message
from twinlog.store.record.scan import scan_records
from twinlog.store.util.wakeup import Wakeup

ROOT = Path(__file__).parents[2]


def statuses(results):
    return [result.status for result in results]


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (put_message(), PutStatus.PUT_OK),
        (put_message(body=b"", properties=b""), PutStatus.PUT_OK),
        (put_message("t" * 127), PutStatus.PUT_OK),
        (put_message("t" * 128), PutStatus.MESSAGE_ILLEGAL),
        (put_message(properties=b"a\x01" + b"b" * 32765), PutStatus.PUT_OK),
        (put_message(properties=b"a\x01" + b"b" * 32766), PutStatus.MESSAGE_ILLEGAL),
        (put_message(properties=b"a\x01" + "é".encode() * 16382 + b"b"), PutStatus.PUT_OK),
        (put_message(properties=b"a\x01" + "é".encode() * 16383), PutStatus.PROPERTIES_SIZE_EXCEEDED),
        (put_message(properties=b"a\x01" + "\N{GRINNING FACE}".encode() * 16383), PutStatus.MESSAGE_ILLEGAL),
        (put_message("t" * 128, properties="é".encode() * 16384), PutStatus.MESSAGE_ILLEGAL),
        (put_message(properties="é".encode() * 16384, body=bytes(40_001)), PutStatus.PROPERTIES_SIZE_EXCEEDED),
        (put_message(body=bytes(40_000)), PutStatus.PUT_OK),
        (put_message(body=bytes(40_001)), PutStatus.MESSAGE_ILLEGAL),
    ],
)
def test_limits(tmp_path, message, status):
    """One message that is too large does not keep out those that came with it."""
    store = opened(tmp_path, max_message_size=40_000)
    assert statuses(store.put([put_message(), message, put_message()])) == [
        PutStatus.PUT_OK,
        status,
        PutStatus.PUT_OK,
    ]
    assert statuses(store.put([put_message(), message], together=True)) == [status] * 2
    assert store.statistics().put_messages == (5 if status is PutStatus.PUT_OK else 2)


@pytest.mark.parametrize("over", [0, 1])
def test_a_record_must_fit_a_file(tmp_path, over):
    store = opened(tmp_path)
    body = bytes(FILE_SIZE - 8 - record_size(put_message(body=b"")) + over)
    status = PutStatus.MESSAGE_ILLEGAL if over else PutStatus.PUT_OK
    assert statuses(store.put([put_message(body=body)])) == [status]
    assert store.max_offset == (0 if over else FILE_SIZE - 8)


def test_results_lead_to_the_messages(tmp_path):
    store = opened(tmp_path)
    results = store.put([put_message(body=b"%d" % n, queue_id=n % 2) for n in range(6)])
    for number, result in enumerate(results):
        message = decode_message(store.message_at(result.phy_offset))
        assert (message.body, message.queue_offset) == (b"%d" % number, number // 2)
        assert result.queue_offset == number // 2
    assert results[-1].end_offset == store.max_offset
    assert store.put([]) == []


def test_a_slave_takes_nothing_from_producers(tmp_path):
    store = opened(tmp_path, broker_role=BrokerRole.SLAVE)
    assert not store.writable
    assert statuses(store.put([put_message()] * 2)) == [PutStatus.SERVICE_NOT_AVAILABLE] * 2
    assert store.max_offset == 0


@pytest.mark.parametrize(
    ("condition", "role", "busy", "status"),
    [
        (StoreCondition.CLOSED, BrokerRole.ASYNC_MASTER, True, PutStatus.SERVICE_NOT_AVAILABLE),
        (None, BrokerRole.SLAVE, True, PutStatus.SERVICE_NOT_AVAILABLE),
        (StoreCondition.DISK_FULL, BrokerRole.ASYNC_MASTER, True, PutStatus.SERVICE_NOT_AVAILABLE),
        (StoreCondition.FAILED, BrokerRole.SYNC_MASTER, True, PutStatus.SERVICE_NOT_AVAILABLE),
        (None, BrokerRole.SYNC_MASTER, True, PutStatus.OS_PAGECACHE_BUSY),
        (None, BrokerRole.SYNC_MASTER, False, PutStatus.MESSAGE_ILLEGAL),
    ],
)
def test_the_order_of_the_checks(tmp_path, condition, role, busy, status):
    """Source: DefaultMessageStore.checkStoreStatus, then checkMessage."""
    store = opened(tmp_path, broker_role=role)
    if condition is not None:
        store.flags.set(condition, "for a test")
    if busy:
        store._putter.busy_until = store.hooks.clock() + 100
    assert statuses(store.put([put_message("t" * 128)])) == [status]


class SlowDisk:
    """A clock that the disk moves: each write takes `seconds`."""

    def __init__(self):
        self.now, self.seconds = 1000.0, 0.0

    def write(self, fd, data, position):
        self.now += self.seconds
        return SlowDisk.pwrite(fd, data, position)

    pwrite = staticmethod(os.pwrite)


@pytest.mark.parametrize(("took", "pause"), [(0.9, 0), (1.0, 0), (1.25, 0.25), (2, 1), (30, 1)])
def test_after_a_slow_write_others_have_their_turn(tmp_path, monkeypatch, took, pause):
    disk = SlowDisk()
    monkeypatch.setattr(os, "pwrite", disk.write)
    store = MessageStore(
        StoreConfig(root=tmp_path, mapped_file_size_commit_log=FILE_SIZE), StoreHooks(clock=lambda: disk.now)
    )
    store.load()
    disk.seconds = took
    assert statuses(store.put([put_message()])) == [PutStatus.PUT_OK]
    disk.seconds = 0
    if pause:
        disk.now += pause - 0.125
        assert statuses(store.put([put_message()] * 2)) == [PutStatus.OS_PAGECACHE_BUSY] * 2
        disk.now += 0.125
    assert statuses(store.put([put_message()])) == [PutStatus.PUT_OK]
    assert store.statistics().put_messages == 2


def test_a_slow_write_may_be_allowed(tmp_path):
    store = opened(tmp_path, os_page_cache_busy_timeout_ms=0)
    times = iter(range(0, 10**6, 1000))
    store.hooks.clock = lambda: next(times)
    assert statuses(store.put([put_message()])) == statuses(store.put([put_message()])) == [PutStatus.PUT_OK]


def test_a_master_takes_nothing_from_other_masters(tmp_path):
    """Queue offsets would be given twice, and the second message with one is in no queue."""
    store = opened(tmp_path)
    with pytest.raises(StoreNotWritableError, match="is a master"):
        store.append_replicated(b"x", [])
    assert store.max_offset == 0


async def test_a_store_that_is_not_open_takes_nothing(tmp_path):
    store = make(tmp_path)
    assert statuses(store.put([put_message()])) == [PutStatus.SERVICE_NOT_AVAILABLE]
    assert "not open" in store.why_not_writable
    store.load()
    await store.close()
    assert statuses(store.put([put_message()])) == [PutStatus.SERVICE_NOT_AVAILABLE]
    assert "closed" in store.why_not_writable


async def test_listeners_are_told_what_arrived(tmp_path, nursery):
    """Once per queue and dispatch, with the queue's new end and the tags of the new messages."""
    store, told = opened(tmp_path), []
    store.on_arrival.append(lambda *arrival: told.append(arrival))
    wakeup = Wakeup()
    store.appended.append(wakeup.set)
    await nursery.start(store.run)
    store.put([put_message(properties=b"TAGS\x01a"), put_message(queue_id=3), put_message(properties=b"TAGS\x01b")])
    assert told == []
    with trio.fail_after(5):
        await wakeup.wait()
        await trio.testing.wait_all_tasks_blocked()
    assert told == [("T1", 0, 2, [97, 98]), ("T1", 3, 1, [0])]
    assert store.dispatched_offset == store.max_offset
    nursery.cancel_scope.cancel()


def test_replication_gives_the_same_log_and_queues(tmp_path):
    master, slave = opened(tmp_path / "master"), opened(tmp_path / "slave", broker_role=BrokerRole.SLAVE)
    told = []
    slave.on_arrival.append(lambda *arrival: told.append(arrival))
    for number in range(200):
        master.put([put_message(body=bytes(500), queue_id=number % 3, properties=b"TAGS\x01a")])
        chunk = master.commit_log.chunk(slave.max_offset, 1 << 20)
        while chunk is not None:
            data = os.pread(chunk.fd, chunk.size, chunk.position)
            scan = scan_records(data, slave.max_offset, FILE_SIZE, check_crc=True)
            slave.append_replicated(data[: scan.consumed], scan.entries)
            chunk = master.commit_log.chunk(slave.max_offset, 1 << 20)
    assert slave.max_offset == master.max_offset > FILE_SIZE
    master.dispatch_pending()
    slave.dispatch_pending()
    assert {
        p.relative_to(tmp_path / "master"): p.read_bytes() for p in (tmp_path / "master" / "commitlog").iterdir()
    } == {p.relative_to(tmp_path / "slave"): p.read_bytes() for p in (tmp_path / "slave" / "commitlog").iterdir()}
    assert {(t, q, c.max_offset) for t, q, c in slave.queues()} == {(t, q, c.max_offset) for t, q, c in master.queues()}
    assert told[-1][:3] == ("T1", 2, 66)
    assert slave.flusher.last_store_timestamp == master.flusher.last_store_timestamp


def test_a_fresh_slave_may_start_in_the_middle(tmp_path):
    slave = opened(tmp_path, broker_role=BrokerRole.SLAVE)
    slave.start_at(5 * FILE_SIZE)
    assert slave.min_offset == slave.max_offset == slave.dispatched_offset == 5 * FILE_SIZE
    slave._release()
    assert opened(tmp_path, broker_role=BrokerRole.SLAVE).max_offset == 5 * FILE_SIZE


async def test_clean_stop_and_start(tmp_path):
    store = opened(tmp_path)
    assert (tmp_path / "abort").exists()
    store.put([put_message(body=bytes(9000))] * 20)
    end = store.max_offset
    await store.close()
    assert not (tmp_path / "abort").exists()
    assert (tmp_path / "lock").read_bytes() == b"lock"
    again = opened(tmp_path)
    assert (again.max_offset, again.flushed_offset, again.queue("T1", 0).max_offset) == (end, end, 20)
    (result,) = again.put([put_message()])
    assert (result.phy_offset, result.queue_offset) == (end, 20)


async def test_a_file_is_made_ahead(tmp_path, nursery):
    """Beside the log, not in it: RocketMQ does not start over a file that it does not know."""
    store = opened(tmp_path)
    await nursery.start(store.run)
    store.put([put_message(body=bytes(FILE_SIZE * 2 // 3))])
    with trio.fail_after(10):
        while store.commit_log.spare is None:
            await trio.sleep(0.001)
    spare = store.commit_log.spare
    assert spare.path == tmp_path / "twinlog" / "spare"
    store.put([put_message(body=bytes(FILE_SIZE * 2 // 3))])
    assert store.commit_log.files.files[-1] is spare
    nursery.cancel_scope.cancel()
    with trio.CancelScope(shield=True):
        await store.close()
    assert not (tmp_path / "twinlog" / "spare").exists()
    assert len(list((tmp_path / "commitlog").iterdir())) == 2


def test_a_spare_file_of_a_crash_is_no_obstacle(tmp_path):
    (tmp_path / "twinlog").mkdir()
    (tmp_path / "twinlog" / "spare").write_bytes(b"x")
    assert opened(tmp_path).writable
    assert not (tmp_path / "twinlog" / "spare").exists()


def test_one_process_at_a_time(tmp_path):
    """POSIX record locks hold between processes, so another one tries."""
    store = opened(tmp_path)
    ran = in_child(opened, tmp_path)
    assert StoreLockedError.__name__ in ran.stderr
    assert "in use by another broker" in ran.stderr
    assert store.writable


def test_other_file_sizes_are_refused_and_nothing_is_touched(tmp_path):
    store = opened(tmp_path)
    store.put([put_message()])
    store._release()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreDirectoryError, match="mappedFileSizeCommitLog"):
        opened(tmp_path, mapped_file_size_commit_log=2 * FILE_SIZE)
    assert sorted(tmp_path.rglob("*")) == before
    assert opened(tmp_path).max_offset > 0  # The lock was given back, too.


def in_child(function, root):
    """Call a function of this module in a process of its own, where limits may be set."""
    script = f"from pathlib import Path; from {__name__} import {function.__name__} as f; f(Path({str(root)!r}))"
    return subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, cwd=ROOT)


def limit_file_size():
    """From now on no file can be written beyond half a log file: to the store a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE // 2, resource.RLIM_INFINITY))


def fill_the_disk(root):
    store = opened(root)
    good = store.put([put_message(body=bytes(1000))] * 5)
    limit_file_size()
    failed = store.put([put_message(body=bytes(1000))] * 100)
    assert statuses(good) == [PutStatus.PUT_OK] * 5
    assert statuses(failed) == [PutStatus.CREATE_MAPPED_FILE_FAILED] * 100
    assert not store.writable
    assert "commit log failed" in store.why_not_writable
    assert statuses(store.put([put_message()])) == [PutStatus.SERVICE_NOT_AVAILABLE]
    store.dispatch_pending()
    assert store.get_message("T1", 0, 0, 9, None).message_count == 5
    trio.run(store.close)


def start_on_a_full_disk(root):
    limit_file_size()
    store = opened(root)
    assert statuses(store.put([put_message()])) == [PutStatus.CREATE_MAPPED_FILE_FAILED]
    assert not store.writable
    slave = opened(root / "slave", broker_role=BrokerRole.SLAVE)
    for data in (b"x" * 100, b"x"):
        with pytest.raises(StoreNotWritableError):
            slave.append_replicated(data, [])


def test_a_full_disk_makes_it_read_only(tmp_path):
    """The write that failed is refused, later ones too; what was stored before stays readable, after a restart as well."""
    ran = in_child(fill_the_disk, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "abort").exists()
    again = opened(tmp_path)
    assert again.get_message("T1", 0, 0, 9, None).message_count == again.queue("T1", 0).max_offset == 5


def test_a_log_file_that_cannot_be_made(tmp_path):
    """Its disk blocks are taken when it is made, so that is where a full disk shows."""
    ran = in_child(start_on_a_full_disk, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert list((tmp_path / "commitlog").iterdir()) == []


def test_a_queue_that_cannot_be_written(tmp_path):
    """Messages are stored, but could not be found: no more are taken."""
    store = opened(tmp_path)
    (tmp_path / "consumequeue" / "T1").write_text("a file where a directory should be")
    assert statuses(store.put([put_message()])) == [PutStatus.PUT_OK]
    store.dispatch_pending()
    assert not store.writable
    assert "consume queue" in store.why_not_writable
    assert store.dispatched_offset == 0


async def test_a_stop_without_the_last_queue_entries_is_not_clean(tmp_path):
    """The next start has to look for what the queues lack."""
    store = opened(tmp_path)
    (tmp_path / "consumequeue" / "T1").write_text("a file where a directory should be")
    store.put([put_message(), put_message("T2")])
    await store.close()
    assert (tmp_path / "abort").exists()
    (tmp_path / "consumequeue" / "T1").unlink()
    again = opened(tmp_path)
    assert (again.queue("T1", 0).max_offset, again.queue("T2", 0).max_offset) == (1, 1)


async def test_statistics(tmp_path):
    store = opened(tmp_path)
    store.put([put_message()] * 3)
    store.dispatch_pending()
    now = store.statistics()
    assert (now.put_messages, now.put_bytes) == (3, store.max_offset)
    assert (now.min_offset, now.max_offset, now.flushed_offset) == (0, store.max_offset, 0)
    assert (now.dispatched_offset, store.writable, now.why_not_writable) == (store.max_offset, True, "")
    await store.close()
