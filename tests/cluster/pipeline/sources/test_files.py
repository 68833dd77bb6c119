"""Inspection of stores of every kind, and reading from every kind of storage."""

import os
import pickle
from contextlib import closing
from pathlib import Path

import pytest

from tests.cluster.pipeline.logs import message, records, write_log
from tests.helpers import open_store, put
from tests.store import golden
from twinlog.cluster.pipeline.sources import places
from twinlog.cluster.pipeline.sources.files import NotAStoreError, StoreFiles, inspect_store
from twinlog.cluster.pipeline.sources.log_bytes import Hole, LogBytes
from twinlog.cluster.pipeline.sources.log_end import LogFile
from twinlog.cluster.pipeline.sources.places import (
    ListedFile,
    StoreUri,
    UnreadableError,
    list_directories,
    list_files,
    list_tree,
    open_file,
    read_all,
)
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.walk import find_log_end

FILE_SIZE = 16 << 10


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("/data/store/", "/data/store"),
        ("file:///data/store", "/data/store"),
        ("s3://bucket/store/", "s3://bucket/store"),
        ("s3://bucket/store/?region=eu", "s3://bucket/store?region=eu"),
        ("/data/store; /log1 ;s3://b/log2/", "/data/store;/log1;s3://b/log2"),
    ],
)
def test_addresses(given: str, text: str):
    assert StoreUri(given).text == text
    assert StoreUri(text) == StoreUri(given)
    assert pickle.loads(pickle.dumps(StoreUri(given))) == StoreUri(text)


def test_a_relative_path_means_the_same_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert StoreUri("store").text == str(tmp_path / "store")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert StoreUri("~/store").path == tmp_path / "home" / "store"


def test_a_question_mark_in_a_path_is_a_part_of_it(tmp_path):
    """Options are behind those of URIs only."""
    uri = StoreUri("/data/a?b;/logs/c?d")
    assert (uri.name, uri.shown, uri.child("lock").path) == ("a?b", "/data/a?b;/logs/c?d", Path("/data/a?b/lock"))
    write_log(tmp_path / "why?", records([message(0)], 0, FILE_SIZE)[0], 0, FILE_SIZE)
    assert inspect_store(StoreUri(str(tmp_path / "why?"))).end > 0


def test_children():
    assert (
        StoreUri("s3://b/store?region=eu;s3://b/log").child("config/x.json").text
        == "s3://b/store/config/x.json?region=eu"
    )
    assert StoreUri("/data/store").child("commitlog").child("%RETRY%g|x").path == Path(
        "/data/store/commitlog/%RETRY%g|x"
    )
    assert StoreUri("s3://b/store?region=eu").name == "store"
    assert [str(place) for place in StoreUri("/a;/b;/c").log_places] == ["/b", "/c"]


@pytest.fixture(params=["local", "arrow"])
def place(request, tmp_path, monkeypatch):
    """A directory, local and through pyarrow's file systems."""
    for name, content in (("b/one", b"1"), ("b/two", b"0123456789"), ("b/c/deep", b"d"), ("a", b"")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return StoreUri(str(tmp_path)) if request.param == "local" else through_arrow(tmp_path, monkeypatch)


def through_arrow(root: Path, monkeypatch) -> StoreUri:
    """A local directory presented as a bucket."""
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    system = SubTreeFileSystem(str(root.parent), LocalFileSystem())
    monkeypatch.setattr(places, "_file_system", lambda _base, _options: (system, root.name))
    return StoreUri("s3://bucket")


def test_listings(place):
    assert [(info.name, info.size) for info in list_files(place.child("b"))] == [("one", 1), ("two", 10)]
    assert list_directories(place) == ["b"]
    assert [info.name for info in list_tree(place)] == ["a", "b/c/deep", "b/one", "b/two"]
    assert list_files(place.child("none")) == list_tree(place.child("none")) == []
    assert list_directories(place.child("none")) == []
    assert all(info.mtime_ns > 1 << 60 for info in list_files(place))


def test_reading(place):
    file = open_file(place.child("b/two"))
    assert (file.read(3, 4), file.read(8, 10), file.read(10, 1), file.read(50, 1)) == (b"3456", b"89", b"", b"")
    buffer = bytearray(b"xxxxx")
    assert file.read_into(7, memoryview(buffer)) == 3
    assert buffer == b"789xx"
    file.close()
    assert read_all(place.child("b/one")) == b"1"
    assert read_all(place.child("a")) == b""
    assert read_all(place.child("none")) is None
    assert read_all(place.child("b")) is None


def test_what_cannot_be_read_is_named(place):
    with pytest.raises(UnreadableError, match="b/none cannot be read") as caught:
        open_file(place.child("b/none"))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.what, again.why, str(again)) == (caught.value.what, caught.value.why, str(caught.value))
    with pytest.raises(UnreadableError, match="larger than 5 bytes"):
        read_all(place.child("b/two"), size_max=5)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("s3://bucket/store/%RETRY%g?region=eu-west-1", "bucket/store/%RETRY%g"),
        ("s3://bucket?region=eu-west-1", "bucket"),
        ("gs://anonymous@bucket/store", "bucket/store"),
        ("abfs://container@account.dfs.core.windows.net/store", "container/store"),
    ],
)
def test_how_file_systems_name_places(uri: str, path: str):
    assert places._remote(StoreUri(uri))[1] == path


def test_an_unknown_kind_of_place():
    with pytest.raises(UnreadableError, match="xyz://host/store cannot be read"):
        list_files(StoreUri("xyz://host/store?secret=1"))
    with pytest.raises(UnreadableError) as caught:
        inspect_store(StoreUri("xyz://host/store?secret=1"))
    assert "secret" not in str(caught.value)


# Stores


@pytest.fixture(params=golden.ALL, ids="-".join)
def captured(request, tmp_path):
    return golden.unpack(*request.param, tmp_path)


def known(root: Path) -> tuple[int, int, int]:
    """First byte, end and file size, by the offline tools."""
    with StoreDirectory.open(root) as directory:
        end = find_log_end(directory.log, after_crash=directory.has_crashed)
        return directory.log.min_offset, end.offset, directory.log.file_size


def test_a_look_at_the_real_brokers_stores(captured):
    files = inspect_store(StoreUri(str(captured)))
    assert (files.first, files.end, files.file_size) == known(captured)
    assert files.file_size == golden.FILE_SIZE
    assert (files.is_running, files.problems) == (False, ())
    assert files.has_abort == (captured.name == golden.RUNNING)
    assert files.claimed == files.end or files.has_abort
    assert len(files.index()) == len(list((captured / "index").iterdir()))
    units = {(queue.topic, queue.queue_id): [file.size for file in queue.files] for queue in files.queues()}
    assert len(units) == len(list((captured / "consumequeue").glob("*/*")))
    assert {size for sizes in units.values() for size in sizes} == {golden.CONSUME_QUEUE_FILE_SIZE}
    assert all(queue.file_size == golden.CONSUME_QUEUE_FILE_SIZE for queue in files.queues())


def test_a_look_through_arrow_is_the_same(captured, monkeypatch):
    here = inspect_store(StoreUri(str(captured)))
    there = inspect_store(through_arrow(captured, monkeypatch))
    assert pickle.loads(pickle.dumps(there)) == there
    for name in ("first", "end", "file_size", "confirmed", "claimed", "has_abort", "epochs", "problems"):
        assert getattr(there, name) == getattr(here, name), name
    assert [(file.start, file.size) for file in there.log] == [(file.start, file.size) for file in here.log]
    assert [file.start for file in there.index()] == [file.start for file in here.index()]
    assert [queue.topic for queue in there.queues()] == [queue.topic for queue in here.queues()]


@pytest.mark.parametrize("name", golden.CLEAN)
def test_what_5x_confirmed(tmp_path, name):
    files = inspect_store(StoreUri(str(golden.unpack("5.3.3", name, tmp_path))))
    assert files.confirmed is None or files.first < files.confirmed <= files.end


def test_twinlogs_own_store(tmp_path):
    store = open_store(tmp_path, file_size=FILE_SIZE)
    end = put(store, *(b"x" * 500 for _ in range(100)))
    store.dispatch_pending()
    files = inspect_store(StoreUri(str(tmp_path)))
    assert (files.first, files.end, files.file_size) == (0, end, FILE_SIZE)
    assert files.is_running
    assert files.digests is not None
    assert files.claimed == end


def test_digests_and_the_note_of_a_clean_stop(tmp_path):
    root = golden.unpack_digested("4.9.7", "master", tmp_path)
    files = inspect_store(StoreUri(str(root)))
    assert files.digests == StoreUri(str(root)).child("twinlog/digest")
    assert files.claimed == files.end
    assert not files.is_running
    (root / "twinlog" / "digest").write_bytes(b"rubbish")
    again = inspect_store(StoreUri(str(root)))
    assert again.digests is None
    assert any("digest" in problem for problem in again.problems)


def test_a_log_in_several_directories(tmp_path):
    data, _ = records([message(number, b"x" * 900) for number in range(90)], 0, FILE_SIZE)
    write_log(tmp_path / "whole", data, 0, FILE_SIZE)
    whole = inspect_store(StoreUri(str(tmp_path / "whole")))
    (tmp_path / "store" / "consumequeue").mkdir(parents=True)
    names = sorted(os.listdir(tmp_path / "whole" / "commitlog"))
    for number, name in enumerate(names):
        place = tmp_path / f"disk{number % 2}"
        place.mkdir(exist_ok=True)
        (tmp_path / "whole" / "commitlog" / name).rename(place / name)
    files = inspect_store(StoreUri(f"{tmp_path}/store;{tmp_path}/disk0;{tmp_path}/disk1"))
    assert (files.first, files.end, files.file_size) == (whole.first, whole.end, whole.file_size)
    assert [file.uri.path.parent.name for file in files.log[:3]] == ["disk0", "disk1", "disk0"]
    assert files.uri.child("config").path == tmp_path / "store" / "config"


def test_what_is_no_store(tmp_path):
    with pytest.raises(NotAStoreError, match="no such directory"):
        inspect_store(StoreUri(str(tmp_path / "none")))
    with pytest.raises(NotAStoreError, match="empty"):
        inspect_store(StoreUri(str(tmp_path)))
    (tmp_path / "other").mkdir()
    with pytest.raises(NotAStoreError, match="holds no store") as caught:
        inspect_store(StoreUri(str(tmp_path)))
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotAStoreError):
        inspect_store(StoreUri(str(tmp_path / "file")))


def test_a_store_that_may_not_be_looked_at(tmp_path, monkeypatch):
    """As a user without rights sees it; the super-user is never refused."""
    (tmp_path / "commitlog").mkdir()

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as refused:
        refused.setattr(Path, "is_dir", refuse)
        with pytest.raises(UnreadableError, match="Permission denied") as caught:
            inspect_store(StoreUri(str(tmp_path)))
        assert str(tmp_path) in caught.value.what
    with monkeypatch.context() as refused:
        refused.setattr(Path, "is_file", refuse)
        with pytest.raises(UnreadableError, match="lock cannot be read: Permission denied"):
            inspect_store(StoreUri(str(tmp_path)))


def test_an_empty_log(tmp_path):
    (tmp_path / "commitlog").mkdir()
    files = inspect_store(StoreUri(str(tmp_path)))
    assert (files.log, files.first, files.end, files.claimed) == ((), 0, 0, None)


def test_a_log_of_zeros(tmp_path):
    write_log(tmp_path, b"", 0, FILE_SIZE)
    files = inspect_store(StoreUri(str(tmp_path)))
    assert (len(files.log), files.first, files.end) == (1, 0, 0)


def test_a_log_that_is_cut_in_a_record(tmp_path):
    data, placed = records([message(number, b"x" * 900) for number in range(40)], 0, FILE_SIZE)
    write_log(tmp_path, data, 0, FILE_SIZE)
    last = sorted((tmp_path / "commitlog").iterdir())[-1]
    os.truncate(last, placed[-1].phy_offset + 100 - int(last.name))
    files = inspect_store(StoreUri(str(tmp_path)))
    assert (files.end, files.file_size) == (placed[-1].phy_offset, FILE_SIZE)


@pytest.mark.parametrize("number", [0, 20, 57, 89])
@pytest.mark.parametrize("at", [2, 3, 5, 30, 95])
def test_the_end_of_a_damaged_log(tmp_path, number, at):
    """Without queues: what lies behind damage is the log as well; where the last record is damaged, it ends before that."""
    data, placed = records([message(number, b"x" * 900) for number in range(90)], 0, FILE_SIZE)
    image = bytearray(data)
    image[placed[number].phy_offset + at] ^= 2
    write_log(tmp_path, bytes(image), 0, FILE_SIZE)
    assert inspect_store(StoreUri(str(tmp_path))).end == (len(data) if number < 89 else placed[89].phy_offset)


def test_what_was_cut_and_kept(tmp_path):
    """A directory of twinlog/divergent/: its first file holds nothing below the cut."""
    data, placed = records([message(number, b"x" * 900) for number in range(40)], 0, FILE_SIZE)
    cut = placed[5].phy_offset
    write_log(tmp_path, data[cut:], cut, FILE_SIZE)
    (tmp_path / "divergent.json").write_text(
        f'{{"version": 1, "first": {cut}, "size": {len(data) - cut}, "whenMs": 1, "why": "a test"}}'
    )
    files = inspect_store(StoreUri(str(tmp_path)))
    assert (files.first, files.end) == (cut, len(data))


# The log by offsets


def log_of(root: Path, *sizes: int) -> LogBytes:
    files = []
    for number, size in enumerate(sizes):
        path = root / f"{number * 100_000:020d}"
        path.write_bytes(bytes([number + 1]) * size)
        files.append(LogFile(StoreUri(str(path)), number * 100_000, size))
    return LogBytes(tuple(files), 100_000)


def test_bytes_across_files(tmp_path):
    with closing(log_of(tmp_path, 100_000, 100_000)) as log:
        assert log.read(99_990, 100) == b"\1" * 10
        buffer = bytearray(20)
        assert log.fill(99_990, memoryview(buffer)) == []
        assert buffer == b"\1" * 10 + b"\2" * 10
        assert log.file_end(99_999) == 100_000
        assert log.read(200_000, 10) == b""


def test_holes(tmp_path):
    log = log_of(tmp_path, 100_000, 60_000, 100_000)
    (tmp_path / f"{200_000:020d}").unlink()
    (tmp_path / f"{200_000:020d}").mkdir()
    with closing(log):
        buffer = bytearray(b"x" * 400_000)
        holes = log.fill(0, memoryview(buffer))
        assert holes[0] == Hole(160_000, 200_000, None)
        assert holes[-1] == Hole(300_000, 400_000, None)
        assert [(hole.start, hole.end) for hole in holes[1:-1]] == [(200_000, 262_144), (262_144, 300_000)]
        assert all(hole.refusal is not None and str(tmp_path) in str(hole.refusal) for hole in holes[1:-1])
        assert buffer == b"\1" * 100_000 + b"\2" * 60_000 + bytes(240_000)
        assert log.read_patiently(200_000, 500_000) == bytes(100_000)
        assert log.readable_end(150_000, 160_000) == (160_000, None)
        end, refusal = log.readable_end(200_000, 300_000)
        assert (end, refusal is not None) == (200_000, True)


def test_a_store_is_small_to_send(captured):
    files = inspect_store(StoreUri(str(captured)))
    assert isinstance(files, StoreFiles)
    assert len(pickle.dumps(files)) < 8_000


def test_links_that_lead_round_in_circles(tmp_path):
    """Each directory is listed once on the way down."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").touch()
    for name in ("one", "two"):
        (tmp_path / "a" / "b" / name).symlink_to(tmp_path / "a")
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    (tmp_path / "self").symlink_to("self")
    assert [info.name for info in list_tree(StoreUri(str(tmp_path)))] == ["a/b/file", "linked/b/file"]
    assert list_files(StoreUri(str(tmp_path))) == []
    assert list_directories(StoreUri(str(tmp_path))) == ["a", "linked"]


def test_queues_whose_names_are_no_text(tmp_path):
    """No topic is called so."""
    root = write_log(tmp_path, records([message(0)], 0, FILE_SIZE)[0], 0, FILE_SIZE)
    for topic in (b"T1", b"T\xff"):
        directory = Path(os.fsdecode(os.fsencode(root / "consumequeue") + b"/" + topic)) / "0"
        directory.mkdir(parents=True)
        (directory / f"{0:020d}").write_bytes(bytes(400))
    assert [queue.topic for queue in inspect_store(StoreUri(str(root))).queues()] == ["T1"]


def test_file_infos_are_values():
    assert ListedFile("a", 1, 2) == ListedFile("a", 1, 2)
