"""What is said of roles, out of what members say; nothing where nobody says anything."""

import pytest
from attrs import evolve

from tests.cluster.observe.role_facts import RECORD, A, B, C, cluster, facts_of
from twinlog.cluster.admin.waiting import parse_condition
from twinlog.cluster.observe.explain import explain_member
from twinlog.cluster.observe.findings import Level
from twinlog.cluster.observe.members import MemberFacts, issues_of, with_lag
from twinlog.cluster.observe.role_views import change_of, newest_record, notes_of
from twinlog.cluster.observe.rules import examine
from twinlog.cluster.remoting.member_status import NO_STATUS, MemberStatus
from twinlog.cluster.text import day_and_clock
from twinlog.store.role_file import Pause
from twinlog.store.util.plain import to_plain

MASTER, FIRST, SECOND = facts_of(0, A), facts_of(1, B), facts_of(2, C)


def causes(*members: MemberFacts) -> list[tuple[str, str]]:
    return [(each.cause, each.subject) for each in examine(cluster(*members))]


def test_a_sound_group_has_no_findings():
    assert causes(MASTER, FIRST, SECOND) == []
    assert MASTER.member.epoch == 3


@pytest.mark.parametrize("told", [None, {}, {"version": "x"}])
def test_no_record_or_one_that_nobody_understands(told):
    """A member of an older or a later version."""
    assert MemberStatus.from_json({"groupRecord": told}).group_record is None
    assert causes(facts_of(0, A, groupRecord=told), facts_of(1, B, groupRecord=told)) == []
    assert change_of(MemberStatus.from_json({"roleChange": {"running": "x"}})) is None


def test_the_newest_record_counts():
    newer = evolve(RECORD, version=3)
    assert newest_record([MASTER, facts_of(1, B, groupRecord=to_plain(newer)), SECOND]) == newer


@pytest.mark.parametrize(
    ("status", "cause", "level"),
    [
        ({"lease": {"held": False, "why": "no slave answers"}}, "no lease", Level.CRITICAL),
        ({"whole": False}, "not whole", Level.WARNING),
        ({"promised": {"epoch": 5, "winner": B}}, "promise without master", Level.WARNING),
    ],
)
def test_what_one_member_says(status, cause, level):
    (finding,) = examine(cluster(facts_of(0, A, **status), FIRST, SECOND))
    assert (finding.cause, finding.subject, finding.level) == (cause, "broker-a-0", level)


def test_a_slave_that_its_master_does_not_hear():
    """It answers whoever asks from here: the network between the two is cut."""
    master = facts_of(0, A, silent={C: 4.2})
    (finding,) = examine(cluster(master, FIRST, SECOND))
    assert (finding.cause, finding.subject, finding.level) == ("slave not heard", "broker-a-2", Level.WARNING)
    assert "no answer from broker-a-2 at 10.0.0.3:10911 for 4 s" in finding.what
    away = evolve(SECOND, status=NO_STATUS, member=evolve(SECOND.member, state="unreachable"))
    assert "slave not heard" not in [cause for cause, _ in causes(master, FIRST, away)], "said once"


@pytest.mark.parametrize("record", [None, to_plain(evolve(RECORD, members=RECORD.members[:2]))])
def test_a_slave_that_never_came_into_the_record(record):
    """As behind an address translation: it follows, and its master does not take its word for who it is."""

    def facts(number: int, address: str, ran_ms: int) -> MemberFacts:
        master = {"localAddress": "172.17.0.5:40000"} if number else None
        told = {"bootMs": 1, "nowMs": 1 + ran_ms, "groupRecord": record, "master": master}
        return facts_of(number, address, **told)

    members = [facts(number, address, 60_000) for number, address in enumerate((A, B, C))]
    found = [each for each in examine(cluster(*members)) if each.cause == "not in the record"]
    assert [each.subject for each in found] == (["broker-a-2"] if record else ["broker-a-1", "broker-a-2"])
    assert "announces 10.0.0.3:10911" in found[-1].fix
    assert "connects from 172.17.0.5:40000" in found[-1].fix
    young = [facts(number, address, 3_000) for number, address in enumerate((A, B, C))]
    assert not [each for each in examine(cluster(*young)) if each.cause == "not in the record"]


def test_a_promise_is_nothing_to_look_at_while_its_change_runs():
    change = {"running": True, "steps": [{"number": 4, "name": "promise", "text": "ask all", "state": "doing"}]}
    promised = {"promised": {"epoch": 5, "winner": B}}
    members = (MASTER, facts_of(1, B, roleChange=change, **promised), SECOND)
    assert causes(*members) == []
    assert notes_of(members) == ("broker-a-1 becomes the master of broker-a: step 4, ask all",)


def test_the_master_is_named_to_free_a_promise():
    (finding,) = examine(cluster(MASTER, facts_of(1, B, promised={"epoch": 5, "winner": B}), SECOND))
    assert finding.fix.endswith("twinlog failover --candidate broker-a-0")


def test_too_few_for_a_failover():
    """Of three members two must promise; one is away."""
    away = evolve(SECOND, status=NO_STATUS, member=evolve(SECOND.member, state="unreachable", is_registered=False))
    found = causes(MASTER, FIRST, away)
    assert found == [("unreachable", "broker-a-2"), ("too few for a failover", "broker-a")]
    (issue,) = issues_of((), (away.member,))[:1]
    assert "is kept in its group's record, but does not answer" in issue


def test_a_fenced_master_is_no_master():
    """Whatever role it had: its lag is told, it is not a second master, and nobody waits for it in vain."""
    old = facts_of(0, A, roleState="fenced", roleWhy="broker-a-1 was promised epoch 4")
    new = facts_of(1, B, role="SYNC_MASTER", state="serving", roleState="serving", maxOffset=900)
    facts = cluster(old, new)
    assert old.member.state == "fenced"
    assert [each.member.name for each in facts.masters("broker-a")] == ["broker-a-1"]
    assert ("two masters", "broker-a") not in causes(old, new)
    assert any("broker-a-1 was promised epoch 4" in issue for issue in issues_of((), (old.member,)))
    behind, _ = with_lag([(evolve(old.member, role="slave", written_offset=800), NO_STATUS), (new.member, NO_STATUS)])
    assert behind.lag_bytes == 100
    assert parse_condition("broker-a-0=master").missing(facts)
    assert not parse_condition("broker-a-1=master").missing(facts)


def test_a_full_disk_tells_more_than_a_role():
    assert facts_of(0, A, state="failed", roleState="fenced").member.state == "failed"


def test_pauses_and_plans_are_told():
    paused = evolve(RECORD, version=9, paused=Pause(until_ms=1_790_000_000_000, reason="new switches"))
    scheduled = {"atMs": 1_790_000_000_000, "candidate": B, "reason": ""}
    members = (facts_of(0, A, groupRecord=to_plain(paused), scheduled=scheduled), FIRST)
    until = day_and_clock(1_790_000_000)
    assert notes_of(members) == (
        f"role changes of broker-a are paused until {until} (new switches): twinlog resume ends that",
        f"broker-a is to be switched over to broker-a-1 at {until}",
    )
    assert ("paused", "broker-a") in causes(*members, SECOND)


def test_a_member_in_sentences():
    facts = cluster(facts_of(0, A, lease={"held": True}), facts_of(1, B, promised={"epoch": 5, "winner": C}), SECOND)
    told = {each.topic: each.text for each in explain_member(facts, facts.members[0]).sentences}
    assert told["epoch"] == "3, of broker-a-0, from byte 100 of its log on"
    assert told["group"] == "broker-a-0, broker-a-1, broker-a-2; 2 must hold a message, 2 must promise for a failover"
    assert told["lease"].startswith("it may acknowledge")
    assert "member" not in told, "twinlog 0.2 does not say who it is"
    told = {each.topic: each.text for each in explain_member(facts, facts.members[1]).sentences}
    assert told["promised"] == "epoch 5 to broker-a-2"


def test_who_a_member_is_and_who_follows_it():
    slaves = [{"address": "10.0.0.9:4", "memberId": "m2", "state": "streaming", "lagBytes": 0, "counted": True}]
    made = {"madeMs": 1_790_000_000_000, "madeAddress": "10.0.9.1:10911"}
    facts = cluster(facts_of(0, A, memberId="m1", slaves=slaves, **made), facts_of(1, B, memberId="m2"))
    master = facts.members[0].member
    assert (master.member_id, master.made_ms, master.made_address) == ("m1", *made.values())
    told = {each.topic: each.text for each in explain_member(facts, facts.members[0]).sentences}
    at = day_and_clock(1_790_000_000)
    assert told["member"] == (
        f"its group knows it as m1, whatever its address; that id was made on {at} at 10.0.9.1:10911"
    )
    assert told["slave"] == "broker-a-1 (10.0.0.9:4) streaming, 0 bytes behind, counts"
