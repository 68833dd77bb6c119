"""Who belongs to the group: a new version holds once nobody can be elected who has not heard of it."""

from itertools import chain, combinations

import pytest
from attrs import evolve

from twinlog.ha.election.group_record import (
    counted,
    first_record,
    id_as_slave,
    in_force,
    is_committed,
    is_first,
    is_newer,
    loss_free_below,
    needed,
    newest,
    remaining_pause,
    unproven,
    unproven_asker,
    with_ids_swapped,
    with_member,
    with_need,
    with_pause,
    without,
    won_at,
)
from twinlog.store.config import BrokerRole
from twinlog.store.role_file import GroupMember, GroupRecord, Pause


def member(address: str, broker_id: int, *, votes: bool = True) -> GroupMember:
    return GroupMember(address=address, ha_address=address, broker_id=broker_id, name=address, votes=votes)


def record(size: int, acks_needed: int, *, not_voting: str = "") -> GroupRecord:
    members = tuple(member(name, number, votes=name not in not_voting) for number, name in enumerate("abcde"[:size]))
    return GroupRecord(version=3, members=members, acks_needed=acks_needed, master_role=BrokerRole.SYNC_MASTER)


def subsets(names, size=0):
    names = sorted(names)
    return map(frozenset, chain.from_iterable(combinations(names, n) for n in range(size, len(names) + 1)))


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("acks_needed", [1, 2, 3, 4])
@pytest.mark.parametrize("not_voting", ["", "b", "bc"])
def test_a_version_that_holds_is_known_in_every_election(size, acks_needed, not_voting):
    """All sets of voters that may have it, against all sets of promises."""
    before = record(size, acks_needed, not_voting=not_voting)
    after = with_member(before, member("e", 9))
    for has in subsets(before.voters):
        held = is_committed(before, dict.fromkeys(has, after.version), after)
        missed = [votes for votes in subsets(before.voters, needed(before)) if not votes & has]
        assert held == (not missed)


def started(who: GroupMember, address: str, code: str) -> GroupMember:
    return evolve(who, address=address, codes=(code,))


def grown(size: int, acks_needed: int) -> GroupRecord:
    """With members that say their starts."""
    found = record(size, acks_needed)
    return evolve(found, members=tuple(started(each, each.address, "c1") for each in found.members))


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("acks_needed", [1, 2, 3, 4, 5])
def test_who_moved_is_heard_of_by_others(size, acks_needed):
    """The member at its old address, which may be alive, elects nobody, whatever the process at the new one answers."""
    before = grown(size, acks_needed)
    after = with_member(before, started(before.members[1], "elsewhere", "c2"))
    is_believed = needed(before) == 1
    for has in subsets(before.voters):
        held = is_committed(before, dict.fromkeys(has, after.version), after)
        heard = has if is_believed else has - {"b"}
        assert held == all(votes & heard for votes in subsets(before.voters, needed(before)))
    assert is_believed or not any("b" in acks for acks in subsets(counted(before, after, committed=False)))
    assert "b" in counted(before, after, committed=True)
    assert unproven(before, after) == (frozenset() if is_believed else {"b"})
    assert unproven_asker(before, after.member("b")) != is_believed


@pytest.mark.parametrize(
    "now", [started(member("b", 1), "b", "c2"), started(member("b", 1), "elsewhere", "c1"), member("b", 1)]
)
def test_another_start_at_the_same_address_is_the_member(now):
    before = grown(3, 2)
    after = with_member(before, now)
    assert is_committed(before, {"a": after.version, "b": after.version}, after)
    assert "b" in counted(before, after, committed=False)


def test_the_master_answers_for_its_own_move():
    before = grown(3, 2)
    after = with_member(before, started(before.members[0], "elsewhere", "c2"))
    assert is_committed(before, {"a": after.version, "b": after.version}, after)


@pytest.mark.parametrize("acks_needed", [1, 2, 3])
def test_an_election_by_either_version_finds_what_either_acknowledged(acks_needed):
    """Growing by one: who is elected by the old version cannot have heard of the new one, and nobody new counted then."""
    before = record(3, acks_needed)
    after = with_member(before, member("d", 3))
    for version, counts in (
        (before, counted(None, before, committed=True)),
        (after, counted(before, after, committed=True)),
    ):
        for acks in subsets(counts, min(acks_needed, len(counts))):
            assert all(acks & votes for votes in subsets(version.voters, needed(version)))
    assert counted(before, after, committed=False) == {"a", "b", "c"}


def test_a_version_that_may_never_have_held_is_not_built_on():
    """a adds d and is elected anew before anybody hears of it; c, who knows nothing of d, can be elected by b and c."""
    start = record(3, 2)
    taken = with_ids_swapped(with_member(start, member("d", 3)), "a", 9)
    assert counted(with_member(start, member("d", 3)), taken, committed=False) == {"a", "b", "c"}
    assert not is_committed(None, {"a": taken.version, "d": taken.version}, taken)
    assert is_committed(None, {"a": taken.version, "b": taken.version}, taken)


def test_what_held_is_built_on():
    """And the slaves hear that it held, though its number stays."""
    grown = with_member(record(3, 2), member("d", 3))
    assert is_newer(in_force(grown), grown)
    assert not is_newer(grown, in_force(grown))
    assert newest(grown, in_force(grown)) == in_force(grown)
    taken = with_ids_swapped(in_force(grown), "d", 9)
    assert taken.before == in_force(grown)
    assert counted(None, taken, committed=False) == {"a", "b", "c", "d"}


def test_what_is_carried_along_does_not_grow():
    """With role changes alone; a change of the members waits until the one before it holds."""
    now = with_member(record(3, 2), member("d", 3))
    for epoch in range(1, 9):
        now = with_ids_swapped(now, "abcd"[epoch % 4], epoch)
    assert now.before.before.before is None


def test_nobody_counts_who_is_going():
    before = record(3, 2)
    after = without(before, "c")
    assert counted(before, after, committed=False) == counted(before, after, committed=True) == {"a", "b"}


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("acks_needed", [1, 2, 3])
def test_who_is_gone_for_good_need_not_know(size, acks_needed):
    """Nobody who is left can be elected by the old version together with those who are gone, and not have heard."""
    before = record(size, acks_needed)
    for gone in ("b", "bc")[: size - 1]:
        after = before
        for name in gone:
            after = without(after, name)
        left = before.voters - set(gone)
        for has in subsets(left):
            missed = [votes for votes in subsets(before.voters, needed(before)) if not votes & has and votes & left]
            assert is_committed(before, dict.fromkeys(has, after.version), after) == (not missed)


def test_what_a_member_that_is_gone_acknowledged_alone_is_not_forgotten():
    assert without(evolve(record(3, 2), loss_free_from=100), "c").loss_free_from is None


def test_the_first_record_holds_once_both_have_it():
    first = first_record(member("a", 0), member("b", 1), 2, BrokerRole.SYNC_MASTER)
    assert not is_committed(None, {"a": 1}, first)
    assert not is_committed(None, {"a": 1, "b": 0}, first)
    assert is_committed(None, {"a": 1, "b": 1}, first)
    assert counted(None, first, committed=False) == frozenset()


def test_a_version_that_holds_says_where_members_alone_count():
    first = first_record(member("a", 0), member("b", 1), 2, BrokerRole.SYNC_MASTER)
    assert is_first(first)
    held = loss_free_below(first, 700)
    assert (held.version, held.loss_free_from, is_first(held)) == (2, 700, False)
    assert is_newer(held, first)
    assert loss_free_below(held, 900) is held, "it was said once"
    assert loss_free_below(held, 600) == evolve(held, version=3, loss_free_from=600), (
        "what lay behind is nobody's any more"
    )
    assert with_member(held, member("c", 2)).loss_free_from == 700


@pytest.mark.parametrize(("known", "start", "then"), [(None, 50, 50), (100, 150, 100), (100, 50, 50)])
def test_a_winner_says_it_too(known, start, then):
    """What it lacks somebody has accepted to lose."""
    assert won_at(evolve(record(2, 2), loss_free_from=known), start).loss_free_from == then


def test_each_change_is_a_version():
    start = record(2, 2)
    changed = with_pause(with_need(with_member(start, member("c", 2)), 1), Pause(until_ms=5, reason="moving"))
    assert (changed.version, len(changed.members), changed.acks_needed) == (6, 3, 1)
    assert in_force(with_pause(without(changed, "c"), None)) == evolve(record(2, 1), version=8)


def test_what_is_so_already_is_no_change():
    start = record(2, 2)
    assert with_member(start, start.members[1]) is start
    assert with_need(start, 2) is start
    assert with_pause(start, None) is start
    assert with_member(start, evolve(start.members[1], ha_address="elsewhere")).version == 4


@pytest.mark.parametrize(
    ("winner", "ids"),
    [("b", {"a": 1, "b": 0, "c": 2}), ("c", {"a": 2, "b": 1, "c": 0}), ("a", {"a": 0, "b": 1, "c": 2})],
)
def test_a_winner_and_the_old_master_change_ids(winner, ids):
    swapped = with_ids_swapped(record(3, 2), winner, 7)
    assert {member.address: member.broker_id for member in swapped.members} == ids
    assert (swapped.version, swapped.epoch) == (4, 7)
    assert is_newer(swapped, record(3, 2))


def test_no_two_members_have_one_id():
    """However often it changes."""
    now = record(4, 2)
    for winner in "bcaddbca":
        now = with_ids_swapped(now, winner, 7)
        assert sorted(member.broker_id for member in now.members) == [0, 1, 2, 3]
        assert now.member(winner).broker_id == 0


def test_an_id_for_a_slave():
    start = record(3, 2)
    assert [id_as_slave(start, address) for address in "abcx"] == [3, 1, 2, 3]
    assert id_as_slave(None, "x") == 1


def test_the_newest_record():
    old, later, newer_epoch = record(2, 2), evolve(record(2, 2), version=9), evolve(record(2, 2), epoch=1, version=4)
    assert newest(old, None, newer_epoch, later) is newer_epoch
    assert newest(None) is None
    assert is_newer(old, None)
    assert not is_newer(later, newer_epoch)


def test_a_pause_ends_by_itself():
    paused = with_pause(record(2, 2), Pause(until_ms=1000, reason="moving"))
    assert remaining_pause(paused, 999) == paused.paused
    assert remaining_pause(paused, 1000) is None
    assert remaining_pause(with_pause(paused, Pause(until_ms=None, reason="")), 1 << 60) is not None
    assert remaining_pause(None, 0) is None
