"""What is said of groups whose record etcd keeps: by list, explain, check and doctor."""

import pytest
from attrs import evolve

from tests.cluster.observe.role_facts import RECORD, A, B, C, cluster, facts_of
from twinlog.cluster.observe.explain import explain_member
from twinlog.cluster.observe.failover_rules import automatic_failover
from twinlog.cluster.observe.in_sync import in_sync_set, in_sync_sets, remarks
from twinlog.cluster.observe.in_sync_rules import etcd as etcd_rule
from twinlog.cluster.observe.in_sync_rules import in_sync_sets as set_rule
from twinlog.cluster.observe.members import MemberFacts
from twinlog.cluster.observe.role_views import roles
from twinlog.cluster.observe.rules import acknowledgements, examine
from twinlog.cluster.remoting.member_status import NO_STATUS
from twinlog.cluster.text import day_and_clock
from twinlog.ha.election.group_record import next_version
from twinlog.store.util.plain import to_plain

THREE = evolve(RECORD, auto_failover="etcd", in_sync=(A, B, C), version=7, epoch=3)
PAIR = evolve(THREE, members=RECORD.members[:2], in_sync=(A, B))
ETCD = {"cluster": "cdf818194e3a8c32", "prefix": "/twinlog/"}
FAILOVER = {"mode": "etcd", "configured": "etcd", "afterMs": 5000, "leaseMs": 3000, "witnesses": []}
AT_MS = 1_700_000_000_000
AT = day_and_clock(AT_MS / 1000)


def member(number: int, record=THREE, etcd: dict | None = None, **status) -> MemberFacts:
    told = None if etcd is None else {**ETCD, "inSync": list(record.in_sync), **etcd}
    address = (A, B, C)[number]
    return facts_of(
        number, address, **{"groupRecord": to_plain(record), "autoFailover": FAILOVER, "etcd": told, **status}
    )


def group(record=THREE, **etcd) -> tuple[MemberFacts, ...]:
    """All members; they tell this of etcd."""
    return tuple(member(number, record, etcd) for number in range(len(record.members)))


def findings(rule, *members: MemberFacts) -> list[tuple[str, str, str]]:
    return [(each.level.value, each.cause, each.subject) for each in rule(cluster(*members))]


def sentences(each: MemberFacts, *members: MemberFacts) -> dict[str, str]:
    return {found.topic: found.text for found in explain_member(cluster(*members), each).sentences}


def test_all_in_sync_is_a_line_of_the_list_and_no_finding():
    members = group()
    (found,) = in_sync_sets(members)
    assert (found.in_sync, found.outside) == (("broker-a-0", "broker-a-1", "broker-a-2"), ())
    assert remarks([found]) == ("broker-a: 3 of 3 in sync: broker-a-0, broker-a-1, broker-a-2",)
    assert findings(set_rule, *members) == findings(etcd_rule, *members) == []


def test_a_group_that_keeps_its_record_without_etcd_has_no_set():
    members = [member(number, evolve(RECORD, auto_failover="members")) for number in range(3)]
    assert in_sync_sets(members) == ()
    assert findings(set_rule, *members) == findings(etcd_rule, *members) == []
    assert "2 must hold a message, 2 must promise" in sentences(members[0], *members)["group"]


def test_one_copy():
    record = evolve(THREE, in_sync=(A,))
    why = f"broker-a-2 ({C}) did not hold the whole log for 10 s"
    policy = {"level": "L1 sync flush, one copy", "warnings": ["one copy instead: the in-sync set is x"]}
    master = member(0, record, {"changedMs": AT_MS, "changeWhy": why}, policy=policy)
    members = master, member(1, record, {"changedMs": AT_MS + 900}), member(2, record, {})
    found = in_sync_set("broker-a", members)
    assert found.is_one_copy
    assert remarks([found]) == (
        "broker-a: one copy: broker-a-0 alone is in sync, of 3 members; SEND_OK is L1 sync flush, one copy",
    )
    (finding,) = set_rule(cluster(*members))
    assert (finding.level.value, finding.cause) == ("critical", "one copy")
    assert "broker-a-0 alone holds what broker-a acknowledges now" in finding.what
    assert f"changed on {AT}: broker-a-2 did not hold the whole log for 10 s" in finding.what
    assert finding.fix.startswith("bring broker-a-1 or broker-a-2 back")
    assert findings(acknowledgements, *members) == [], "it is said once"
    told = sentences(master, *members)
    assert told["group"].endswith("1 of the one in sync must hold a message, 1 must promise for a failover")
    assert told["in sync"] == "one copy: broker-a-0 alone is in sync, of 3 members"
    assert told["record"].startswith("etcd keeps it: version 7 of epoch 3, changed on")


def test_a_group_whose_other_members_were_taken_away_has_one_copy_too():
    alone = evolve(PAIR, members=RECORD.members[:1], in_sync=(A,))
    (finding,) = set_rule(cluster(member(0, alone, {})))
    assert (finding.cause, finding.fix) == ("one copy", "start another member")


def test_nobody_could_be_elected_is_no_second_finding_of_one_copy():
    found = {**FAILOVER, "whyNobody": "only the master is in the in-sync set", "standings": [{"memberId": B}]}
    alone, both = evolve(PAIR, in_sync=(A,)), PAIR
    assert findings(automatic_failover, member(0, alone, {}, autoFailover=found)) == []
    assert findings(automatic_failover, member(0, both, {}, autoFailover=found))[0][1] == "nobody could be elected"


def test_a_set_is_as_it_was_until_another_one_is_in_force():
    shrinking = next_version(THREE, in_sync=(A, B))
    found = in_sync_set("broker-a", [member(0, shrinking, {}), member(1), member(2)])
    assert (found.version, len(found.in_sync)) == (7, 3)
    handing_over = next_version(evolve(RECORD, auto_failover="members"), auto_failover="etcd", in_sync=(A, B, C))
    assert in_sync_set("broker-a", [member(0, handing_over, {})]) is None


def test_a_set_below_in_sync_replicas_and_a_member_outside():
    small = evolve(THREE, acks_needed=3, in_sync=(A, B))
    assert findings(set_rule, *group(small)) == [("warning", "in-sync set below inSyncReplicas", "broker-a")]
    assert findings(set_rule, *group(evolve(small, acks_needed=2))) == [
        ("note", "outside of the in-sync set", "broker-a")
    ]
    told = sentences(group(small)[0], *group(small))
    assert "2 of the 2 in sync must hold a message, 1 must promise" in told["group"]


def test_who_does_not_answer_has_its_name_all_the_same():
    """Nobody tells its id then, but the record knows its name."""
    third = evolve(THREE.members[2], id="m2fad869e9843")
    record = evolve(THREE, members=(*THREE.members[:2], third), in_sync=(A, third.id))
    silent = evolve(member(2, record), status=NO_STATUS)
    members = member(0, record, {}), member(1, record, {}), silent
    assert in_sync_set("broker-a", members).in_sync == ("broker-a-0", "broker-a-2")
    assert sentences(members[0], *members)["group"].startswith("broker-a-0, broker-a-2, broker-a-1; 2 of the 2")


def test_a_set_that_may_not_shrink():
    members = member(0, PAIR, {"whyNotChanged": f"{A}: minInSyncReplicas=2 demands as many"}), member(1, PAIR, {})
    (finding,) = set_rule(cluster(*members))
    assert finding.cause == "in-sync set stays"
    assert finding.what.endswith("broker-a-0: minInSyncReplicas=2 demands as many")
    assert "minInSyncReplicas=2" in sentences(members[0], *members)["record"]


def test_etcd_away_is_one_finding_with_reason_and_time():
    members = group(why="no connection", sinceMs=AT_MS)
    (finding,) = etcd_rule(cluster(*members))
    assert (finding.level.value, finding.cause, finding.subject) == ("warning", "etcd cannot be relied on", "broker-a")
    assert f"broker-a-0, broker-a-1, broker-a-2 cannot rely on etcd since {AT} (no connection)" in finding.what
    assert remarks(in_sync_sets(members))[1] == f"broker-a: no member can rely on etcd since {AT}: no connection"
    told = sentences(members[1], *members)
    assert told["etcd"] == f"cluster cdf818194e3a8c32, /twinlog/: it cannot rely on it since {AT}: no connection"
    one = members[0], member(1, THREE, {}), member(2, THREE, {})
    assert findings(etcd_rule, *one) == [("warning", "etcd cannot be relied on", "broker-a-0")]
    assert remarks(in_sync_sets(one))[1].startswith("broker-a: broker-a-0 cannot rely on etcd")
    assert sentences(one[1], *one)["etcd"].endswith("it answers")


def test_a_refused_record_is_critical_and_etcd_that_is_not_used_yet_a_note():
    refused = group(why="etcd holds version 3 of epoch 1", sinceMs=AT_MS, refused=True)
    assert findings(etcd_rule, *refused) == [("critical", "refused by etcd, or its record", "broker-a")]
    unused = [member(n, RECORD, {"why": "no connection", "sinceMs": AT_MS}) for n in range(3)]
    assert findings(etcd_rule, *unused) == [("note", "etcd cannot be relied on", "broker-a")]
    assert findings(etcd_rule, *group(why="it was not asked yet")) == []


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (None, ("warning", "no etcdEndpoints", "broker-a-1")),
        ({"cluster": "1"}, ("critical", "another etcd", "broker-a-1")),
        ({"prefix": "/other/"}, ("critical", "another etcdPrefix", "broker-a-1")),
        ({"why": "leave it out", "noPlace": "leave it out"}, ("warning", "no place beside etcd", "broker-a-1")),
        ({}, None),
    ],
)
def test_a_member_that_is_configured_otherwise(other, found):
    members = member(0, THREE, {}), member(1, THREE, other), member(2, THREE, {})
    assert findings(etcd_rule, *members) == ([found] if found else [])


def test_what_members_find_on_their_way_to_etcd_is_told_once():
    problem = {
        "level": "critical",
        "cause": "gateway off",
        "subject": "http://e1:2379",
        "what": "HTTP 404",
        "fix": "start it",
    }
    members = group(findings=[problem])
    (finding,) = etcd_rule(cluster(*members))
    assert (finding.cause, finding.fix) == ("etcd: gateway off", "start it")
    assert finding.what == "broker-a-0, broker-a-1, broker-a-2 to http://e1:2379: HTTP 404"


def test_a_pair_needs_no_name_server_as_witness_and_nobody_stands_alone():
    epoch = {"epoch": {"epoch": 4, "winner": A, "decidedBy": "group"}, "policy": {"inSync": 1, "needed": 1}}
    members = member(0, evolve(PAIR, in_sync=(A,)), {}, **epoch), member(1, PAIR, {})
    members = tuple(evolve(each, config={"brokerName": "broker-a"}) for each in members)
    causes = {cause for _, cause, _ in findings(automatic_failover, *members)}
    assert not causes & {"pair without a witness", "elected alone"}


def test_groups_that_elect_by_etcd_have_no_note_for_a_person():
    alone = evolve(PAIR, in_sync=(A,))
    assert findings(roles, member(0, alone, {})) == []
    causes = [each.cause for each in examine(cluster(member(0, alone, {})))]
    assert "one copy" in causes
