"""The in-sync set of a group whose record etcd keeps, and etcd as its members see it, from their statuses. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from twinlog.cluster.observe.in_sync_status import EtcdView, InSyncSet
from twinlog.cluster.observe.members import MemberFacts
from twinlog.cluster.observe.role_views import by_group, id_of, name_of, newest_record
from twinlog.cluster.text import day_and_clock
from twinlog.ha.election.group_record import needed
from twinlog.ha.election.in_sync_set import floor_of
from twinlog.store.role_file import GroupRecord


def record_in_etcd(members: Iterable[MemberFacts]) -> GroupRecord | None:
    """The newest version of a group's record that is known to be in force; None: its members keep it without etcd."""
    newest = newest_record(members)
    record = floor_of(newest) if newest is not None else None
    return record if record is not None and record.is_in_etcd else None


def in_sync_sets(facts: Iterable[MemberFacts]) -> tuple[InSyncSet, ...]:
    """The set of each group that has one."""
    found = (in_sync_set(name, members) for name, members in sorted(by_group(facts).items()))
    return tuple(each for each in found if each is not None)


def in_sync_set(group: str, members: Sequence[MemberFacts]) -> InSyncSet | None:
    """The set of one group; None where etcd does not keep its record."""
    record = record_in_etcd(members)
    if record is None:
        return None
    names = {each.id: _name(each.id, members, record) for each in record.members}
    changed = _last_change(members, record)
    return InSyncSet(
        group=group,
        in_sync=tuple(names.get(id, id) for id in record.in_sync),
        outside=tuple(names[each.id] for each in record.members if each.votes and each.id not in record.in_sync),
        acks_needed=record.acks_in_force,
        acks_configured=record.acks_needed,
        promises_needed=needed(record),
        version=record.version,
        epoch=record.epoch,
        level=next((each.status.policy.level for each in _serving(members) if each.status.policy is not None), None),
        changed_ms=changed[0],
        change_why=_in_names(changed[1], names, record),
        why_not_changed=_in_names(_why_not_changed(members), names, record),
        etcd=tuple(
            EtcdView(member=each.member.name, why=told.why, since_ms=told.since_ms, is_refused=told.refused)
            for each in members
            if (told := each.status.etcd) is not None
        ),
    )


def _serving(members: Iterable[MemberFacts]) -> Iterator[MemberFacts]:
    return (each for each in members if each.status.role_state == "serving")


def _last_change(members: Sequence[MemberFacts], record: GroupRecord) -> tuple[int | None, str | None]:
    """Time and reason of the last change of the set: whoever changed it knows both, others saw it a moment later."""
    told = [(each, each.status.etcd) for each in members]
    known = [
        (each.status.role_state == "serving", etcd.changed_ms, etcd.change_why)
        for each, etcd in told
        if etcd is not None and etcd.changed_ms is not None and etcd.in_sync == record.in_sync
    ]
    return max(known, key=lambda each: (bool(each[2]), each[0], each[1]), default=(False, None, None))[1:]


def _why_not_changed(members: Sequence[MemberFacts]) -> str | None:
    found = (each.status.etcd.why_not_changed for each in _serving(members) if each.status.etcd is not None)
    return next((why for why in found if why), None)


def _name(id: str, members: Sequence[MemberFacts], record: GroupRecord) -> str:
    """A member's name; of one that does not answer, the one in the record."""
    found = name_of(id, members)
    if found != id:
        return found
    found = name_of(record.address_of(id), members)
    kept = record.member(id)
    return found if found != record.address_of(id) or kept is None else kept.name or found


def _in_names(text: str | None, names: dict[str, str], record: GroupRecord) -> str | None:
    for each in record.members:
        for written in (each.label, each.address):
            text = text.replace(written, names[each.id]) if text is not None else None
    return text


def remarks(found: Iterable[InSyncSet]) -> tuple[str, ...]:
    """A sentence for each set, and one for etcd where members cannot rely on it."""
    return tuple(remark for each in found for remark in _remarks(each))


def _remarks(found: InSyncSet) -> Iterator[str]:
    level = f"; SEND_OK is {found.level}" if found.level else ""
    yield f"{found.group}: {found.text}{level}"
    if found.without_etcd:
        yield f"{found.group}: {etcd_text(found)}"


def etcd_text(found: InSyncSet) -> str:
    """etcd's state for people."""
    if not found.without_etcd:
        return "etcd answers" if found.etcd else "nobody told how etcd is"
    first, everybody = found.without_etcd[0], len(found.without_etcd) == len(found.etcd)
    who = "no member can" if everybody else f"{', '.join(each.member for each in found.without_etcd)} cannot"
    return f"{who} rely on etcd{since(first.since_ms)}: {first.why}"


def since(ms: int | None) -> str:
    """A time for the middle of a sentence; "" when it is not known."""
    return f" since {day_and_clock(ms / 1000)}" if ms else ""


def change_text(found: InSyncSet) -> str:
    """Time and reason of the last change of the set, and why it stays now."""
    text = f"version {found.version} of epoch {found.epoch}"
    if found.changed_ms:
        text += f", changed on {day_and_clock(found.changed_ms / 1000)}"
        text += f": {found.change_why}" if found.change_why else ""
    else:
        text += ", not changed since its members started"
    return f"{text}; {found.why_not_changed}" if found.why_not_changed else text


def voters_of(members: Sequence[MemberFacts], record: GroupRecord) -> list[MemberFacts]:
    """Members of ours that vote, of those that answer."""
    return [each for each in members if each.is_twinlog and id_of(each) in record.voters]
