"""The in-sync set: quorums of versions that may be in force together, and changes of the set."""

import math
from collections.abc import Iterator
from itertools import combinations

import pytest
from attrs import evolve

from twinlog.ha.election.commit import KeptRecord, why_refused
from twinlog.ha.election.group_record import in_force, needed, with_ids_swapped, with_need
from twinlog.ha.election.in_sync_set import (
    Quorum,
    Seen,
    SetFacts,
    begun,
    floor_of,
    founded,
    in_force_or_stricter,
    is_last_copy,
    next_set,
    why_not_by_members,
    why_not_in_etcd,
    with_in_sync,
)
from twinlog.store.role import BrokerRole
from twinlog.store.role_file import GroupMember, GroupRecord

IDS = ("m1", "m2", "m3", "m4")


def member(number: int, *, votes: bool = True) -> GroupMember:
    id = IDS[number]
    return GroupMember(
        address=f"10.0.0.{number}:10911",
        ha_address=f"10.0.0.{number}:10912",
        broker_id=number,
        name=id,
        id=id,
        votes=votes,
    )


def record(size: int = 2, need: int = 2, in_sync: tuple[str, ...] | None = None) -> GroupRecord:
    """A settled record in etcd."""
    members = tuple(map(member, range(size)))
    base = GroupRecord(
        version=7, members=members, acks_needed=need, master_role=BrokerRole.SYNC_MASTER, loss_free_from=0
    )
    first = in_force(founded(base, 0))
    return first if in_sync is None else evolve(first, in_sync=in_sync)


def groups_of(ids: frozenset[str], count: int) -> Iterator[frozenset[str]]:
    return (frozenset(each) for each in combinations(sorted(ids), count))


def changes(before: GroupRecord) -> Iterator[GroupRecord]:
    """All that a master may do to a record in one version, and more: any set with itself."""
    master, others = IDS[0], sorted(before.voters - {IDS[0]})
    for count in range(len(others) + 1):
        for ids in combinations(others, count):
            yield with_in_sync(before, (master, *ids))
    for need in range(2, len(before.members) + 1):
        yield with_need(before, need)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_what_is_acknowledged_between_two_versions_is_elected_by_both(size):
    """Whoever wins by either version has heard a member that holds the message. This is why `stricter` is enough."""
    for need in range(2, size + 1):
        for count in range(1, size + 1):
            for inside in combinations(IDS[1:size], count - 1):
                before = record(size, need, (IDS[0], *inside))
                for after in changes(before):
                    both = in_force_or_stricter(before, after)
                    assert both is not None
                    others = both.ids - {IDS[0]}
                    for held in (slaves | {IDS[0]} for slaves in groups_of(others, both.acks - 1)):
                        for version in (before, after):
                            for votes in groups_of(version.electors, needed(version)):
                                assert held & votes, (before.in_sync, after.in_sync, version.version, held, votes)


def test_the_rule_of_one_version_alone_would_not_be_enough():
    """Of {m1, m2, m3} with two acknowledgements m3 leaves: what m1 and m3 hold, m2 elects without."""
    before = record(3, 2)
    after = with_in_sync(before, ("m1", "m2"))
    held = frozenset(("m1", "m3"))
    assert held in set(groups_of(before.electors, before.acks_in_force))
    assert any(not held & votes for votes in groups_of(after.electors, needed(after)))
    assert in_force_or_stricter(before, after) == Quorum(ids=frozenset(("m1", "m2")), acks=2)


def test_two_that_leave_at_once_may_need_all_of_both_versions():
    """Of four with three acknowledgements two are gone: until etcd is known to have that, nothing is acknowledged."""
    before, after = record(4, 3), record(4, 3, ("m1", "m2"))
    assert in_force_or_stricter(before, after) == Quorum(ids=frozenset(IDS), acks=4)


def test_the_master_alone_holds_whatever_was_acknowledged():
    before = record(3, 2)
    assert in_force_or_stricter(before, with_in_sync(before, ("m1",))) == Quorum(ids=frozenset(IDS[:3]), acks=2)


def test_the_number_of_acknowledgements_falls_with_the_set_only():
    alone = record(3, 2, ("m1",))
    assert (alone.acks_in_force, needed(alone)) == (1, 1)
    assert (record(3, 2).acks_in_force, needed(record(3, 2))) == (2, 2)
    assert (record(3, 3, ("m1", "m2")).acks_in_force, needed(record(3, 3, ("m1", "m2")))) == (2, 1)
    assert is_last_copy(alone)
    assert not is_last_copy(record(3, 2, ("m1", "m2")))
    assert not is_last_copy(evolve(alone, auto_failover="members", in_sync=()))
    assert not is_last_copy(None)


def facts(group: GroupRecord, *others: Seen, sync_flush: bool = True, least: int = 1) -> SetFacts:
    return SetFacts(
        own="m1", group=group, others=others, is_sync_flush=sync_flush, min_members=least, leave_seconds=10.0
    )


def away(id: str, seconds: float) -> Seen:
    return Seen(id=id, is_level=False, away_seconds=seconds)


def level(id: str) -> Seen:
    return Seen(id=id, is_level=True, away_seconds=0.0)


def test_all_who_are_away_leave_at_once():
    change = next_set(facts(record(3), away("m2", 10.0), away("m3", math.inf)))
    assert (change.kind, change.in_sync) == ("shrink", ("m1",))
    assert "m2" in change.why
    assert "m3" in change.why
    change = next_set(facts(record(3), away("m2", 9.9), away("m3", 10.0)))
    assert (change.kind, change.in_sync) == ("shrink", ("m1", "m2"))
    assert next_set(facts(record(3), away("m2", 9.9), level("m3"))).kind == "stay"


def test_a_master_that_was_passed_is_not_waited_for():
    passed = Seen(id="m2", is_level=False, away_seconds=math.inf, is_passed=True)
    change = next_set(facts(record(2), passed))
    assert (change.kind, change.in_sync) == ("shrink", ("m1",))
    assert change.why.endswith("was the master, and was passed")


def test_who_is_level_comes_back():
    group = record(3, 2, ("m1",))
    assert next_set(facts(group, away("m2", 0.1), away("m3", 3.0))).kind == "stay"
    change = next_set(facts(group, away("m2", 0.1), level("m3")))
    assert (change.kind, change.in_sync) == ("grow", ("m1", "m3"))


def test_a_rocketmq_slave_never_comes_in():
    group = record(2, 2, ("m1",))
    group = evolve(group, members=(group.members[0], evolve(group.members[1], votes=False)))
    assert next_set(facts(group, level("m2"))).kind == "stay"


def test_fewer_copies_than_promised_demand_sync_flush():
    change = next_set(facts(record(2), away("m2", 11.0), sync_flush=False))
    assert change.kind == "stay"
    assert "flushDiskType=SYNC_FLUSH" in change.why
    assert next_set(facts(record(3), away("m2", 11.0), level("m3"), sync_flush=False)).kind == "shrink"


def test_min_in_sync_replicas_is_the_smallest_set():
    assert "minInSyncReplicas=2" in next_set(facts(record(2), away("m2", 11.0), least=2)).why
    assert next_set(facts(record(3), away("m2", 11.0), level("m3"), least=2)).kind == "shrink"


def test_a_set_that_may_not_shrink_still_grows():
    group = record(3, 2, ("m1", "m2"))
    change = next_set(facts(group, away("m2", 11.0), level("m3"), least=2))
    assert (change.kind, change.in_sync) == ("grow", ("m1", "m2", "m3"))


def test_what_cannot_be_handed_to_etcd():
    group = evolve(record(2), auto_failover="members", in_sync=())
    assert why_not_in_etcd(group) == ""
    assert "brokerRole=SYNC_MASTER" in why_not_in_etcd(evolve(group, acks_needed=1))
    assert "first record" in why_not_in_etcd(evolve(group, loss_free_from=None))
    strangers = evolve(group, members=(group.members[0], member(1, votes=False)))
    assert "RocketMQ's slaves" in why_not_in_etcd(strangers)


def test_a_group_with_fewer_copies_than_promised_cannot_leave_etcd():
    assert why_not_by_members(record(3, 2, ("m1", "m2"))) == ""
    assert "m1" in why_not_by_members(record(3, 2, ("m1",)))


def test_a_candidate_changes_nothing_but_the_epoch():
    group = record(3, 2, ("m1", "m2"))
    after = begun(group, 5, "m2")
    assert (after.epoch, after.candidate, after.in_sync, after.before) == (5, "m2", ("m1", "m2"), None)
    assert after.version == group.version + 1
    assert [each.broker_id for each in after.members] == [0, 1, 2], "it is not the master yet"
    assert begun(group, 5, "m3", alone=True).in_sync == ("m3",)
    taken = with_ids_swapped(after, "m2", 5)
    assert (taken.candidate, taken.member("m2").broker_id) == ("", 0)


def test_a_record_of_etcd_is_never_older_than_what_is_known_to_be_in_force():
    group = record(2)
    waits = with_in_sync(group, ("m1",))
    assert floor_of(waits) == group
    assert why_refused(KeptRecord(record=group, revision=3), waits) == ""
    assert why_refused(KeptRecord(record=in_force(waits), revision=4), waits) == ""
    older = KeptRecord(record=evolve(group, version=group.version - 1), revision=2)
    assert "restored from a backup" in why_refused(older, waits)
    assert "its data was lost" in why_refused(KeptRecord(), waits)
    assert why_refused(KeptRecord(), None) == ""


def test_a_record_that_is_being_handed_over_needs_nothing_in_etcd_yet():
    by_members = evolve(record(2), auto_failover="members", in_sync=())
    assert why_refused(KeptRecord(), founded(by_members, 0)) == ""
    assert founded(by_members, 40).version == 41
