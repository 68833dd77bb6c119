"""A log in several directories: files take turns, wherever they lie they are found, and full or read-only ones are left out."""

from itertools import pairwise
from pathlib import Path

import pytest
import trio

from tests.store.records import put_message
from twinlog.store.config import StoreConfig
from twinlog.store.errors import StoreDirectoryError
from twinlog.store.message_store import MessageStore

FILE_SIZE = 4096


def opened(root, names="a,b,c", *, full=(), **options):
    paths = ",".join(str(root / name) for name in names.split(","))
    config = StoreConfig(root=root, commit_log_dir=Path(paths), mapped_file_size_commit_log=FILE_SIZE, **options)
    store = MessageStore(config)
    store.hooks.disk_usage = lambda path: 0.9 if path.name in full else 0.1
    store.load()
    return store


def fill(store, count):
    """Messages that take a file each."""
    for number in range(count):
        assert store.put([put_message(body=b"%04d" % number * 900)])[0].phy_offset >= 0
    store.dispatch_pending()


def places(root, names="abc"):
    return {name: [int(path.name) // FILE_SIZE for path in sorted((root / name).iterdir())] for name in names}


def bodies(store):
    queue = store.queue("T1", 0)
    return [int(bytes(store.message_at(queue.unit(n).phy_offset))[88:92]) for n in range(queue.max_offset)]


def test_files_take_turns(tmp_path):
    """As RocketMQ: file n goes to directory n mod their count, in the order of their names."""
    store = opened(tmp_path, "b,a,c")
    fill(store, 8)
    assert places(tmp_path) == {"a": [0, 3, 6], "b": [1, 4, 7], "c": [2, 5]}
    assert store.commit_log.spare is None
    trio.run(store.close)
    store = opened(tmp_path, "c,b,a")
    assert bodies(store) == list(range(8))
    store._release()
    store = opened(tmp_path)  # After a crash.
    assert (bodies(store), store.damaged.total) == (list(range(8)), 0)
    fill(store, 2)
    assert places(tmp_path) == {"a": [0, 3, 6, 9], "b": [1, 4, 7], "c": [2, 5, 8]}
    trio.run(store.close)


def test_a_full_disk_is_left_out_unless_all_are_full(tmp_path):
    store = opened(tmp_path, full="b")
    fill(store, 4)
    assert places(tmp_path) == {"a": [0, 2], "b": [], "c": [1, 3]}
    store.hooks.disk_usage = lambda _path: 0.95
    fill(store, 3)
    assert places(tmp_path) == {"a": [0, 2, 6], "b": [4], "c": [1, 3, 5]}
    trio.run(store.close)


def test_read_only_directories_are_read(tmp_path):
    store = opened(tmp_path, "a")
    fill(store, 3)
    trio.run(store.close)
    store = opened(tmp_path, "b", read_only_commit_log_dirs=f"{tmp_path / 'a'}, {tmp_path / 'nowhere'}")
    assert bodies(store) == [0, 1, 2]
    fill(store, 2)
    assert places(tmp_path, "ab") == {"a": [0, 1, 2], "b": [3, 4]}
    trio.run(store.close)


def test_a_directory_that_is_missing_is_told_of(tmp_path):
    store = opened(tmp_path)
    fill(store, 6)
    trio.run(store.close)
    (tmp_path / "b").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreDirectoryError, match="A file before it is missing"):
        opened(tmp_path)
    (tmp_path / "b").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "b")
    store = opened(tmp_path)
    assert bodies(store) == list(range(6))
    trio.run(store.close)


def test_a_cut_in_the_middle_removes_files_everywhere(tmp_path):
    store = opened(tmp_path)
    fill(store, 7)
    store.commit_log.files.cut(2 * FILE_SIZE + 100)
    assert places(tmp_path) == {"a": [0], "b": [1], "c": [2]}
    store._release()


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, ["/r/commitlog"]), ("/x", ["/x"]), ("/x, /y,,/x", ["/x", "/y"]), (",", ["/r/commitlog"])],
)
def test_the_list_of_directories(text, expected):
    config = StoreConfig(root=Path("/r"), commit_log_dir=text and Path(text), read_only_commit_log_dirs="/x,/z")
    assert [str(path) for path in config.commit_log_paths] == expected
    assert [str(path) for path in config.read_only_commit_log_paths] == [p for p in ("/x", "/z") if p not in expected]


async def test_at_no_moment_could_a_power_loss_leave_a_gap(tmp_path, monkeypatch, autojump_clock):
    """Each directory may lie on a disk of its own, and what was not synced may be there afterwards or not."""
    durable, gaps = set(), []

    def note(path):
        durable.difference_update([each for each in durable if each.parent == path])
        durable.update(path.iterdir())

    def look():
        """Of all that may be there afterwards, leave out one file that need not be."""
        there = {path for name in "abc" for path in (tmp_path / name).iterdir()}
        numbers = sorted(int(path.name) // FILE_SIZE for path in durable | there)
        for maybe in durable ^ there:
            rest = [number for number in numbers if number != int(maybe.name) // FILE_SIZE]
            gaps.extend(number for number, behind in pairwise(rest) if behind != number + 1)

    def sync_directory(path):
        look()
        note(path)

    for module in ("log.mapped_file_queue", "services.retention_service"):
        monkeypatch.setattr(f"twinlog.store.{module}.sync_directory", sync_directory)
    store = opened(tmp_path, delete_commit_log_files_interval_ms=0, delete_file_batch_max=4)
    fill(store, 8)
    look()
    await store.flusher.flush()
    for name in "abc":
        note(tmp_path / name)
    store.hooks.disk_usage = lambda path: 0.88
    await store.retention.clean()
    look()
    assert store.min_offset == 4 * FILE_SIZE
    store.commit_log.files.cut(5 * FILE_SIZE)
    look()
    assert (store.max_offset, gaps) == (5 * FILE_SIZE, [])
    store._release()
