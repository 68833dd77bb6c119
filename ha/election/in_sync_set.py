"""The in-sync set of a group whose record etcd keeps: who has to hold a message, and when a member leaves or comes back. No I/O.

S are the ids in `GroupRecord.in_sync`. A message is acknowledged once n of S hold it, with n = min(inSyncReplicas, size of S),
and size of S - n + 1 promises of S elect a master. A version of the record is in force once it is in etcd. While it may be there,
and is not known to be, acknowledgements have to satisfy it and the version before: one of the two is the stricter one, mostly.

    shrink   the new version is written first; only then nobody waits for who has left
    grow     a member that holds the whole log is waited for first; only then the new version is written

Before a version is proposed, all that was acknowledged has to satisfy it, too. Sources: Kafka KIP-966, RocketMQ 5 RIP-44.
"""

from collections.abc import Sequence
from typing import Literal

from attrs import evolve, frozen

from twinlog.ha.election.group_record import next_version
from twinlog.store.role_file import GroupRecord


@frozen(kw_only=True)
class Quorum:
    """So many of these members, the master included, have to hold a message."""

    ids: frozenset[str]
    acks: int


def quorum_of(record: GroupRecord) -> Quorum:
    """The members that acknowledge by a version of the record, and the number of them that is needed."""
    return Quorum(ids=record.electors, acks=record.acks_in_force)


def implies(one: Quorum, other: Quorum) -> bool:
    """True if whatever satisfies the one satisfies the other, too. The master is of both, and always holds the message."""
    return 1 + max(one.acks - 1 - len(one.ids - other.ids), 0) >= other.acks


def stricter(one: Quorum, other: Quorum) -> Quorum:
    """The one that implies the other. Where neither does, as several members left at once: all members of both."""
    if implies(one, other):
        return one
    if implies(other, one):
        return other
    return Quorum(ids=one.ids | other.ids, acks=len(one.ids | other.ids))


def in_force_or_stricter(*records: GroupRecord | None) -> Quorum | None:
    """The quorum that satisfies all of these versions; None without one."""
    found: Quorum | None = None
    for record in records:
        if record is not None:
            found = quorum_of(record) if found is None else stricter(found, quorum_of(record))
    return found


def with_in_sync(record: GroupRecord, ids: Sequence[str]) -> GroupRecord:
    """With another in-sync set, in the order of its members."""
    wanted = tuple(member.id for member in record.members if member.id in ids)
    return record if wanted == record.in_sync else next_version(record, in_sync=wanted)


def why_not_in_etcd(record: GroupRecord) -> str:
    """Reason why a group's record cannot be handed to etcd now; "" when it can."""
    if record.acks_needed <= 1:
        return (
            "its producers wait for no slave, so that no other member is known to have all messages: set "
            "brokerRole=SYNC_MASTER and inSyncReplicas=2 or more first"
        )
    if record.loss_free_from is None:
        return "its first record is not in force yet: try again once a slave follows"
    others = [member.label for member in record.members if not member.votes]
    if others:
        return f"{', '.join(others)} cannot promise a vote: RocketMQ's slaves follow a group in this mode, and are no members"
    return ""


def why_not_by_members(record: GroupRecord) -> str:
    """Reason why a group whose record is in etcd cannot elect by its members alone now; "" when it can."""
    if record.acks_in_force < record.acks_needed:
        names = ", ".join(map(record.label, record.in_sync))
        return (
            f"only {names} had to hold the last messages, and other members would elect without them: bring another member "
            f"back, until the in-sync set has {record.acks_needed}"
        )
    return ""


@frozen(kw_only=True)
class Seen:
    """A voter as its master sees it. `is_level`: it is connected, and held the whole log a moment ago."""

    id: str
    is_level: bool
    away_seconds: float  # Since it held the whole log last; math.inf: not since this master serves.
    is_passed: bool = False  # It was the master before this one, whose failover passed it.


@frozen(kw_only=True)
class SetFacts:
    """All that a change of the set depends on. `serving_seconds`: since this master serves, in which it listened."""

    own: str
    group: GroupRecord
    others: Sequence[Seen]
    is_sync_flush: bool
    min_members: int  # minInSyncReplicas.
    leave_seconds: float  # haMaxTimeSlaveNotCatchup.


@frozen(kw_only=True)
class SetChange:
    """A change, or why the set stays although a member lacks behind. `why` is for people."""

    kind: Literal["grow", "shrink", "stay"]
    why: str = ""
    in_sync: tuple[str, ...] = ()


def next_set(facts: SetFacts) -> SetChange:
    """The next change: all who are away too long leave at once, then who is level comes back, one at a time."""
    group, why = facts.group, ""
    by_id = {each.id: each for each in facts.others}
    away = [id for id in group.in_sync if id in by_id and by_id[id].away_seconds >= facts.leave_seconds]
    if away:
        rest = tuple(id for id in group.in_sync if id not in away)
        told = f"{', '.join(map(group.label, away))} did not hold the whole log for {facts.leave_seconds:g} s"
        if any(by_id[id].is_passed for id in away):
            told = f"{', '.join(map(group.label, away))} was the master, and was passed"
        if not (why := why_not_without(facts, len(rest))):
            return SetChange(kind="shrink", why=told, in_sync=rest)
        why = f"{told}, and stays in the in-sync set: {why}"
    for member in group.members:
        seen = by_id.get(member.id)
        if member.votes and member.id not in group.in_sync and seen is not None and seen.is_level:
            told = f"{member.label} holds the whole log again"
            return SetChange(kind="grow", why=told, in_sync=(*group.in_sync, member.id))
    return SetChange(kind="stay", why=why)


def why_not_without(facts: SetFacts, left: int) -> str:
    """Reason why the set may not shrink to so many members; "" when it may."""
    if left < max(facts.min_members, 1):
        return f"minInSyncReplicas={facts.min_members} demands as many"
    if left < facts.group.acks_needed and not facts.is_sync_flush:
        return (
            f"fewer than inSyncReplicas={facts.group.acks_needed} would hold a message, which flushDiskType=ASYNC_FLUSH may lose "
            "with a machine. Set flushDiskType=SYNC_FLUSH to go on with fewer copies, or bring a member back"
        )
    return ""


def is_last_copy(record: GroupRecord | None) -> bool:
    """True if one member alone holds what was acknowledged last: the loss of its disk loses it."""
    return record is not None and record.auto_failover == "etcd" and len(record.in_sync) == 1


def floor_of(record: GroupRecord) -> GroupRecord:
    """The newest version that this copy of the record knows to be in force: etcd must never show an older one."""
    while record.before is not None:
        record = record.before
    return record


def begun(record: GroupRecord, epoch: int, candidate: str, *, alone: bool = False) -> GroupRecord:
    """As a candidate writes it before it asks for votes: from then on the old master changes nothing. It is master once it has
    the votes. `alone`: somebody accepted a loss, so that only this member is known to have all that is left.
    """
    ids = (candidate,) if alone else record.in_sync
    return evolve(next_version(record, epoch=epoch, candidate=candidate, in_sync=ids), before=None)


def founded(record: GroupRecord, above: int) -> GroupRecord:
    """The version by which a group hands its record to etcd: all members are in the set. `above`: a version that etcd holds."""
    ids = tuple(member.id for member in record.members if member.votes)
    first = next_version(record, auto_failover="etcd", in_sync=ids)
    return evolve(first, version=max(first.version, above + 1))
