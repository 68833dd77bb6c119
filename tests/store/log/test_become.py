"""A store that becomes a master's or a slave's while it runs."""

import pytest
import trio

from tests.helpers import log_bytes, open_store, put, replicate
from tests.store.records import put_message
from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.errors import StoreError, StoreNotWritableError
from twinlog.store.hooks import StoreHooks
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.log.running_flags import StoreCondition
from twinlog.store.log.transient_store_pool import UncommittedEnd
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.record.scan import scan_records

SYNC, SLAVE = BrokerRole.SYNC_MASTER, BrokerRole.SLAVE


def pair(tmp_path, count=20):
    """A master's store, and a slave's with the same log."""
    master, slave = open_store(tmp_path / "master"), open_store(tmp_path / "slave", role=SLAVE)
    put(master, *(b"%d" % number * 100 for number in range(count)))
    replicate(slave, log_bytes(master))
    return master, slave


def queue_offsets(store):
    store.dispatch_pending()
    return {(topic, queue_id): queue.max_offset for topic, queue_id, queue in store.queues()}


async def test_a_slave_goes_on_where_its_master_ended(tmp_path):
    """Queue offsets continue: none is given twice, none is left out."""
    master, slave = pair(tmp_path)
    await slave.become_master(SYNC)
    assert (slave.config.broker_role, slave.writable) == (SYNC, True)
    (result,) = slave.put([put_message(topic="TopicTest", queue_id=0)])
    assert (result.status, result.queue_offset, result.phy_offset) == (PutStatus.PUT_OK, 20, master.max_offset)
    assert queue_offsets(slave) == {("TopicTest", 0): 21}


async def test_what_is_not_in_the_queues_yet_is_brought_there_first(tmp_path):
    master, slave = pair(tmp_path)
    put(master, b"last")
    new = log_bytes(master)[slave.max_offset :]
    scan = scan_records(new, slave.max_offset, slave.commit_log.file_size, check_crc=True)
    before = slave.statistics()
    slave.append_replicated(memoryview(new), scan.entries)
    counted = slave.statistics()  # As RocketMQ's slaves count.
    assert counted.put_messages - before.put_messages == len(scan.entries)
    assert counted.put_bytes - before.put_bytes == len(new)
    await slave.become_master(SYNC)
    (result,) = slave.put([put_message(topic="TopicTest", queue_id=0)])
    assert result.queue_offset == 21


async def test_a_master_of_yesterday_takes_replicated_bytes_only(tmp_path):
    master, other = pair(tmp_path)
    master.become_slave()
    assert (master.config.broker_role, master.writable) == (SLAVE, False)
    assert master.put([put_message()])[0].status is PutStatus.SERVICE_NOT_AVAILABLE
    await other.become_master(SYNC)
    end = master.max_offset
    put(other, b"by the new master")
    replicate(master, log_bytes(other)[end:])
    assert log_bytes(master) == log_bytes(other)
    await master.truncate(end, "a test")
    assert master.max_offset == end
    with pytest.raises(StoreError):
        await other.truncate(end, "a test")
    with pytest.raises(StoreNotWritableError):
        other.append_replicated(memoryview(b""), [])


async def test_to_and_fro(tmp_path):
    """Both calls may come again for the role that is there already."""
    _, store = pair(tmp_path)
    for number in range(3):
        await store.become_master(SYNC)
        await store.become_master(SYNC)
        (result,) = store.put([put_message(topic="TopicTest", queue_id=0)])
        assert result.queue_offset == 20 + number
        store.become_slave()
        store.become_slave()
    await store.close()
    again = open_store(tmp_path / "slave")
    assert queue_offsets(again) == {("TopicTest", 0): 23}


async def test_a_log_that_takes_no_bytes_is_no_masters(tmp_path):
    _, store = pair(tmp_path)
    store.flags.set(StoreCondition.FAILED, "the disk refused some")
    with pytest.raises(StoreError, match="the disk refused some"):
        await store.become_master(SYNC)
    assert store.config.broker_role is SLAVE


async def test_queues_that_stand_still_are_no_masters(tmp_path, monkeypatch):
    """Offsets of messages that are not in their queues yet would be given again."""
    master, slave = pair(tmp_path)

    def refuse(_self, _entries):
        raise OSError(28, "No space left on device")

    put(master, b"last")
    monkeypatch.setattr(ConsumeQueueTable, "put", refuse)
    replicate(slave, log_bytes(master)[slave.max_offset :])
    with pytest.raises(StoreError, match="cannot be a master's"):
        await slave.become_master(SYNC)
    assert slave.config.broker_role is SLAVE


# With write buffers


@pytest.fixture
def buffered(tmp_path):
    sizes = {"mapped_file_size_commit_log": 1 << 16, "mapped_file_size_consume_queue": 400}
    config = StoreConfig(root=tmp_path / "buffered", transient_store_pool_enable=True, **sizes)
    store = MessageStore(config, StoreHooks(disk_usage=lambda _: 0.1))
    store.load()
    yield store
    store._release()


async def test_what_lies_in_a_buffer_is_written_first(buffered, tmp_path):
    """Its producers were answered. Afterwards the log's end belongs to the new master's bytes."""
    put(buffered, b"1")
    put(buffered, b"2")  # The first one of a file is written at once.
    assert buffered.commit_log.pending.size
    buffered.become_slave()
    assert queue_offsets(buffered) == {("TopicTest", 0): 2}
    other = open_store(tmp_path / "other", file_size=1 << 16, role=SLAVE)
    replicate(other, log_bytes(buffered))
    await other.become_master(SYNC)
    end = buffered.max_offset
    put(other, b"3")
    replicate(buffered, log_bytes(other)[end:])
    await buffered.become_master(BrokerRole.ASYNC_MASTER)
    put(buffered, b"4")
    assert buffered.max_offset == other.max_offset, "it is in a buffer again"
    buffered.commit_pending()
    assert queue_offsets(buffered) == {("TopicTest", 0): 4}
    assert len(log_bytes(buffered)) == len(log_bytes(other)) + (len(log_bytes(other)) - end)


async def test_what_the_disk_refuses_is_given_up(buffered, monkeypatch):
    """It was in memory only, as in a crash. Nothing of it may come up behind the new master's bytes."""
    put(buffered, b"1")
    buffered.commit_pending()
    end = buffered.max_offset
    put(buffered, b"lost")

    def refuse(_self):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(UncommittedEnd, "commit", refuse)
        buffered.become_slave()
    assert (buffered.max_offset, buffered.commit_log.pending) == (end, None)
    buffered._putter.committed()
    assert queue_offsets(buffered) == {("TopicTest", 0): 1}


async def test_a_thread_that_writes_a_buffer_is_waited_for_before_a_cut(buffered):
    """What it writes late would come back behind the cut."""
    put(buffered, b"1")
    buffered.commit_pending()
    end = buffered.max_offset
    put(buffered, b"2")
    committer = buffered._putter.committer
    order = []
    async with trio.open_nursery() as nursery:
        await committer.writing.acquire()
        buffered.become_slave()

        async def cut():
            await buffered.truncate(end, "a test")
            order.append("cut")

        nursery.start_soon(cut)
        await trio.testing.wait_all_tasks_blocked()
        order.append("written")
        committer.writing.release()
    assert order == ["written", "cut"]
    assert buffered.max_offset == end
