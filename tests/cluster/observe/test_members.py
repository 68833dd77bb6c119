"""What `list` says of a cluster, out of what its members say."""

import pytest
from attrs import evolve

from twinlog.cluster.observe.members import Member, issues_of, member_of_runtime_info, member_of_status, with_lag
from twinlog.cluster.remoting.member_status import NO_STATUS, MemberStatus
from twinlog.cluster.remoting.route import BrokerAddresses

MASTER = Member(
    name="broker-a-0",
    cluster="C",
    group="broker-a",
    broker_id=0,
    address="10.0.0.1:1",
    role="master",
    state="unreachable",
)
SLAVE = evolve(MASTER, name="broker-a-1", broker_id=1, address="10.0.0.2:1", role="slave")
GROUPS = (BrokerAddresses("C", "broker-a", {0: MASTER.address, 1: SLAVE.address}),)


def connection(**fields):
    return {"address": "10.0.0.2:40000", "ackOffset": 900, "lagBytes": 100, "lagSeconds": 0.5, **fields}


def test_a_status_fills_every_column():
    status = {
        "name": "broker-a-7",
        "role": "SYNC_MASTER",
        "state": "serving",
        "maxOffset": 1000,
        "confirmedOffset": 900,
        "ackWaitP50Seconds": 0.001,
        "ackWaitP99Seconds": 0.02,
    }
    member = member_of_status(
        MASTER, MemberStatus.from_json({**status, "rateBytesPerSecond": 12.5, "flushedOffset": 800, "minOffset": 0})
    )
    assert (member.name, member.role, member.state) == ("broker-a-7", "master", "serving")
    assert (member.written_offset, member.confirmed_offset, member.flushed_offset) == (1000, 900, 800)
    assert (member.min_offset, member.rate_bytes_per_second) == (0, 12.5)
    assert (member.ack_p50_seconds, member.ack_p99_seconds) == (0.001, 0.02)


def test_what_is_questionable_about_acknowledgements_is_an_issue():
    """An inSyncReplicas=1, or one that was lowered, is said each time that the members are looked at."""
    warning = "inSyncReplicas=1: this SYNC_MASTER answers producers without asking any slave"
    member = member_of_status(
        MASTER, MemberStatus.from_json({"role": "SYNC_MASTER", "state": "serving", "policy": {"warnings": [warning]}})
    )
    assert f"{member.name}: {warning}" in issues_of((), (member,))
    assert member_of_status(MASTER, MemberStatus.from_json({"policy": None})).warnings == ()


def test_a_directory_of_another_kind_does_not_name_a_member():
    assert member_of_status(MASTER, MemberStatus.from_json({"name": "store", "state": "serving"})).name == "broker-a-0"


@pytest.mark.parametrize(
    ("state", "word"), [("idle", "without master"), ("retrying", "connecting"), ("ahead", "ahead")]
)
def test_states_are_words_that_mean_what_they_say(state, word):
    member = member_of_status(
        SLAVE, MemberStatus.from_json({"role": "SLAVE", "state": state, "master": {"lastError": "refused"}})
    )
    assert (member.state, member.reason) == (word, "refused")


def test_a_slave_that_has_never_had_all_is_catching_up():
    slave = evolve(SLAVE, state="streaming")
    _, found = with_lag(
        [(MASTER, MemberStatus.from_json({"slaves": [connection(state="catchup")]})), (slave, NO_STATUS)]
    )
    assert found.state == "catching up"


def test_a_master_says_how_many_slaves_count():
    status = {"role": "SYNC_MASTER", "slaves": [{"counted": True}, {"counted": False}]}
    assert member_of_status(MASTER, MemberStatus.from_json(status)).slaves_counted == 1


def test_what_a_status_lacks_is_not_known():
    member = member_of_status(MASTER, MemberStatus.from_json({"state": "serving"}))
    assert member.name == "broker-a-0"
    assert member.written_offset is member.confirmed_offset is member.lag_bytes is None


def test_a_real_rocketmq_tells_the_ends_of_its_log():
    table = {"commitLogMinOffset": "0", "commitLogMaxOffset": "4096", "brokerVersionDesc": "V4_9_7"}
    member = member_of_runtime_info(MASTER, table)
    assert (member.state, member.min_offset, member.written_offset) == ("serving", 0, 4096)
    assert member.confirmed_offset is None
    assert "RocketMQ 4.9.7" in (member.reason or "")


def test_the_masters_word_on_a_slave_wins():
    slave = evolve(SLAVE, written_offset=950)
    _, found = with_lag(
        [(evolve(MASTER, written_offset=1000), MemberStatus.from_json({"slaves": [connection()]})), (slave, NO_STATUS)]
    )
    assert (found.lag_bytes, found.lag_seconds) == (100, 0.5)


@pytest.mark.parametrize(
    "slaves", [[], [connection(), connection(address="10.0.0.2:40001")], [connection(address="10.0.0.9:1")]]
)
def test_without_it_the_logs_ends_are_compared(slaves):
    """No connection, two of one host, or another host's: nobody's figures may be taken for this slave's."""
    slave = evolve(SLAVE, written_offset=400)
    _, found = with_lag(
        [(evolve(MASTER, written_offset=1000), MemberStatus.from_json({"slaves": slaves})), (slave, NO_STATUS)]
    )
    assert (found.lag_bytes, found.lag_seconds) == (600, None)


def test_a_slave_knows_which_of_the_masters_connections_is_its_own():
    slaves = [connection(lagBytes=1), connection(address="10.0.0.2:40001", lagBytes=2)]
    own = {"master": {"localAddress": "10.0.0.2:40001"}}
    _, found = with_lag([(MASTER, MemberStatus.from_json({"slaves": slaves})), (SLAVE, MemberStatus.from_json(own))])
    assert found.lag_bytes == 2


def test_a_slave_that_is_not_connected_has_not_the_lag_of_another_one_on_its_machine():
    """With a secret that does not fit, for example."""
    slaves = MemberStatus.from_json({"slaves": [connection(memberId="m1", lagBytes=2)]})
    slave = evolve(SLAVE, written_offset=400), MemberStatus.from_json({"memberId": "m2"})
    _, found = with_lag([(evolve(MASTER, written_offset=1000), slaves), slave])
    assert (found.lag_bytes, found.lag_seconds) == (600, None)


def test_a_slave_without_a_master_has_no_lag():
    assert with_lag([(evolve(SLAVE, written_offset=1), NO_STATUS)])[0].lag_bytes is None


def test_a_master_has_no_lag():
    assert with_lag([(evolve(MASTER, written_offset=1), NO_STATUS)])[0].lag_bytes is None


def test_healthy_members_are_no_issue():
    members = (evolve(MASTER, state="serving"), evolve(SLAVE, state="streaming"))
    assert issues_of(GROUPS, members) == []


@pytest.mark.parametrize(
    ("groups", "members", "words"),
    [
        ((), (), "no broker is registered"),
        ((BrokerAddresses("C", "broker-a", {1: "h:1"}),), (), "broker-a has no master"),
        (
            GROUPS,
            (evolve(MASTER, reason="h:1: refused"),),
            "broker-a-0 is registered, but does not answer (h:1: refused)",
        ),
        (GROUPS, (evolve(SLAVE, state="connecting"),), "broker-a-1 is not connected to its master"),
        (
            GROUPS,
            (evolve(MASTER, state="paused", reason="no space"),),
            "takes no messages for now (no space). It goes on",
        ),
        (GROUPS, (evolve(SLAVE, state="ahead"),), "broker-a-1 has bytes in its log that its master lacks"),
    ],
)
def test_an_issue_is_a_sentence(groups, members, words):
    (issue,) = issues_of(groups, members)
    assert words in issue


def test_what_went_wrong_before_is_no_reason_once_it_is_over():
    status = {"role": "SLAVE", "state": "streaming", "master": {"lastError": "the master closed the connection"}}
    assert member_of_status(SLAVE, MemberStatus.from_json(status)).reason is None
    assert member_of_status(SLAVE, MemberStatus.from_json({**status, "state": "retrying"})).reason is not None
