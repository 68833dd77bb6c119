"""What a member is when it starts: a master that stopped, one whose machine died, one whose directory was emptied."""

import shutil

import pytest
import trio
from attrs import evolve

from tests.cluster.broker.cuts import cut_log, lose_tail
from tests.support.group.group import ASYNC, SLAVE, SYNC
from tests.support.group.stores import Calls, role_group
from twinlog.cluster.broker.peers.role_messages import PauseRequest, ReinitRequest, RewindRequest, RoleRefusedError
from twinlog.ha.election.voter import VoteRequest
from twinlog.ha.peer import PeerHistory
from twinlog.store.epoch_file import EpochId
from twinlog.store.role_file import GroupMember


@pytest.mark.parametrize("cleanly", [True, False])
async def test_a_master_goes_on_in_its_epoch(autojump_clock, pair, cleanly):
    a, _b = pair.members
    a.put(3)
    await (a.stop() if cleanly else a.kill())
    assert a.state.clean is cleanly
    await a.start()
    assert (a.word, a.store.config.broker_role) == ("starting", SLAVE), "until somebody says yes"
    assert await pair.settled() is a
    assert a.parts.effects.done.index("offsets of 1") < a.parts.effects.done.index("master")
    assert a.epochs == [(0, "", "first")]
    a.put()
    assert await a.is_acknowledged()
    assert not a.state.clean, "as long as it runs"


async def test_a_master_whose_slave_is_down_serves_after_the_lease_time(autojump_clock, pair):
    """As before; only that nothing is acknowledged by two."""
    a, b = pair.members
    await b.kill()
    await a.kill()
    await a.start()
    await trio.sleep(2)
    assert a.word == "starting"
    await trio.sleep(3)
    assert a.word == "serving"
    a.put()
    assert not await a.is_acknowledged()
    await b.start()
    assert await pair.settled() is a
    assert await a.is_acknowledged()


async def test_no_master_while_the_name_server_names_another(autojump_clock, pair):
    a, b = pair.members
    await a.kill()
    await a.start()
    await b.kill()
    a.roles.rules.has_name_servers = True
    await trio.sleep(5)
    assert a.roles.member.status() == ("starting", "no name server has said yet who is id 0")
    a.roles.joining.registered({0: b.address})
    await trio.sleep(5)
    assert a.word == "starting"
    assert f"{b.address} is registered as id 0 and does not answer" in a.roles.member.why
    a.roles.joining.registered({1: b.address})
    await trio.sleep(5)
    assert a.word == "serving"


async def test_the_registered_master_is_asked_once_a_second(autojump_clock, pair, monkeypatch):
    """By a former master that does not know the address: whether it is to be followed, and whether it serves."""
    a, b = pair.members
    elsewhere, asked = "10.0.9.9:10911", []

    async def history(calls: Calls, address: str, me: GroupMember | None = None) -> PeerHistory:
        asked.append(address)
        return evolve(a.roles.member.own_history(), address=elsewhere, role=SYNC)

    await pair.kill()
    await a.start()
    monkeypatch.setattr(Calls, "history", history)
    a.roles.joining.registered({0: elsewhere, 1: b.address})
    await trio.sleep(10)
    assert a.roles.member.status() == ("starting", f"{elsewhere} serves as id 0")
    assert 9 <= asked.count(elsewhere) <= 11


async def test_an_old_master_that_comes_back_is_a_slave(autojump_clock, pair):
    a, b = pair.members
    a.put(3)
    assert await a.is_acknowledged()
    await a.kill()
    assert (await pair.change("failover", b)).error == ""
    b.put(2)
    await a.start()
    assert await pair.settled() is b
    assert "master" not in a.parts.effects.done
    assert a.state.broker_id == 1


async def test_a_master_whose_machine_died_is_elected_anew(autojump_clock, pair):
    """It may have sent what it lost: it never writes in that epoch again, and asks for offsets before it serves."""
    a, _b = pair.members
    a.put(3)
    assert await a.is_acknowledged()
    await a.kill()
    a.boot_id = "boot 2"
    await a.start()
    assert await pair.settled() is a
    assert a.epochs[-1] == (1, "a", "restart")
    assert [kind for _, _, kind in a.epochs] == ["first", "restart"]
    done = a.parts.effects.done
    assert done.index("offsets of 1") < done.index("master")
    assert a.state.whole


async def test_a_master_that_lost_a_tail_does_not_serve(autojump_clock, pair):
    """The slave has more: a person decides."""
    a, b = pair.members
    end = await lose_tail(a, b)
    assert a.word == "fenced"
    assert not a.roles.member.is_serving
    assert (a.store.max_offset, b.store.max_offset) == (206, end)
    state = await pair.change("failover", b)
    assert state.error == ""
    assert await pair.settled() is b
    assert pair.are_equal()


async def test_an_asynchronous_master_that_lost_a_tail_begins_a_new_epoch(autojump_clock, asynchronous):
    """Nobody else had to hold what it lost. In the old epoch there would be two histories, and no rule to cut by."""
    a, b, c = asynchronous.members
    a.put(3)
    await asynchronous.settled()
    end = await lose_tail(a, b)
    assert await asynchronous.settled() is a
    assert [node.epochs[-1] for node in asynchronous.members] == [(1, "a", "restart")] * 3
    assert (a.store.max_offset, b.store.max_offset, c.store.max_offset) == (206, 206, 206)
    assert [kept.name for kept in (b.side / "divergent").iterdir()] == [f"{206:020}-{end - 206}"], "only slaves had it"
    assert a.state.whole
    a.put(3)
    assert await asynchronous.settled() is a
    assert asynchronous.are_equal()


async def test_a_new_epoch_of_its_own_is_begun_without_the_others(autojump_clock, asynchronous):
    """The last one standing serves, as it did before its machine died; who comes back follows it."""
    a, b, c = asynchronous.members
    a.put(3)
    await asynchronous.settled()
    for node in asynchronous.members:
        await node.kill()
    cut_log(a, 206)
    a.boot_id = "boot 2"
    await a.start()
    await trio.sleep(5)
    assert (a.word, a.epochs[-1]) == ("serving", (1, "a", "restart"))
    a.put(2)
    await b.start()
    await c.start()
    assert await asynchronous.settled() is a
    assert asynchronous.are_equal()


async def test_who_was_chosen_by_force_is_newer_than_a_master_that_began_again_meanwhile(autojump_clock, asynchronous):
    """Neither knew of the other: numbers are left free, so that they do not take the same one."""
    a, b, c = asynchronous.members
    a.put(3)
    await asynchronous.settled()
    for node in asynchronous.members:
        await node.kill()
    await b.start()
    await c.start()
    assert (await asynchronous.change("failover", b, accept_data_loss="unknown")).error == ""
    b.put(2)
    await b.kill()
    await c.kill()
    a.boot_id = "boot 2"
    await a.start()
    await trio.sleep(5)
    assert a.epochs[-1] == (1, "a", "restart")
    a.put(5)
    await b.start()
    await c.start()
    assert await asynchronous.settled() is b
    assert a.epochs[-1] == (11, "b", "forced")
    assert asynchronous.are_equal()


@pytest.mark.parametrize("role", [SYNC, ASYNC])
async def test_a_master_whose_log_file_is_gone_does_not_serve(tmp_path, autojump_clock, nursery, role):
    """Nothing died, and what was lost was on its disk: slaves have it, and may not lose the same."""
    group = role_group(nursery, tmp_path, size=3, role=role)
    await group.start()
    a, b, _c = group.members
    a.put(3)
    await group.settled()
    end = a.store.max_offset
    await a.stop()
    next((a.root / "commitlog").iterdir()).unlink()
    for _ in range(2):  # It is not forgotten by another start.
        await a.start()
        await trio.sleep(10)
        assert (a.word, a.state.whole, a.store.max_offset, a.store.lost_bytes) == ("fenced", False, 0, end)
        assert "ends before its last durable end" in a.roles.member.status()[1]
        await a.stop()
    await a.start()
    accept = None if role is SYNC else 0
    assert (await group.change("failover", b, accept_data_loss=accept)).error == ""
    assert await group.settled() is b
    assert group.are_equal()
    await trio.sleep(2)
    assert (a.state.whole, a.store.lost_bytes, b.store.max_offset) == (True, 0, end)
    assert not (a.side / "known-end").exists()
    b.put(3)
    await group.settled()
    assert group.are_equal()


async def test_a_slave_whose_log_file_is_gone_is_whole_once_it_is_level(autojump_clock, pair):
    a, b = pair.members
    a.put(3)
    assert await a.is_acknowledged()
    await b.stop()
    next((b.root / "commitlog").iterdir()).unlink()
    await b.start()
    assert b.store.lost_bytes
    assert not b.state.whole
    await pair.settled()
    await trio.sleep(2)
    assert (b.state.whole, b.store.lost_bytes) == (True, 0)
    assert pair.are_equal()


async def test_an_emptied_member_hears_all_others_first(autojump_clock, three):
    a, b, c = three.members
    a.put(3)
    await three.settled()
    await b.roles.voter.vote(VoteRequest(epoch=4, candidate=b.address))  # Which c may have promised, too.
    await b.kill()
    await c.kill()
    shutil.rmtree(c.root)
    await c.start()
    await trio.sleep(10)
    assert c.word == "waiting"
    assert b.address in c.roles.member.why
    assert c.store.max_offset == 0
    await b.start()
    await trio.sleep(5)
    assert c.state.promised == EpochId(4, b.address)
    assert not c.state.whole
    assert (await three.change("failover", a)).error == ""
    await three.settled()
    await trio.sleep(2)
    assert c.state.whole, "level again"


async def test_an_emptied_member_follows_once_a_person_says_so(autojump_clock, three):
    _a, b, c = three.members
    await b.kill()
    await c.kill()
    shutil.rmtree(c.root)
    await c.start()
    await trio.sleep(5)
    assert c.word == "waiting"
    await c.roles.reinit(ReinitRequest())
    await three.settled()


async def test_two_emptied_members_say_that_a_person_has_to_decide(autojump_clock, three):
    """Each waits for the other one, which does not know what it promised, either."""
    _a, b, c = three.members
    for member in (b, c):
        await member.kill()
        shutil.rmtree(member.root)
    await b.start()
    await trio.sleep(5)
    assert "other files" not in b.roles.member.why
    await c.start()
    await trio.sleep(10)
    for member, other in ((b, c), (c, b)):
        assert member.word == "waiting"
        assert f"at {other.address} other files are now" in member.roles.member.why
        assert "next: twinlog reinit" in member.roles.member.why
        await member.roles.reinit(ReinitRequest())
    await three.settled()


async def test_reinit_and_pause(autojump_clock, pair):
    a, b = pair.members
    a.put(3)
    await pair.settled()
    with pytest.raises(RoleRefusedError, match="only a slave"):
        await a.roles.reinit(ReinitRequest())
    await a.roles.pause(PauseRequest(for_ms=60_000, reason="maintenance"))
    await trio.sleep(3)
    with pytest.raises(RoleRefusedError, match="the group is paused for 57 s more: maintenance"):
        await b.roles.reinit(ReinitRequest())
    assert "paused" in (await pair.change("switchover", b)).error
    await trio.sleep(60)
    await b.roles.reinit(ReinitRequest())
    assert not b.state.whole
    await pair.settled()
    await trio.sleep(3)
    assert b.state.whole
    assert pair.are_equal()
    await a.roles.pause(PauseRequest())
    await a.roles.resume()
    assert (await pair.change("switchover", b)).error == ""


async def test_a_switchover_for_later(autojump_clock, pair):
    """It outlives the master's process, names nobody, and is tried once."""
    a, b = pair.members
    at_ms = int(trio.current_time() * 1000) + 30_000
    with pytest.raises(RoleRefusedError):
        await b.roles.role_change("schedule", {"atMs": at_ms})
    await a.roles.role_change("schedule", {"atMs": at_ms, "reason": "at night"})
    await a.kill()
    await a.start()
    await trio.sleep(25)
    assert a.word == "serving"
    await trio.sleep(10)
    assert await pair.settled() is b
    assert a.state.scheduled is None
    assert b.roles.member.epochs()[-1].reason == "at night"


async def test_rewind_gives_up_what_the_history_proves(tmp_path, autojump_clock, nursery):
    group = role_group(nursery, tmp_path, config={"auto_rewind": False})
    await group.start()
    a, b = group.members
    with pytest.raises(RoleRefusedError, match="nothing to give up"):
        await b.roles.rewind(RewindRequest())
    group.isolate(a)
    a.put(2)
    assert (await group.change("failover", b)).error == ""
    b.put(1)
    group.isolate()
    await trio.sleep(10)
    assert a.store.max_offset != b.store.max_offset
    await a.roles.rewind(RewindRequest(dry_run=True))
    await a.roles.rewind(RewindRequest())
    assert await group.settled() is b
    assert group.are_equal()


async def test_a_save_that_fails_fences_for_good(autojump_clock, pair, monkeypatch):
    a, b = pair.members
    await a.kill()

    def full(_side, _state):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("twinlog.cluster.broker.roles.durable_state.save_role", full)
        state = await pair.change("failover", b)
        assert state.result is None
    await trio.sleep(5)
    assert b.word == "fenced"
    assert "cannot be written" in b.roles.member.status()[1]
    await b.kill()
    await b.start()
    assert (await pair.change("failover", b)).error == ""
    await a.start()
    assert await pair.settled() is b
