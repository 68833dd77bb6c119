"""Addresses that do not fit: which one, from where, and which key to set."""

import pytest
from attrs import evolve

from tests.cluster.observe.members import MASTER, SLAVE, B, as_member, cluster, with_status
from twinlog.cluster.observe.findings import Level
from twinlog.cluster.observe.members import Probe
from twinlog.cluster.observe.rules import examine

BETWEEN = "198.51.100.2:10911"
SLAVE_2 = as_member(SLAVE, name="broker-a-2", broker_id=2, address="10.0.0.3:10911")


def seen(result: str = "reached", *, use: str = "requests", address: str = B, **more) -> dict:
    return {"memberId": "id-b", "name": "broker-a-1", "use": use, "address": address, "result": result, **more}


def causes(*members) -> list[tuple[str, str]]:
    return [(each.cause, each.subject) for each in examine(cluster(*members))]


def with_id(facts, **fields):
    return with_status(facts, memberId="id-b", address=facts.member.address, **fields)


@pytest.mark.parametrize(
    ("found", "what", "fix"),
    [
        (
            seen("refused", why="Connection refused"),
            "broker-a-1 tells members that it is at 10.0.0.2:10911 for requests; from broker-a-0, the connection is refused "
            "(Connection refused)",
            "see that it listens there, and that no rule in front of it refuses broker-a-0; or set brokerIP1 or, for members "
            "only, brokerIP2 of broker-a-1 (brokerPort1 for a published port) to what broker-a-0 reaches",
        ),
        (
            seen("timed out", use="replication", address="10.0.0.2:10912", why="no connection within 1.5 s"),
            "broker-a-1 tells members that it is at 10.0.0.2:10912 for replication; from broker-a-0, nothing answers "
            "(no connection within 1.5 s)",
            "let 10912 through the firewalls between them; or set brokerIP2 of broker-a-1 (haPort for a published port) to what "
            "broker-a-0 reaches",
        ),
        (
            seen("name unknown", address="inside.example:10911", why="Name or service not known"),
            "broker-a-1 tells members that it is at inside.example:10911 for requests; from broker-a-0, the name is not known "
            "there (Name or service not known)",
            "let broker-a-0 resolve inside.example; or set brokerIP1 or, for members only, brokerIP2 of broker-a-1 "
            "(brokerPort1 for a published port) to what broker-a-0 reaches",
        ),
        (
            seen("another member", why="id-c answers", found="id-c"),
            "broker-a-1 tells members that it is at 10.0.0.2:10911 for requests; from broker-a-0, another member answers "
            "(broker-a-2)",
            "one address must lead to one member; or set brokerIP1 or, for members only, brokerIP2 of broker-a-1 "
            "(brokerPort1 for a published port) to what broker-a-0 reaches",
        ),
    ],
)
def test_an_address_at_which_a_member_is_not_found_by_another(found, what, fix):
    third = with_status(SLAVE_2, memberId="id-c")
    (finding,) = examine(cluster(with_status(MASTER, reach=[found]), with_id(SLAVE), third))
    assert (finding.cause, finding.level, finding.subject) == ("address not reached", Level.WARNING, "broker-a-1")
    assert (finding.what, finding.fix) == (what, fix)


def test_all_that_find_it_the_same_are_one_finding():
    found = [seen("refused", address=BETWEEN, why="Connection refused")]
    facts = with_status(MASTER, reach=found), with_id(SLAVE, memberAddress=BETWEEN), with_status(SLAVE_2, reach=found)
    (finding,) = examine(cluster(*facts))
    assert "from broker-a-0 and broker-a-2, the connection is refused" in finding.what
    assert (
        "set brokerIP2 of broker-a-1 (brokerPort2 for a published port) to what broker-a-0 and broker-a-2 reach"
        in finding.fix
    )


def test_a_member_that_does_not_run_is_another_finding():
    gone = evolve(
        as_member(SLAVE, state="unreachable", reason="refused", member_id="id-b"), status=evolve(SLAVE.status)
    )
    assert causes(with_status(MASTER, reach=[seen("refused")]), gone) == [("unreachable", "broker-a-1")]


def test_a_member_that_only_members_reach_tells_clients_a_wrong_address():
    outside = as_member(SLAVE, state="unreachable", reason="no answer", member_id="id-b")
    (finding,) = examine(cluster(with_status(MASTER, reach=[seen(address=BETWEEN)]), outside))
    assert (finding.cause, finding.subject) == ("wrong brokerIP1", "broker-a-1")
    assert (
        "tells clients that it is at 10.0.0.2:10911, and does not answer there from this machine (no answer)"
        in finding.what
    )
    assert "broker-a-0 reaches it" in finding.what
    assert "set brokerIP1 of broker-a-1 (brokerPort1 for a published port)" in finding.fix


def test_an_ha_port_that_members_reach_need_not_be_reached_from_here():
    closed = evolve(with_id(SLAVE), ha_port=Probe("198.51.100.2:10912", "refused"))
    assert causes(MASTER, closed) == [("wrong brokerIP2", "broker-a-1")]
    reached = seen(use="replication", address="198.51.100.2:10912")
    assert causes(with_status(MASTER, reach=[reached]), closed) == []


def test_two_registered_addresses_that_lead_to_one_member():
    again = as_member(
        with_status(SLAVE, memberId="id-b", address=B, name="broker-a-1"),
        name="x",
        broker_id=2,
        address="10.0.0.3:10911",
    )
    found = examine(cluster(MASTER, with_id(SLAVE), again))
    (finding,) = [each for each in found if each.cause == "another member answers"]
    assert "10.0.0.3:10911 leads from this machine to broker-a-1, which is at 10.0.0.2:10911" in finding.what
