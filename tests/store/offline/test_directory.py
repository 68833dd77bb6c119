"""A store directory as the offline tools see it."""

import os
import time
from pathlib import Path

import pytest

from tests.store import golden
from tests.store.directories import times_and_names
from tests.store.records import put_message
from twinlog.store.errors import StoreDirectoryError
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory, Writer, lock_holder
from twinlog.store.offline.file_series import StoreFile, guess_file_size
from twinlog.store.offline.finding import FindingKind
from twinlog.store.util.sync import take_lock


@pytest.mark.parametrize(("version", "name"), golden.ALL)
def test_captured_directories_are_understood_and_not_touched(version, name, tmp_path):
    """Sizes, queues and writer follow from the files alone, and no time of modification moves."""
    root = golden.unpack(version, name, tmp_path)
    before = times_and_names(root)
    with StoreDirectory.open(root) as directory:
        assert directory.log.file_size == golden.FILE_SIZE
        assert {series.file_size for series in directory.queues.values()} == {golden.CONSUME_QUEUE_FILE_SIZE}
        assert ("TopicA", 3) in directory.queues
        assert directory.writer is (Writer.ROCKETMQ_4 if version == "4.9.7" else Writer.ROCKETMQ_5)
        assert directory.stopped_cleanly == (name != golden.RUNNING)
        assert not directory.is_running
        assert len(directory.index_files) == 2
        assert directory.checkpoint is not None
        assert directory.findings == ()
        assert directory.log.read_across(golden.FILE_SIZE - 8, 16) == b"".join(
            (directory.log.read(golden.FILE_SIZE - 8, 100), directory.log.read(golden.FILE_SIZE, 8))
        )
    assert times_and_names(root) == before


def test_a_directory_that_is_no_store_is_refused(tmp_path):
    """The message says what to name."""
    with pytest.raises(StoreDirectoryError, match="neither commitlog/ nor consumequeue/"):
        StoreDirectory.open(tmp_path)
    with pytest.raises(StoreDirectoryError, match="is no directory"):
        StoreDirectory.open(tmp_path / "nothing")


def test_the_log_may_lie_elsewhere_and_in_several_directories(tmp_path):
    """All files of all directories are one log, by their names."""
    root = golden.unpack("4.9.7", "master", tmp_path)
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(), two.mkdir()
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        path.rename((one, two)[number % 2] / path.name)
    with StoreDirectory.open(root, DirectoryOptions(commit_log_dirs=(one, two))) as directory:
        assert [file.start for file in directory.log.files] == [0, 131072, 262144]
        assert directory.findings == ()


def test_wrong_missing_and_stray_files_become_findings(tmp_path):
    """Nothing stops at the first of them, and the size of a file is still found."""
    root = golden.unpack("4.9.7", "master", tmp_path)
    log, queue = root / "commitlog", root / "consumequeue" / "TopicA"
    (log / "00000000000000131072").unlink()
    os.truncate(log / "00000000000000262144", 1000)
    (log / "copy").touch()
    (queue / "x").mkdir()
    os.truncate(queue / "0" / "00000000000000000000", 1999)
    (root / "index" / "notes").touch()
    with StoreDirectory.open(root, DirectoryOptions(log_file_size=golden.FILE_SIZE)) as directory:
        assert {(finding.kind, finding.file) for finding in directory.findings} == {
            (FindingKind.MISSING_FILE, "commitlog/00000000000000131072"),
            (FindingKind.WRONG_FILE_SIZE, "commitlog/00000000000000262144"),
            (FindingKind.STRAY_ENTRY, "commitlog/copy"),
            (FindingKind.STRAY_ENTRY, "consumequeue/TopicA/x"),
            (FindingKind.WRONG_FILE_SIZE, "consumequeue/TopicA/0/00000000000000000000"),
            (FindingKind.STRAY_ENTRY, "index/notes"),
        }


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ([(0, 100), (100, 100), (200, 37)], 100),
        ([(0, 100), (200, 100)], 100),
        ([(300, 100)], 100),
        ([(0, 60), (100, 100)], 100),
        ([(0, 20), (200, 100)], 100),
        ([(0, 60), (100, 37)], 100),
        ([], 0),
    ],
)
def test_the_size_of_files_is_what_most_have(files, size):
    """Truncated and missing ones are outvoted."""
    assert guess_file_size([[StoreFile(Path("/"), start, length) for start, length in files]]) == size


def test_the_lock_of_another_process_and_of_this_one_is_seen_and_kept(tmp_path):
    """Looking must not end a lock of this process, which closing any descriptor of the file would."""
    path = tmp_path / "lock"
    assert lock_holder(path) is None
    path.touch()
    assert lock_holder(path) is None
    fd = take_lock(path)
    child = os.fork()
    if child == 0:
        os._exit(0 if lock_holder(path) == os.getppid() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert lock_holder(path) == os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(0 if lock_holder(path) == os.getppid() else 1)
    assert os.waitpid(child, 0)[1] == 0
    os.close(fd)
    assert lock_holder(path) is None


async def test_a_store_of_ours_is_known_by_its_side_files(tmp_path):
    """Until another broker has written there."""
    store = MessageStore(golden.config(tmp_path))
    store.load()
    store.put([put_message()])
    with StoreDirectory.open(tmp_path) as directory:
        assert directory.is_running
    await store.close()
    (tmp_path / "twinlog").mkdir(exist_ok=True)
    (tmp_path / "twinlog" / "some").touch()
    with StoreDirectory.open(tmp_path) as directory:
        assert directory.writer is Writer.TWINLOG
        assert directory.stopped_cleanly
    later = time.time() + 60
    os.utime(tmp_path / "checkpoint", (later, later))
    with StoreDirectory.open(tmp_path) as directory:
        assert directory.writer is Writer.ROCKETMQ_4
