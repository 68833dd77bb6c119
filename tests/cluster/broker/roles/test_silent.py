"""A failover past members that are silent: whoever is known not to answer is not waited for again."""

import pytest
import trio

from tests.support.group.group import until
from tests.support.group.stores import role_group
from twinlog.cluster.broker.peers.role_messages import ChangeRequest
from twinlog.cluster.broker.roles.candidate import MOMENT_SECONDS
from twinlog.cluster.broker.roles.voter import KEPT_SECONDS, SilentMembers

LEASE_SECONDS = 3.0


async def _seconds(group, candidate) -> float:
    """Of the dry run that every command begins with, and the failover."""
    began = trio.current_time()
    ask = ChangeRequest(verb="failover", candidate=candidate.address)
    assert (await candidate.roles.check(ask)).error == ""
    state = await group.change("failover", candidate)
    assert state.error == ""
    return trio.current_time() - began


async def test_a_master_that_hangs_is_passed_within_its_lease(autojump_clock, three):
    """Whoever asks at once waits until it is known to hang; the second round of questions waits no more."""
    a, b, c = three.members
    a.put(3)
    assert await a.is_acknowledged()
    three.isolate(a)
    assert await _seconds(three, b) < LEASE_SECONDS + 2 * MOMENT_SECONDS + 0.5
    b.put()
    assert await b.is_acknowledged()
    three.isolate()
    assert await three.settled() is b
    assert three.are_equal()
    assert c.word == "following"


@pytest.mark.parametrize("size", [2, 3])
async def test_a_master_that_is_known_to_hang_costs_a_moment(size, tmp_path, autojump_clock, nursery):
    group = role_group(nursery, tmp_path, size=size)
    await group.start()
    master, candidate, *_ = group.members
    group.isolate(master)
    await trio.sleep(LEASE_SECONDS + 1)
    assert await _seconds(group, candidate) < 2 * MOMENT_SECONDS + 0.5


async def test_a_slave_that_hangs_with_its_master_is_waited_for_once(tmp_path, autojump_clock, nursery):
    """Of five members three vote, and the dry run has found out who does not answer."""
    group = role_group(nursery, tmp_path, size=5, need=3)
    await group.start()
    master, candidate, _, _, slave = group.members
    group.isolate(master, slave)
    ask = ChangeRequest(verb="failover", candidate=candidate.address)
    assert (await candidate.roles.check(ask)).error == ""
    began = trio.current_time()
    assert (await group.change("failover", candidate)).error == ""
    assert trio.current_time() - began < 2 * MOMENT_SECONDS + 0.5


async def test_who_is_needed_is_waited_for_all_the_same(autojump_clock, three):
    """A voter that was silent a moment ago, and answers late, gives the vote that is missing."""
    a, b, c = three.members
    three.isolate(c)
    checked = await b.roles.check(ChangeRequest(verb="failover", candidate=b.address))
    assert checked.error  # The master serves.
    assert c.identity in b.roles.voter.unanswered
    three.isolate(a, c)
    await trio.sleep(LEASE_SECONDS + 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(three.change, "failover", b)
        await trio.sleep(MOMENT_SECONDS / 2)  # It has not heard the first question.
        three.isolate(a)
        await until(lambda: b.is_serving, "the failover")


def test_silence_is_forgotten():
    silent = SilentMembers()
    silent.missed("a", 10)
    silent.missed("b", 20)
    silent.answered("b")
    silent.forget(10 + KEPT_SECONDS - 1)
    assert "a" in silent
    assert "b" not in silent
    silent.forget(10 + KEPT_SECONDS)
    assert "a" not in silent
