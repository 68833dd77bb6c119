"""haMembers: who belongs to a group, and who does no more."""

import pytest
import trio

from tests.ha.conftest import no_threads as no_threads
from tests.support.group.stores import role_group
from twinlog.ha.errors import HAConnectionLostError


@pytest.fixture
def group(tmp_path, nursery, no_threads):
    return role_group(nursery, tmp_path, size=3)


def listed(*nodes):
    return ";".join(node.address for node in nodes)


async def refuse(_address):
    await trio.lowlevel.checkpoint()
    raise HAConnectionLostError("cannot connect: refused")


async def restart(node):
    await node.stop()
    await node.start()


async def test_a_member_that_is_gone_for_good_is_forgotten(autojump_clock, group):
    """The two that are left elect each other."""
    await group.start()
    a, b, c = group.members
    await b.kill()
    a.put(3)
    assert await a.is_acknowledged()
    group.config["members"], group.size = listed(a, c), 2
    await restart(a)
    assert await group.settled() is a
    assert {member.address for member in a.roles.member.group.members} == {a.address, c.address}
    a.put(3)
    assert await a.is_acknowledged()
    a.die()
    assert (await group.change("failover", c)).error == ""
    assert c.roles.member.is_serving


async def test_who_lacks_what_the_forgotten_one_acknowledged_is_not_elected(autojump_clock, group):
    await group.start()
    a, b, c = group.members
    await c.kill()
    a.put(3)
    assert await a.is_acknowledged(), "by b"
    await b.kill()
    group.config["members"], group.size = listed(a, c), 2
    await restart(a)
    await c.start()
    c.ha.client.connect = refuse
    await trio.sleep(10)
    assert len(c.roles.member.group.members) == 2, "it has heard"
    assert c.store.max_offset < a.store.max_offset
    a.die()
    state = await group.change("failover", c)
    assert not c.roles.member.is_serving
    assert "bytes up to 618, where only members" in state.error


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_another_member_takes_the_place_of_one_whose_machine_is_gone(autojump_clock, group, is_restarted):
    """Of two. Without haMembers the other one would have to agree first."""
    a, b, c = group.members
    group.size = 2
    await a.start()
    await b.start()
    await group.settled()
    await b.kill()
    await c.start()
    await trio.sleep(20)
    a.put(1)
    assert not await a.is_acknowledged(), "b could still be elected by itself"
    if is_restarted:
        await restart(c)
    group.config["members"] = listed(a, c)
    await restart(a)
    assert await group.settled() is a
    assert {member.address for member in a.roles.member.group.members} == {a.address, c.address}
    assert await a.is_acknowledged()
    a.die()
    assert (await group.change("failover", c)).error == ""
    assert c.roles.member.is_serving


async def test_nobody_else_becomes_a_member(autojump_clock, group):
    a, b, c = group.members
    group.config["members"], group.size = listed(a, b), 2
    await a.start()
    await b.start()
    await group.settled()
    await c.start()
    await trio.sleep(20)
    assert {member.address for member in a.roles.member.group.members} == {a.address, b.address}
    assert c.store.max_offset == 0
    assert "haMembers" in c.ha.client.finding.text
    a.put(1)
    assert await a.is_acknowledged()
