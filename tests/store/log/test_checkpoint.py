"""The checkpoint file, byte for byte."""

from struct import Struct

import pytest

from tests.store import golden
from twinlog.store.log.checkpoint import Checkpoint

LAYOUT = Struct(">qqqqq")


def test_bytes(tmp_path):
    path = tmp_path / "checkpoint"
    Checkpoint(path, 1, 2, 3, 4, 5).save()
    assert path.read_bytes() == LAYOUT.pack(1, 2, 3, 4, 5).ljust(4096, b"\0")
    loaded = Checkpoint(path)
    loaded.load()
    assert loaded == Checkpoint(path, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("content", [None, b"", b"\0\0\0"])
def test_a_missing_or_short_file_is_all_zero(tmp_path, content):
    path = tmp_path / "checkpoint"
    if content is not None:
        path.write_bytes(content)
    checkpoint = Checkpoint(path, 9, 9, 9)
    checkpoint.load()
    assert checkpoint == Checkpoint(path)
    checkpoint.save()
    assert path.stat().st_size == 4096


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_captured_ones_are_written_again_alike(tmp_path, version):
    path = golden.unpack(version, "master", tmp_path) / "checkpoint"
    content = path.read_bytes()
    checkpoint = Checkpoint(path)
    checkpoint.load()
    assert checkpoint.physic_msg_timestamp > 1_700_000_000_000
    checkpoint.save()
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("physic", "logics", "expected"), [(0, 0, 0), (5000, 9000, 2000), (9000, 5000, 2000), (100, 1, 0)]
)
def test_recovery_starts_three_seconds_before_the_older_mark(tmp_path, physic, logics, expected):
    assert Checkpoint(tmp_path, physic, logics).recover_from_ms == expected
