"""The power fails while a log is cut, at each step: what was not synced is lost, and the cut is whole or was never begun."""

import os
import shutil

import pytest
import trio

from tests.store.cutting import FILE_SIZE, check_is, feed, history, open_slave
from tests.store.offline.killing import killed_at
from tests.support.disk.faults import ext4, make_image

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]
STEPS = ((os, "link"), (os, "unlink"), (os, "replace"), (os, "pwrite"), (os, "ftruncate"))


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    return history(tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return history(tmp_path_factory.mktemp("other"), seed=5, count=30)


@pytest.fixture(scope="module")
def image(tmp_path_factory, old):
    """A disk with a slave on it that was stopped cleanly."""
    directory = tmp_path_factory.mktemp("disk")
    path = make_image(directory / "image", megabytes=16)
    with ext4(path, directory / "mnt") as disk:
        store = open_slave(disk.path / "store")
        feed(store, old)
        trio.run(store.close)
    return path


@pytest.mark.parametrize("where", ["in a file", "at a file", "anew"])
def test_the_power_fails_at_any_step(tmp_path, image, old, other, monkeypatch, where):
    offset = {"in a file": old.entries[5].phy_offset, "at a file": FILE_SIZE, "anew": 0}[where]
    step, ends, was_killed = 0, [], True
    while was_killed:
        trial = shutil.copyfile(image, tmp_path / "image")
        with ext4(trial, tmp_path / "mnt") as disk:
            store = open_slave(disk.path / "store")
            work = store.reset if where == "anew" else lambda why, store=store: store.truncate(offset, why)
            was_killed = killed_at(step, lambda work=work: trio.run(work, "a test"), monkeypatch, *STEPS)
            disk.cut_power()
            store._release()
        with ext4(trial, tmp_path / "mnt") as disk:
            store = open_slave(disk.path / "store")
            ends.append(store.max_offset)
            check_is(store, old if store.max_offset == old.end else old.below(offset))
            store._release()
        step += 1
    assert step > 15
    assert ends == sorted(ends, reverse=True)
    assert {ends[0], ends[-1]} == {old.end, offset}


def test_shorter_data_over_the_cut_and_no_power_again(tmp_path, image, old, other):
    """The disk has new, shorter records where others were cut, and not yet all of them: no old one shows behind them."""
    trial = shutil.copyfile(image, tmp_path / "image")
    for count in (1, 4, 9):
        with ext4(trial, tmp_path / "mnt") as disk:
            store = open_slave(disk.path / "store")
            trio.run(store.truncate, 0, "another history")
            feed(store, other.below(other.entries[count].phy_offset))
            trio.run(store.flush)
            feed(store, other)  # Not synced.
            disk.cut_power()
            store._release()
        with ext4(trial, tmp_path / "mnt") as disk:
            store = open_slave(disk.path / "store")
            durable = other.entries[count].phy_offset
            assert durable <= store.max_offset <= other.end
            check_is(store, other.below(store.max_offset))
            feed(store, other)
            check_is(store, other)
            trio.run(store.close)
