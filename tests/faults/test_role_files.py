"""A member dies, or the power fails, at any step of noting a promise or a history: one of the two is there, and what was said to
be noted is.
"""

import os
import shutil

import pytest
from attrs import evolve

from tests.store.offline.killing import killed_at
from tests.support.disk.faults import ext4, make_image
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, EpochId, load_epochs, save_epochs
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState, load_role, save_role

STEPS = ((os, "replace"),)
MEMBERS = tuple(GroupMember(address=name, ha_address=name, broker_id=n, name=name) for n, name in enumerate("ab"))
GROUP = GroupRecord(version=1, members=MEMBERS, acks_needed=2, master_role=BrokerRole.SYNC_MASTER)
OLD = RoleState(role=BrokerRole.SLAVE, broker_id=1, promised=EpochId(3, "a"), group=GROUP)
NEW = evolve(OLD, promised=EpochId(4, "b"))
EPOCHS = (FIRST, EpochEntry(epoch=3, winner="a", start_offset=100))
MORE_EPOCHS = (*EPOCHS, EpochEntry(epoch=4, winner="b", start_offset=100))
FILES = [
    pytest.param(save_role, load_role, (None, OLD, NEW), id="role"),
    pytest.param(save_epochs, load_epochs, ((FIRST,), EPOCHS, MORE_EPOCHS), id="epochs"),
]


@pytest.mark.parametrize(("save", "load", "states"), FILES)
@pytest.mark.parametrize("first", [True, False], ids=["the first time", "over another"])
def test_the_process_ends_at_any_step(tmp_path, monkeypatch, save, load, states, first):
    before, after = (states[0], states[1]) if first else (states[1], states[2])
    step, found, was_killed = 0, [], True
    while was_killed:
        side = tmp_path / str(step) / "twinlog"
        if not first:
            save(side, before)
        was_killed = killed_at(step, lambda side=side: save(side, after), monkeypatch, *STEPS)
        found.append(load(side))
        save(side, after)  # What an attempt leaves is in nobody's way.
        assert load(side) == after
        step += 1
    assert step > 3
    assert found == [before] * found.count(before) + [after] * found.count(after)
    assert found[-1] == after


@pytest.mark.root
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("save", "load", "states"), FILES)
def test_the_power_fails_at_any_step(tmp_path, monkeypatch, save, load, states):
    """The answer leaves after the save: once it has returned, no power cut takes the promise back."""
    before, after = states[1:]
    image = make_image(tmp_path / "whole", megabytes=8)
    with ext4(image, tmp_path / "mnt") as disk:
        save(disk.path / "twinlog", before)
    step, was_killed = 0, True
    while was_killed:
        trial = shutil.copyfile(image, tmp_path / "image")
        with ext4(trial, tmp_path / "mnt") as disk:
            was_killed = killed_at(step, lambda disk=disk: save(disk.path / "twinlog", after), monkeypatch, *STEPS)
            disk.cut_power()
        with ext4(trial, tmp_path / "mnt") as disk:
            found = load(disk.path / "twinlog")
            assert found == after if not was_killed else found in (before, after)
        step += 1
    assert step > 3


@pytest.mark.parametrize(("save", "load", "states"), FILES)
def test_a_disk_that_refuses_leaves_what_was_there(tmp_path, monkeypatch, save, load, states):
    """A promise that cannot be noted is none, and the caller hears it."""
    _, before, after = states
    save(tmp_path, before)

    def refuses(*_):
        raise OSError(28, "No space left on device")

    for place, name in ((os, "fdatasync"), (os, "replace")):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, refuses)
            with pytest.raises(OSError, match="No space left"):
                save(tmp_path, after)
        assert load(tmp_path) == before
