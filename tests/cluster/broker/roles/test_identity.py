"""Members are who they are: addresses change, directories are copied, and the group goes on."""

import shutil
from pathlib import Path

import pytest
import trio
from attrs import evolve
from structlog.testing import capture_logs

from tests.cluster.broker.role_states import state
from tests.support.group.group import SLAVE, SYNC, Group, Member
from tests.support.group.stores import role_group
from twinlog.cluster.broker.roles.durable_state import DurableRoleState
from twinlog.ha.election.group_record import first_record
from twinlog.store.errors import StoreDirectoryError
from twinlog.store.member_file import MemberFile, load_member, save_member
from twinlog.store.offline.directory import DirectoryOptions
from twinlog.store.offline.new_member import make_new_member
from twinlog.store.role_file import GroupMember, load_role, save_role


async def moved(member: Member, network: int = 1) -> None:
    """Start it again at another IP."""
    if member.up:
        await member.kill()
    member.network = network
    await member.start()


def named(group: Group) -> dict[str, str]:
    """Addresses by id, as the record of every member that is up has them."""
    records = {each.roles.member.group for each in group.members if each.up}
    assert len(records) == 1
    (record,) = records
    return {each.id: each.address for each in record.members}


def tell_registered(group: Group) -> None:
    """Report what a name server knows."""
    for each in group.members:
        if each.up:
            each.roles.joining.registered({other.number: other.address for other in group.members if other.up})


async def start_elsewhere(group: Group) -> None:
    """Start all at other IPs, which name servers tell each second: the master stays, and the record has their addresses."""
    for each in group.members:
        each.network = 2
        await each.start()

    async def tell() -> None:
        while True:
            tell_registered(group)
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell)
        assert await group.settled() is group.first
        nursery.cancel_scope.cancel()
    assert named(group) == {each.identity: each.address for each in group.members}


async def copied(group: Group, member: Member) -> Member:
    """A copy of its directory, for another member that is not started yet; the group goes on."""
    await member.stop()
    copy = group.add(SLAVE)
    shutil.copytree(member.root, copy.root)
    await member.start()
    await group.settled()
    return copy


async def put_back(group: Group, member: Member) -> None:
    """Start it in an older state of its directory, of which the group has seen a later start."""
    await member.stop()
    shutil.copytree(member.root, group.root / "snapshot")
    await member.start()
    await group.settled()
    await member.kill()
    shutil.rmtree(member.root)
    (group.root / "snapshot").rename(member.root)
    await member.start()


async def test_ids_are_no_addresses_and_stay(autojump_clock, three):
    before = named(three)
    assert not any(id in before.values() for id in before)
    assert set(before) == {each.identity for each in three.members}


async def test_a_slave_moves_and_counts(autojump_clock, three):
    a, b, c = three.members
    before = set(named(three))
    await moved(c)
    await three.settled()
    assert named(three) == {each.identity: each.address for each in three.members}
    assert set(named(three)) == before
    await b.kill()
    a.produce(b"one")
    assert await a.is_acknowledged(), "by c, at its new address"


async def test_the_master_moves_and_stays_master(autojump_clock, three):
    a, _b, _c = three.members
    epochs = a.epochs
    await moved(a)
    assert await three.settled() is a
    assert a.epochs == epochs, "without an election"
    assert named(three)[a.identity] == a.address == "10.0.1.1:10911"
    a.produce(b"one")
    assert await a.is_acknowledged()


async def test_where_a_member_once_was_is_forgotten(autojump_clock, three):
    """It moves under one master, and again under the next: the first one goes by the record."""
    a, b, c = three.members
    await moved(c, 1)
    await three.settled()
    await three.change("switchover", b)
    await three.settled()
    await moved(c, 2)
    await three.settled()
    assert a.roles.member.address_of(c.identity) == c.address


async def test_all_move_at_once(autojump_clock, three):
    await three.kill()
    await start_elsewhere(three)


async def test_both_move_before_the_slave_has_heard_of_their_group(autojump_clock, pair):
    """All are stopped between two saves: the master's of the first record, and the slave's."""
    a, b = pair.members
    await pair.kill()
    known = a.state
    first = first_record(*sorted(known.group.members, key=lambda each: each.broker_id), 2, SYNC)
    save_role(a.side, evolve(known, group=first, before=None))
    (b.side / "role").unlink()
    save_member(b.side, evolve(load_member(b.side), group="", cluster=""))
    await start_elsewhere(pair)


async def test_two_slaves_swap_their_addresses(autojump_clock, three):
    a, b, c = three.members
    await b.kill()
    await c.kill()
    b.number, c.number = c.number, b.number
    three.members[1:] = [c, b]
    b_root, c_root = b.side.parent, c.side.parent
    swap = three.root / "swap"
    b_root.rename(swap)
    c_root.rename(b_root)
    swap.rename(c_root)
    await b.start()
    await c.start()
    await three.settled()
    assert named(three) == {each.identity: each.address for each in three.members}
    a.produce(b"one")
    assert await a.is_acknowledged()


async def test_a_copy_of_a_slave_does_not_take_part(autojump_clock, three):
    a, b, _c = three.members
    d = await copied(three, b)
    before = named(three)
    await d.start()
    await trio.sleep(10)
    assert d.ha.client.statistics().state != "streaming"
    assert "is a copy" in d.roles.member.status()[1]
    assert d.parts.effects.done.count("withdraw") == 1, "no client is to find it"
    assert a.roles.member.group is not None
    assert {each.id: each.address for each in a.roles.member.group.members} == before
    a.produce(b"one")
    assert await a.is_acknowledged(), "the group goes on"


async def test_a_copy_of_the_master_does_not_take_part(autojump_clock, three):
    a, b, c = three.members
    d = await copied(three, a)
    await d.start()
    await trio.sleep(10)
    assert not d.is_serving, "with no lease, either"
    assert "refuses it: another" in d.roles.member.status()[1]
    assert b.roles.member.master is not None
    assert c.roles.member.master is not None
    assert {b.roles.member.master.address, c.roles.member.master.address} == {a.address}
    assert a.is_serving


async def test_an_older_state_of_a_directory_does_not_take_part(autojump_clock, three):
    """A machine is put back to a snapshot: what it acknowledged since is gone, and its promises."""
    a, b, c = three.members
    await put_back(three, c)
    await trio.sleep(10)
    assert c.ha.client.statistics().state != "streaming"
    assert "is a copy" in c.roles.member.status()[1]
    a.produce(b"one")
    assert await a.is_acknowledged(), f"by {b.name}"


async def test_nobody_is_elected_by_an_older_state_of_a_member(autojump_clock, three):
    """At its own address it answers as the member: it has forgotten what that acknowledged."""
    a, b, c = three.members
    await put_back(three, c)
    await a.kill()
    change = await three.change("failover", b)
    assert not b.is_serving
    assert "enough votes" in change.error
    assert f"{c.address} silent" in change.error


async def test_an_older_state_of_a_member_is_not_elected(autojump_clock, three):
    a, b, c = three.members
    await put_back(three, c)
    promised = b.roles.member.promised()
    await a.kill()
    change = await three.change("failover", c)
    assert not c.is_serving
    assert change.error
    assert b.roles.member.promised() == promised, "no vote for it"


async def test_an_older_state_of_a_member_renews_no_lease(autojump_clock, three):
    a, b, c = three.members
    await put_back(three, c)
    await b.kill()
    await trio.sleep(10)
    assert not a.ha.lease.held(trio.current_time()), "by nobody but c, which forgot what it promised"


async def test_a_moved_member_that_has_not_caught_up_cannot_win(autojump_clock, three):
    """Its directory may be a copy, of before it acknowledged more."""
    a, b, c = three.members
    await b.kill()
    await a.kill()
    await moved(c)
    assert c.state is not None
    assert not c.state.whole


async def test_a_new_directory_at_the_old_address_takes_its_place(autojump_clock, three):
    _a, b, _c = three.members
    id = b.identity
    await b.kill()
    shutil.rmtree(b.root)
    await b.start()
    await three.settled()
    assert b.identity == id


async def test_a_copy_says_so_once(autojump_clock, three):
    """A copy of the master's directory asks again and again, and neither serves nor fills its log with that."""
    a, _b, _c = three.members
    d = await copied(three, a)
    await d.start()
    d.roles.joining.registered({0: a.address})
    with capture_logs() as lines:
        await trio.sleep(20)
    said = [line for line in lines if line["event"] == "role changed" and "is a copy" in (line["why"] or "")]
    assert len(said) <= 1
    assert d.word == "fenced"
    assert "is a copy" in d.roles.member.status()[1]


# What a start refuses


def files_of(side: Path) -> dict[str, bytes]:
    """All that says who it is and what it has promised."""
    return {name: (side / name).read_bytes() for name in ("member", "role", "epochs") if (side / name).exists()}


async def refused(member: Member, why: str) -> None:
    """A start that ends with that, and changes nothing."""
    before = files_of(member.side)
    with pytest.RaisesGroup(pytest.RaisesExc(StoreDirectoryError, match=why), flatten_subgroups=True):
        await member.start()
    assert files_of(member.side) == before


def identity_of(member: Member) -> MemberFile:
    found = load_member(member.side)
    assert found is not None
    return found


async def test_a_directory_knows_its_group_once_there_is_a_record(nursery, tmp_path, autojump_clock):
    group = role_group(nursery, tmp_path)
    a, b = group.members
    await a.start()
    assert identity_of(a).group == "", "it is alone"
    await b.start()
    await group.settled()
    for each in group.members:
        assert (identity_of(each).group, identity_of(each).cluster) == ("broker-a", "DefaultCluster")


@pytest.mark.parametrize("names", [("broker-b", "DefaultCluster"), ("broker-a", "Other")])
async def test_a_directory_of_another_group_is_refused(autojump_clock, three, names):
    a, _b, c = three.members
    await c.stop()
    three.names, ours = names, three.names
    await refused(c, "member of brokerName broker-a, brokerClusterName DefaultCluster")
    a.produce(b"one")
    assert await a.is_acknowledged(), "the group goes on"
    three.names = ours
    await c.start()
    await three.settled()


async def test_a_directory_of_two_members_is_refused(autojump_clock, three):
    a, b, c = three.members
    await b.stop()
    await c.stop()
    own = (c.side / "role").read_bytes()
    shutil.copy(b.side / "role", c.side / "role")
    await refused(c, f"member is of the member {c.identity}, and .*role of {b.identity}")
    (c.side / "role").write_bytes(own)
    shutil.copy(b.side / "member", c.side / "member")
    await refused(c, f"member is of the member {b.identity}, and .*role of ")
    await b.start()
    a.produce(b"one")
    assert await a.is_acknowledged(), "the group goes on"


async def test_a_role_file_that_names_nobody_is_taken(autojump_clock, three):
    """twinlog 0.2 leaves that out."""
    c = three.members[-1]
    await c.stop()
    assert c.state is not None
    assert c.state.member == c.identity
    save_role(c.side, evolve(c.state, member=""))
    await c.start()
    await three.settled()
    assert c.state is not None
    assert c.state.member == c.identity


def test_a_stop_after_a_refused_start_notes_nothing(tmp_path, autojump_clock):
    """Else the next start would take a crash for a clean stop."""

    def durable(group: str) -> DurableRoleState:
        me = GroupMember(address="10.0.0.1:10911", ha_address="10.0.0.1:10912", broker_id=0, name="a")
        return DurableRoleState(tmp_path, lambda: "boot", lambda: me, lambda: 5, group=group, cluster="C")

    first = durable("broker-a")
    first.load()
    first.begin(state(SLAVE, 1))
    durable("broker-a").load()
    crashed = load_role(tmp_path)
    assert crashed is not None
    assert not crashed.clean
    for spoil in (lambda: None, lambda: (tmp_path / "member").write_bytes(b"nonsense")):
        spoil()
        again = durable("broker-b")
        with pytest.raises(StoreDirectoryError):
            again.load()
        again.note_clean_stop()
        assert load_role(tmp_path) == crashed


# Copies that become members


async def test_a_copy_becomes_a_new_member(autojump_clock, three):
    a, b, _c = three.members
    d = await copied(three, b)
    make_new_member(d.root, DirectoryOptions())
    three.size = 4
    await d.start()
    await three.settled()
    assert named(three) == {each.identity: each.address for each in three.members}
    assert len(named(three)) == 4
    assert identity_of(d).made_address == d.address
    a.produce(b"one")
    assert await a.is_acknowledged()


async def test_a_lost_member_file_makes_no_second_member_and_a_new_one_takes_its_place(autojump_clock, three):
    c = three.members[-1]
    id = c.identity
    await c.stop()
    (c.side / "member").unlink()
    await c.start()
    await trio.sleep(10)
    assert c.identity == id, "its role file says it"
    assert "member was lost" in c.roles.member.status()[1], "its starts are not known, so that it may be a copy"
    assert c.ha.client.statistics().state != "streaming"
    await c.stop()
    make_new_member(c.root, DirectoryOptions())
    assert c.identity != id
    await c.start()
    await three.settled()
    assert c.identity == id, "at its address, and with its name"
