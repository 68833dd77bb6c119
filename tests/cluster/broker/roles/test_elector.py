"""Groups that elect by themselves."""

from collections.abc import Sequence

import pytest
import trio
from attrs import define

from tests.support.group.group import ASYNC, Group, Member, until
from tests.support.group.stores import role_group
from twinlog.cluster.broker.peers.role_messages import AutoFailoverRequest, ChangeRequest, PauseRequest
from twinlog.cluster.broker.roles.candidate import RoleStepError
from twinlog.cluster.broker.roles.change import RoleChange
from twinlog.ha.config import AutoFailoverMode
from twinlog.ha.election.voter import VoteRequest
from twinlog.ha.election.witness import WitnessReply

MEMBERS = {"auto_failover": AutoFailoverMode.members}


async def made(nursery, tmp_path, *, size: int = 3, restart_ms: int = 0, **more) -> Group:
    config = {**MEMBERS, "auto_failover_restart_ms": restart_ms}
    group = role_group(nursery, tmp_path, size=size, config=config, **more)
    await group.start()
    assert {each.roles.member.group.auto_failover for each in group.members} == {"members"}
    group.first.produce(b"before")
    await trio.sleep(1)
    return group


async def electing(group: Group, *, seconds: float) -> Member:
    """Wait until another member than the first serves, and SEND_OK is said again."""
    await until(lambda: any(each.is_serving for each in group.members[1:]), "another master", seconds=seconds)
    master = next(each for each in group.members[1:] if each.is_serving)
    assert await master.is_acknowledged()
    return master


@define
class Says:
    """A witness."""

    hears: bool | None

    async def ask(self) -> Sequence[WitnessReply]:
        await trio.lowlevel.checkpoint()
        return (WitnessReply(address="ns:9876", hears=self.hears, why="says so"),)


async def test_a_master_that_dies_is_passed_at_once(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    await group.first.kill()
    master = await electing(group, seconds=3)
    assert master.epochs[-1] == (1, master.name, "failover")
    entry = master.roles.member.durable.last
    assert entry.decided_by == "group"
    assert "its process is gone" in entry.reason
    assert "nor do" in entry.reason
    await group.first.start()
    assert await group.settled() is master
    assert group.are_equal()


async def test_an_attempt_that_fails_after_the_votes_is_not_waited_for(nursery, tmp_path, autojump_clock, monkeypatch):
    """A voter waits for the candidate that has its vote, but not when that one asks again."""
    group = await made(nursery, tmp_path)
    take, failed = RoleChange._take, list[str]()

    async def fails_once(change: RoleChange) -> None:
        if not failed:
            failed.append(change.member.own)
            raise RoleStepError("the vote of another came in between")
        await take(change)

    monkeypatch.setattr(RoleChange, "_take", fails_once)
    await group.first.kill()
    master = await electing(group, seconds=4)
    assert failed == [master.roles.member.own]
    assert (master.roles.elector.tried, master.roles.elector.won) == (2, 1)


async def test_who_is_outbid_gives_up(nursery, tmp_path, autojump_clock):
    """Two that begin together would outbid each other until each has given the other one its vote."""
    group = role_group(nursery, tmp_path, size=3)
    await group.start()
    a, b, c = group.members
    await a.kill()
    ask = ChangeRequest(verb="failover", candidate=b.address, reason="", decided_by="group")
    change = RoleChange(b.roles.member, b.roles.voter, b.roles.leases, ask)
    await change._check()
    await c.roles.voter.vote(VoteRequest(epoch=change.epoch, candidate=c.identity))
    with pytest.raises(RoleStepError, match="another member has begun"):
        await change._promise()
    assert [each.roles.member.promised().winner for each in (b, c)] == [b.identity, c.identity]


async def test_a_master_that_is_cut_off_is_passed_when_its_time_is_up(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    group.isolate(group.first)
    await trio.sleep(4.5)
    assert not any(each.is_serving for each in group.members[1:])
    master = await electing(group, seconds=12)
    assert not group.first.ha.lease.held(trio.current_time())
    group.isolate()
    assert await group.settled() is master
    assert (master.roles.elector.tried, master.roles.elector.won) == (1, 1)


async def test_a_master_that_is_back_in_time_stays_master(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path, restart_ms=1000)
    await group.first.kill()
    await trio.sleep(0.7)
    await group.first.start()
    assert await group.settled() is group.first
    await trio.sleep(10)
    assert {tuple(each.epochs) for each in group.members} == {((0, "", "first"),)}


@pytest.mark.parametrize("how", ["off", "paused"])
async def test_nobody_elects_where_a_person_decides(nursery, tmp_path, autojump_clock, how):
    group = await made(nursery, tmp_path)
    if how == "off":
        await group.first.roles.set_auto_failover(AutoFailoverRequest(mode="off"))
    else:
        await group.first.roles.pause(PauseRequest(reason="new switches"))
    await group.settled()
    await group.first.kill()
    await trio.sleep(60)
    assert not any(each.is_serving for each in group.members)
    why = group.members[1].roles.elector.decision.why
    assert ("a person decides" if how == "off" else "the group is paused") in why


async def test_members_that_disagree_elect_nobody(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    a, b, c = group.members
    group.isolate(c)
    await a.roles.set_auto_failover(AutoFailoverRequest(mode="off"))
    await until(lambda: b.roles.member.group.auto_failover == "off", "b to know")
    await a.kill()
    group.isolate()
    await until(lambda: "the members disagree" in c.roles.elector.decision.why, "c to ask", seconds=20)
    await trio.sleep(30)
    assert not any(each.is_serving for each in group.members)


async def test_a_slave_that_is_cut_off_elects_nobody(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    group.isolate(group.members[2])
    await trio.sleep(30)
    assert group.members[2].roles.elector.tried == 0
    assert "enough votes" in group.members[2].roles.elector.decision.why
    assert group.first.is_serving


async def test_a_slave_whose_stream_alone_is_cut_leaves_the_master_alone(nursery, tmp_path, autojump_clock):
    """Others hear it."""
    group = await made(nursery, tmp_path)
    a, _b, c = group.members
    group.deaf = {c}
    c.lines[a].hold(True)
    await trio.sleep(20)
    group.deaf = set()
    await until(lambda: c.roles.voter.hearing.silent_seconds < 2, "c to hear its master")
    assert [each.roles.elector.tried for each in group.members] == [0, 0, 0]
    c.lines[a].hold(False)
    assert await group.settled() is a


@pytest.mark.parametrize(("hears", "elects"), [(None, False), (True, False), (False, True)])
async def test_the_slave_of_a_pair_asks_a_witness(nursery, tmp_path, autojump_clock, hears, elects):
    group = await made(nursery, tmp_path, size=2)
    slave = group.members[1]
    slave.roles.elector.witnesses = Says(hears)
    await group.first.kill()
    await trio.sleep(20)
    assert slave.is_serving is elects
    if not elects:
        assert "it may be cut off itself" in slave.roles.elector.decision.why


async def test_an_asynchronous_group_elects_nobody_past_a_dead_master(nursery, tmp_path, autojump_clock):
    group = role_group(
        nursery, tmp_path, size=3, role=ASYNC, config={**MEMBERS, "auto_failover_max_loss_bytes": 1 << 30}
    )
    await group.start()
    await group.first.kill()
    await trio.sleep(30)
    assert not any(each.is_serving for each in group.members)
    assert "enough votes" in group.members[1].roles.elector.decision.why


async def test_two_dead_members_leave_nobody_to_elect_and_one_is_enough_when_it_returns(
    nursery, tmp_path, autojump_clock
):
    group = await made(nursery, tmp_path)
    a, b, c = group.members
    await c.kill()
    await trio.sleep(1)
    await a.kill()
    await trio.sleep(20)
    assert not b.is_serving
    await c.start()
    await until(lambda: b.is_serving, "b, which has more", seconds=10)
    assert b.epochs[-1] == (1, "b", "failover")


async def test_many_elections_are_held_off(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    master, times = group.first, []
    for _ in range(6):
        await master.kill()
        began = trio.current_time()
        await until(lambda: any(each.is_serving for each in group.members), "the next master", seconds=100)
        times.append(trio.current_time() - began)
        dead, master = master, next(each for each in group.members if each.is_serving)
        await dead.start()
        await group.settled()
    assert max(times[:3]) < 3
    assert times[3] > 3
    assert times[5] > times[4] > times[3]
    assert master.epochs[-1][0] == 6


async def test_two_masters_of_one_number_find_each_other_when_one_has_moved(nursery, tmp_path, autojump_clock):
    """The one that has to begin anew finds another member at the address that the record has for the other master."""
    group = role_group(nursery, tmp_path, size=3, need=3, config=MEMBERS)
    await group.start()
    lesser, slave, greater = sorted(group.members, key=lambda each: each.identity)
    if await group.settled() is not lesser:
        assert (await group.change("switchover", lesser)).error == ""
        await group.settled()
    group.isolate(lesser)
    for each in (greater, lesser):
        assert (await group.change("failover", each)).error == ""
    assert greater.epochs[-1][0] == lesser.epochs[-1][0]
    for each in (lesser, slave):
        await each.kill()
    lesser.host, slave.host = slave.host, lesser.host
    for each in (lesser, slave):
        await each.start()
    group.isolate()
    assert await group.settled(seconds=60) is greater
    assert greater.epochs[-1][1:] == (greater.name, "restart")
    assert group.are_equal()
    greater.produce(b"one")
    assert await greater.is_acknowledged()
