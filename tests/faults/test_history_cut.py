"""A member that was master comes back, and has to give bytes up: cut, then history, then stream, dying at each step.

Its log goes on behind the place where another became master. Whenever it dies, what it has is its old log with its old history or
the cut one; begun again it comes to the same end, no cut message comes back, and what was cut can be read.
"""

import os
import shutil
from functools import partial
from pathlib import Path

import pytest
import trio
from attrs import frozen

from tests.store.cutting import FILE_SIZE, NOW, History, check_is, feed, history, history_of, open_slave, opened
from tests.store.offline.killing import killed_at
from tests.store.records import put_message
from tests.support.disk.faults import ext4, make_image
from twinlog.ha.election.epochs import compare_histories, effective, with_entry
from twinlog.ha.election.voter import followed
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, load_epochs, save_epochs
from twinlog.store.log.range import LogRange
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.diff import ComparedLog, diff
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.dump import Selection, dump
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState, load_role, save_role

STEPS = ((os, "link"), (os, "unlink"), (os, "replace"), (os, "pwrite"), (os, "ftruncate"))
CUT_AT = 15  # Messages that both have.
MEMBERS = tuple(GroupMember(address=name, ha_address=name, broker_id=n, name=name) for n, name in enumerate("AB"))
GROUP = GroupRecord(version=1, members=MEMBERS, acks_needed=2, master_role=BrokerRole.SYNC_MASTER)
OWN = (FIRST, EpochEntry(epoch=1, winner="A", start_offset=0))
ROLE = RoleState(role=BrokerRole.SYNC_MASTER, broker_id=0, promised=OWN[-1].id, group=GROUP)


@frozen
class Master:
    """The new one: its log, as a slave would get it, and its history."""

    log: History
    entries: tuple[EpochEntry, ...]


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> History:
    return history(tmp_path_factory.mktemp("old"), count=30)


@pytest.fixture(scope="module")
def master(tmp_path_factory, old) -> Master:
    """It had the first messages when it took over, and took others then."""
    root = tmp_path_factory.mktemp("master")
    store = open_slave(root)
    feed(store, old.below(old.entries[CUT_AT].phy_offset))
    start = store.max_offset
    trio.run(store.close)
    clock = [NOW + 10_000_000]
    store = opened(root, BrokerRole.ASYNC_MASTER, clock)
    for number in range(20):
        clock[0] += 1_000
        store.put([put_message("T1", b"new %d" % number * 50, queue_id=number % 2)])
    with LogRange.open(store.commit_log, 0, store.max_offset) as log:
        data = log.read(0, log.end)
    store._release()
    entry = EpochEntry(epoch=2, winner="B", start_offset=start, kind="failover", at_ms=NOW)
    return Master(history_of(data), with_entry(OWN, entry))


@pytest.fixture(scope="module")
def returning(tmp_path_factory, old) -> Path:
    """The old master's directory: it goes on behind the place where the other took over."""
    root = tmp_path_factory.mktemp("returning") / "store"
    make_returning(root, old)
    return root


def make_returning(root: Path, old: History) -> None:
    store = open_slave(root)
    feed(store, old)
    trio.run(store.close)
    save_role(root / "twinlog", ROLE)
    save_epochs(root / "twinlog", OWN)


async def follow(store: MessageStore, master: Master) -> None:
    """What a member does before its stream: compare, cut, take the history over."""
    side = store.config.root / "twinlog"
    state, entries = load_role(side), load_epochs(side)
    assert state is not None
    found = compare_histories(entries, store.max_offset, master.entries, master.log.end)
    if found.kind == "given up":
        assert found.cut_offset is not None
        await store.truncate(found.cut_offset, "given up")
    else:
        assert found.kind in ("behind", "same")
    save_role(side, followed(state, master.entries[-1].id, GROUP, "A"))
    save_epochs(side, master.entries)


def check_is_one_of_both(root: Path, old: History, master: Master) -> int:
    """After a crash. Returns where the log ends."""
    side, start = root / "twinlog", master.entries[-1].start_offset
    store = open_slave(root)
    end, entries, state = store.max_offset, load_epochs(side), load_role(side)
    check_is(store, old if end == old.end else old.below(start))
    store._release()
    assert end in (old.end, start)
    assert entries in (OWN, master.entries)
    assert state is not None
    assert state.promised in (OWN[-1].id, master.entries[-1].id)
    if state.promised != OWN[-1].id:  # Each is on the disk before the next begins.
        assert end == start
    if entries != OWN:
        assert state.promised == master.entries[-1].id
        assert effective(entries, end) == master.entries
    return end


def check_follows(root: Path, old: History, master: Master) -> None:
    """Begun again it is the master's log, with nothing of what was cut; and that can be read."""
    store = open_slave(root)
    trio.run(follow, store, master)
    feed(store, master.log)
    check_is(store, master.log)
    trio.run(store.close)
    assert load_epochs(root / "twinlog") == master.entries
    start = master.entries[-1].start_offset
    (kept,) = (root / "twinlog/divergent").iterdir()
    assert kept.name == f"{start:020d}-{old.end - start}"
    options = DirectoryOptions(log_file_size=FILE_SIZE)
    with StoreDirectory.open(kept, options) as cut, StoreDirectory.open(root, options) as now:
        found = [message.phy_offset for message in dump(cut.log, Selection(from_offset=start))]
        report = diff(ComparedLog(str(kept), cut.log, cut.queues), ComparedLog(str(root), now.log, now.queues))
    assert found == [entry.phy_offset for entry in old.entries if entry.phy_offset >= start]
    assert report.difference is not None
    assert report.difference.first_offset >= start


def test_the_process_ends_at_any_step(tmp_path, returning, old, master, monkeypatch):
    step, ends, was_killed = 0, [], True
    while was_killed:
        root = shutil.copytree(returning, tmp_path / str(step))
        store = open_slave(root)
        was_killed = killed_at(step, partial(trio.run, follow, store, master), monkeypatch, *STEPS)
        store._release()
        ends.append(check_is_one_of_both(root, old, master))
        check_follows(root, old, master)
        shutil.rmtree(root)
        step += 1
    assert step > 20, step
    assert ends == sorted(ends, reverse=True)
    assert {ends[0], ends[-1]} == {old.end, master.entries[-1].start_offset}


@pytest.mark.root
@pytest.mark.timeout(120)
def test_the_power_fails_at_any_step(tmp_path, old, master, monkeypatch):
    """What was not synced is lost: the order holds all the same."""
    image = make_image(tmp_path / "whole", megabytes=16)
    with ext4(image, tmp_path / "mnt") as disk:
        make_returning(disk.path / "store", old)
    step, was_killed = 0, True
    while was_killed:
        trial = shutil.copyfile(image, tmp_path / "image")
        with ext4(trial, tmp_path / "mnt") as disk:
            store = open_slave(disk.path / "store")
            was_killed = killed_at(step, partial(trio.run, follow, store, master), monkeypatch, *STEPS)
            disk.cut_power()
            store._release()
        with ext4(trial, tmp_path / "mnt") as disk:
            end = check_is_one_of_both(disk.path / "store", old, master)
            assert was_killed or end == master.entries[-1].start_offset
            check_follows(disk.path / "store", old, master)
        step += 1
    assert step > 20, step
