"""A store made from a backup is the one that was copied."""

import os
import shutil
from functools import partial
from pathlib import Path

import pytest
from attrs import evolve

from tests.helpers import log_bytes, put
from tests.store import golden
from tests.store.directories import FILE_SIZE, files, stopped
from tests.store.offline.killing import killed_at
from twinlog.store.log.checkpoint import Checkpoint
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.copy import manifest
from twinlog.store.offline.copy.backup import back_up
from twinlog.store.offline.copy.manifest import BackupError, BackupRefusedError
from twinlog.store.offline.copy.rebuild import INDEX, QUEUES
from twinlog.store.offline.copy.restore import WORK, restore
from twinlog.store.offline.directory import StoreDirectory


def backed_up(root: Path, target: Path) -> Path:
    with StoreDirectory.open(root) as directory:
        back_up(directory, target)
    return target


@pytest.fixture(params=golden.ALL, ids="-".join)
def captured(request, tmp_path):
    return golden.unpack(*request.param, tmp_path)


def test_what_is_restored_is_what_the_real_broker_had(captured, tmp_path):
    """Log, configuration, queues and index, byte for byte, and the times of the log's files."""
    restored = restore(backed_up(captured, tmp_path / "b"), tmp_path / "r")
    end = restored.manifest.end_offset
    logs = [b"".join(files(root / "commitlog").values()) for root in (captured, tmp_path / "r")]
    assert logs[0][:end] == logs[1][:end]
    assert files(tmp_path / "r/config") == files(captured / "config")
    assert list(files(tmp_path / "r" / INDEX).values()) == list(files(captured / INDEX).values())
    for name, content in files(captured / QUEUES).items():
        assert files(tmp_path / "r" / QUEUES)[name] == content
    for path in (tmp_path / "r/commitlog").iterdir():
        assert path.stat().st_mtime_ns == (captured / "commitlog" / path.name).stat().st_mtime_ns
    assert {path.name for path in (tmp_path / "r").iterdir()} == {
        *("commitlog", "config", QUEUES, INDEX, "checkpoint", "lock")
    }


def test_a_store_opens_from_it_as_after_a_clean_stop(captured, tmp_path):
    restored = restore(backed_up(captured, tmp_path / "b"), tmp_path / "r")
    checkpoint = Checkpoint(tmp_path / "r/checkpoint")
    checkpoint.load()
    assert checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp == restored.rebuilt.last_stored_ms
    assert 0 < checkpoint.index_msg_timestamp <= checkpoint.physic_msg_timestamp
    store = MessageStore(golden.config(tmp_path / "r"))
    store.load()
    try:
        assert (store.min_offset, store.max_offset) == (0, restored.manifest.end_offset)
        assert sum(queue.max_offset for _, _, queue in store.queues()) == restored.rebuilt.queue_messages
    finally:
        store._release()


def test_numbers_go_on_where_they_stood(tmp_path):
    """Of a queue whose messages were all deleted before the backup, too: consumers stand there."""
    root = stopped(tmp_path / "a")
    restore(backed_up(root, tmp_path / "b"), tmp_path / "r")
    store = MessageStore(
        golden.config(tmp_path / "r", mapped_file_size_commit_log=FILE_SIZE, mapped_file_size_consume_queue=6_000_000)
    )
    store.load()
    try:
        assert store.queue("Old", 0).max_offset == 3
        assert store.min_offset == FILE_SIZE
        end = store.max_offset
        put(store, b"new")
        store.dispatch_pending()
        assert store.queue("TopicTest", 0).max_offset == 101
        assert store.max_offset > end
        assert len(log_bytes(store)) == store.max_offset - FILE_SIZE
    finally:
        store._release()


@pytest.mark.parametrize("change", ["flip", "missing", "manifest", "config", "queue"])
def test_a_backup_that_changed_is_refused(change, tmp_path):
    backup = backed_up(stopped(tmp_path / "a"), tmp_path / "b")
    log = sorted((backup / "commitlog").iterdir())
    match change:
        case "flip":
            data = bytearray(log[0].read_bytes())
            data[9999] ^= 1
            log[0].write_bytes(data)
        case "missing":
            log[1].unlink()
        case "manifest":
            (backup / manifest.NAME).unlink()
        case "config":
            made = manifest.load(backup)
            strange = manifest.BackedUpFile(path="config/../../x", size=0, data_size=0, mtime_ns=0, xxh3_128="")
            shutil.rmtree(backup / "config", ignore_errors=True)
            manifest.save(evolve(made, files=(strange, *made.files)), backup)
        case "queue":
            path = backup / QUEUES / "Old/0" / f"{0:020d}"
            path.write_bytes(bytes(60))
    with pytest.raises(BackupError):
        restore(backup, tmp_path / "r")
    assert not (tmp_path / "r/commitlog").exists()
    assert not (tmp_path / "x").exists()


def test_a_directory_with_other_content_is_refused(tmp_path):
    backup = backed_up(stopped(tmp_path / "a"), tmp_path / "b")
    (tmp_path / "r").mkdir()
    (tmp_path / "r/mine").write_text("mine")
    with pytest.raises(BackupRefusedError, match="not empty"):
        restore(backup, tmp_path / "r")
    assert os.listdir(tmp_path / "r") == ["mine"]


def test_an_empty_store_can_be_restored(tmp_path):
    (tmp_path / "a/commitlog").mkdir(parents=True)
    restored = restore(backed_up(tmp_path / "a", tmp_path / "b"), tmp_path / "r")
    assert restored.rebuilt.records == 0
    store = MessageStore(golden.config(tmp_path / "r"))
    store.load()
    store._release()


def test_a_run_that_was_killed_is_finished_by_the_next(tmp_path, monkeypatch):
    """The process ends before any of the calls that change names or make them durable."""
    for name in ("fsync", "fdatasync"):  # Only where they are called counts here, and the disk is slow.
        monkeypatch.setattr(os, name, lambda _fd: None)
    backup = backed_up(stopped(tmp_path / "a"), tmp_path / "b")
    restore(backup, tmp_path / "r")
    expected = files(tmp_path / "r")
    steps = 0
    while killed_at(steps, partial(restore, backup, tmp_path / f"r{steps}"), monkeypatch, (Path, "rmdir")):
        restored = restore(backup, tmp_path / f"r{steps}")
        assert files(tmp_path / f"r{steps}") == expected, f"after step {steps}"
        assert not (tmp_path / f"r{steps}" / WORK).exists()
        assert restored.rebuilt.records == restored.manifest.records
        shutil.rmtree(tmp_path / f"r{steps}")
        steps += 1
    assert steps > 20
