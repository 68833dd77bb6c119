"""The simulated disk keeps what was synced, and loses what was not: content, names, and what a failed sync left behind."""

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.disk import Disk, MachineDied
from tests.simulation.os_calls import bounds
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.util.sync import sync_data, sync_directory


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    monkeypatch.chdir(tmp_path)
    disk = Disk("d", random.Random(1))
    with bounds({"d": disk}):
        yield disk


def lose_power(disk: Disk) -> None:
    disk.die()
    disk.cut_power()
    disk.reboot()


def make(name: str, data: bytes, *, content: bool, names: bool) -> Path:
    path = Path("d") / name
    file = MappedFile.create(path, 0, 4096, preallocate=True)
    file.append(data)
    if content:
        sync_data(file.fd)
    if names:
        sync_directory(path.parent)
    file.close()
    return path


def test_what_was_synced_with_its_name_is_there_after_every_power_cut(disk):
    path = make("a", b"x" * 3000, content=True, names=True)
    for _ in range(20):
        lose_power(disk)
        assert path.read_bytes() == b"x" * 3000 + bytes(1096)


def test_content_that_was_not_synced_is_kept_sector_by_sector_or_not(disk):
    found = set()
    for number in range(40):
        path = make(str(number), b"x" * 4096, content=False, names=True)
        lose_power(disk)
        data = path.read_bytes()
        assert len(data) == 4096
        sectors = [data[at : at + 512] for at in range(0, 4096, 512)]
        assert set(sectors) <= {b"x" * 512, bytes(512)}
        found.add(sectors.count(b"x" * 512))
    assert {0, 8} < found


def test_a_name_that_was_not_synced_is_kept_or_not_and_syncing_the_file_does_not_help(disk):
    kept = []
    for number in range(40):
        path = make(str(number), b"x", content=True, names=False)
        lose_power(disk)
        kept.append(path.exists())
    assert set(kept) == {False, True}


def test_a_deleted_file_may_be_there_again_until_its_directory_is_synced(disk):
    back = []
    for number in range(40):
        path = make(str(number), b"x", content=True, names=True)
        path.unlink()
        lose_power(disk)
        back.append(path.exists())
    path = make("a", b"x", content=True, names=True)
    path.unlink()
    sync_directory(path.parent)
    lose_power(disk)
    assert set(back) == {False, True}
    assert not path.exists()


def test_a_file_that_was_renamed_has_one_of_its_names(disk):
    for number in range(20):
        path = make(f"{number}", b"x", content=True, names=True)
        other = path.with_suffix(".new")
        path.rename(other)
        lose_power(disk)
        assert path.exists() != other.exists()


def test_what_a_failed_sync_left_behind_is_not_written_by_the_next_one(disk):
    path = Path("d/a")
    file = MappedFile.create(path, 0, 4096, preallocate=True)
    sync_directory(path.parent)
    file.append(b"x" * 1024)
    disk.fails_at = disk.syncs + 1
    with pytest.raises(OSError) as failure:
        os.fdatasync(file.fd)
    assert failure.value.errno == errno.EIO
    file.append(b"y" * 1024)
    os.fdatasync(file.fd)
    lose_power(disk)
    assert path.read_bytes()[:2048] == bytes(1024) + b"y" * 1024


def test_a_machine_dies_at_the_call_that_it_was_told_and_does_nothing_afterwards(disk):
    path = make("a", b"x", content=True, names=True)
    disk.dies_at = disk.calls + 2
    path.rename(Path("d/b"))
    with pytest.raises(MachineDied):
        Path("d/b").rename(path)
    with pytest.raises(MachineDied):
        Path("d/b").unlink()
    disk.reboot()
    assert Path("d/b").exists()


def test_descriptors_of_the_dead_are_closed_and_their_numbers_are_nobody_elses(disk):
    fd = os.open("d/a", os.O_RDWR | os.O_CREAT)
    disk.die()
    disk.reboot()
    other = os.open("d/a", os.O_RDWR)
    assert other != fd
    os.close(fd)
    os.pwrite(other, b"x", 0)
    os.close(other)
    assert Path("d/a").read_bytes() == b"x"


def test_what_lies_elsewhere_is_left_alone(disk, tmp_path):
    (tmp_path / "other").write_bytes(b"x")
    disk.die()
    (tmp_path / "other").rename(tmp_path / "else")
    assert (tmp_path / "else").read_bytes() == b"x"


def test_a_copy_of_a_disk_is_put_back_with_all_that_was_there(disk):
    path = make("a", b"x" * 10, content=False, names=False)
    Path("d/deep").mkdir()
    image = disk.image()
    path.write_bytes(b"y")
    Path("d/deep/b").write_bytes(b"z")
    disk.die()
    disk.put_back(image)
    disk.reboot()
    lose_power(disk)
    assert path.read_bytes() == b"x" * 10 + bytes(4086)
    assert list(Path("d/deep").iterdir()) == []
