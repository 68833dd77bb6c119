"""Switchover and failover, and each of their steps cut by the death of who takes part, then run again."""

import pytest
import trio

from tests.helpers import log_bytes
from tests.support.group.group import ASYNC, SYNC, step_states
from tests.support.group.stores import role_group
from twinlog.cluster.broker.peers.role_messages import ChangeRequest, RoleRefusedError
from twinlog.cluster.broker.roles import durable_state
from twinlog.ha.election.voter import VoteRequest


def _ask(verb, node):
    return ChangeRequest(verb=verb, candidate=node.address)


async def test_a_slave_that_follows_belongs_to_the_group(autojump_clock, pair):
    """The record begins with the first slave that votes; both have it on their disks."""
    a, b = pair.members
    assert [m.address for m in b.state.group.members] == [a.address, b.address]
    assert (a.state.role, b.state.role) == (SYNC, b.store.config.broker_role)
    assert a.epochs == b.epochs == [(0, "", "first")]
    a.put()
    assert await a.is_acknowledged()


async def test_failover_to_the_slave_of_a_dead_master(autojump_clock, pair):
    a, b = pair.members
    a.put(5)
    assert await a.is_acknowledged()
    await a.kill()
    state = await pair.change("failover", b, reason="a is dead")
    assert (state.error, state.result.epoch, state.result.not_following) == ("", 1, (a.address,))
    assert set(step_states(state).values()) == {"done"}
    assert b.word == "serving"
    b.put(3)
    await a.start()
    assert await pair.settled() is b
    assert pair.are_equal()
    assert a.epochs == b.epochs == [(0, "", "first"), (1, "b", "failover")]
    assert (a.state.broker_id, b.state.broker_id) == (1, 0)


async def test_switchover_and_back(autojump_clock, pair):
    a, b = pair.members
    a.offsets = {"group": 5}
    for number in range(4):
        old, new = (a, b) if number % 2 == 0 else (b, a)
        old.put(3)
        state = await pair.change("switchover", new)
        assert (state.error, state.result.epoch, state.result.not_following) == ("", number + 1, ())
        assert state.result.pause_ms < 100
        assert await pair.settled() is new
        assert new.offsets == {"group": 5}
    assert pair.are_equal()


async def test_async_masters_switch_over_too(tmp_path, autojump_clock, nursery):
    """Where a master alone acknowledges, its resignation is enough."""
    group = role_group(nursery, tmp_path, size=3, role=ASYNC, need=1)
    await group.start()
    a, _, c = group.members
    a.put(4)
    await group.settled()
    state = await group.change("switchover", c)
    assert (state.error, state.result.winner) == ("", c.address)
    assert await group.settled() is c
    assert group.are_equal()
    assert c.store.config.broker_role is ASYNC


async def test_a_dry_run_shows_the_plan_and_changes_nothing(autojump_clock, pair):
    a, b = pair.members
    before = [(node.state, node.epochs, node.word) for node in pair.members]
    state = await b.roles.check(_ask("switchover", b))
    assert [step.state for step in state.steps] == ["done"] + ["to do"] * 7
    assert state.judgements[0].may
    state = await b.roles.check(_ask("failover", b))
    assert not state.judgements[0].may
    assert f"{a.address} serves" in state.error
    assert [(node.state, node.epochs, node.word) for node in pair.members] == before


async def test_failover_that_may_lose_is_refused_until_it_is_accepted(autojump_clock, three):
    a, b, c = three.members
    three.isolate(c)
    a.put(3)
    assert await a.is_acknowledged()
    await a.kill()
    await b.kill()
    three.isolate()
    state = await three.change("failover", c)
    assert state.refused
    assert state.judgements[0].lost is not None, state.judgements
    assert state.judgements[0].lost.end is None, "nobody knows how much"
    assert c.state.promised.epoch == 0, "refused before anything was promised"
    state = await three.change("failover", c, accept_data_loss="unknown")
    assert (state.error, state.result.lost_bytes) == ("", None)
    assert c.epochs[-1] == (1, "c", "forced")
    await a.start()
    await b.start()
    c.put()
    assert await three.settled() is c
    assert three.are_equal()


async def test_an_isolated_master_acknowledges_nothing_and_follows_once_it_is_back(autojump_clock, pair):
    a, b = pair.members
    a.put(2)
    assert await a.is_acknowledged()
    pair.isolate(a)
    await trio.sleep(4)
    assert not a.ha.lease.held(trio.current_time())
    state = await pair.change("failover", b)
    assert state.error == ""
    a.put(3)
    b.put(1)
    await trio.sleep(5)
    assert a.word == "serving", "nobody told it"
    assert not await a.is_acknowledged()
    pair.isolate()
    assert await pair.settled() is b
    assert pair.are_equal()
    assert any((a.side / "divergent").iterdir())


async def test_a_promise_that_nobody_took_is_settled_by_any_failover(autojump_clock, pair):
    """The candidate died right after: the master is not taken along, and may be elected anew by name."""
    a, b = pair.members
    await b.roles.voter.vote(VoteRequest(epoch=5, candidate=b.address))
    assert b.word == "fenced"
    await trio.sleep(5)
    assert a.word == "fenced", "one promise elects, of two members"
    state = await pair.change("failover", a)
    assert (state.error, state.result.epoch) == ("", 6)
    assert await pair.settled() is a


async def test_a_master_of_three_survives_a_candidate_that_dies(autojump_clock, three):
    a, b, c = three.members
    await b.roles.voter.vote(VoteRequest(epoch=5, candidate=b.address))
    await b.kill()
    await trio.sleep(5)
    a.put()
    assert await a.is_acknowledged()
    await b.start()
    await trio.sleep(5)
    assert (a.word, b.word, c.word) == ("serving", "fenced", "following")
    state = await three.change("failover", a)
    assert (state.error, state.result.epoch) == ("", 6)
    await three.settled()


# Cut in the middle


class Cuts:
    """Kills a member at one of the durable writes of the group."""

    def __init__(self, monkeypatch):
        self.at, self.count, self.victim, self.before = -1, 0, None, False
        for name in ("save_role", "save_epochs"):
            monkeypatch.setattr(durable_state, name, self._wrap(getattr(durable_state, name)))

    def _wrap(self, save):
        def counted(side, value):
            hit = self.victim is not None and self.count == self.at
            self.count += self.victim is not None
            if hit and self.before and self.victim.side == side:
                self.victim.die()
                raise OSError("it died")
            save(side, value)
            if hit:
                self.victim.die()

        return counted


@pytest.fixture
def cuts(monkeypatch):
    return Cuts(monkeypatch)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("at", range(8))
@pytest.mark.parametrize("victim", ["a", "b"])
async def test_a_switchover_that_is_cut_loses_nothing_and_can_be_finished(
    autojump_clock, pair, cuts, at, victim, before
):
    """At each durable write one of the two dies; it comes back, and the same command, or a failover, makes one master."""
    a, b = pair.members
    a.put(3)
    assert await a.is_acknowledged()
    kept = log_bytes(a.store)
    cuts.at, cuts.victim, cuts.before = at, {"a": a, "b": b}[victim], before
    state = await pair.change("switchover", b)
    cuts.victim = None
    for node in pair.members:
        if not node.up:
            await node.kill()
            await node.start()
    await trio.sleep(8)
    if not (state.result is not None and b.up):
        state = await pair.change("switchover", b)
        if "is master" in state.error or b.word == "serving":
            state = b.roles.state()
    assert b.word == "serving", state.error
    b.put(2)
    assert await pair.settled() is b
    assert pair.are_equal()
    assert log_bytes(b.store).startswith(kept)
    assert await b.is_acknowledged()


@pytest.mark.parametrize("at", range(7))
async def test_a_failover_that_is_cut_can_be_finished_by_another(autojump_clock, three, cuts, at):
    """B dies at each of its writes; then C is asked, and later B is back."""
    a, b, c = three.members
    a.put(3)
    await three.settled()
    kept = log_bytes(a.store)
    await a.kill()
    cuts.at, cuts.victim = at, b
    await three.change("failover", b)
    cuts.victim = None
    if not b.up:
        await b.kill()
        await b.start()
        await trio.sleep(4)
    state = await three.change("failover", c)
    if state.error:
        assert "serves" in state.error
    await a.start()
    master = await three.settled()
    master.put(2)
    await three.settled()
    assert three.are_equal()
    assert log_bytes(master.store).startswith(kept)


async def test_the_pause_lasts_until_the_new_master_may_answer(autojump_clock, pair):
    """One number: from the hold to the first message of the new epoch that is as safe as promised."""
    a, b = pair.members
    a.put()
    assert await a.is_acknowledged()
    connect = a.ha.client.connect

    async def connect_late(address):
        await trio.sleep(0.5)
        return await connect(address)

    a.ha.client.connect = connect_late
    state = await pair.change("switchover", b)
    assert 500 < state.result.pause_ms < 600
    assert b.roles.last_pause_ms == state.result.pause_ms
    assert b.ha.group_transfer.confirmed_offset == b.store.max_offset


async def test_a_resigned_master_is_followed_up_without_a_look_at_the_bytes(autojump_clock, pair):
    """What producers wait for is some questions and answers, whatever the length of the log."""
    a, b = pair.members
    a.put(20)
    assert await a.is_acknowledged()
    peers = []
    peer_of = a.ha.client.peer_of
    a.ha.client.peer_of = lambda address: peers.append(peer_of(address)) or peers[-1]
    state = await pair.change("switchover", b)
    assert state.result.pause_ms < 20
    assert [peer.questions for peer in peers] == [[]]
    assert await pair.settled() is b
    assert pair.are_equal()


async def test_who_is_silent_is_waited_for_once(autojump_clock, three):
    """A machine that is gone answers nothing, not even that; the members that are left are enough."""
    a, b, c = three.members
    three.isolate(a)
    began = trio.current_time()
    state = await three.change("failover", b)
    assert (state.error, state.result.not_following) == ("", (a.address,))
    assert trio.current_time() - began < 3.2, "one time limit of a question"
    assert state.result.pause_ms is None
    await trio.sleep(1)
    assert c.word == "following"


async def test_who_was_silent_is_asked_again_where_it_is_needed(autojump_clock, three):
    a, b, c = three.members
    await a.kill()
    three.isolate(c)
    await b.roles.start(ChangeRequest(verb="failover", candidate=b.address, accept_data_loss="unknown"))
    await trio.sleep(2.9)
    three.isolate()
    with trio.fail_after(10):
        while b.roles.state().running:
            await trio.sleep(0.01)
    state = b.roles.state()
    assert (state.error, state.result.lost_bytes) == ("", 0)
    assert b.epochs[-1] == (1, "b", "failover"), "nothing had to be forced after all"


async def test_a_member_that_stops_refuses_a_role_change(autojump_clock, pair):
    _a, b = pair.members
    roles, ask = b.roles, ChangeRequest(verb="switchover", candidate=b.address, reason="")
    await b.stop()
    with pytest.raises(RoleRefusedError, match="about to stop"):
        await roles.start(ask)
