"""Queues and index made anew are what RocketMQ and twinlog had, and no kill on the way loses anything."""

import os
import shutil
from pathlib import Path

import pytest

from tests.store import golden
from tests.store.directories import FILE_SIZE, files, stopped
from tests.store.offline.killing import killed_at
from twinlog.store.errors import StoreLockedError
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.copy.rebuild import INDEX, QUEUES, NothingToRebuildError, rebuild
from twinlog.store.offline.directory import DirectoryOptions
from twinlog.store.util.sync import take_lock

OPTIONS = DirectoryOptions()


@pytest.fixture(params=[(v, n) for v in golden.VERSIONS for n in golden.CLEAN], ids="-".join)
def captured(request, tmp_path):
    """A directory that a real broker left at a clean stop; it had all of its log."""
    return golden.unpack(*request.param, tmp_path)


def test_what_is_rebuilt_is_what_the_real_broker_had(captured):
    queues, index = files(captured / QUEUES), files(captured / INDEX)
    rebuilt = rebuild(captured, OPTIONS, queues=True, index=True)
    assert files(captured / QUEUES) == queues
    assert list(files(captured / INDEX).values()) == list(index.values())
    assert not (captured / "twinlog/rebuild").exists()
    assert rebuilt.queues == len({str(Path(name).parent) for name in queues})
    assert rebuilt.index_files == 2
    assert rebuilt.damaged_ranges == ()


def test_what_was_not_asked_for_stays(captured):
    before = {path: path.stat().st_mtime_ns for path in (captured / INDEX).iterdir()}
    shutil.rmtree(captured / QUEUES)
    rebuilt = rebuild(captured, OPTIONS, queues=True, index=False)
    assert {path: path.stat().st_mtime_ns for path in (captured / INDEX).iterdir()} == before
    assert (rebuilt.index_files, rebuilt.index_keys) == (None, None)
    assert len(files(captured / QUEUES)) == rebuilt.queues


def test_a_queue_files_time_is_that_of_its_last_message(captured):
    rebuilt = rebuild(captured, OPTIONS, queues=True, index=False)
    times = {path.stat().st_mtime_ns for path in (captured / QUEUES).rglob("*") if path.is_file()}
    assert max(times) <= rebuilt.last_stored_ms * 1_000_000
    assert len(times) > 1


def test_numbers_go_on_where_they_stood(tmp_path):
    """In a queue that begins behind the log's first file, and in one that no message of the log belongs to."""
    root = stopped(tmp_path / "a")
    rebuilt = rebuild(root, OPTIONS, queues=True, index=True)
    assert (rebuilt.queues, rebuilt.kept_queues) == (2, 1)
    store = MessageStore(
        golden.config(root, mapped_file_size_commit_log=FILE_SIZE, mapped_file_size_consume_queue=6_000_000)
    )
    store.load()
    try:
        assert store.queue("TopicTest", 0).max_offset == 100
        assert store.queue("TopicTest", 0).min_offset == 103 - rebuilt.records - 3
        assert store.queue("Old", 0).max_offset == 3
    finally:
        store._release()


def test_a_running_store_is_refused(tmp_path):
    root = stopped(tmp_path / "a")
    lock = take_lock(root / "lock")
    pid = os.fork()
    if pid == 0:  # pragma: no cover - a lock of this process would not stop itself
        try:
            rebuild(root, OPTIONS, queues=True, index=True)
        except StoreLockedError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    os.close(lock)
    assert not (root / "twinlog/rebuild").exists()


@pytest.mark.parametrize("content", [None, b""])
def test_queues_are_not_thrown_away_for_a_log_without_messages(content, tmp_path):
    root = stopped(tmp_path / "a")
    before = files(root / QUEUES)
    for path in (root / "commitlog").iterdir():
        path.unlink() if content is None else path.write_bytes(bytes(FILE_SIZE))
    with pytest.raises(NothingToRebuildError):
        rebuild(root, OPTIONS, queues=True, index=True)
    assert files(root / QUEUES) == before


def test_a_run_that_was_killed_is_made_good_by_the_next(tmp_path, monkeypatch):
    """The process ends before any of the calls that change names or make them durable."""
    for name in ("fsync", "fdatasync"):  # Only where they are called counts here, and the disk is slow.
        monkeypatch.setattr(os, name, lambda _fd: None)
    root = stopped(tmp_path / "a")
    rebuild(root, OPTIONS, queues=True, index=True)
    expected = files(root / QUEUES), files(root / INDEX)
    steps = 0
    while killed_at(steps, lambda: rebuild(root, OPTIONS, queues=True, index=True), monkeypatch, (shutil, "rmtree")):
        rebuild(root, OPTIONS, queues=True, index=True)
        assert (files(root / QUEUES), files(root / INDEX)) == expected, f"after step {steps}"
        assert not (root / "twinlog/rebuild").exists()
        steps += 1
    assert (files(root / QUEUES), files(root / INDEX)) == expected
    assert steps > 20
