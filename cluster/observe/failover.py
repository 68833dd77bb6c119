"""Readiness of groups for failovers that need nobody, from its members' statuses. Pure."""

from collections.abc import Iterable, Sequence

from twinlog.cluster.observe.elections import ElectionNews, GroupFailover, MemberElections, Successor, What
from twinlog.cluster.observe.members import MemberFacts, is_master
from twinlog.cluster.observe.role_views import by_group, name_of, newest_record
from twinlog.cluster.remoting.member_status import AutoFailoverStatus
from twinlog.store.role_file import GroupRecord


def failovers_of(facts: Iterable[MemberFacts]) -> tuple[GroupFailover, ...]:
    """Of each group that has a record and a member that can elect."""
    found = (failover_of(name, members) for name, members in sorted(by_group(facts).items()))
    return tuple(each for each in found if each is not None)


def failover_of(name: str, members: Sequence[MemberFacts]) -> GroupFailover | None:
    """Of one group; None without a record, or where all are of versions that do not elect."""
    record = newest_record(members)
    told = [(each, each.status.auto_failover) for each in members if each.status.auto_failover is not None]
    if record is None or not told:
        return None
    judge = _judge(told)
    return GroupFailover(
        group=name,
        mode=record.auto_failover or "off",
        successors=tuple(
            Successor(
                member=_named(each.member_id, members, record),
                rank=each.rank,
                against=_in_names(each.against, members, record),
            )
            for each in (judge.standings if judge is not None else ())
        ),
        nobody=_in_names(judge.why_nobody, members, record) if judge is not None and judge.why_nobody else None,
        holds_off=any(status.held_off_ms > 0 for _, status in told),
        members=tuple(
            MemberElections(
                member=each.member.name,
                mode=status.mode,
                suspects=status.suspected,
                why=_in_names(status.why, members, record) if status.suspected else None,
                tried=status.tried,
                won=status.won,
                given_up=status.given_up,
                why_given_up=_in_names(status.why_given_up or "", members, record) or None,
            )
            for each, status in told
        ),
    )


def _judge(told: Sequence[tuple[MemberFacts, AutoFailoverStatus]]) -> AutoFailoverStatus | None:
    """The member that tells how all stand: the master, or one that has asked since it suspects it."""
    found = sorted(told, key=lambda each: (not is_master(each[0].member), each[0].member.broker_id))
    return next((status for _, status in found if status.standings), None)


def _named(id: str, members: Sequence[MemberFacts], record: GroupRecord) -> str:
    """A member's name; by its address where it does not answer, so that nobody told its id."""
    found = name_of(id, members)
    return found if found != id else name_of(record.address_of(id), members)


def _in_names(text: str, members: Sequence[MemberFacts], record: GroupRecord) -> str:
    """A text with members' names for their addresses and ids."""
    for each in record.members:
        name = _named(each.id, members, record)
        for written in (each.label, each.id, each.address):
            text = text.replace(written, name)
        text = text.replace(f"{name}, {name}", name)
    return text


def notes(found: Iterable[GroupFailover]) -> tuple[str, ...]:
    """A sentence for each group that elects by itself, and one for what it does about that now."""
    return tuple(note for each in found if each.mode != "off" for note in _notes(each))


def _notes(group: GroupFailover) -> Iterable[str]:
    by_itself = f"{group.group} elects another master by itself"
    if group.suspected_by:
        waits = next((each for each in group.members if each.suspects), None)
        why = f": {waits.why}" if waits is not None and waits.why else ""
        yield f"{', '.join(group.suspected_by)} suspect{'s' * (len(group.suspected_by) == 1)} the master of {group.group}{why}"
    elif group.next is not None:
        yield f"{by_itself}: {group.next} would be next"
    elif group.nobody is not None:
        yield f"{by_itself}, but could not now: {group.nobody}"
    else:
        yield by_itself


def news(before: Iterable[GroupFailover], now: Iterable[GroupFailover]) -> tuple[ElectionNews, ...]:
    """Events in between; nothing of members that were not there before."""
    known = {(group.group, each.member): each for group in before for each in group.members}
    return tuple(
        ElectionNews(group.group, each.member, what, why)
        for group in now
        for each in group.members
        if (old := known.get((group.group, each.member))) is not None
        for what, why in _news(old, each)
    )


def _news(old: MemberElections, now: MemberElections) -> Iterable[tuple[What, str | None]]:
    if now.suspects and not old.suspects:
        yield "suspected", now.why
    if now.tried > old.tried:
        yield "begun", None
    if now.given_up > old.given_up:
        yield "given up", now.why_given_up
    if now.won > old.won:
        yield "won", None
    if old.suspects and not now.suspects and now.won == old.won:
        yield "heard", None
