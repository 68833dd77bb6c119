"""Group commit: producers are answered when their bytes are on disk, and refused when the disk refuses."""

import errno
import os
import threading
from contextlib import asynccontextmanager, contextmanager

import pytest
import trio
import trio.testing

from tests.store.message_stores import settled
from tests.store.records import put_message
from tests.store.sinks import Sink
from twinlog.store.config import FlushDiskType, StoreConfig
from twinlog.store.log.checkpoint import Checkpoint
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.message_store import MessageStore
from twinlog.store.services import flush

SYNC = {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "mapped_file_size_commit_log": 1 << 16}


@asynccontextmanager
async def running(root, **options):
    """A store whose services run."""
    store = MessageStore(StoreConfig(root=root, **{**SYNC, **options}))
    store.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield store
        nursery.cancel_scope.cancel()
    await store.close()


def put_and_wait(store, sink, frame=b"ok", **message):
    (result,) = store.put([put_message(**message)])
    assert result.status is PutStatus.PUT_OK
    store.flusher.wait(result.end_offset, sink, frame)
    return result.end_offset


@contextmanager
def broken_fdatasync(file):
    """Make fdatasync of a file fail: its descriptor is a pipe for now, which cannot be synced."""
    reader, writer = os.pipe()
    kept = os.dup(file.fd)
    os.dup2(writer, file.fd)
    yield
    os.dup2(kept, file.fd)
    for fd in (reader, writer, kept):
        os.close(fd)


async def test_an_answer_means_on_disk(tmp_path):
    async with running(tmp_path) as store:
        sink = Sink()
        end = put_and_wait(store, sink)
        assert sink.answered == []
        await settled(lambda: sink.answered)
        assert sink.answered == [[b"ok"]]
        assert store.flushed_offset == end == store.max_offset
        store.flusher.wait(end, sink, b"again")  # On disk already: no need to wait.
        assert sink.answered == [[b"ok"], [b"again"]]


async def test_requests_share_a_flush_and_listeners_are_told(tmp_path, monkeypatch):
    """No producer waits here: the log is synced on request, once for all requests that came meanwhile."""
    calls, told = [], []
    may_go_on = threading.Event()
    fdatasync = os.fdatasync

    def slow_sync(fd):
        if os.fstat(fd).st_ino == inode:
            calls.append(fd)
            may_go_on.wait(10)
        fdatasync(fd)

    async with running(tmp_path, flush_commit_log_least_pages=1 << 20) as store:
        (first,) = store.put([put_message()])
        inode = store.commit_log.files.files[0].path.stat().st_ino
        monkeypatch.setattr(os, "fdatasync", slow_sync)
        store.flusher.on_flushed.append(lambda: told.append(store.flushed_offset))
        store.flusher.request()
        await settled(lambda: calls)
        for _ in range(5):
            (last,) = store.put([put_message()])
            store.flusher.request()
        assert (told, len(calls)) == ([], 1)
        may_go_on.set()
        await settled(lambda: len(told) == 2)
        assert told == [first.end_offset, last.end_offset]
        assert len(calls) == 2
        store.flusher.request()  # Of nothing new nobody is told.
        await trio.testing.wait_all_tasks_blocked()
        assert len(told) == 2


async def test_a_request_is_kept_where_the_disk_could_not_even_be_asked(tmp_path, monkeypatch):
    """Without descriptors nothing is flushed for now, which is no reason to give up, nor to forget who asked."""
    failures = [OSError(errno.EMFILE, "too many open files")]
    dup = os.dup
    async with running(tmp_path, flush_commit_log_least_pages=1 << 20, flush_interval_commit_log_ms=10) as store:
        (result,) = store.put([put_message()])
        monkeypatch.setattr(os, "dup", lambda fd: (_ for _ in ()).throw(failures.pop()) if failures else dup(fd))
        store.flusher.request()
        await settled(lambda: store.flushed_offset == result.end_offset)
        assert not failures


async def test_one_flush_answers_all_who_came_before_it(tmp_path, monkeypatch):
    calls = []
    fdatasync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (calls.append(fd), fdatasync(fd)))
    async with running(tmp_path) as store:
        calls.clear()
        one, two = Sink(), Sink()
        for number in range(20):
            put_and_wait(store, (one, two)[number % 2], b"%d" % number)
        await settled(lambda: one.answered and two.answered)
        assert one.answered == [[b"%d" % n for n in range(0, 20, 2)]]
        assert two.answered == [[b"%d" % n for n in range(1, 20, 2)]]
        assert len(calls) == 1


async def test_all_files_that_a_batch_reached_are_flushed(tmp_path):
    async with running(tmp_path) as store:
        sink = Sink()
        put_and_wait(store, sink, body=bytes(40_000))
        put_and_wait(store, sink, body=bytes(40_000))
        await settled(lambda: sum(map(len, sink.answered)) == 2)
        assert store.flushed_offset == store.max_offset
        assert [file.flushed for file in store.commit_log.files.files] == [
            file.wrote for file in store.commit_log.files.files
        ]


async def jump(clock, seconds):
    """Let this time pass, and let every task notice."""
    clock.jump(seconds)
    await trio.testing.wait_all_tasks_blocked()


async def test_who_waits_too_long_is_told_so(tmp_path, mock_clock):
    """No flush comes along: after syncFlushTimeout the message counts as stored, not as flushed."""
    store = MessageStore(StoreConfig(root=tmp_path, **SYNC, sync_flush_timeout_ms=5000))
    store.load()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.flusher._expire)
        await jump(mock_clock, 1)
        sink = Sink()
        put_and_wait(store, sink, b"1")
        await jump(mock_clock, 4)
        put_and_wait(store, sink, b"2")
        assert sink.refused == []
        await jump(mock_clock, 1.5)
        assert [(frames, status) for frames, status, _ in sink.refused] == [([b"1"], PutStatus.FLUSH_DISK_TIMEOUT)]
        assert "syncFlushTimeout=5000" in sink.refused[0][2]
        await store.flusher.flush()
        assert sink.answered == [[b"2"]]
        put_and_wait(store, sink, b"3")
        await jump(mock_clock, 5.5)
        await jump(mock_clock, 5.5)
        assert sink.refused[1][0] == [b"3"]
        nursery.cancel_scope.cancel()
    await store.close()


async def test_a_disk_that_refuses_ends_it(tmp_path):
    """Producers are refused, the store takes nothing more, and no second fdatasync may claim that all is well."""
    store = MessageStore(StoreConfig(root=tmp_path, **SYNC))
    store.load()
    sink = Sink()
    put_and_wait(store, sink, b"before")
    await store.flusher.flush()
    put_and_wait(store, sink, b"1")
    put_and_wait(store, sink, b"2")
    flushed = store.flushed_offset
    with broken_fdatasync(store.commit_log.files.files[-1]):
        await store.flusher.flush()
    assert sink.answered == [[b"before"]]
    ((frames, status, reason),) = sink.refused
    assert (frames, status) == ([b"1", b"2"], PutStatus.FLUSH_DISK_TIMEOUT)
    assert "fdatasync" in reason
    assert not store.writable
    assert store.why_not_writable == reason
    assert [r.status for r in store.put([put_message()])] == [PutStatus.SERVICE_NOT_AVAILABLE]
    store.flusher.wait(store.max_offset, sink, b"later")
    assert sink.refused[-1][0] == [b"later"]
    await store.flusher.flush()
    assert store.flushed_offset == flushed
    await store.close()
    assert (tmp_path / "abort").exists()


async def test_no_second_sync_while_one_is_under_way(tmp_path, monkeypatch):
    """The kernel reports lost bytes to one of two; the other one would answer producers for them."""
    store = MessageStore(StoreConfig(root=tmp_path, **SYNC))
    store.load()
    sink, calls, told = Sink(), [], threading.Event()
    put_and_wait(store, sink, b"1")

    def fdatasync(fd):
        calls.append(fd)
        if len(calls) == 1:
            told.wait()
            raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.flusher.flush)
        await settled(lambda: calls)
        put_and_wait(store, sink, b"2")
        nursery.start_soon(store.flusher.flush)
        await trio.testing.wait_all_tasks_blocked()
        told.set()
    assert [frames for frames, _, _ in sink.refused] == [[b"1", b"2"]]
    assert (sink.answered, store.flushed_offset, len(calls)) == ([], 0, 1)
    store._release()


async def test_the_flush_task_stops_when_the_disk_refuses(tmp_path):
    async with running(tmp_path, flush_interval_commit_log_ms=1) as store:
        sink = Sink()
        put_and_wait(store, sink)
        await settled(lambda: sink.answered)
        store.put([put_message()])
        with broken_fdatasync(store.commit_log.files.files[-1]):
            store.flusher.wait(store.max_offset, sink, b"x")
            await settled(lambda: sink.refused)
        assert not store.writable
        assert store.sync_errors == 1
        assert sum(store.flusher.times.counts) >= 1, "only those that succeeded are timed"


async def test_without_waiters_the_log_is_flushed_by_and_by(tmp_path, mock_clock):
    """Four dirty pages at the next round, less after flushCommitLogThoroughInterval; the checkpoint learns of it."""
    async with running(tmp_path, flush_disk_type=FlushDiskType.ASYNC_FLUSH) as store:
        await trio.testing.wait_all_tasks_blocked()
        store.put([put_message(body=bytes(100))])
        for _ in range(10):
            await jump(mock_clock, 0.5)
        assert store.flushed_offset == 0
        store.put([put_message(body=bytes(4 * 4096))])
        await jump(mock_clock, 0.5)
        await settled(lambda: store.flushed_offset == store.max_offset)
        store.put([put_message(body=bytes(100))])
        for _ in range(20):
            await jump(mock_clock, 0.5)
        await settled(lambda: store.flushed_offset == store.max_offset)
        checkpoint, newest = Checkpoint(tmp_path / "checkpoint"), store.flusher.last_store_timestamp
        await jump(mock_clock, 61)

        def has_both():
            checkpoint.load()
            return checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp == newest

        await settled(has_both)


async def test_queues_that_cannot_be_flushed_end_it_too(tmp_path):
    store = MessageStore(StoreConfig(root=tmp_path, **SYNC))
    store.load()
    store.put([put_message()])
    store.dispatch_pending()
    with broken_fdatasync(store.queue("T1", 0).files.files[0]):
        assert not await store._parts.queue_flusher.flush(thorough=True)
    assert "consume queues" in store.why_not_writable
    await store.close()
    assert (tmp_path / "abort").exists()
    assert not (tmp_path / "checkpoint").exists()  # It would vouch for units that may be lost.


@pytest.mark.parametrize("kind", list(FlushDiskType))
async def test_synchronous_or_not(tmp_path, kind):
    store = MessageStore(StoreConfig(root=tmp_path, flush_disk_type=kind, mapped_file_size_commit_log=1 << 16))
    assert store.flusher.is_synchronous == (kind is FlushDiskType.SYNC_FLUSH)


async def test_an_answer_covers_the_name_of_a_new_file(tmp_path, monkeypatch):
    """What is synced before a message behind a roll-over is answered: its bytes, and the directory that names its file."""
    events = []

    class NotingSink(Sink):
        def answer(self, frames):
            events.append(frames)

    def noting(call):
        def note(fd):
            call(fd)
            events.append((call.__name__, os.fstat(fd).st_ino))

        return note

    async def events_of(body):
        events.clear()
        put_and_wait(store, NotingSink(), b"ok", body=body)
        await settled(lambda: [b"ok"] in events)
        return events[: events.index([b"ok"])]

    for name in ("fdatasync", "fsync"):
        monkeypatch.setattr(os, name, noting(getattr(os, name)))
    async with running(tmp_path, flush_interval_consume_queue_ms=100_000) as store:
        for number in range(4):  # Each in a file of its own.
            before = await events_of(bytes(40_000))
            path = tmp_path / "commitlog" / f"{number * (1 << 16):020}"
            data, name = ("fdatasync", path.stat().st_ino), ("fsync", path.parent.stat().st_ino)
            assert data in before
            assert name in before
            assert store.flushed_offset == store.max_offset
            before = await events_of(b"another in the same file")
            assert data in before
            assert name not in before


async def test_a_queue_file_that_is_deleted_meanwhile(tmp_path, monkeypatch):
    """Retention closes it while others are synced. That is no failure of the disk."""
    store = MessageStore(StoreConfig(root=tmp_path, mapped_file_size_commit_log=1 << 16))
    store.load()
    store.put([put_message(queue_id=queue_id) for queue_id in range(2)])
    store.dispatch_pending()
    deleted = store.queue("T1", 1).files.files[0]
    synced = []

    def sync_data(fd):
        if not synced:
            deleted.close()
        synced.append(fd)
        os.fdatasync(fd)

    monkeypatch.setattr(flush, "sync_data", sync_data)
    assert await store._parts.queue_flusher.flush(thorough=True)
    assert len(synced) >= 2
    assert store.writable
    monkeypatch.undo()
    store.queue("T1", 1).files.files.clear()
    await store.close()


def test_many_queues_have_recovery_points_further_apart():
    """As far as a start still takes what follows a point for ours."""
    mib = 1 << 20
    assert [flush.point_distance(256 * mib, queues) // mib for queues in (0, 8, 5_000, 10_000, 1_000_000)] == [
        256, 256, 512, 768, 768,
    ]  # fmt: skip
