"""Changes of the record of a group's members. No I/O.

Only the master changes it, one change at a time. A new version is in force once so many voters of the version before have it that
every set of votes that elects a member by the old one contains a voter that knows the new one. Until then new members do not
count. A new master first writes a version of its own epoch. It may not know whether the version that it found ever was in force;
so each version carries those that may still be, and comes into force by all their rules.

Before the first record is in force, every slave's acknowledgements count: a message may be on the master and a slave that is not
a member. So a record also names the byte from which on only members' acknowledgements count (`loss_free_from`). A member without
bytes below it may lack acknowledged messages, whatever the others vote; without it, only the master has all of them.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from attrs import evolve

from twinlog.store.role import BrokerRole
from twinlog.store.role_file import AutoFailover, GroupMember, GroupRecord, Pause


def needed(group: GroupRecord) -> int:
    """Number of votes that elect a master: so many intersect every set of members that can acknowledge a message."""
    return max(len(group.electors) - group.acks_in_force + 1, 1)


def newest(*records: GroupRecord | None) -> GroupRecord | None:
    """The one that was written last."""
    known = [record for record in records if record is not None]
    return max(known, key=lambda record: (record.epoch, record.version, record.before is None), default=None)


def is_newer(record: GroupRecord, than: GroupRecord | None) -> bool:
    """True if `record` replaces `than`; the same version does so once it is known to be in force, or if `than` lacks what an
    older version of twinlog did not know, and so did not keep.
    """
    if than is None or (record.epoch, record.version) > (than.epoch, than.version):
        return True
    same = (record.epoch, record.version) == (than.epoch, than.version)
    lacks = than.before is not None or (than.auto_failover is None and record.auto_failover is not None)
    return same and record.before is None and lacks


def first_record(master: GroupMember, slave: GroupMember, acks_needed: int, master_role: BrokerRole) -> GroupRecord:
    """A group begins with its master and the first slave that votes; committed by these two."""
    return GroupRecord(version=1, members=(master, slave), acks_needed=acks_needed, master_role=master_role)


def with_member(record: GroupRecord, member: GroupMember) -> GroupRecord:
    """With a new or changed member; the same record when nothing changes."""
    if record.member(member.id) == member:
        return record
    others = tuple(other for other in record.members if other.id != member.id)
    return next_version(record, members=(*others, member))


def without(record: GroupRecord, id: str) -> GroupRecord:
    """Without a member. What it alone acknowledged, besides the master, no other member may have: `loss_free_from` is set again
    once this version is in force.
    """
    members = tuple(member for member in record.members if member.id != id)
    in_sync = tuple(each for each in record.in_sync if each != id)
    # In etcd only who is in sync acknowledges, before and after.
    base = record.loss_free_from if record.is_in_etcd else None
    return next_version(record, members=members, in_sync=in_sync, loss_free_from=base)


def with_need(record: GroupRecord, acks_needed: int) -> GroupRecord:
    """With another number of members that must hold a message before SEND_OK."""
    return record if record.acks_needed == acks_needed else next_version(record, acks_needed=acks_needed)


def with_pause(record: GroupRecord, paused: Pause | None) -> GroupRecord:
    """With role changes forbidden, or allowed again."""
    return record if record.paused == paused else next_version(record, paused=paused)


def with_auto_failover(record: GroupRecord, mode: AutoFailover) -> GroupRecord:
    """With another answer to who begins a failover. See in_sync_set.founded() for etcd."""
    return record if record.auto_failover == mode else next_version(record, auto_failover=mode, in_sync=())


def with_ids_swapped(record: GroupRecord, winner: str, epoch: int) -> GroupRecord:
    """As the winner of an epoch writes it: the winner gets broker id 0, and the old master the winner's."""
    free = id_as_slave(record, winner)
    broker_ids = {member.id: free for member in record.members if member.broker_id == 0} | {winner: 0}
    members = tuple(evolve(member, broker_id=broker_ids.get(member.id, member.broker_id)) for member in record.members)
    return next_version(record, members=members, epoch=epoch, candidate="")


def is_first(record: GroupRecord) -> bool:
    """True while all registered slaves count: the very first version, and it is not known to have been in force."""
    return (record.epoch, record.version) == (0, 1) and record.loss_free_from is None


def loss_free_below(record: GroupRecord, end: int) -> GroupRecord:
    """With `loss_free_from` at `end`, the end of its master's log, or lower; the same record if it is so already.

    It is in force at once: the version before, which says less, elects no member that this one would not.
    """
    known = record.loss_free_from
    if known is not None and known <= end:
        return record
    return evolve(record, version=record.version + 1, loss_free_from=end)


def won_at(record: GroupRecord, start: int) -> GroupRecord:
    """As the winner of an epoch that begins at `start` writes it: the loss of what it lacks was accepted."""
    known = record.loss_free_from
    return evolve(record, loss_free_from=start if known is None else min(known, start))


def id_as_slave(record: GroupRecord | None, id: str) -> int:
    """The broker id of a member while it is a slave: its own, or the lowest free one."""
    member = record.member(id) if record is not None else None
    if member is not None and member.broker_id > 0:
        return member.broker_id
    taken = {other.broker_id for other in record.members} if record is not None else set()
    return next(number for number in range(1, len(taken) + 2) if number not in taken)


def is_committed(before: GroupRecord | None, versions: Mapping[str, int], record: GroupRecord) -> bool:
    """True if a version is in force. `versions`: the version of this master's records that each voter has, durably.

    Removed members need not have it: an operator said that they are gone for good. They may still have voted where the others did
    not, so each set of votes that includes them must contain one of the others that has it; where the old version elects without
    any of the others, there is only the operator's word.
    """
    has = {id for id, version in versions.items() if version >= record.version}
    older = _older(before, record)
    if not older:  # The first one is in force once all of its voters have it.
        return record.voters <= has
    return all(_knows_enough(old, record, has) for old in older)


def _knows_enough(old: GroupRecord, record: GroupRecord, has: AbstractSet[str]) -> bool:
    gone = old.voters - _ids(record)
    return len(old.voters - gone - (has - _unproven(old, record))) < _needed_of(old, record)


def _needed_of(old: GroupRecord, record: GroupRecord) -> int:
    """Number of votes that elect by the old version, besides those of members that the new one removes."""
    return max(needed(old) - len(old.voters - _ids(record)), 1)


def _unproven(old: GroupRecord, record: GroupRecord) -> frozenset[str]:
    """Voters that go on at another address, by another start, than in the old version: what answers there may be a copy of a
    directory whose member goes on elsewhere, so that only the other voters' answers count for this version. Where these
    are too few whatever they say, as in a pair, it is believed. The master itself is heard by its lease.
    """
    moved = {
        each.id
        for each in record.members
        if each.broker_id and each.votes and (known := old.member(each.id)) is not None and _has_moved(known, each)
    }
    return frozenset(moved) if len(moved) < _needed_of(old, record) else frozenset()


def _has_moved(known: GroupMember, now: GroupMember) -> bool:
    return known.address != now.address and known.code != now.code


def moved(before: GroupRecord | None, record: GroupRecord) -> frozenset[str]:
    """Members that go on at another address, by another start, than in a version that may be in force."""
    older = _older(before, record)
    known = ((old.member(each.id), each) for old in older for each in record.members)
    return frozenset(each.id for was, each in known if was is not None and _has_moved(was, each))


def unproven(before: GroupRecord | None, record: GroupRecord) -> frozenset[str]:
    """Members that moved by a version that is not in force: nobody else is known to have heard of it."""
    return frozenset[str]().union(*(_unproven(old, record) for old in _older(before, record)))


def unproven_asker(record: GroupRecord, asker: GroupMember) -> bool:
    """True for a member that asks from where the record does not have it, and has to be heard of by others."""
    known = record.member(asker.id)
    if known is None:
        return False
    if record.is_in_etcd:  # There it is heard of by etcd, whatever the others say.
        return _has_moved(known, asker)
    return asker.id in _unproven(record, with_member(record, evolve(asker, broker_id=known.broker_id)))


def in_force(record: GroupRecord) -> GroupRecord:
    """A version that is in force: those before it are forgotten."""
    return evolve(record, before=None)


def counted(before: GroupRecord | None, record: GroupRecord, *, committed: bool) -> frozenset[str]:
    """Members whose acknowledgements count: none that is new in a version that is not in force, moved or removed by it."""
    return _ids(record) if committed else members_of_all(before, record) - unproven(before, record)


def members_of_all(before: GroupRecord | None, record: GroupRecord) -> frozenset[str]:
    """Ids of the members that a version that is not in force has in common with those that may be."""
    older = _older(before, record)
    return _ids(record).intersection(*map(_ids, older)) if older else frozenset()


def _older(before: GroupRecord | None, record: GroupRecord) -> list[GroupRecord]:
    """All versions that may be in force while this one is not."""
    found = [before] if before is not None else []
    while record.before is not None:
        record = record.before
        found.append(record)
    return found


def _ids(record: GroupRecord) -> frozenset[str]:
    return frozenset(member.id for member in record.members)


def remaining_pause(record: GroupRecord | None, now_ms: int) -> Pause | None:
    """The pause that is in force; None when there is none, or it has run out."""
    paused = record.paused if record is not None else None
    return paused if paused is not None and (paused.until_ms is None or paused.until_ms > now_ms) else None


def next_version(record: GroupRecord, **changes: object) -> GroupRecord:
    """The version after this one, with these fields changed. It remembers those that may be in force still."""
    old = record.before
    known = old is not None and _electorate(old) == _electorate(record)
    before = old if known else record  # A version that elects the same members need not be remembered.
    changed: GroupRecord = evolve(record, version=record.version + 1, before=before, **changes)  # type: ignore[arg-type]
    return changed


def _electorate(record: GroupRecord) -> tuple[object, ...]:
    """All that says who elects, and how many are needed."""
    return record.voters, _ids(record), record.electors, record.acks_needed, record.is_in_etcd
