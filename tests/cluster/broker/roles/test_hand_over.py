"""Masters that cannot store while their processes live, in groups that elect by themselves."""

import time

import pytest
import trio

from tests.support.group.group import ASYNC, Group, Member, until
from tests.support.group.stores import role_group
from twinlog.cluster.broker.peers.role_messages import AutoFailoverRequest
from twinlog.cluster.broker.roles import durable_state
from twinlog.ha.config import AutoFailoverMode
from twinlog.ha.election.hand_over import AGAIN_SECONDS, WAIT_SECONDS
from twinlog.store.log.running_flags import StoreCondition
from twinlog.store.util.sync import SyncError

FULL = "the disk is full"
AFTER_SECONDS = 5.0  # autoFailoverAfterMs.


@pytest.fixture
async def group(nursery, tmp_path, autojump_clock) -> Group:
    group = role_group(nursery, tmp_path, size=3, config={"auto_failover": AutoFailoverMode.members})
    await group.start()
    group.first.produce(b"before")
    await trio.sleep(1)
    return group


def fill(*members: Member) -> None:
    for member in members:
        member.store.flags.set(StoreCondition.DISK_REFUSES, FULL)


def empty(*members: Member) -> None:
    for member in members:
        member.store.flags.clear(StoreCondition.DISK_REFUSES)


def hang(member: Member) -> None:
    member.store.flusher.busy_since = time.monotonic()


async def elected(group: Group) -> tuple[Member, float]:
    """The next master, and how long that took."""
    seconds = await until(lambda: any(each.is_serving for each in group.members[1:]), "another master", seconds=10)
    master = next(each for each in group.members[1:] if each.is_serving)
    assert await master.is_acknowledged()
    return master, seconds


@pytest.mark.parametrize("breaks", [fill, hang])
async def test_it_hands_over_when_that_lasts(breaks, group, autojump_clock):
    """The others elect at once, as they hear it from the master; it follows."""
    breaks(group.first)
    await trio.sleep(AFTER_SECONDS - 1)
    assert group.first.is_serving
    master, seconds = await elected(group)
    assert seconds < 3
    reason = master.roles.member.durable.last.reason
    assert "says that it does not serve: it cannot store, and others can" in reason
    assert group.first.parts.effects.done.count("aside") == 1
    empty(group.first)
    group.first.store.flusher.busy_since = None
    assert await group.settled() is master
    assert group.are_equal()


async def test_its_reason_is_shown_while_it_waits(group, autojump_clock):
    for each in group.members[1:]:  # They hear it, and cannot elect.
        each.roles.rules.is_changing = True
    fill(group.first)
    await until(lambda: not group.first.is_serving, "the end of its service", seconds=8)
    word, why = group.first.roles.member.status()
    assert (word, why) == ("fenced", f"it cannot store, and others can: {FULL}")
    assert not group.first.ha.lease.held(trio.current_time())
    assert group.first.ha.statistics().connections == ()
    for _ in range(20):
        await trio.sleep(1)
        assert group.first.word == "fenced"


async def test_nobody_took_over(group, autojump_clock):
    """It serves what it can, and tries again minutes later."""
    for each in group.members[1:]:
        each.roles.rules.is_changing = True
    fill(group.first)
    began = trio.current_time()
    await until(lambda: group.first.roles.hand_over.count, "the hand-over", seconds=8)
    await until(lambda: group.first.is_serving, "reads", seconds=WAIT_SECONDS + 5)
    assert WAIT_SECONDS < trio.current_time() - began < WAIT_SECONDS + AFTER_SECONDS + 2
    await until(lambda: group.first.ha.lease.held(trio.current_time()), "its lease")
    await trio.sleep(AGAIN_SECONDS - 60)
    assert group.first.roles.hand_over.count == 1
    for each in group.members[1:]:
        each.roles.rules.is_changing = False
    await until(lambda: group.first.roles.hand_over.count == 2, "the next one", seconds=70)
    assert (await elected(group))[0] is not group.first


async def test_a_disk_that_is_in_order_again_before_anybody_took_over(group, autojump_clock):
    for each in group.members[1:]:
        each.roles.rules.is_changing = True
    fill(group.first)
    await until(lambda: not group.first.is_serving, "the end of its service", seconds=8)
    empty(group.first)
    await until(lambda: group.first.is_serving, "its service", seconds=5)
    assert {tuple(each.epochs) for each in group.members} == {((0, "", "first"),)}
    for each in group.members[1:]:
        each.roles.rules.is_changing = False
    assert await group.settled() is group.first
    assert await group.first.is_acknowledged()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SyncError(28, "fdatasync: no space")])
async def test_a_disk_without_room_for_its_role(error, group, autojump_clock, monkeypatch):
    """What could not be saved for want of room changed nothing: it is tried again. A sync that failed is final."""
    first, save = group.first, durable_state.save_role

    def refuse(side, state):
        if side == first.side and first.store.why_not_writable:
            raise error
        save(side, state)

    monkeypatch.setattr(durable_state, "save_role", refuse)
    fill(first)
    master, _ = await elected(group)
    await trio.sleep(10)
    assert (first.word, first.state.promised.epoch) == ("fenced", 0)
    empty(first)
    if isinstance(error, SyncError):
        await trio.sleep(10)
        assert first.word == "fenced"
    else:
        assert await group.settled() is master
        assert group.are_equal()


async def test_a_pair_hands_over_too(nursery, tmp_path, autojump_clock):
    """The old master's own answer is the word that the slave needs; messages are stored, and safe once two could hold them."""
    group = role_group(nursery, tmp_path, config={"auto_failover": AutoFailoverMode.members})
    await group.start()
    first, second = group.members
    await trio.sleep(1)
    fill(first)
    await until(lambda: second.is_serving, "the slave as master", seconds=10)
    answer = second.send(b"stored")
    empty(first)
    assert await group.settled() is second
    await until(lambda: answer.status is not None, "its answer")
    assert group.are_equal()


async def _stays(group: Group, *full: Member) -> str:
    fill(*full)
    await trio.sleep(20)
    assert group.first.word == "serving"
    assert group.first.parts.effects.done.count("aside") == 0
    return group.first.roles.hand_over.why_stays


async def test_with_nobody_who_could_store_nothing_changes(group, autojump_clock):
    assert "only 1 of its followers" in await _stays(group, *group.members[:2])


async def test_where_a_person_decides_nothing_changes(group, autojump_clock):
    await group.first.roles.set_auto_failover(AutoFailoverRequest(mode="off"))
    assert "a person decides" in await _stays(group, group.first)


async def test_a_master_that_acknowledges_alone_stays(nursery, tmp_path, autojump_clock):
    """All members would have to vote, and its own vote needs its disk."""
    group = role_group(
        nursery, tmp_path, size=2, need=1, role=ASYNC, config={"auto_failover": AutoFailoverMode.members}
    )
    await group.start()
    assert "have to vote" in await _stays(group, group.first)


async def test_a_disk_that_hangs_keeps_no_vote(group, autojump_clock):
    """Whatever waits for the disk has the lock: it stops serving all the same, gives no vote, and serves nobody afterwards."""
    first = group.first
    hang(first)
    async with first.roles.member.lock:
        master, _ = await elected(group)
        assert not first.is_serving
        await trio.sleep(2 * WAIT_SECONDS)
        assert first.word == "fenced"
        first.store.flusher.busy_since = None
    assert await group.settled() is master
    assert group.are_equal()
