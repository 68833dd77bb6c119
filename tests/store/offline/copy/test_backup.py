"""A backup is complete, describes itself, and does not disturb a running broker."""

import errno
import os
from pathlib import Path

import pytest

from tests.helpers import log_bytes, open_store, put
from tests.store import golden
from tests.store.directories import times_and_names
from tests.store.offline.killing import Killed
from tests.store.records import put_message
from twinlog.store.config import StoreConfig
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.copy import manifest
from twinlog.store.offline.copy.backup import UNFINISHED, back_up
from twinlog.store.offline.copy.manifest import BackupError, BackupRefusedError, load
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.queue.layout import UNIT

FILE_SIZE = 16_384


def backup_of(root: Path, target: Path, progress=lambda _done, _total: None):
    with StoreDirectory.open(root) as directory:
        return back_up(directory, target, progress)


def copied_log(target: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((target / "commitlog").iterdir()))


def filled(root: Path, messages: int = 100, size: int = 500) -> MessageStore:
    """A store with some log files, its queues dispatched."""
    store = open_store(root, file_size=FILE_SIZE)
    put(store, *(bytes([65 + i % 26]) * size for i in range(messages)))
    store.dispatch_pending()
    return store


@pytest.mark.parametrize(("version", "name"), golden.ALL)
def test_a_captured_store_is_copied_whole_and_not_touched(version, name, tmp_path):
    root, target = golden.unpack(version, name, tmp_path), tmp_path / "backup"
    before = times_and_names(root)
    made = backup_of(root, target)
    assert times_and_names(root) == before
    assert made == load(target)
    assert {file.path for file in made.files} == {
        str(path.relative_to(target)) for path in target.rglob("*") if path.is_file() and path.name != manifest.NAME
    }
    for file in made.files:
        there, here = root / file.path, target / file.path
        assert here.stat().st_mtime_ns == there.stat().st_mtime_ns == file.mtime_ns
        assert here.stat().st_size == there.stat().st_size == file.size
        assert here.read_bytes() == there.read_bytes()
    assert {path.name for path in (root / "config").iterdir()} == {path.name for path in (target / "config").iterdir()}
    assert (made.min_offset, made.damage, made.source.was_running) == (0, (), False)
    assert made.source.writer == ("rocketmq-4" if version == "4.9.7" else "rocketmq-5")
    assert made.end_offset == {"4.9.7": 269_484, "5.3.3": 271_773 if name == golden.RUNNING else 276_078}[version]


def test_the_zero_rest_of_a_file_takes_no_room(tmp_path):
    store = MessageStore(StoreConfig(root=tmp_path / "a", mapped_file_size_commit_log=64 << 20))
    store.load()
    put(store, b"x")
    backup_of(tmp_path / "a", tmp_path / "b")
    (copy,) = (tmp_path / "b/commitlog").iterdir()
    assert copy.stat().st_size == 64 << 20
    assert copy.stat().st_blocks * 512 < 1 << 20


def test_what_is_stored_while_it_runs_is_left_out_or_whole(tmp_path):
    """The log goes on growing: the copy ends behind a whole record that was there when its end was looked for."""
    store = filled(tmp_path / "a")
    acknowledged = store.max_offset
    made = backup_of(tmp_path / "a", tmp_path / "b", lambda *_: put(store, b"more" * 200))
    assert store.max_offset > acknowledged
    assert made.end_offset == acknowledged
    assert made.source.was_running
    assert copied_log(tmp_path / "b")[:acknowledged] == log_bytes(store)[:acknowledged]
    assert not copied_log(tmp_path / "b")[acknowledged:].strip(b"\0")
    assert made.records == 100


def test_files_that_retention_deletes_meanwhile_are_copied_all_the_same(tmp_path):
    store = filled(tmp_path / "a")
    whole = log_bytes(store)
    first = tmp_path / "a/commitlog" / f"{0:020d}"
    made = backup_of(tmp_path / "a", tmp_path / "b", lambda *_: first.unlink(missing_ok=True))
    assert not first.exists()
    assert made.min_offset == 0
    assert copied_log(tmp_path / "b")[: len(whole)] == whole


def test_a_log_that_was_cut_and_written_anew_meanwhile_is_no_backup(tmp_path):
    store = filled(tmp_path / "a")
    end = store.max_offset
    last = store.commit_log.files.files[-1]

    def another_log(done: int, _total: int) -> None:
        if done >= end:
            last.write_at(end - last.start - 50, b"another record's bytes")

    with pytest.raises(BackupError, match="written anew"):
        backup_of(tmp_path / "a", tmp_path / "b", another_log)


def test_a_disk_that_gives_back_other_bytes_is_noticed(tmp_path):
    filled(tmp_path / "a")
    copy = tmp_path / "b/commitlog" / f"{FILE_SIZE:020d}"

    def rot(done: int, total: int) -> None:
        if done > total // 2:  # The first file is being read again.
            with copy.open("r+b") as file:
                file.seek(1000)
                file.write(b"\xff")

    with pytest.raises(BackupError, match=f"{copy.name} reads otherwise"):
        backup_of(tmp_path / "a", tmp_path / "b", rot)


def test_damage_in_the_store_is_copied_and_told(tmp_path):
    filled(tmp_path / "a").commit_log.files.files[1].write_at(5000, b"damage")
    made = backup_of(tmp_path / "a", tmp_path / "b")
    (damage,) = made.damage
    assert damage.start_offset <= FILE_SIZE + 5000 < damage.end_offset
    assert "CRC" in damage.reason
    assert made.records == 99


def test_a_queue_whose_messages_are_gone_keeps_its_numbers(tmp_path):
    store = open_store(tmp_path / "a", file_size=FILE_SIZE)
    store.put([put_message("Old", bytes(100)) for _ in range(3)])
    put(store, *(bytes([i]) * 500 for i in range(100)))
    store.dispatch_pending()
    (tmp_path / "a/commitlog" / f"{0:020d}").unlink()
    made = backup_of(tmp_path / "a", tmp_path / "b")
    (kept,) = [file for file in made.files if file.path.startswith("consumequeue/")]
    assert kept.path == f"consumequeue/Old/0/{0:020d}"
    assert (kept.size, kept.data_size) == (6_000_000, 3 * UNIT.size)
    assert (tmp_path / "b" / kept.path).stat().st_size == 6_000_000


def test_an_empty_store_has_a_backup_too(tmp_path):
    open_store(tmp_path / "a")
    made = backup_of(tmp_path / "a", tmp_path / "b")
    assert (made.min_offset, made.end_offset, made.records, made.last_stored_ms) == (0, 0, 0, None)


@pytest.mark.parametrize("name", ["something", manifest.NAME])
def test_a_directory_with_other_content_is_refused(name, tmp_path):
    filled(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / name).write_text("mine")
    with pytest.raises(BackupRefusedError):
        backup_of(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b" / name).read_text() == "mine"
    assert len(os.listdir(tmp_path / "b")) == 1


def test_two_at_a_time_are_refused(tmp_path):
    filled(tmp_path / "a")

    def second(*_: int) -> None:
        with pytest.raises(BackupRefusedError, match="another process"):
            backup_of(tmp_path / "a", tmp_path / "b")

    backup_of(tmp_path / "a", tmp_path / "b", second)


def test_an_unfinished_backup_of_another_store_is_refused(tmp_path):
    filled(tmp_path / "a")
    filled(tmp_path / "other")
    unfinished(tmp_path / "a", tmp_path / "b", 1)
    with pytest.raises(BackupRefusedError, match="another store"):
        backup_of(tmp_path / "other", tmp_path / "b")


def unfinished(root: Path, target: Path, calls: int) -> bool:
    """Begin a backup and end it after so many reports of progress; whether it came that far."""
    left = calls

    def kill(*_: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    try:
        backup_of(root, target, kill)
    except Killed:
        return True
    return False


def test_a_run_that_was_killed_is_finished_by_the_next(tmp_path, monkeypatch):
    """At every step; what is whole already is not copied again."""
    for name in ("fsync", "fdatasync"):  # The disk is slow.
        monkeypatch.setattr(os, name, lambda _fd: None)
    store = filled(tmp_path / "a")
    whole, again = log_bytes(store), 0
    for calls in range(1, 100):
        target = tmp_path / f"b{calls}"
        if not unfinished(tmp_path / "a", target, calls):
            break
        before = {path.name: path.stat().st_ino for path in (target / "commitlog").iterdir()}
        changed = {path.name: path.stat().st_ctime_ns for path in (target / "commitlog").iterdir()}
        assert not (target / manifest.NAME).exists()
        made = backup_of(tmp_path / "a", target)
        assert made == load(target)
        assert not (target / UNFINISHED).exists()
        assert copied_log(target)[: len(whole)] == whole
        for path in (target / "commitlog").iterdir():
            again += path.name in before and path.stat().st_ctime_ns == changed[path.name]
    assert 5 < calls < 99
    assert again > 5


def test_a_file_that_changed_since_a_killed_run_is_copied_again(tmp_path):
    store = filled(tmp_path / "a")
    unfinished(tmp_path / "a", tmp_path / "b", 3)
    store.commit_log.files.files[0].write_at(8, b"changed!")
    backup_of(tmp_path / "a", tmp_path / "b")
    assert copied_log(tmp_path / "b")[:FILE_SIZE] == log_bytes(store)[:FILE_SIZE]


@pytest.mark.parametrize("change", ["checksum", "version", "text"])
def test_a_damaged_manifest_is_told(change, tmp_path):
    filled(tmp_path / "a")
    backup_of(tmp_path / "a", tmp_path / "b")
    path = tmp_path / "b" / manifest.NAME
    text = path.read_text()
    path.write_text(
        {
            "checksum": text.replace('"records": 100', '"records": 101'),
            "version": text.replace('"version": 1', '"version": 2'),
            "text": text[:-10],
        }[change]
    )
    with pytest.raises(BackupError, match="version 2" if change == "version" else "damaged"):
        load(tmp_path / "b")
    path.unlink()
    with pytest.raises(BackupError, match="not finished"):
        load(tmp_path / "b")


def test_a_log_that_lies_elsewhere(tmp_path):
    store = MessageStore(
        StoreConfig(root=tmp_path / "a", commit_log_dir=tmp_path / "log", mapped_file_size_commit_log=FILE_SIZE)
    )
    store.load()
    put(store, b"x")
    with StoreDirectory.open(tmp_path / "a", DirectoryOptions(commit_log_dirs=(tmp_path / "log",))) as directory:
        assert back_up(directory, tmp_path / "b").records == 1


def test_what_the_disk_does_not_read_is_damage_and_the_rest_is_saved(tmp_path, monkeypatch):
    """A disk that fails is when one wants a copy."""
    store = filled(tmp_path / "a")
    whole, read = log_bytes(store), os.pread
    broken = (FILE_SIZE + 4096, FILE_SIZE + 8192)  # One sector of the second file.

    def failing(fd: int, size: int, position: int) -> bytes:
        path = os.readlink(f"/proc/self/fd/{fd}")
        start = position + FILE_SIZE if path.endswith(f"a/commitlog/{FILE_SIZE:020d}") else -1
        if start >= 0 and start < broken[1] and start + size > broken[0]:
            raise OSError(errno.EIO, "Input/output error")
        return read(fd, size, position)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", failing)
        made = backup_of(tmp_path / "a", tmp_path / "b")
    (damage,) = made.damage
    assert damage.start_offset <= broken[0] < broken[1] <= damage.end_offset
    copy = copied_log(tmp_path / "b")
    assert copy[: broken[0]] == whole[: broken[0]]
    assert not copy[slice(*broken)].strip(b"\0")
    assert copy[broken[1] : len(whole)] == whole[broken[1] :]


def test_a_target_inside_the_store_is_refused(tmp_path):
    filled(tmp_path / "a")
    before = {path for path in tmp_path.rglob("*") if path.is_dir()}
    with pytest.raises(BackupRefusedError, match="lies in the store itself"):
        backup_of(tmp_path / "a", tmp_path / "a/commitlog/../backup")
    assert {path for path in tmp_path.rglob("*") if path.is_dir()} == before


def test_too_little_room_is_told_before_anything_is_copied(tmp_path, monkeypatch):
    end = filled(tmp_path / "a").max_offset
    small = os.statvfs_result((4096, 4096, 1000, 3, 3, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: small)
    with pytest.raises(BackupError, match=f"room for {3 * 4096} bytes, the log takes {end} more"):
        backup_of(tmp_path / "a", tmp_path / "b")
    assert not list((tmp_path / "b").rglob("0*"))


def test_a_last_message_that_a_crash_tore_is_left_out(tmp_path):
    """Its properties end in a sector that was not written, which no CRC covers: a start of the broker cuts it, too."""
    store = open_store(tmp_path / "a", file_size=FILE_SIZE)
    put(store, b"x" * 100)
    end = store.max_offset
    store.put([put_message("T", b"body", properties=b"KEYS\x01" + b"k" * 2000)])
    assert store.max_offset % 512 > 10
    torn = store.max_offset - store.max_offset % 512
    store.commit_log.files.files[-1].write_at(torn, bytes(store.max_offset - torn))
    store._release()
    assert (tmp_path / "a/abort").exists()
    made = backup_of(tmp_path / "a", tmp_path / "b")
    assert (made.end_offset, made.records, made.damage) == (end, 1, ())
    reopened = open_store(tmp_path / "a", file_size=FILE_SIZE)
    assert reopened.max_offset == end
