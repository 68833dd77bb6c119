"""The rounds of a master: its lease, and the record of its group."""

import pytest
import trio
from structlog.testing import capture_logs

from tests.support.group.group import ASYNC, SYNC
from tests.support.group.stores import role_group
from twinlog.cluster.broker.roles.lease import acks_needed, joined
from twinlog.ha.config import HAConfig
from twinlog.store.role_file import GroupMember


def member(name: str, broker_id: int = 1, *, votes: bool = True) -> GroupMember:
    return GroupMember(address=f"{name}:1", ha_address=f"{name}:2", broker_id=broker_id, name=name, votes=votes)


def test_how_many_hold_a_message():
    assert acks_needed(HAConfig(in_sync_replicas=3), ASYNC) == 1
    assert acks_needed(HAConfig(in_sync_replicas=3), SYNC) == 3
    assert acks_needed(HAConfig(in_sync_replicas=3, auto_in_sync_replicas=True, min_in_sync_replicas=2), SYNC) == 2


def test_every_member_has_an_id_of_its_own():
    record = joined(None, member("a", 0), member("b"), 2, SYNC)
    assert [each.broker_id for each in record.members] == [0, 1]
    record = joined(record, member("a", 0), member("c", 1), 2, SYNC)
    assert record.member("c:1").broker_id == 2, "1 is taken"
    assert joined(record, member("a", 0), member("c", 7), 2, SYNC) is record, "it keeps what it has"


async def test_a_lone_master_needs_no_lease_and_writes_nothing(tmp_path, autojump_clock, nursery):
    group = role_group(nursery, tmp_path, size=1, need=1)
    (a,) = group.members
    await a.start()
    await trio.sleep(10)
    assert a.ha.lease.held(trio.current_time())
    assert a.state is None
    assert a.word == "serving"
    assert not (a.side / "role").exists()


async def test_the_third_member_counts_once_the_others_know(tmp_path, autojump_clock, nursery):
    group = role_group(nursery, tmp_path, size=3)
    a, b, c = group.members
    await a.start()
    await b.start()
    await trio.sleep(5)
    assert a.roles.counted_members() == {a.identity, b.identity}
    await b.kill()
    await c.start()
    await trio.sleep(5)
    assert a.roles.counted_members() == {a.identity, b.identity}, "b alone could still elect itself"
    await b.start()
    await group.settled()
    assert a.roles.counted_members() == {node.identity for node in group.members}


async def test_a_slave_that_is_cut_off_is_missed_at_both_ends(autojump_clock, three):
    """Another one acknowledges, so nobody waits for it, and a dropped packet ends no stream."""
    a, _b, c = three.members
    three.deaf.add(c)
    with capture_logs() as lines:
        await trio.sleep(4.5)
    assert {("master not heard", a.address), ("voter does not answer", c.address)} == {
        (line["event"], line["peer"]) for line in lines
    }
    assert a.roles.leases.silence.silent(trio.current_time()).keys() == {c.address}
    assert c.roles.voter.silence.is_silent
    three.deaf.clear()
    await trio.sleep(5)
    assert not a.roles.leases.silence.silent(trio.current_time())
    assert not c.roles.voter.silence.is_silent
    assert await a.is_acknowledged()


async def test_without_enough_answers_the_lease_ends(autojump_clock, three):
    a, b, c = three.members
    await b.kill()
    await trio.sleep(10)
    assert a.ha.lease.held(trio.current_time()), "two of three"
    await c.kill()
    await trio.sleep(3.1)
    assert not a.ha.lease.held(trio.current_time())
    assert a.word == "serving"


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
async def test_another_number_of_acknowledgements(tmp_path, autojump_clock, nursery, before, after):
    """The record changes first where less is promised, and last where more is."""
    group = role_group(nursery, tmp_path, need=before)
    await group.start()
    a, b = group.members
    assert a.state.group.acks_needed == before
    await a.kill()
    group.config["in_sync_replicas"] = after
    await a.start()
    await group.settled()
    await trio.sleep(5)
    assert a.state.group.acks_needed == b.state.group.acks_needed == after
    assert a.ha.lease.held(trio.current_time())
