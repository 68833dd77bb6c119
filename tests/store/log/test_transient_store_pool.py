"""Write buffers: what is on disk in the end, who sees what before, and what becomes of it when something goes wrong."""

import errno
import os
import threading

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store import golden
from tests.store.records import HOST_V6, put_message
from twinlog.store.config import BrokerRole, FlushDiskType, StoreConfig
from twinlog.store.hooks import StoreHooks
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.log.running_flags import StoreCondition
from twinlog.store.log.transient_store_pool import TransientStorePool
from twinlog.store.message_store import MessageStore
from twinlog.store.read.get_message import GetStatus
from twinlog.store.record.message import decode_message

LOG_FILE = 1 << 16
NOW_MS = 1_700_000_000_000


def open_store(root, *, pool=True, **options):
    settings = {"mapped_file_size_commit_log": LOG_FILE, "mapped_file_size_consume_queue": 400, **options}
    config = StoreConfig(root=root, transient_store_pool_enable=pool, **settings)
    store = MessageStore(config, StoreHooks(now_ms=lambda: NOW_MS, disk_usage=lambda _: 0.1))
    store.load()
    return store


def content(root):
    return golden.log_files(root / "commitlog"), golden.queue_files(root)


def bodies(store, topic="T1", queue_id=0):
    store.dispatch_pending()
    queue = store.queue(topic, queue_id)
    return [decode_message(store.message_at(queue.unit(n).phy_offset)).body for n in range(queue.max_offset)]


sizes = st.one_of(st.integers(0, 300), st.integers(0, 20_000), st.integers(LOG_FILE - 300, LOG_FILE - 100))
batch = st.tuples(st.lists(sizes, min_size=1, max_size=6), st.booleans(), st.booleans())
step = st.one_of(batch, st.just("commit"), st.just("dispatch"), st.just("thread"))


@settings(max_examples=60, deadline=None)
@given(st.lists(step, max_size=25))
def test_the_bytes_on_disk_are_those_of_a_log_without_buffers(tmp_path_factory, steps):
    """Batches of any size, over ends of files, committed at any time; every producer gets the same place."""
    root = tmp_path_factory.mktemp("s")

    async def play():
        plain, buffered = open_store(root / "plain", pool=False), open_store(root / "buffered")
        for number, what in enumerate(steps):
            if what == "commit":
                buffered.commit_pending()
            elif what == "dispatch":
                buffered.dispatch_pending()
            elif what == "thread":
                await buffered.commit_log.pending.commit_in_thread()
                buffered._putter.committed()
            else:
                lengths, together, v6 = what
                more = {"born_host": HOST_V6} if v6 else {}
                messages = [
                    put_message(f"T{number % 3}", bytes([number]) * length, queue_id=n % 2, **more)
                    for n, length in enumerate(lengths)
                ]
                assert buffered.put(messages, together=together) == plain.put(messages, together=together)
                assert buffered.max_offset + buffered.commit_log.pending.size == plain.max_offset
        for store in (plain, buffered):
            await store.close()

    trio.run(play)
    assert content(root / "buffered") == content(root / "plain")
    assert not (root / "buffered" / "abort").exists()


async def test_only_what_is_committed_is_seen(tmp_path, autojump_clock):
    store = open_store(tmp_path)
    store.put([put_message("T1", b"first")])
    appended = []
    store.appended.append(lambda: appended.append(store.max_offset))
    (result,) = store.put([put_message("T1", b"second")])
    store.dispatch_pending()
    assert (result.status, result.queue_offset) == (PutStatus.PUT_OK, 1)
    assert store.max_offset == result.phy_offset == store.dispatched_offset
    assert store.message_at(result.phy_offset) is None
    assert store.commit_log.chunk(result.phy_offset, 100) is None
    assert store.get_message("T1", 0, 1, 32, None).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert appended == []
    store.commit_pending()
    assert bodies(store) == [b"first", b"second"]
    assert store.max_offset == result.end_offset
    assert appended == [result.end_offset]
    await store.close()


async def test_a_clean_stop_commits_all_and_kill_9_loses_the_rest(tmp_path, autojump_clock):
    for stop_cleanly in (True, False):
        store = open_store(tmp_path)
        store.put([put_message("T1", b"written")])
        store.commit_pending()
        store.put([put_message("T1", b"pending")])
        if stop_cleanly:
            await store.close()
        else:
            store._release()
    store = open_store(tmp_path)
    assert bodies(store) == [b"written", b"pending", b"written"]
    assert store.put([put_message("T1")])[0].queue_offset == 3
    await store.close()


async def test_messages_are_committed_in_time(tmp_path, nursery):
    """One message within commitCommitLogThoroughInterval, many pages at once."""
    store = open_store(tmp_path, commit_commit_log_thorough_interval_ms=50, commit_interval_commit_log_ms=50)
    arrived = trio.Event()
    store.on_arrival.append(lambda *_: arrived.set())
    await nursery.start(store.run)
    began = trio.current_time()
    store.put([put_message("T1", b"small")])
    with trio.fail_after(10):
        await arrived.wait()
    assert trio.current_time() - began >= 0.04 or store.max_offset
    store._putter.committer.thorough_interval_ms = store._putter.committer.interval_ms = 10_000_000
    store.put([put_message("T1", b"x" * 5000)])
    await trio.sleep(0.2)
    assert store.commit_log.pending.size > 5000, "less than 4 pages wait"
    arrived = trio.Event()
    store.on_arrival.append(lambda *_: arrived.set())
    store.put([put_message("T1", b"y" * 15_000)])
    with trio.fail_after(10):
        await arrived.wait()
    assert [len(body) for body in bodies(store)] == [5, 5000, 15_000]
    nursery.cancel_scope.cancel()


async def test_bytes_that_come_while_a_thread_writes_stay_pending(tmp_path, monkeypatch, nursery):
    """Also when its file ends meanwhile: the buffer is not given away before the thread is done with it."""
    store = open_store(tmp_path, transient_store_pool_size=1)
    pending, go, real = store.commit_log.pending, threading.Event(), os.pwrite
    store.put([put_message("T1", b"zero!" * 6000)])  # Makes the file.

    def slow(fd, data, position):
        if threading.current_thread() is not threading.main_thread():
            go.wait(10)
        return real(fd, data, position)

    monkeypatch.setattr(os, "pwrite", slow)
    store.put([put_message("T1", b"one")])
    nursery.start_soon(pending.commit_in_thread)
    await trio.testing.wait_all_tasks_blocked(0.01)
    store.put([put_message("T1", b"two")])
    assert pending.pool.available == 0
    store.put([put_message("T1", b"big!" * 10_000)])
    store.put([put_message("T1", b"three")])  # The only buffer is not free: written at once.
    assert pending.size == 0
    assert pending.pool.available == 0
    go.set()
    with trio.fail_after(5):
        while pending.pool.available == 0:
            await trio.sleep(0.001)
    (result,) = store.put([put_message("T1", b"four")])
    assert result.status is PutStatus.PUT_OK, store.why_not_writable
    assert pending.size > 0
    store.commit_pending()
    assert [body[:5] for body in bodies(store)] == [b"zero!", b"one", b"two", b"big!b", b"three", b"four"]
    await store.close()
    assert bodies(open_store(tmp_path))[-1] == b"four"


@pytest.mark.parametrize("fast_fail", [False, True])
async def test_without_a_free_buffer(tmp_path, autojump_clock, fast_fail):
    """Messages are written at once, or refused: the next one may well be taken."""
    store = open_store(tmp_path, transient_store_pool_size=1, fast_fail_if_no_buffer_in_store_pool=fast_fail)
    store.put([put_message("T1", b"zero")])
    buffer = store.commit_log.pending.pool.borrow()
    (result,) = store.put([put_message("T1", b"one")])
    if fast_fail:
        assert result.status is PutStatus.CREATE_MAPPED_FILE_FAILED
        assert store.writable
    else:
        assert (result.status, store.max_offset) == (PutStatus.PUT_OK, result.end_offset)
    store.commit_log.pending.pool.give_back(buffer)
    (result,) = store.put([put_message("T1", b"two")])
    assert (result.status, result.queue_offset) == (PutStatus.PUT_OK, 1 if fast_fail else 2)
    store.commit_pending()
    assert bodies(store) == [b"zero", b"two"] if fast_fail else [b"zero", b"one", b"two"]
    await store.close()


async def test_a_full_disk_keeps_what_is_pending(tmp_path, monkeypatch, autojump_clock):
    """Producers were answered for these messages: they are written once there is room."""
    store = open_store(tmp_path)
    store.put([put_message("T1", b"zero")])
    store.put([put_message("T1", b"one")])
    real, full = os.pwrite, [True]

    def pwrite(fd, data, position):
        if full[0]:
            real(fd, bytes(data)[:7], position)
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    store.commit_pending()
    assert StoreCondition.DISK_REFUSES in store.flags
    assert store.put([put_message("T1", b"refused")])[0].status is PutStatus.SERVICE_NOT_AVAILABLE
    before = store.max_offset
    await store._parts.refusal._try_again()
    assert store.max_offset == before
    full[0] = False
    await store._parts.refusal._try_again()
    assert store.writable
    store.put([put_message("T1", b"two")])
    store.commit_pending()
    assert bodies(store) == [b"zero", b"one", b"two"]
    await store.close()


async def test_memory_is_given_back_and_nothing_with_it(tmp_path, autojump_clock):
    store = open_store(tmp_path, mapped_file_size_commit_log=16 << 20)
    sent = [os.urandom(300_000) for _ in range(40)]
    for number, body in enumerate(sent):
        store.put([put_message("T1", body)])
        if number % 3 == 0:
            store.commit_pending()
    pending = store.commit_log.pending
    assert pending._given_back > 8 << 20
    store.commit_pending()
    assert bodies(store) == sent
    await store.close()


@pytest.mark.parametrize(
    ("options", "buffers"),
    [
        ({}, True),
        ({"broker_role": BrokerRole.SYNC_MASTER}, True),
        ({"broker_role": BrokerRole.SLAVE}, False),
        ({"flush_disk_type": FlushDiskType.SYNC_FLUSH}, False),
    ],
)
async def test_where_buffers_are_used(tmp_path, autojump_clock, options, buffers):
    store = open_store(tmp_path, **options)
    assert (store.commit_log.pending is not None) == buffers
    await store.close()


def test_a_pool_has_so_many_buffers():
    pool = TransientStorePool(2, 8192)
    first, second = pool.borrow(), pool.borrow()
    assert (len(first), pool.borrow(), pool.available) == (8192, None, 0)
    second[:5] = b"hello"
    pool.give_back(second)
    assert pool.borrow()[:5] == bytes(5)
