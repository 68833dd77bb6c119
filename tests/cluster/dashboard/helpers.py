"""Clusters for the dashboard's tests: facts as members tell them, and the looks that come of them."""

from attrs import evolve

from twinlog.cluster.dashboard.model.snapshot import ClusterSnapshot, GroupSnapshot, MemberSnapshot, Range
from twinlog.cluster.observe.in_sync_status import EtcdView, InSyncSet
from twinlog.cluster.observe.members import ClusterFacts, Member, MemberFacts
from twinlog.cluster.observe.rules import examine
from twinlog.cluster.remoting.member_status import MemberStatus

MB = 1_000_000
END = 40 * MB
POLICY = "in the master's memory and held by one slave (3 of 3 in sync)"


def member(number: int = 0, **changes) -> Member:
    """broker-a-0 is a master that serves, the others are slaves that stream and are level."""
    made = Member(
        name=f"broker-a-{number}",
        cluster="DefaultCluster",
        group="broker-a",
        broker_id=number,
        address=f"127.0.0.1:{10911 + 10 * number}",
        role="slave" if number else "master",
        state="streaming" if number else "serving",
        ack_policy="takes no messages" if number else POLICY,
        min_offset=0,
        written_offset=END,
        flushed_offset=END,
        confirmed_offset=END,
        lag_bytes=0 if number else None,
        lag_seconds=0.0 if number else None,
        rate_bytes_per_second=0,
        epoch=3,
    )
    return evolve(made, **changes)


def silent(number: int) -> Member:
    """Of one that does not answer, nothing is known but its place."""
    return Member(
        name=f"broker-a-{number}",
        cluster="DefaultCluster",
        group="broker-a",
        broker_id=number,
        address=f"127.0.0.1:{10911 + 10 * number}",
        role="slave" if number else "master",
        state="unreachable",
        reason="no answer within 2000 ms",
    )


def facts(*members: Member, status: dict | None = None) -> ClusterFacts:
    """What they say; `status` of members by name beyond what a Member holds."""
    shown = [
        MemberFacts(
            member=each,
            status=MemberStatus.from_json(
                {**({"maxOffset": 1} if each.state != "unreachable" else {}), **(status or {}).get(each.name, {})}
            ),
        )
        for each in members
    ]
    return ClusterFacts(groups=(), members=tuple(shown))


def snapshot_of(*members: Member, at: float = 1000.0, acks_needed: int | None = 2, **changes) -> ClusterSnapshot:
    """A look at one group. Lags are as the members have them; `since` was a minute ago."""
    snapshots = tuple(
        MemberSnapshot(member=each, since=at - 60, lag_bytes=each.lag_bytes, lag_seconds=each.lag_seconds)
        for each in members
    )
    found = tuple(each for each in examine(facts(*members)) if each.cause != "no broker")
    return evolve(
        ClusterSnapshot(
            at=at,
            groups=(GroupSnapshot(name="broker-a", members=snapshots, acks_needed=acks_needed),),
            findings=found,
            namesrv=("127.0.0.1:9876",),
        ),
        **changes,
    )


def with_member(snapshot: ClusterSnapshot, name: str, **changes) -> ClusterSnapshot:
    """The look, with one member's otherwise."""
    groups = tuple(
        evolve(group, members=tuple(evolve(m, **changes) if m.member.name == name else m for m in group.members))
        for group in snapshot.groups
    )
    return evolve(snapshot, groups=groups)


def diverged(number: int, start: int) -> tuple[Member, tuple[Range, ...]]:
    """A slave whose bytes are not its master's from `start` on."""
    return member(number, state="diverged", lag_bytes=None, lag_seconds=None), (Range(start, END, is_cut=False),)


def with_set(snapshot: ClusterSnapshot, *numbers: int, of: int = 3, etcd_why: str | None = None) -> ClusterSnapshot:
    """The look, of a group whose record etcd keeps, with these members in sync."""
    names = [f"broker-a-{number}" for number in range(of)]
    found = InSyncSet(
        group="broker-a",
        in_sync=tuple(names[number] for number in numbers),
        outside=tuple(name for number, name in enumerate(names) if number not in numbers),
        acks_needed=min(2, len(numbers)),
        acks_configured=2,
        promises_needed=max(len(numbers) - 1, 1),
        version=7,
        epoch=3,
        level=None,
        changed_ms=900_000,
        change_why="broker-a-1 did not hold the whole log for 10 s",
        why_not_changed=None,
        etcd=(EtcdView(member="broker-a-0", why=etcd_why, since_ms=950_000, is_refused=False),),
    )
    groups = tuple(evolve(group, in_sync=found, acks_needed=found.acks_needed) for group in snapshot.groups)
    return evolve(snapshot, groups=groups)
