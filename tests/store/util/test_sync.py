"""Files that take the place of others."""

import os

import pytest

from twinlog.store.util.sync import write_durably


def mode(path):
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("before", [0o600, 0o640, 0o644])
def test_a_file_keeps_its_mode(tmp_path, before):
    """Secrets stay unread by others when a line is changed."""
    path = tmp_path / "broker.conf"
    path.write_bytes(b"old")
    path.chmod(before)
    write_durably(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", before)
    assert os.listdir(tmp_path) == ["broker.conf"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only the super-user gives files away")
def test_a_file_keeps_its_owner(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_bytes(b"old")
    os.chown(path, 12, 34)
    write_durably(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid) == (12, 34)


def test_a_new_file_has_the_mode_that_is_asked_for(tmp_path):
    write_durably(tmp_path / "rules.yml", b"", new_mode=0o600)
    assert mode(tmp_path / "rules.yml") == 0o600


def test_nothing_is_written_into_what_lies_in_the_way(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"precious")
    (tmp_path / "file.tmp").symlink_to(elsewhere)
    write_durably(tmp_path / "file", b"new")
    assert (elsewhere.read_bytes(), (tmp_path / "file").read_bytes()) == (b"precious", b"new")
