"""Who may become master: nobody who lacks what was acknowledged, unless a person accepts what is named."""

import pytest
from attrs import evolve

from tests.ha import group_model
from tests.ha.election.votes_given import SECOND, answer, group, said
from tests.ha.group_model import Limits, explore, walk
from twinlog.ha.election import epochs, votes
from twinlog.ha.election.epochs import with_entry
from twinlog.ha.election.group_record import in_force, needed, with_member
from twinlog.ha.election.voter import VoteReply
from twinlog.ha.election.votes import LostRange, SwitchoverFacts, judge_failover, judge_switchover, may_take
from twinlog.store.epoch_file import FIRST, EpochEntry
from twinlog.store.role_file import GroupRecord


@pytest.mark.parametrize(
    ("size", "acks_needed", "promises"), [(2, 1, 2), (2, 2, 1), (3, 1, 3), (3, 2, 2), (3, 3, 1), (4, 2, 3), (2, 9, 1)]
)
def test_promises_meet_every_set_that_acknowledges(size, acks_needed, promises):
    assert needed(group(size, acks_needed)) == promises


def test_the_slave_of_two_is_enough_when_both_hold_each_message():
    assert judge_failover(group(2, 2), "b", said(answer("b", 150)), None).may


def test_one_of_three_is_not():
    found = judge_failover(group(3, 2), "b", said(answer("b", 150)), None)
    assert (found.may, found.rule, found.needed) == (False, "enough votes", "2 of 3 members")
    assert found.actual == "1 (a, c silent)"
    assert found.lost == LostRange(150, None, ("a", "c"))


def test_whoever_holds_more_is_to_be_chosen():
    answers = said(answer("b", 150), answer("c", 170))
    found = judge_failover(group(3, 2), "b", answers, None)
    assert (found.may, found.rule, found.fix) == (False, "holds the newest bytes", "choose c")
    assert found.lost == LostRange(150, 170, ("c",))
    assert judge_failover(group(3, 2), "c", answers, None).may


def test_the_newer_epoch_is_worth_more_than_more_bytes():
    """What the longer log has more was given up when the other epoch began."""
    answers = said(answer("b", 900, (FIRST,)), answer("c", 100))
    assert judge_failover(group(3, 2), "c", answers, None).may
    assert judge_failover(group(3, 2), "b", answers, None).lost == LostRange(900, 900, ())  # Nothing, and yet refused.


def test_a_loss_is_accepted_by_its_size():
    answers = said(answer("a", 150), answer("b", 150), answer("c", 170))
    assert not judge_failover(group(3, 2), "b", answers, 19).may
    found = judge_failover(group(3, 2), "b", answers, 20)
    assert (found.may, found.forced, found.lost) == (True, True, LostRange(150, 170, ("c",)))


def test_what_is_unknown_needs_the_word():
    answers = said(answer("b", 150))
    assert not judge_failover(group(3, 2), "b", answers, 1 << 60).may
    assert judge_failover(group(3, 2), "b", answers, "unknown").forced


def test_a_rocketmq_slave_cannot_promise():
    """It counts: it may hold what only the dead master had."""
    mixed = group(3, 2, not_voting="c")
    found = judge_failover(mixed, "b", said(answer("b", 150), answer("c", 150)), None)
    assert (found.may, found.lost) == (False, LostRange(150, None, ("a",)))
    assert judge_failover(mixed, "b", said(answer("b", 150), answer("a", 150)), None).may
    assert judge_failover(mixed, "c", said(answer("c", 150)), "unknown").rule == "votes"


def test_who_lost_bytes_does_not_count_but_may_win():
    """Others that kept everything say whether it lost any."""
    answers = said(answer("a", 150, whole=False), answer("b", 150))
    assert judge_failover(group(2, 2), "a", answers, None).may
    assert not judge_failover(group(3, 2), "a", answers, None).may
    more = said(answer("a", 150, whole=False), answer("b", 160))
    assert judge_failover(group(2, 2), "a", more, None).fix == "choose b"


@pytest.mark.parametrize(
    ("candidate", "answers", "rule"),
    [
        ("x", said(answer("x", 150)), "is a member"),
        ("b", said(answer("a", 150)), "answers"),
        ("b", said(answer("b", 150, granted=False, why="it has promised epoch 9 to c")), "may still vote for itself"),
    ],
)
def test_what_nobody_can_accept(candidate, answers, rule):
    found = judge_failover(group(2, 2), candidate, answers, "unknown")
    assert (found.may, found.rule) == (False, rule)
    assert found.needed
    assert found.actual
    assert found.fix


def test_nobody_is_elected_without_a_record():
    assert judge_failover(None, "b", said(answer("b", 150)), "unknown").rule == "knows the group's members"


def test_the_newest_record_counts():
    """The candidate was away while a member came."""
    grown = evolve(group(3, 2), version=3)
    assert judge_failover(group(2, 2), "b", said(answer("b", 150)), None).may
    assert not judge_failover(group(2, 2), "b", said(answer("b", 150, group=grown)), None).may


def test_who_is_only_joining_is_not_elected():
    """By the version before, which may be in force, others can be elected without hearing of it."""
    grown = with_member(group(2, 2), group(3, 2).members[2])
    answers = said(answer("b", 150, group=grown), answer("c", 160, group=grown))
    assert judge_failover(None, "c", answers, "unknown").actual == "it is only joining"
    held = said(answer("b", 150, group=in_force(grown)), answer("c", 160, group=grown))
    assert judge_failover(None, "c", held, None).may


BEGINS = evolve(group(2, 2), version=1, loss_free_from=None)


def test_before_the_record_says_where_members_alone_count_only_the_master_is_sure():
    """Somebody who is no member may have acknowledged what b lacks."""
    found = judge_failover(BEGINS, "b", said(answer("b", 150)), None)
    assert (found.may, found.rule) == (False, "has what others than members acknowledged")
    assert (found.actual, found.fix) == ("epoch 2 up to 150, without a", "start a, or accept the loss")
    assert found.needed.startswith("the vote of a: ")
    assert found.lost == LostRange(150, None, ("a",))
    assert not judge_failover(BEGINS, "b", said(answer("b", 150)), 1 << 60).may
    assert judge_failover(BEGINS, "b", said(answer("b", 150)), "unknown").forced
    assert judge_failover(BEGINS, "b", said(answer("b", 150), answer("a", 150)), None).may
    assert judge_failover(BEGINS, "a", said(answer("a", 150), answer("b", 140)), None).may
    lost = said(answer("a", 150, whole=False), answer("b", 140))
    assert judge_failover(BEGINS, "a", lost, None).rule == "has what others than members acknowledged"


def test_what_lies_below_where_members_alone_count_is_needed():
    found = judge_failover(group(2, 2), "b", said(answer("b", 90)), None)
    assert (found.may, found.rule) == (False, "has what others than members acknowledged")
    assert found.needed == "bytes up to 100, where only members' acknowledgements began to count"
    assert found.actual == "epoch 0 up to 90"
    assert found.fix == "choose a member that has them, start a, or accept the loss"
    assert found.lost == LostRange(90, 100, ("a",))
    assert judge_failover(group(2, 2), "b", said(answer("b", 90)), 10).forced


def test_a_slave_that_may_have_lost_bytes_is_not_chosen():
    """It may never have been level: its log may be none of this group's."""
    answers = said(answer("a", 150), answer("b", 160, whole=False), answer("c", 150))
    found = judge_failover(group(3, 2), "b", answers, None)
    assert (found.rule, found.lost) == ("has all that it acknowledged", LostRange(160, None, ("a",)))
    assert judge_failover(group(3, 2), "c", answers, None).may


FACTS = SwitchoverFacts(master="a", master_address="a", master_answers=True, following=True, lag_bytes=0, lag_max=1000)


@pytest.mark.parametrize(
    ("facts", "rule"),
    [
        ({}, ""),
        ({"master": "b"}, "is not master"),
        ({"master_answers": False}, "the master lives"),
        ({"following": False}, "follows the master"),
        ({"lag_bytes": 1001}, "has caught up"),
        ({"differs_at": 70}, "holds the same bytes"),
        ({"no_room": "the disk is full"}, "can store messages"),
    ],
)
def test_a_switchover_loses_nothing_or_is_refused(facts, rule):
    answers = said(answer("a", 150, is_master=True), answer("b", 140))
    found = judge_switchover(group(2, 2), "b", answers, evolve(FACTS, **facts))
    assert (found.may, found.rule) == (not rule, rule)


def test_a_switchover_waits_for_who_lost_bytes():
    answers = said(answer("a", 150), answer("b", 150, whole=False), answer("c", 150))
    assert judge_switchover(group(3, 2), "b", answers, FACTS).rule == "has all that it acknowledged"


def test_the_masters_resignation_is_enough_where_it_alone_acknowledges():
    answers = said(answer("a", 150), answer("b", 150))
    assert may_take(group(3, 1), "b", answers, "a").may
    assert not may_take(group(3, 1), "b", answers, None).may  # Nobody resigned.
    assert not may_take(group(3, 1), "b", said(answer("a", 151), answer("b", 150)), "a").may
    newer = with_entry(SECOND, EpochEntry(epoch=3, winner="c", start_offset=150))
    assert not may_take(group(3, 1), "b", said(answer("a", 150), answer("b", 150, newer)), "a").may
    assert not may_take(group(4, 1), "b", answers | said(answer("c", 150, newer)), "a").may
    assert not may_take(group(4, 2), "b", answers, "a").may  # Others may hold what they acknowledged to another.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "acks_needed", "limits"),
    [
        (2, 1, Limits(writes=1, commands=2)),
        (2, 2, Limits(writes=1, commands=2)),
        (2, 2, Limits(writes=1, commands=1, crashes=1, forced=True)),
        (3, 2, Limits(writes=1, commands=1)),
        (3, 3, Limits(writes=1, commands=1)),
    ],
)
def test_all_orders_of_a_few_steps(size, acks_needed, limits):
    assert explore(size, acks_needed, limits) > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "acks_needed", "limits"),
    [
        (2, 1, Limits(writes=1, commands=2)),
        (3, 2, Limits(writes=1, commands=1)),
    ],
)
def test_all_orders_of_a_few_steps_at_the_beginning_of_a_group(size, acks_needed, limits):
    """Somebody who is no member yet, or never, acknowledges before the first record holds."""
    assert explore(size, acks_needed, limits, begins=True) > 50


@pytest.mark.parametrize(("size", "acks_needed"), [(2, 2), (3, 1), (3, 2), (4, 2), (4, 3)])
def test_groups_that_begin_in_random_orders(size, acks_needed):
    for seed in range(25):
        walk(seed, size, acks_needed, Limits(writes=9, commands=7, crashes=3, forced=seed % 2 == 0), begins=True)


@pytest.mark.parametrize("acks_needed", [2, 3, 4])
def test_four_members_in_random_orders(acks_needed):
    for seed in range(25):
        walk(seed, 4, acks_needed, Limits(writes=9, commands=7, crashes=3))


@pytest.mark.parametrize(("size", "acks_needed"), [(3, 2), (4, 2), (4, 3)])
def test_a_member_joins_in_random_orders(size, acks_needed):
    """Whoever is new counts once nobody can be elected any more who has not heard of it."""
    for seed in range(25):
        walk(seed, size, acks_needed, Limits(writes=9, commands=7, crashes=3), joins=True)


def _one_too_few(group: GroupRecord) -> int:
    return max(needed(group) - 1, 1)


def _everybody_counts(group: GroupRecord, answers: dict[str, VoteReply]) -> list[VoteReply]:
    return [answer for address, answer in answers.items() if address in group.voters and answer.granted]


def _by_start(own, peer):
    same = [mine.start_offset == theirs.start_offset for mine, theirs in zip(own, peer, strict=False)]
    return (*same, False).index(False)


def _nobody_is_outdone(*_):
    return None


@pytest.mark.parametrize(
    ("module", "name", "wrong"),
    [
        (votes, "needed", _one_too_few),
        (votes, "_counting_votes", _everybody_counts),
        (votes, "_outdone", _nobody_is_outdone),
        (epochs, "_common", _by_start),
    ],
)
def test_the_model_finds_a_wrong_rule(monkeypatch, module, name, wrong):
    """Otherwise the tests above say nothing."""
    monkeypatch.setattr(module, name, wrong)
    with pytest.raises(AssertionError):
        _walk_for_long()


def _walk_for_long() -> None:
    for seed in range(400):
        walk(seed, 2 + seed % 3, 2, Limits(writes=9, commands=7, crashes=3))


def test_the_model_finds_what_others_acknowledged_before(monkeypatch):
    """The slave of the first record lags, and nobody looks whether it has what another one acknowledged."""
    monkeypatch.setattr(votes, "_unsure", _nobody_is_outdone)
    with pytest.raises(AssertionError, match="acknowledged byte"):
        explore(3, 2, Limits(writes=1, commands=1), begins=True)


def _counts_at_once(_before, record, *, committed):
    return frozenset(member.address for member in record.members)


def test_the_model_finds_who_counts_too_early(monkeypatch):
    monkeypatch.setattr(group_model, "counted", _counts_at_once)
    with pytest.raises(AssertionError, match="acknowledged byte"):
        _walk_where_one_joins()


def _walk_where_one_joins() -> None:
    for seed in range(400):
        walk(seed, 3, 2, Limits(writes=9, commands=7, crashes=3), joins=True)


def test_the_model_finds_who_writes_on_after_it_lost_bytes(monkeypatch):
    def lost(now, one):
        after = group_model._power(now, one)
        return after.put(one, evolve(after.nodes[one], lost_tail=False, serving=now.nodes[one].serving))

    monkeypatch.setitem(group_model._STEPS, "power", lost)
    with pytest.raises(AssertionError, match="I1"):
        _walk_for_long()
