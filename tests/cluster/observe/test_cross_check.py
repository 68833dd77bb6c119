"""What members say of each other, and where it does not fit together."""

import pytest
from attrs import evolve

from twinlog.cluster.observe.cross_check import Direction, directions, result
from twinlog.cluster.observe.live_diff import LiveDifference, Run, report_of
from twinlog.cluster.observe.log_side import LiveSide
from twinlog.cluster.observe.members import ClusterFacts, Member, MemberFacts, member_of_status
from twinlog.cluster.observe.rules import contradictions
from twinlog.cluster.remoting.member_status import MemberStatus
from twinlog.cluster.remoting.route import BrokerAddresses
from twinlog.store.offline.diff import DiffRecord

MASTER_HA, SLAVE_END = "10.0.0.1:10912", "10.0.0.2:40000"


def member(number: int, status: dict, **more) -> MemberFacts:
    host = f"10.0.0.{number + 1}"
    bare = Member(
        name=f"a-{number}",
        cluster="c",
        group="a",
        broker_id=number,
        address=f"{host}:10911",
        role="slave" if number else "master",
        state="unreachable",
    )
    bare = evolve(bare, **more)
    found = MemberStatus.from_json(status)
    return MemberFacts(member=member_of_status(bare, found) if status else bare, status=found)


def master(**more) -> MemberFacts:
    connection = {"address": SLAVE_END, "state": "streaming", "ackOffset": 900, "counted": True}
    status = {"role": "SYNC_MASTER", "state": "serving", "haAddress": MASTER_HA, "maxOffset": 1000, "fileSize": 1 << 30}
    return member(0, {**status, "slaves": [connection], **more})


def slave(number: int = 1, master: dict | None = None, **more) -> MemberFacts:
    follows = {"address": "10.0.0.1:10911", "haAddress": MASTER_HA, "localAddress": SLAVE_END, **(master or {})}
    status = {"role": "SLAVE", "state": "streaming", "maxOffset": 950, "fileSize": 1 << 30, "slaves": []}
    return member(number, {**status, "master": follows, **more})


def facts(*members: MemberFacts) -> ClusterFacts:
    group = BrokerAddresses("c", "a", {each.member.broker_id: each.member.address for each in members})
    return ClusterFacts(groups=(group,), members=members, name_servers={"n:9876": (group,)})


def causes(*members: MemberFacts, before: ClusterFacts | None = None) -> list[str]:
    now = facts(*members)
    return [finding.cause for finding in contradictions(before or now, now)]


def test_a_pair_that_agrees():
    assert causes(master(), slave()) == []
    assert directions(facts(master(), slave())) == (
        Direction(
            slave="a-1",
            master="a-0",
            slave_connects_to=MASTER_HA,
            slave_says="streaming",
            master_says="streaming",
            slave_holds=950,
            master_heard=900,
            counted=True,
        ),
    )


def test_one_direction_is_cut():
    """The slave believes that it is connected; the master dropped it long ago."""
    assert causes(master(slaves=[]), slave()) == ["the master does not see it"]
    other = {"address": "10.0.0.9:1", "state": "streaming", "ackOffset": 1, "counted": False}
    assert causes(master(slaves=[other]), slave()) == ["the master does not see it", "a stranger follows"]


def test_behind_an_address_translation_a_slave_is_known_by_its_id():
    """The master sees the translation's end of the connection."""
    translated = {
        "address": "198.51.100.1:7",
        "memberId": "id-b",
        "state": "streaming",
        "ackOffset": 900,
        "counted": True,
    }
    assert causes(master(slaves=[translated]), slave(memberId="id-b")) == []
    (direction,) = directions(facts(master(slaves=[translated]), slave(memberId="id-b")))
    assert (direction.master_heard, direction.counted) == (900, True)
    assert causes(master(slaves=[translated]), slave()) == ["the master does not see it", "a stranger follows"]


def test_a_rocketmq_slave_that_is_registered_under_a_host_name():
    """Its IP is the master's to know, which counts it."""
    named = evolve(
        member(1, {}, state="answering"), member=evolve(member(1, {}).member, address="slave:10911", state="answering")
    )
    assert causes(master(), named) == []
    uncounted = [{**master().status.to_json()["slaves"][0], "counted": False}]
    assert causes(master(slaves=uncounted), named) == ["a stranger follows"]


def test_who_connects_between_two_questions_is_no_contradiction():
    assert causes(master(slaves=[]), slave(), before=facts(master(), slave())) == []


def test_the_master_sees_one_who_says_that_he_does_not_follow():
    assert causes(master(), slave(state="stalled")) == ["the slave does not see it"]


def test_another_master_is_registered():
    assert causes(master(), slave(master={"address": "10.0.0.7:10911"})) == ["another master registered"]


def test_a_slave_follows_the_master_of_another_group():
    foreign = evolve(slave(), member=evolve(slave().member, group="b", name="b-1"))
    assert "follows another group" in causes(master(), foreign)


def test_two_masters_and_one_id_twice():
    assert "two masters" in causes(master(), member(3, {"role": "ASYNC_MASTER", "state": "serving"}))
    twin = evolve(slave(2), member=evolve(slave(2).member, broker_id=1))
    assert "one brokerId twice" in causes(master(), slave(), twin)


def test_other_clusters_file_sizes_and_clocks():
    assert causes(master(cluster="x"), slave(cluster="y")) == ["clusters differ"]
    assert causes(master(), slave(fileSize=1 << 20)) == ["other file size"]
    late = evolve(slave(), clock_ahead_seconds=-2.5)
    assert causes(evolve(master(), clock_ahead_seconds=0.0), late) == ["clocks differ"]


def test_a_log_that_is_longer_than_its_master_s():
    """Only what the slave held before the master was asked counts: it may have got more since."""
    before, now = facts(master(), slave()), facts(master(maxOffset=1_000), slave(maxOffset=1_500))
    assert contradictions(before, now) == ()
    before = facts(master(), slave(maxOffset=1_001))
    assert [finding.cause for finding in contradictions(before, now)] == ["longer than its master"]


def test_a_slave_that_acknowledged_more_than_it_has():
    """What the master heard before the slave was asked for the second time."""
    now = facts(master(), slave(maxOffset=899))
    before = facts(master(), slave())
    (finding,) = contradictions(before, now)
    assert finding.cause == "acknowledged what it lacks"
    assert "up to 900; its log ends at 899" in finding.what


@pytest.mark.parametrize("counted", [True, False])
def test_a_stranger(counted):
    stranger = {"address": "10.0.0.77:5", "state": "streaming", "ackOffset": 3, "counted": counted}
    real = master().status.to_json()["slaves"][0]
    found = contradictions(*2 * [facts(master(slaves=[real, stranger]), slave())])
    assert [(each.cause, each.level.value) for each in found] == [
        ("a stranger follows", "warning" if counted else "note")
    ]


def test_a_rocketmq_slave_tells_nothing_of_itself():
    """It is known by its host."""
    foreign = member(1, {}, state="answering", written_offset=900)
    assert causes(master(), foreign) == []
    (direction,) = directions(facts(master(), foreign))
    assert (direction.master_heard, direction.slave_connects_to) == (900, None)


# The result


def side(name: str, start: int = 0, end: int = 100) -> LiveSide:
    bounds = {"min_offset": start, "end_offset": end, "confirmed_offset": None, "damaged_bytes": None}
    return LiveSide(name=name, address=f"{name}:1", software="twinlog", role=None, **bounds)


def log(run: Run, **right):
    return report_of(side("a-0"), side("a-1", **right), run, is_sampled=False)


def test_who_could_not_be_asked_makes_it_incomplete():
    gone = member(2, {}, state="unreachable", reason="connection refused")
    found = result(facts(master(), slave(), gone), facts(master(), slave(), gone), ())
    assert found.verdict == "incomplete"
    assert found.not_asked == ("a-2 at 10.0.0.3:10911 does not answer: connection refused",)


def test_logs_that_differ_are_worse_than_an_answer_that_lacks():
    lies = DiffRecord(start_offset=40, end_offset=60, problem=None, message=None)
    difference = LiveDifference(first_offset=50, left=lies, right=lies, fields=())
    both = facts(master(), slave())
    found = result(both, both, (log(Run(0, 100, 50, difference=difference)), log(Run(0, 100, 20, reason="it left"))))
    assert found.verdict == "contradictions"
    assert found.findings[0].what == "the logs of a-0 and a-1 differ from byte 50 on"
    assert found.not_asked == ("the logs of a-0 and a-1 could not be compared: it left",)
    assert result(both, both, (log(Run(0, 100, 100)),)).verdict == "agree"
    apart = result(both, both, (log(Run(500, 500, 500), start=500, end=900),))
    assert [each.cause for each in apart.findings] == ["nothing in common"]


def test_a_name_server_that_is_silent():
    both = evolve(facts(master(), slave()), name_servers={"n:1": "refused", "n:2": ()})
    assert result(both, both, ()).not_asked == ("the name server n:1 does not answer: refused",)
