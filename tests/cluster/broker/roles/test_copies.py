"""Copies of a directory that the group cannot tell from a member that moved, or not at once."""

import errno
import shutil

import pytest
import trio
from attrs import evolve

from tests.support.group.group import ASYNC, SLAVE, SYNC, Group, Member, until
from tests.support.group.stores import role_group
from twinlog.cluster.broker.roles import durable_state
from twinlog.store.errors import StoreDirectoryError
from twinlog.store.member_file import load_member, save_member
from twinlog.store.role_file import GroupMember


def running_copy(group: Group, member: Member) -> Member:
    """A copy of the directory of a member that goes on, for a process that is not started yet."""
    copy = group.add(SLAVE)
    shutil.copytree(member.root, copy.root)
    return copy


async def older_copy(group: Group, member: Member) -> Member:
    """A copy of the directory before the last start of a member, which the others know by now."""
    await member.stop()
    copy = group.add(group.role)
    shutil.copytree(member.root, copy.root)
    await member.start()
    await group.settled()
    return copy


async def moved(member: Member) -> None:
    """Start it again at another IP."""
    await member.kill()
    member.network += 1
    await member.start()


# Of a master's directory


@pytest.mark.parametrize("role", [SYNC, ASYNC])
async def test_a_master_that_a_voter_calls_a_copy_does_not_serve(tmp_path, autojump_clock, nursery, role):
    """Nobody leads the group then, so that nothing else keeps it from serving without a lease."""
    group = role_group(nursery, tmp_path, size=3, role=role)
    await group.start()
    a, _b, _c = group.members
    d = await older_copy(group, a)
    await a.kill()
    await d.start()
    await trio.sleep(30)
    assert not d.is_serving
    assert d.word == "fenced"
    assert "another directory goes on as member" in d.roles.member.status()[1]
    await d.kill()
    await a.start()
    assert await group.settled() is a


@pytest.mark.parametrize("role", [SYNC, ASYNC])
async def test_voters_that_swapped_their_addresses_refuse_a_copy(tmp_path, autojump_clock, nursery, role):
    """The copy knows them by the addresses of before, where the other one of them answers."""
    group = role_group(nursery, tmp_path, size=3, role=role)
    await group.start()
    a, b, c = group.members
    d = await older_copy(group, a)
    await b.kill()
    await c.kill()
    b.host, c.host = c.host, b.host
    await b.start()
    await c.start()
    await group.settled()
    await a.kill()
    await d.start()
    for _ in range(300):
        await trio.sleep(0.1)
        assert not d.is_serving
    assert d.word == "fenced"
    assert "another directory goes on as member" in d.roles.member.status()[1]


@pytest.mark.parametrize("role", [SYNC, ASYNC])
async def test_a_master_in_whose_place_a_copy_went_on_ends(tmp_path, autojump_clock, nursery, role):
    group = role_group(nursery, tmp_path, size=3, role=role)
    await group.start()
    a, b, c = group.members
    d = running_copy(group, a)
    group.isolate(a)
    await d.start()
    await until(
        lambda: d.is_serving and not d.roles.leases.others - d.roles.leases.followers, "d is taken for a that moved"
    )
    group.isolate()
    await until(lambda: not a.is_serving, "a hears of it")
    assert a.word == "fenced"
    assert "another directory goes on as member" in a.roles.member.status()[1]
    await a.kill()
    group.members[:] = [d, b, c]
    assert await group.settled() is d


@pytest.mark.parametrize("role", [SYNC, ASYNC])
async def test_an_older_state_of_a_master_does_not_serve(tmp_path, autojump_clock, nursery, role):
    group = role_group(nursery, tmp_path, size=3, role=role)
    await group.start()
    a, b, _c = group.members
    await a.stop()
    shutil.copytree(a.root, tmp_path / "snapshot")
    await a.start()
    await group.settled()
    await a.kill()
    shutil.rmtree(a.root)
    (tmp_path / "snapshot").rename(a.root)
    await a.start()
    await trio.sleep(30)
    assert not a.is_serving
    await group.change("failover", b, accept_data_loss="unknown")  # Nobody knows what it acknowledged alone.
    assert b.is_serving


# Of a slave's directory, while the slave cannot be reached


async def test_a_copy_of_a_slave_that_is_cut_off_counts_once_others_know(autojump_clock, three):
    """Else the slave could elect the other one, that is cut off with it, without what the copy acknowledged."""
    a, b, c = three.members
    d = running_copy(three, c)
    three.isolate(b, c)
    await d.start()
    await trio.sleep(30)
    a.produce(b"one")
    assert not await a.is_acknowledged(), "by a copy"
    assert d.max_offset == a.max_offset, "it follows all the same"
    three.isolate(a, d)
    change = await three.change("failover", b)
    assert not change.error
    assert a.acknowledged == []
    b.produce(b"two")
    assert await b.is_acknowledged(), "by c"
    three.isolate()
    await until(lambda: not a.is_serving, "a hears of b")
    assert b.is_serving
    assert d.ha.client.statistics().state != "streaming", "c is there"


async def test_who_asked_in_an_older_epoch_is_not_written_into_the_record(autojump_clock, three):
    """A copy asks a master that cannot change the record any more; when that is master again, the copy is long gone."""
    a, b, c = three.members
    d = running_copy(three, c)
    three.isolate(b, c)
    await d.start()
    await trio.sleep(30)
    await d.kill()
    three.members.remove(d)
    three.isolate(a)
    await three.change("failover", b)
    three.isolate()
    await three.settled()
    await three.change("switchover", a)
    await trio.sleep(10)
    assert await three.settled() is a
    assert a.roles.member.address_of(c.identity) == c.address


async def test_who_asked_before_a_later_start_of_the_member_was_seen_does_not_take_its_place(autojump_clock, three):
    """It registers only now, as name servers were away."""
    a, _b, c = three.members
    copy = evolve(c.roles.member.me(), address="10.0.9.9:10911", ha_address="10.0.9.9:10912")
    a.roles.joining.ask_unregistered(evolve(copy, codes=(*copy.codes, "c0de")))
    await c.kill()
    await c.start()
    await three.settled()
    a.roles.joining.registered({0: a.address, 9: copy.address})
    assert not a.roles.joining.pending
    await trio.sleep(5)
    assert a.roles.member.address_of(c.identity) == c.address


async def test_a_slave_that_moved_counts_once_another_voter_knows(autojump_clock, three):
    a, b, c = three.members
    await b.kill()
    await moved(c)
    a.produce(b"one")
    assert not await a.is_acknowledged()
    change = await three.change("failover", c)
    assert "another voter" in str(change.judgements) + change.error or "serves" in change.error
    await b.start()
    assert await three.settled() is a
    assert await a.is_acknowledged()
    await b.kill()
    a.produce(b"two")
    assert await a.is_acknowledged(), "by c, of which b knows"


async def test_the_only_slave_moves_and_counts(autojump_clock, pair):
    """Nobody else could hear of it."""
    a, b = pair.members
    await moved(b)
    await pair.settled()
    a.produce(b"one")
    assert await a.is_acknowledged()


async def test_a_slave_that_all_wait_for_moves_and_counts(tmp_path, autojump_clock, nursery):
    """Each alone could be elected, so that no other's word is enough: it is believed."""
    group = role_group(nursery, tmp_path, size=3, need=3)
    await group.start()
    a, _b, c = group.members
    await moved(c)
    assert await group.settled() is a
    a.produce(b"one")
    assert await a.is_acknowledged()


# A start that was not noted


def full_disk(*_arguments: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_nobody_hears_of_a_start_that_is_not_on_the_disk(autojump_clock, three, monkeypatch):
    a, _b, c = three.members
    before = load_member(c.side)
    await c.kill()
    with monkeypatch.context() as patch:
        patch.setattr(durable_state, "save_member", full_disk)
        await c.start()
        await three.settled()
        assert c.roles.member.me().codes == before.register_codes
        a.produce(b"one")
        assert await a.is_acknowledged()
        await c.kill()
    await c.start()
    await three.settled()
    assert a.roles.member.group.member(c.identity).code == load_member(c.side).register_codes[-1]


async def test_a_master_that_notes_its_start_later_stays_master(autojump_clock, three, monkeypatch):
    """Its followers hear another code of it while they follow."""
    a, _b, c = three.members
    await a.kill()
    with monkeypatch.context() as patch:
        patch.setattr(durable_state, "save_member", full_disk)
        await a.start()
    before, epochs = a.roles.member.me().codes, a.epochs
    await c.kill()
    await until(lambda: a.is_serving, "a serves")
    await c.start()
    assert await three.settled() is a
    assert a.roles.member.me().codes[:-1] == before, "noted with the next decision"
    await trio.sleep(10)
    assert a.epochs == epochs
    assert a.is_serving
    assert a.ha.lease.held(trio.current_time())


def test_a_new_member_begins_with_an_id_that_is_on_the_disk(tmp_path, monkeypatch):
    me = GroupMember(address="10.0.0.1:10911", ha_address="10.0.0.1:10912", broker_id=0, name="a")
    durable = durable_state.DurableRoleState(tmp_path, lambda: "boot", lambda: me, lambda: 5)
    monkeypatch.setattr(durable_state, "save_member", full_disk)
    with pytest.raises(StoreDirectoryError, match="Next: make room"):
        durable.load()
    monkeypatch.setattr(durable_state, "save_member", save_member)
    durable.load()
