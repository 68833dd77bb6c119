"""A healthy master and slave, as facts; tests change what they are about."""

from attrs import evolve

from twinlog.cluster.observe.members import ClusterFacts, Member, MemberFacts, Probe
from twinlog.cluster.remoting.member_status import MemberStatus
from twinlog.cluster.remoting.route import BrokerAddresses

A, B = "10.0.0.1:10911", "10.0.0.2:10911"
FILE_SIZE = {"mappedFileSizeCommitLog": "1048576"}
SECRET = {"secretIds": ["3f9a0c1b"], "secretRequired": True}
MASTER = MemberFacts(
    member=Member(
        name="broker-a-0",
        cluster="C",
        group="broker-a",
        broker_id=0,
        address=A,
        role="master",
        state="serving",
        ha_address="10.0.0.1:10912",
        min_offset=0,
        written_offset=900,
        flushed_offset=900,
        confirmed_offset=900,
    ),
    status=MemberStatus.from_json(
        {"role": "SYNC_MASTER", "haAddress": "10.0.0.1:10912", "policy": {"words": "held by one slave"}, **SECRET}
    ),
    config=FILE_SIZE,
    runtime={"commitLogDiskRatio": "0.5"},
    ha_port=Probe("10.0.0.1:10912", None),
    clock_ahead_seconds=0.0,
)


SLAVE = MemberFacts(
    member=evolve(
        MASTER.member,
        name="broker-a-1",
        broker_id=1,
        address=B,
        role="slave",
        state="streaming",
        lag_bytes=0,
        lag_seconds=0.0,
    ),
    status=MemberStatus.from_json({"role": "SLAVE", "master": {"haAddress": "10.0.0.1:10912"}, **SECRET}),
    config=FILE_SIZE,
    runtime={"commitLogDiskRatio": "0.5"},
    ha_port=Probe("10.0.0.2:10912", None),
    clock_ahead_seconds=0.1,
)


GROUP = BrokerAddresses("C", "broker-a", {0: A, 1: B})


def cluster(*members: MemberFacts, **changes) -> ClusterFacts:
    views = {"10.0.0.9:9876": (GROUP,)}
    return ClusterFacts(**{"groups": (GROUP,), "members": members, "name_servers": views, **changes})


def as_member(facts: MemberFacts, **changes) -> MemberFacts:
    return evolve(facts, member=evolve(facts.member, **changes))


def with_status(facts: MemberFacts, **fields) -> MemberFacts:
    """The member with other fields of its status, by their JSON keys."""
    return evolve(facts, status=MemberStatus.from_json({**facts.status.to_json(), **fields}))
