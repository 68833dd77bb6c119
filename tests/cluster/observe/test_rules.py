"""What the rules find, one case each; and that a sound cluster has no findings."""

import pytest
from attrs import evolve

from tests.cluster.observe.members import FILE_SIZE, GROUP, MASTER, SECRET, SLAVE, A, B, as_member, cluster, with_status
from twinlog.cluster.observe.explain import explain_member
from twinlog.cluster.observe.findings import Level
from twinlog.cluster.observe.members import ClusterFacts, Probe
from twinlog.cluster.observe.rules import LagLimits, diagnosis, examine
from twinlog.cluster.remoting.member_status import NO_STATUS, MemberStatus
from twinlog.cluster.remoting.route import BrokerAddresses


def test_nothing_is_wrong_with_a_sound_cluster():
    assert examine(cluster(MASTER, SLAVE)) == ()
    assert diagnosis(cluster(MASTER, SLAVE)).verdict == "healthy"


OTHER = as_member(MASTER, name="broker-b-0", group="broker-b", address="10.0.0.3:10911")
CASES = [
    ("no master", Level.CRITICAL, (SLAVE,)),
    ("two masters", Level.CRITICAL, (MASTER, as_member(MASTER, name="x", address=B))),
    ("one brokerId twice", Level.CRITICAL, (MASTER, SLAVE, as_member(SLAVE, name="x", address="10.0.0.3:10911"))),
    ("no slave registered", Level.CRITICAL, (MASTER,)),
    ("HA port closed", Level.CRITICAL, (evolve(MASTER, ha_port=Probe("10.0.0.1:10912", "refused")), SLAVE)),
    ("HA port closed", Level.WARNING, (MASTER, evolve(SLAVE, ha_port=Probe("10.0.0.2:10912", "refused")))),
    ("wrong brokerIP2", Level.CRITICAL, (evolve(MASTER, ha_port=Probe("172.17.0.1:10912", "no answer")), SLAVE)),
    (
        "follows another address",
        Level.WARNING,
        (MASTER, evolve(SLAVE, status=MemberStatus.from_json({"master": {"haAddress": "10.0.0.7:10912"}}))),
    ),
    (
        "other file size",
        Level.CRITICAL,
        (MASTER, with_status(SLAVE, fileSize=65536)),
    ),
    ("other file size", Level.CRITICAL, (MASTER, evolve(SLAVE, config={"mappedFileSizeCommitLog": "1073741824"}))),
    ("clocks differ", Level.WARNING, (MASTER, evolve(SLAVE, clock_ahead_seconds=-3.0))),
    ("slaveTimeout", Level.NOTE, (evolve(MASTER, config={**FILE_SIZE, "slaveTimeout": "5000"}), SLAVE)),
    (
        "acknowledgements",
        Level.WARNING,
        (
            evolve(
                MASTER,
                status=MemberStatus.from_json(
                    {**MASTER.status.to_json(), "policy": {"warnings": ["inSyncReplicas is 1"]}}
                ),
            ),
            SLAVE,
        ),
    ),
    ("disk full", Level.WARNING, (evolve(MASTER, runtime={"commitLogDiskRatio": "0.85"}), SLAVE)),
    ("disk full", Level.CRITICAL, (evolve(MASTER, runtime={"commitLogDiskRatio": "0.95"}), SLAVE)),
    ("damage", Level.CRITICAL, (evolve(MASTER, runtime={"damagedBytes": "17"}), SLAVE)),
    # Whoever looks each second asks for the status only.
    (
        "disk full",
        Level.CRITICAL,
        (
            evolve(
                MASTER,
                runtime={},
                status=MemberStatus.from_json({**MASTER.status.to_json(), "commitLogDiskRatio": 0.95}),
            ),
            SLAVE,
        ),
    ),
    (
        "damage",
        Level.CRITICAL,
        (with_status(MASTER, damagedBytes=17), SLAVE),
    ),
    (
        "damage",
        Level.CRITICAL,
        (MASTER, with_status(SLAVE, inDoubtBytes=17)),
    ),
    ("damage", Level.CRITICAL, (evolve(MASTER, runtime={"inDoubtBytes": "17"}), SLAVE)),
    (
        "lost start",
        Level.WARNING,
        (with_status(MASTER, lostStartBytes=17), SLAVE),
    ),
    (
        "lost end",
        Level.CRITICAL,
        (with_status(MASTER, lostBytes=17), SLAVE),
    ),
    (
        "missing table",
        Level.WARNING,
        (
            evolve(
                MASTER,
                status=MemberStatus.from_json({**MASTER.status.to_json(), "missingTables": ["subscriptionGroup.json"]}),
            ),
            SLAVE,
        ),
    ),
    ("stalls", Level.NOTE, (evolve(MASTER, runtime={"eventLoopLongestStallMills": "2500"}), SLAVE)),
    (
        "refused connections",
        Level.NOTE,
        (with_status(MASTER, refused={"stranger": 3}), SLAVE),
    ),
    ("mixed group", Level.NOTE, (MASTER, evolve(SLAVE, status=NO_STATUS))),
    ("unreachable", Level.CRITICAL, (MASTER, as_member(SLAVE, state="unreachable", reason="refused"))),
    ("connecting", Level.WARNING, (MASTER, as_member(SLAVE, state="connecting"))),
    ("ahead", Level.CRITICAL, (MASTER, as_member(SLAVE, state="ahead"))),
]


@pytest.mark.parametrize(("cause", "level", "members"), CASES)
def test_each_cause_is_found_and_says_what_to_do(cause, level, members):
    (found,) = [each for each in examine(cluster(*members)) if each.cause == cause]
    assert found.level is level
    assert found.what
    assert found.fix or cause in {"mixed group", "acknowledgements"} or found.what.count(". ")


def test_a_master_alone_beside_another_one_may_have_been_meant_as_its_slave():
    (found, _) = [each for each in examine(cluster(MASTER, OTHER)) if each.cause == "no slave registered"]
    assert "was it meant to be the slave of broker-a?" in found.what


def test_name_servers_that_are_silent_or_disagree():
    less = BrokerAddresses("C", "broker-a", {0: A})
    views = {"n1": (GROUP,), "n2": (less,), "n3": "refused"}
    found = {each.cause: each for each in examine(cluster(MASTER, SLAVE, name_servers=views))}
    assert found["name servers disagree"].subject == "n2"
    assert "broker-a-1 (10.0.0.2:10911)" in found["name servers disagree"].what
    assert found["name server does not answer"].subject == "n3"
    assert [each.cause for each in examine(ClusterFacts(groups=(), members=(), name_servers={"n1": ()}))] == [
        "no broker"
    ]


@pytest.mark.parametrize(
    ("limits", "level"),
    [
        (LagLimits(warning_bytes=100), Level.WARNING),
        (LagLimits(warning_bytes=100, critical_bytes=200), Level.CRITICAL),
        (LagLimits(warning_seconds=2.5), Level.WARNING),
        (LagLimits(critical_seconds=3), Level.CRITICAL),
        (LagLimits(critical_seconds=3.5, warning_bytes=501), None),
    ],
)
def test_lag_is_judged_by_the_limits_given(limits, level):
    found = examine(cluster(MASTER, as_member(SLAVE, lag_bytes=500, lag_seconds=3.0)), limits)
    assert [each.level for each in found] == ([level] if level else [])


def test_what_is_not_known_is_not_judged():
    assert (
        examine(cluster(MASTER, as_member(SLAVE, lag_bytes=None, lag_seconds=None)), LagLimits(critical_bytes=0)) == ()
    )


def test_the_worst_comes_first():
    members = (
        evolve(MASTER, runtime={"commitLogDiskRatio": "0.85", "damagedBytes": "1"}),
        evolve(SLAVE, status=NO_STATUS, config={}),
    )
    assert [each.level for each in examine(cluster(*members))] == [Level.CRITICAL, Level.WARNING, Level.NOTE]


def test_an_explanation_has_what_the_member_says_and_what_was_found():
    lagging = as_member(SLAVE, min_offset=100, written_offset=700, flushed_offset=650, lag_bytes=200, lag_seconds=1.5)
    status = {
        **SECRET,
        "ackMode": "flushed",
        "divergent": [{"path": "/d/twinlog/divergent/5", "first": 500, "size": 7, "why": "diverged", "whenMs": 1}],
        "master": {
            "haAddress": "10.0.0.1:10912",
            "provenOffset": 640,
            "finding": {"kind": "history", "offset": 100, "text": "lacks 100"},
        },
    }
    facts = cluster(MASTER, evolve(lagging, status=MemberStatus.from_json(status), clock_ahead_seconds=9.0))
    found = explain_member(facts, facts.find(B))
    texts = {sentence.topic: sentence.text for sentence in found.sentences}
    assert texts["log"] == (
        "it holds bytes 100 to 700, of which the last 50 are in memory only; its master has 100 older bytes that it lacks"
    )
    assert texts["lag"] == "200 bytes, 1.5 s behind its master"
    assert texts["acks"] == "once bytes are verified and on its disk"
    assert texts["proof"].endswith("below 640")
    assert texts["finding"] == "lacks 100"
    assert "7 bytes" in texts["kept"]
    assert [each.cause for each in found.findings] == ["clocks differ"]


def test_a_master_s_explanation_says_who_counts():
    slaves = [
        {
            "address": "10.0.0.2:4",
            "state": "streaming",
            "lagBytes": 5,
            "counted": True,
            "inSync": True,
            "verified": False,
        },
        {
            "address": "10.0.0.5:4",
            "state": "catchup",
            "lagBytes": 9,
            "counted": False,
            "suspended": True,
            "reason": "hangs",
        },
    ]
    facts = cluster(
        as_member(
            evolve(
                MASTER,
                status=MemberStatus.from_json({**MASTER.status.to_json(), "slaves": slaves, "waitingMessages": 2}),
            ),
            confirmed_offset=800,
        )
    )
    found = explain_member(facts, facts.find("broker-a-0"))
    first, second = [sentence.text for sentence in found.sentences if sentence.topic == "slave"]
    assert first == "10.0.0.2:4 streaming, 5 bytes behind, counts, in sync, acknowledges without verifying (RocketMQ)"
    assert second == "10.0.0.5:4 catchup, 9 bytes behind, does not count, suspended, hangs"
    texts = {sentence.topic: sentence.text for sentence in found.sentences}
    assert texts["confirmed"] == "up to byte 800; 100 bytes are not, 2 messages wait"
    assert facts.find("nobody") is None


def test_a_master_that_is_gone_names_who_could_take_its_place():
    dead = evolve(as_member(MASTER, state="unreachable"), status=NO_STATUS)
    slave = as_member(SLAVE, epoch=3)
    found = next(finding for finding in examine(cluster(dead, slave)) if finding.cause == "unreachable")
    assert "twinlog failover --candidate broker-a-1 --dry-run" in found.fix
    found = next(finding for finding in examine(cluster(dead, SLAVE)) if finding.cause == "unreachable")
    assert found.fix == "", "a slave that knows no epochs cannot"


def test_slaves_that_a_role_change_sent_away_are_no_strangers():
    refused = with_status(MASTER, refused={"fenced": 2})
    assert examine(cluster(refused, SLAVE)) == ()
    refused = evolve(
        MASTER, status=MemberStatus.from_json({**MASTER.status.to_json(), "refused": {"fenced": 2, "stranger": 1}})
    )
    (found,) = examine(cluster(refused, SLAVE))
    assert found.what.endswith(": 1 x stranger")
