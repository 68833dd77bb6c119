"""What a member answers is decided by what is on its disk, and nothing older is ever served."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.ha.voters import GROUP, HISTORY, MASTER, OWN, SLAVE, asked
from twinlog.ha.election.voter import (
    ALWAYS,
    EPOCH_STEP_MAX,
    Lease,
    LeaseRequest,
    VoteRequest,
    decide_lease,
    followed,
    is_master,
)
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochEntry, EpochId
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState


def test_a_newer_epoch_is_promised_once():
    state, answer = asked(SLAVE, VoteRequest(epoch=3, candidate="b"))
    assert state == evolve(SLAVE, promised=EpochId(3, "b"))
    assert (answer.granted, answer.promised, answer.last, answer.max_offset) == (True, EpochId(3, "b"), OWN, 90)
    assert asked(state, VoteRequest(epoch=3, candidate="b"))[0] is None  # The same again: nothing to save.
    assert asked(state, VoteRequest(epoch=3, candidate="b"))[1].granted
    refused, answer = asked(state, VoteRequest(epoch=3, candidate="c"))
    assert (refused, answer.granted) == (None, False)
    assert answer.why == "it has promised epoch 3 to b"


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_nothing_older_is_promised(epoch):
    state, answer = asked(SLAVE, VoteRequest(epoch=epoch, candidate="b"))
    assert (state, answer.granted) == (None, False)


def test_a_dry_run_changes_nothing():
    state, answer = asked(MASTER, VoteRequest(epoch=3, candidate="b", dry_run=True))
    assert (state, answer.granted, answer.is_master, answer.promised) == (None, True, True, OWN.id)


def test_a_master_that_promises_is_none_any_more():
    """Of what it becomes after a crash it is a slave, with an id that a slave can have."""
    state, answer = asked(MASTER, VoteRequest(epoch=3, candidate="b"), address="a")
    assert is_master(MASTER, HISTORY)
    assert answer.is_master
    assert (state.role, state.broker_id) == (BrokerRole.SLAVE, 3)
    assert not is_master(state, HISTORY)


def test_a_master_that_promises_itself_waits_for_its_own_entry():
    state, _ = asked(MASTER, VoteRequest(epoch=3, candidate="a"), address="a")
    assert not is_master(state, HISTORY)
    took = evolve(state, role=BrokerRole.SYNC_MASTER, broker_id=0)
    assert is_master(took, (*HISTORY, EpochEntry(epoch=3, winner="a", start_offset=90)))


@pytest.mark.parametrize(("paused_end", "granted"), [(90, True), (80, False), (None, False)])
def test_a_master_resigns_only_while_it_holds_there(paused_end, granted):
    ask = VoteRequest(epoch=3, candidate="b", expects_end=90)
    state, answer = asked(MASTER, ask, paused_end=paused_end, address="a")
    assert (state is not None, answer.granted) == (granted, granted)


def test_a_resignation_can_be_asked_for_again():
    """The answer may have been lost, and who resigned holds nothing back any more."""
    state, _ = asked(MASTER, VoteRequest(epoch=3, candidate="b", expects_end=90), paused_end=90, address="a")
    assert asked(state, VoteRequest(epoch=3, candidate="b", expects_end=90))[1].granted
    assert not asked(state, VoteRequest(epoch=3, candidate="b", expects_end=91))[1].granted


def leased(state: RoleState, epoch: int, winner: str, group: GroupRecord = GROUP, address: str = "b", **more):
    ask = LeaseRequest(
        id=EpochId(epoch, winner),
        address=winner or "a",
        ha_address=winner,
        entries=HISTORY,
        max_offset=100,
        confirmed_offset=90,
        group=group,
        boot_ms=1,
        **more,
    )
    return decide_lease(state, ask, HISTORY, 90, 80, address)


def test_a_master_of_which_a_later_start_is_known_is_told_so():
    first = GroupMember(address="a:1", ha_address="a:2", broker_id=0, name="one", id="m1", codes=("c2",))
    group = evolve(GROUP, members=(first, *GROUP.members[1:]))
    state = evolve(SLAVE, promised=EpochId(2, "m1"), group=group)
    _, answer = leased(state, 2, "m1", group, member="m1", codes=("c1", "c3"))
    assert (answer.accepted, answer.is_copy) == (False, True)
    assert "member one (a:1), m1: this one is a copy of it" in answer.why
    _, answer = leased(state, 2, "m1", group, member="m1", codes=("c1", "c2", "c3"))
    assert (answer.accepted, answer.is_copy) == (True, False)
    _, answer = leased(state, 1, "c")
    assert (answer.is_copy, answer.why) == (False, "it has promised epoch 2 to one (a:1), m1")


def test_the_promised_master_is_followed():
    state, answer = leased(SLAVE, 2, "a")
    assert state is None
    assert (answer.accepted, answer.max_offset, answer.flushed_offset, answer.group_version) == (True, 90, 80, 4)


def test_a_newer_master_is_promised_by_its_lease():
    newer = evolve(GROUP, version=5, epoch=3)
    state, answer = leased(MASTER, 3, "c", newer, address="a")
    assert state == evolve(MASTER, role=BrokerRole.SLAVE, broker_id=3, promised=EpochId(3, "c"), group=newer)
    assert (answer.accepted, answer.promised, answer.group_version) == (True, EpochId(3, "c"), 5)


@pytest.mark.parametrize(("epoch", "winner"), [(1, "a"), (2, "c"), (0, "")])
def test_an_older_master_or_another_of_the_number_is_not(epoch, winner):
    state, answer = leased(SLAVE, epoch, winner)
    assert (state, answer.accepted, answer.promised) == (None, False, OWN.id)
    assert answer.why == "it has promised epoch 2 to a"


def test_nobody_speaks_for_another():
    ask = LeaseRequest(
        id=EpochId(9, "a"),
        address="c",
        ha_address="c",
        entries=HISTORY,
        max_offset=0,
        confirmed_offset=0,
        group=GROUP,
        boot_ms=0,
    )
    assert not decide_lease(SLAVE, ask, HISTORY, 90, 80, "b")[1].accepted
    assert not leased(SLAVE, 9, "b", address="b")[1].accepted


def test_an_older_record_of_the_same_master_is_not_taken():
    """Its asks may come in any order, and what was said to be on the disk stays there."""
    state, answer = leased(SLAVE, 2, "a", evolve(GROUP, version=3))
    assert (state, answer.group_version) == (None, 4)


def test_that_a_record_holds_is_noted():
    grown = evolve(GROUP, version=5, before=GROUP)
    state, _ = leased(evolve(SLAVE, group=grown), 2, "a", evolve(grown, before=None))
    assert state.group == evolve(grown, before=None)
    assert leased(state, 2, "a", grown)[0] is None


def test_a_record_that_an_older_version_kept_in_part_is_taken_whole():
    """A member of twinlog 0.2 keeps a version without what it does not know, and is upgraded then."""
    whole = evolve(GROUP, auto_failover="members")
    state, answer = leased(SLAVE, 2, "a", whole)
    assert (state.group, answer.group_version) == (whole, GROUP.version)
    assert leased(state, 2, "a", GROUP)[0] is None
    assert leased(SLAVE, 2, "a", evolve(whole, before=GROUP))[0] is None  # What holds goes on to hold.


def test_a_new_masters_record_is_newer_than_what_never_held():
    """The old master wrote version 9 alone; the new one had not heard of it."""
    alone = evolve(SLAVE, group=evolve(GROUP, version=9))
    state, _ = leased(alone, 3, "c", evolve(GROUP, version=5, epoch=3))
    assert (state.group.version, state.group.epoch) == (5, 3)


def test_nobody_follows_an_older_master():
    with pytest.raises(AssertionError):
        followed(SLAVE, EpochId(1, "c"), GROUP, "b")


asks = st.one_of(
    st.builds(
        VoteRequest,
        epoch=st.integers(0, 6),
        candidate=st.sampled_from("abc"),
        dry_run=st.booleans(),
        expects_end=st.sampled_from([None, 90]),
    ),
    st.tuples(st.integers(0, 6), st.sampled_from("ac")),
)


@given(st.lists(asks, max_size=12), st.sampled_from([None, 90]))
def test_a_promise_is_kept(asks, paused_end):
    """Whatever comes: the number never falls, one number goes to one winner, and only a change is saved."""
    state, given = SLAVE, {SLAVE.promised.epoch: SLAVE.promised.winner}
    for ask in asks:
        if isinstance(ask, VoteRequest):
            after, answer = asked(state, ask, paused_end=paused_end)
            said_yes, who = answer.granted and not ask.dry_run, ask.id
        else:
            after, answer = leased(state, *ask)
            said_yes, who = answer.accepted, EpochId(*ask)
        assert after != state
        if said_yes:
            assert (after or state).promised == who
            assert given.setdefault(*who) == who.winner
        else:
            assert after is None
        assert (after or state).promised.epoch >= state.promised.epoch
        state = after or state


def _lease(**changes):
    ask = LeaseRequest(
        id=SLAVE.promised,
        address="a",
        ha_address="a",
        entries=HISTORY,
        max_offset=90,
        confirmed_offset=90,
        group=GROUP,
        boot_ms=1,
    )
    return decide_lease(SLAVE, evolve(ask, **changes), HISTORY, 90, 90, "b")


def test_numbers_do_not_jump_to_where_nothing_comes_after():
    for epoch in ((1 << 64) - 1, SLAVE.promised.epoch + EPOCH_STEP_MAX + 1):
        state, answer = asked(SLAVE, VoteRequest(epoch=epoch, candidate="c"))
        assert (state, answer.granted) == (None, False)
        state, told = _lease(id=SLAVE.promised._replace(epoch=epoch))
        assert (state, told.accepted) == (None, False)
    assert asked(SLAVE, VoteRequest(epoch=SLAVE.promised.epoch + EPOCH_STEP_MAX, candidate="c"))[1].granted


def test_only_the_first_epoch_has_no_winner():
    state, told = _lease(id=SLAVE.promised._replace(epoch=9, winner=""))
    assert (state, told.accepted) == (None, False)


def test_it_runs_from_the_question():
    lease = Lease(3.0)
    assert not lease.held(0)
    assert lease.why == "no voter was asked yet"
    lease.grant(10)
    assert (lease.held(12.9), lease.held(13), lease.remaining(12)) == (True, False, 1)


def test_an_older_answer_takes_nothing_away():
    lease = Lease(3.0)
    lease.grant(10)
    lease.grant(8)
    assert lease.held(12)


def test_it_can_be_given_up():
    lease = Lease(3.0)
    lease.grant(10)
    lease.give_up("the event loop stalls")
    assert (lease.held(10), lease.remaining(10), lease.why) == (False, 0, "the event loop stalls")
    lease.grant(11)
    assert lease.held(12)


def test_nobody_to_ask():
    lease = Lease(3.0)
    lease.grant(ALWAYS)
    assert lease.held(1e12)
