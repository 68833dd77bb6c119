"""Where a role could be taken, kept or left wrongly: restarts at bad moments, repairs that fail, files that are gone."""

import shutil

import pytest
import trio

from tests.cluster.broker.cuts import cut_log, lose_tail
from tests.support.group.group import SLAVE, Group, Member
from tests.support.group.stores import Calls, role_group
from twinlog.cluster.broker.peers.role_messages import PauseRequest, ReinitRequest, RoleRefusedError
from twinlog.ha.config import AckMode
from twinlog.ha.election.voter import VoteRequest
from twinlog.store.config import FlushDiskType
from twinlog.store.errors import StoreError
from twinlog.store.message_store import MessageStore


async def test_a_clean_stop_does_not_make_a_lost_tail_good(autojump_clock, pair):
    """Who restarts a master that waits for a person must not get one that writes again in the epoch whose tail it lost."""
    a, b = pair.members
    await lose_tail(a, b)
    assert a.word == "fenced"
    await a.stop()
    await a.start()
    await trio.sleep(10)
    assert a.word == "fenced"
    assert (await pair.change("failover", b)).error == ""
    assert (await pair.settled()).name == "b"
    assert pair.are_equal()


async def test_who_lost_a_tail_and_followed_since_stops_as_cleanly_as_others(autojump_clock, pair):
    a, b = pair.members
    await lose_tail(a, b)
    assert (await pair.change("failover", b)).error == ""
    await pair.settled()
    await trio.sleep(3)
    await a.stop()
    assert (a.state.clean, a.state.whole) == (True, True)


async def test_a_repair_that_fails_leaves_a_slave_that_follows(autojump_clock, pair):
    """What is cut cannot be kept: the log stays as it is, and goes on."""
    a, b = pair.members
    a.put(3)
    await pair.settled()
    (b.side / "divergent").write_bytes(b"no directory")
    with pytest.raises((StoreError, OSError)):
        await b.roles.reinit(ReinitRequest())
    a.put(1)
    assert (await pair.settled()).name == "a"
    assert pair.are_equal()


async def test_a_schedule_ends_with_the_mastership_that_it_was_made_for(autojump_clock, pair):
    """Another one took over before. Once this member is master again, an old plan must not move the role at once."""
    a, b = pair.members
    await a.roles.role_change("schedule", {"atMs": int(trio.current_time() * 1000) + 30_000})
    assert (await pair.change("switchover", b)).error == ""
    await pair.settled()
    await trio.sleep(60)
    assert (await pair.change("switchover", a)).error == ""
    await trio.sleep(10)
    assert (await pair.settled()).name == "a"


async def with_emptied_master(nursery, tmp_path) -> Group:
    """Of three, whose second one was chosen when the first one had died. The first one's directory is empty."""
    group = role_group(nursery, tmp_path, size=3)
    await group.start()
    a, b, _c = group.members
    a.put(3)
    await group.settled()
    await a.kill()
    assert (await group.change("failover", b)).error == ""
    shutil.rmtree(a.root)
    return group


async def test_an_emptied_master_takes_nothing_as_soon_as_it_hears_of_its_group(tmp_path, autojump_clock, nursery):
    """Another one may be master since: it waits to hear all the others, and stores nothing meanwhile."""
    group = await with_emptied_master(nursery, tmp_path)
    a, _b, c = group.members
    await c.kill()
    await a.start()
    await trio.sleep(5)
    word, role = a.word, a.store.config.broker_role
    assert (word, role) == ("waiting", SLAVE)
    await c.start()
    assert (await group.settled()).name == "b"
    assert group.are_equal()


async def test_an_emptied_master_never_serves_beside_the_one_that_is_registered(tmp_path, autojump_clock, nursery):
    """What it took for a moment would be a second beginning of the log."""
    group = await with_emptied_master(nursery, tmp_path)
    a, b, _c = group.members
    group.registered_master = b.address
    await a.start()
    assert (a.store.config.broker_role, a.parts.effects.done) == (SLAVE, ["fence"])
    assert (await group.settled()).name == "b"
    assert group.are_equal()
    assert "master" not in a.parts.effects.done


async def test_a_new_master_serves_whoever_is_registered(tmp_path, autojump_clock, nursery):
    """It never belonged to that one's group: as with RocketMQ, broker.conf says what it is. Nor does it wait for a dead one."""
    group = role_group(nursery, tmp_path, size=2)
    a, b = group.members
    await b.start()
    group.registered_master = b.address
    await a.start()
    assert (await group.settled()).name == "a"
    await a.kill()
    await b.kill()
    shutil.rmtree(a.root)
    await a.start()
    assert a.store.config.broker_role is group.role


async def test_what_is_promised_is_not_thrown_away_meanwhile(autojump_clock, three, nursery, monkeypatch):
    """An answer says what the log holds, and somebody may be elected by that."""
    a, b, c = three.members
    a.put(3)
    await three.settled()
    answers, reset = [], MessageStore.reset

    async def ask():
        answers.append(await b.roles.voter.vote(VoteRequest(epoch=1, candidate=c.address)))

    async def slow_reset(store, why):
        nursery.start_soon(ask)
        await trio.sleep(1)
        await reset(store, why)

    monkeypatch.setattr(MessageStore, "reset", slow_reset)
    await b.roles.reinit(ReinitRequest())
    await trio.sleep(1)
    (answer,) = answers
    assert (answer.max_offset, answer.whole) == (0, False)


async def test_a_member_that_promised_meanwhile_does_not_follow_the_old_master_again(
    autojump_clock, three, monkeypatch
):
    a, b, c = three.members
    a.put(3)
    await three.settled()
    suspect_tail = type(b.roles.member).suspect_tail

    async def late_suspicion(member, why):
        await b.roles.voter.vote(VoteRequest(epoch=1, candidate=c.address))
        await suspect_tail(member, why)

    monkeypatch.setattr(type(b.roles.member), "suspect_tail", late_suspicion)
    end = b.store.max_offset
    with pytest.raises(RoleRefusedError):
        await b.roles.reinit(ReinitRequest())
    assert (b.word, b.store.max_offset) == ("fenced", end)


async def test_offsets_that_others_took_are_asked_for_before_a_new_epoch_serves(autojump_clock, three):
    """Consumers committed to whoever was there while the master was away, and in a new epoch only its master's word counts."""
    a, b, _c = three.members
    await a.kill()
    await trio.sleep(5)
    assert (await three.change("failover", b)).error == ""
    done = b.parts.effects.done
    assert done.index("offsets of 1") < done.index("master"), "of c; nobody waits for a, which is dead"
    await a.start()
    await three.settled()
    assert (await three.change("switchover", a)).error == ""
    done = a.parts.effects.done
    assert not [each for each in done if each.startswith("offsets")], "the old master handed its own over"


async def test_a_pause_lasts_where_the_clock_is_ahead(autojump_clock, pair):
    """It ends by the master's clock, which is told with each question."""
    a, b = pair.members
    b.roles.member.now_ms = lambda: int(trio.current_time() * 1000) + 3_600_000
    await a.roles.pause(PauseRequest(for_ms=600_000, reason="maintenance"))
    await trio.sleep(3)
    words = b.roles.member.paused()
    assert words.startswith("the group is paused for 59"), words
    await trio.sleep(600)
    words = b.roles.member.paused()
    assert words == ""


async def test_a_member_that_can_promise_nothing_holds_up_no_election(tmp_path, autojump_clock, nursery):
    """No higher number helps there. All three acknowledge, so that one promise suffices."""
    group = role_group(nursery, tmp_path, size=3, need=3)
    await group.start()
    a, _b, c = group.members
    a.put(3)
    assert await a.is_acknowledged()
    await a.kill()
    c.roles.member.durable.failure = "its role cannot be written"
    a.boot_id = "boot 2"
    await a.start()
    await trio.sleep(10)
    assert (a.word, a.epochs[-1]) == ("serving", (1, "a", "restart"))


async def test_an_election_gives_up_when_others_promise_higher_numbers_meanwhile(autojump_clock, pair, monkeypatch):
    a, b = pair.members
    asked = []

    async def promise_higher(calls, address, ask):
        if ask.dry_run or len(asked) > 50:
            return await asks(calls, address, ask)
        asked.append(ask.epoch)
        await a.roles.voter.vote(VoteRequest(epoch=ask.epoch, candidate="somebody:10911"))
        return await asks(calls, address, ask)

    asks = Calls.promise
    monkeypatch.setattr(Calls, "promise", promise_higher)
    await a.roles.voter.vote(VoteRequest(epoch=1, candidate="somebody:10911"))
    state = await pair.change("failover", b, accept_data_loss="unknown")
    assert "others promise higher numbers meanwhile, 6 now" in state.error
    assert asked == [2, 3, 4, 5, 6]


async def lose_end(master, *, silent=None):
    """A file system was mounted again after an error, on a machine that runs on. Returns where the log ended."""
    group = master.group
    master.put(3)
    await group.settled()
    end = master.store.max_offset
    for node in group.members:
        await node.kill()
    cut_log(master, 206)
    for node in reversed(group.members):
        if node is not silent:
            await node.start()
    return end


@pytest.mark.parametrize("restarts", [0, 1])
async def test_a_master_that_lost_a_tail_without_its_machine_learns_it_from_its_slaves(autojump_clock, pair, restarts):
    """It is not forgotten by another start: there the slave may be silent."""
    a, b = pair.members
    end = await lose_end(a)
    await trio.sleep(10)
    if restarts:
        await b.kill()
        await a.kill()
        await a.start()
        await trio.sleep(10)
        await b.start()
    assert (a.word, a.store.max_offset, b.store.max_offset) == ("fenced", 206, end)
    assert (await pair.change("failover", b)).error == ""
    assert await pair.settled() is b
    assert pair.are_equal()


async def test_a_lost_tail_is_told_by_a_slave_that_comes_later(autojump_clock, pair):
    a, b = pair.members
    await lose_end(a, silent=b)
    await trio.sleep(10)
    assert a.word == "serving"
    await b.start()
    await trio.sleep(10)
    assert a.word == "fenced"
    assert (await pair.change("failover", b)).error == ""
    assert await pair.settled() is b
    assert pair.are_equal()


async def test_who_acknowledges_alone_and_lost_a_tail_begins_a_new_epoch(autojump_clock, asynchronous):
    a = asynchronous.members[0]
    await lose_end(a)
    assert await asynchronous.settled() is a
    assert (a.epochs[-1], a.store.max_offset, a.state.whole) == ((1, "a", "restart"), 206, True)
    a.put(3)
    assert await asynchronous.settled() is a
    assert asynchronous.are_equal()


async def switched_over(group: Group) -> int:
    """The first of three has acknowledged three messages and given its role to the second; then all die. Returns the end."""
    await group.start()
    a, b, _c = group.members
    a.put(3)
    assert await a.is_acknowledged()
    end = a.store.max_offset
    assert (await group.change("switchover", b)).error == ""
    await group.settled()
    for each in group.members:
        await each.kill()
    return end


async def start_with_lost_tail(member: Member) -> None:
    """Its machine has died: of three messages its disk has the first one."""
    cut_log(member, 206)
    member.boot_id = "boot 2"
    await member.start()


async def test_a_former_master_lost_what_it_never_flushed_although_slaves_do(tmp_path, autojump_clock, nursery):
    """Its slaves acknowledge what is on the disk. What it wrote as their master is not, and was acknowledged with its copy."""
    group = role_group(nursery, tmp_path, size=3, need=3, config={"ack_mode": AckMode.flushed})
    await switched_over(group)
    a, b, c = group.members
    await start_with_lost_tail(a)
    await trio.sleep(5)
    state = await group.change("failover", a)
    assert "enough votes" in state.error
    await b.start()
    await c.start()
    assert await group.settled() is b
    assert group.are_equal()


async def test_a_new_master_lost_what_it_acknowledged_as_a_slave_although_masters_flush(
    tmp_path, autojump_clock, nursery
):
    """A slave acknowledges what it has written; what it took before its machine died as a master was never flushed."""
    group = role_group(nursery, tmp_path, size=3, need=3, flush=FlushDiskType.SYNC_FLUSH)
    end = await switched_over(group)
    a, b, c = group.members
    await start_with_lost_tail(b)
    await trio.sleep(20)
    assert not b.is_serving
    await a.start()
    await c.start()
    await trio.sleep(5)
    assert (await group.change("failover", a)).error == ""
    assert await group.settled() is a
    assert group.are_equal()
    assert a.store.max_offset >= end
