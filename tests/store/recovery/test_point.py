"""The recovery point as bytes: round trip, and rejected files."""

import os

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.store.errors import SideFileError
from twinlog.store.queue.layout import QueueEnds, decode_queues, encode_queues
from twinlog.store.recovery.point import PointRecord, RecoveryPoint, decode_point, encode_point
from twinlog.store.recovery.side_files import SideFiles

int64 = st.integers(-(1 << 63), (1 << 63) - 1)
uint64 = st.integers(0, (1 << 64) - 1)
queues = st.lists(
    st.builds(QueueEnds, st.text(min_size=1, max_size=40), st.integers(0, 1 << 30), int64, int64, int64, uint64)
)
points = st.builds(
    RecoveryPoint,
    offset=int64,
    log_start=int64,
    log_file_size=int64,
    queue_file_size=int64,
    last=st.builds(PointRecord, int64, int64, uint64, int64),
    damaged=st.lists(st.tuples(int64, int64)).map(tuple),
    queues=queues.map(tuple),
)
POINT = RecoveryPoint(
    offset=1000,
    log_start=0,
    log_file_size=1 << 30,
    queue_file_size=6_000_000,
    last=PointRecord(900, 100, 77, 1_700_000_000_000),
    damaged=((10, 20), (30, 50)),
    queues=(QueueEnds("T1", 0, 0, 5, 1000, 9), QueueEnds("主题", 3, 2, 2, -1, 8)),
)


@given(points)
def test_what_was_written_is_read(point):
    assert decode_point(encode_point(point)) == point


@given(queues, st.binary(max_size=20))
def test_a_manifest_knows_its_end(states, before):
    data = before + encode_queues(states)
    assert decode_queues(data + b"more", len(before)) == (states, len(data))


@pytest.mark.parametrize("at", range(len(encode_point(POINT))))
def test_no_changed_byte_is_believed(at):
    data = bytearray(encode_point(POINT))
    data[at] ^= 1
    with pytest.raises(SideFileError):
        decode_point(bytes(data))


@given(st.binary(max_size=300))
def test_garbage_is_not_believed(data):
    with pytest.raises(SideFileError):
        decode_point(data)


def test_cut_bytes_are_not_believed():
    data = encode_point(POINT)
    for size in range(len(data)):
        with pytest.raises(SideFileError):
            decode_point(data[:size])


def test_on_disk(tmp_path):
    """Replaced as a whole, dropped for good; a damaged one is as none."""
    files = SideFiles(tmp_path / "twinlog")
    assert files.load_point() is None
    files.save_point(POINT)
    files.save_point(attrs.evolve(POINT, offset=2000))
    assert files.load_point().offset == 2000
    (tmp_path / "twinlog" / "recovery-point").write_bytes(b"nonsense")
    assert files.load_point() is None
    files.drop_point()
    files.drop_point()
    assert list((tmp_path / "twinlog").iterdir()) == []


def test_queues_to_rebuild_are_remembered(tmp_path):
    files = SideFiles(tmp_path)
    assert files.load_rebuild() == set()
    files.save_rebuild({("T1", 0), ("%RETRY%g", 3)})
    assert files.load_rebuild() == {("T1", 0), ("%RETRY%g", 3)}
    files.save_rebuild(())
    assert files.load_rebuild() == set()
    assert list(tmp_path.iterdir()) == []


def test_cut_bytes_are_kept_within_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr("twinlog.store.recovery.side_files.CUT_BYTES_MAX", 3 << 20)
    monkeypatch.setattr("twinlog.store.recovery.side_files._CUTS_BYTES_MAX", 5 << 20)
    files = SideFiles(tmp_path)
    content = bytes(range(256)) * (1 << 14)  # 4 MiB.
    path, size = files.keep_cut(1 << 20, 3 << 20, lambda offset, size: content[offset:][:size])
    assert (path.read_bytes(), size) == (content[1 << 20 :], 3 << 20)
    os.utime(path, (1, 1))
    again, size = files.keep_cut(0, 4 << 20, lambda offset, size: content[offset:][:size])
    assert (again.read_bytes(), size) == (content[: 3 << 20], 3 << 20)
    assert not path.exists()
