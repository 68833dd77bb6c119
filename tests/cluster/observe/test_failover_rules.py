"""What is said of groups that elect by themselves: by list, explain, check and doctor."""

from itertools import pairwise

import pytest
from attrs import evolve

from tests.cluster.observe.role_facts import RECORD, A, B, C, cluster, facts_of
from twinlog.cluster.observe.elections import GroupFailover, MemberElections, Successor
from twinlog.cluster.observe.explain import explain_member
from twinlog.cluster.observe.failover import failover_of, failovers_of, news, notes
from twinlog.cluster.observe.failover_rules import automatic_failover
from twinlog.cluster.observe.members import MemberFacts
from twinlog.cluster.remoting.member_status import NO_STATUS
from twinlog.store.util.plain import to_plain

ELECTING = evolve(RECORD, auto_failover="members")
PAIR = evolve(ELECTING, members=ELECTING.members[:2])
NEXT = [
    {"memberId": B, "rank": 0},
    {"memberId": C, "rank": None, "against": "it does not answer"},
    {"memberId": A, "rank": None, "against": "it is the master"},
]
FOUND = {"mode": "members", "configured": "members", "afterMs": 5000, "leaseMs": 3000, "witnesses": ["10.0.0.9:9876"]}


def electing(number: int, address: str, record=ELECTING, status: dict | None = None, **own) -> MemberFacts:
    standings = {"standings": NEXT} if not number else {"heardMs": 300}
    told = {"groupRecord": to_plain(record), "autoFailover": {**FOUND, **standings, **own}}
    return facts_of(number, address, **{**told, **(status or {})})


MASTER, FIRST, SECOND = (electing(number, address) for number, address in enumerate((A, B, C)))


def causes(*members: MemberFacts) -> list[tuple[str, str]]:
    return [(each.cause, each.subject) for each in automatic_failover(cluster(*members))]


def finding(*members: MemberFacts):
    (found,) = automatic_failover(cluster(*members))
    return found


def test_a_group_that_can_elect_is_no_finding_and_a_line_of_the_list():
    members = MASTER, FIRST, SECOND
    assert causes(*members) == []
    (group,) = failovers_of(members)
    assert (group.mode, group.next, group.nobody, group.suspected_by) == ("members", "broker-a-1", None, ())
    assert notes([group]) == ("broker-a elects another master by itself: broker-a-1 would be next",)


def test_a_group_without_a_record_or_of_an_older_version_says_nothing():
    assert failovers_of([facts_of(0, A), facts_of(1, B)]) == ()
    assert failover_of("broker-a", [electing(0, A, status={"groupRecord": None})]) is None


def test_a_group_in_which_a_person_decides_has_no_line():
    off = [
        electing(n, at, evolve(RECORD, auto_failover="off"), mode="off", configured="off") for n, at in [(0, A), (1, B)]
    ]
    assert notes(failovers_of(off)) == ()
    assert causes(*off) == []
    told = {each.topic: each.text for each in explain_member(cluster(*off), off[0]).sentences}
    assert told["failover"].startswith("a person begins it")


def test_members_that_disagree():
    found = finding(MASTER, FIRST, electing(2, C, mode="off", configured="off"))
    assert found.cause == "members disagree on autoFailover"
    assert "broker-a-0 has members, broker-a-1 has members, broker-a-2 has off" in found.what


def test_a_configuration_that_says_otherwise_is_a_note():
    found = finding(MASTER, electing(1, B, configured="off"), SECOND)
    assert (found.cause, found.level.value) == ("other autoFailover in broker.conf", "note")
    assert "write autoFailover=members there" in found.fix


def test_nobody_could_be_elected():
    why = "2 of 3 members would have to promise their votes, 1 could"
    members = electing(0, A, whyNobody=why), FIRST, SECOND
    found = finding(*members)
    assert found.cause == "nobody could be elected"
    assert found.what.endswith(f"{why}; broker-a-2: it does not answer")
    (group,) = failovers_of(members)
    assert group.next is None
    assert notes([group]) == (f"broker-a elects another master by itself, but could not now: {why}",)


def test_a_member_that_does_not_answer_has_its_name_all_the_same():
    """Nobody tells its id then, but the record knows it by its address."""
    third = evolve(ELECTING.members[2], id="m2fad869e9843")
    record = evolve(ELECTING, members=(*ELECTING.members[:2], third))
    standings = [{"memberId": B, "rank": 0}, {"memberId": third.id, "rank": None, "against": "it does not answer"}]
    silent = evolve(SECOND, status=NO_STATUS)
    (group,) = failovers_of([electing(0, A, record, standings=standings), FIRST, silent])
    assert [each.member for each in group.successors] == ["broker-a-1", "broker-a-2"]


def test_a_master_that_is_suspected():
    why = f"broker-a-0 ({A}) was not heard for 7.0 s; {C} hears a master"
    members = MASTER, electing(1, B, suspected=True, why=why, givenUp=2, tried=2, whyGivenUp="too few votes"), SECOND
    found = finding(*members)
    assert (found.cause, found.subject) == ("master suspected", "broker-a-1")
    assert "(broker-a-0 was not heard for 7.0 s; broker-a-2 hears a master)" in found.what
    assert "it gave up 2 elections, the last: too few votes" in found.what
    (note,) = notes(failovers_of(members))
    assert note.startswith("broker-a-1 suspects the master of broker-a: broker-a-0 was not heard")
    told = {each.topic: each.text for each in explain_member(cluster(*members), members[1]).sentences}
    assert told["heard"].startswith("its master 0.3 s ago; broker-a-0 was not heard for 7.0 s")
    assert told["elections"] == "it began 2 by itself, won 0, gave up 2, the last because too few votes"
    assert told["next"] == "broker-a-1; broker-a-2: it does not answer; broker-a-0: it is the master"


def test_elections_that_are_held_off():
    members = MASTER, electing(1, B, heldOffMs=9_000, elections=4), SECOND
    assert "elected 4 masters by itself within 10 minutes: the next one waits 9 s more" in finding(*members).what
    told = {each.topic: each.text for each in explain_member(cluster(*members), members[1]).sentences}
    assert told["hold-off"] == "4 elections within 10 minutes: it waits 9 s more"


def test_the_slave_of_a_pair_that_was_elected_says_send_ok_to_nobody():
    policy = {"policy": {"inSync": 1, "needed": 2}}
    epoch = {"epoch": {"epoch": 4, "winner": A, "decidedBy": "group"}}
    alone = electing(0, A, PAIR, {**policy, **epoch})
    assert causes(alone) == [("elected alone", "broker-a-0")]
    assert causes(electing(0, A, PAIR, {**epoch, "policy": {"inSync": 2, "needed": 2}})) == []
    assert causes(electing(0, A, PAIR, policy)) == [], "a person did that"


def test_a_voter_that_cannot_say_what_it_hears():
    older = facts_of(2, C, groupRecord=to_plain(RECORD))
    assert causes(MASTER, FIRST, older) == [("voter of an older version", "broker-a-2")]


@pytest.mark.parametrize(
    ("own", "cause"),
    [
        ({"afterMs": 2000}, "times contradict each other"),
        ({"leaseMs": 9000}, "times contradict each other"),
        ({"afterMs": 7000}, "other autoFailoverAfterMs"),
    ],
)
def test_times_that_do_not_fit(own, cause):
    members = [evolve(each, config={"brokerName": "broker-a"}) for each in (MASTER, electing(1, B, **own), SECOND)]
    assert [found for found, _ in causes(*members)] == [cause]


@pytest.mark.parametrize(
    ("witnesses", "found"),
    [
        ([], ["pair without a witness"]),
        (["10.0.0.1:9876"], ["pair without a witness"]),  # Beside its master.
        (["10.0.0.1:9876", "10.0.0.9:9876"], []),
        (["10.0.0.2:9876"], []),
    ],
)
def test_a_pair_needs_a_witness(witnesses, found):
    members = electing(0, A, PAIR), electing(1, B, PAIR, witnesses=witnesses)
    members = [evolve(each, config={"brokerName": "broker-a"}) for each in members]
    assert [cause for cause, subject in causes(*members) if subject == "broker-a-1"] == found


def test_one_machine_for_all_is_said_by_doctor_only():
    here = [electing(number, f"127.0.0.{number + 1}:10911") for number in range(3)]
    record = evolve(
        ELECTING,
        members=tuple(
            evolve(kept, id=each.member.address, address=each.member.address)
            for kept, each in zip(ELECTING.members, here, strict=True)
        ),
    )
    here = [electing(number, each.member.address, record) for number, each in enumerate(here)]
    assert causes(*here) == []
    asked = [evolve(each, config={"brokerName": "broker-a"}) for each in here]
    assert causes(*asked) == [("one host for all", "broker-a")]


def test_what_happened_between_two_looks():
    def group(*members: MemberElections) -> GroupFailover:
        successors = (Successor(member="b", rank=0, against=""),)
        return GroupFailover(
            group="g", mode="members", successors=successors, nobody=None, holds_off=False, members=members
        )

    calm = MemberElections(
        member="b", mode="members", suspects=False, why=None, tried=0, won=0, given_up=0, why_given_up=None
    )
    suspects = evolve(calm, suspects=True, why="not heard for 5.1 s")
    failed = evolve(suspects, tried=1, given_up=1, why_given_up="too few votes")
    won = evolve(failed, tried=2, won=1, suspects=False, why=None)
    looks = [calm, suspects, failed, won]
    told = [news([group(one)], [group(other)]) for one, other in pairwise(looks)]
    assert [[(each.what, each.why) for each in found] for found in told] == [
        [("suspected", "not heard for 5.1 s")],
        [("begun", None), ("given up", "too few votes")],
        [("begun", None), ("won", None)],
    ]
    assert [each.what for each in news([group(suspects)], [group(calm)])] == ["heard"]
    assert news([], [group(won)]) == ()
