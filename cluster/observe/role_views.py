"""Roles of a group from its members' statuses: record, changes under way, findings. Pure.

Members of RocketMQ, and groups that never had a slave of ours, report no roles and have no findings.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from twinlog.cluster.observe.findings import Finding, Level
from twinlog.cluster.observe.members import ClusterFacts, MemberFacts
from twinlog.cluster.remoting.member_status import MemberStatus
from twinlog.cluster.text import day_and_clock
from twinlog.ha.election.group_record import needed, newest
from twinlog.store.role_file import GroupRecord
from twinlog.store.util.plain import from_plain

if TYPE_CHECKING:
    from twinlog.cluster.broker.peers.role_messages import ChangeState

JOIN_MS = 15_000


def newest_record(members: Iterable[MemberFacts]) -> GroupRecord | None:
    """The newest group record that any of the members has."""
    return newest(*(each.status.group_record for each in members))


def change_of(status: MemberStatus) -> "ChangeState | None":
    """The role change that runs there, or the last one; None also for one of a later version."""
    if not status.role_change:
        return None
    from twinlog.cluster.broker.peers.role_messages import ChangeState  # A tenth of the start of `twinlog list`.

    try:
        return from_plain(ChangeState, status.role_change)
    except ValueError:
        return None


def by_group(facts: Iterable[MemberFacts]) -> dict[str, list[MemberFacts]]:
    """Members by their group."""
    groups: dict[str, list[MemberFacts]] = {}
    for each in facts:
        groups.setdefault(each.member.group, []).append(each)
    return groups


def notes_of(facts: Iterable[MemberFacts]) -> tuple[str, ...]:
    """Notes about paused, planned and running role changes, one sentence each."""
    return tuple(note for name, members in by_group(facts).items() for note in _notes(name, members))


def _notes(name: str, members: list[MemberFacts]) -> Iterator[str]:
    record = newest_record(members)
    if record is not None and record.paused is not None:
        until = f" until {day_and_clock(record.paused.until_ms / 1000)}" if record.paused.until_ms is not None else ""
        why = f" ({record.paused.reason})" if record.paused.reason else ""
        yield f"role changes of {name} are paused{until}{why}: twinlog resume ends that"
    for each in members:
        if (scheduled := each.status.scheduled) is not None:
            whom = name_of(scheduled.candidate or "", members) or "the best candidate"
            why = f" ({scheduled.reason})" if scheduled.reason else ""
            yield f"{name} is to be switched over to {whom} at {day_and_clock(scheduled.at_ms / 1000)}{why}"
        change = change_of(each.status)
        if change is not None and change.running:
            step = next((step for step in change.steps if step.state == "doing"), None)
            where = f": step {step.number}, {step.text}" if step is not None else ""
            yield f"{each.member.name} becomes the master of {name}{where}"


def id_of(each: MemberFacts) -> str:
    """Id of a member, by which its group knows it: a RocketMQ slave, and a member of twinlog 0.2, has its address."""
    return each.status.member_id or each.member.address


def name_of(id: str, members: Iterable[MemberFacts]) -> str:
    """Name of the member with an id, or at an address; the text itself when it is not known."""
    return next((each.member.name for each in members if id in (id_of(each), each.member.address)), id)


# Findings


def roles(facts: ClusterFacts) -> Iterator[Finding]:
    """Findings about role changes: members that cannot take part, and changes that were not finished."""
    for name in facts.group_names:
        members = facts.group(name)
        record = newest_record(members)
        yield from _outside(facts, name, members, record)
        if record is None:
            continue
        for each in members:
            yield from _lease(each)
            yield from _not_whole(each)
            yield from _silent(each, members)
        yield from _promised_epoch_without_master(facts, name, members)
        yield from _too_few_votes(name, members, record)
        if record.paused is not None:
            yield Finding(level=Level.NOTE, cause="paused", subject=name, what=next(_notes(name, list(members))))


def _lease(each: MemberFacts) -> Iterator[Finding]:
    lease = each.status.lease
    if each.status.role_state == "serving" and lease is not None and not lease.held:
        why = f" ({lease.why})" if lease.why else ""
        yield Finding(
            level=Level.CRITICAL,
            cause="no lease",
            subject=each.member.name,
            what=f"{each.member.name} has no lease{why}: it stores messages, but answers none with SEND_OK",
            fix="see that its slaves run and that it reaches their ports; if there is another master now, it follows by itself",
        )


def _outside(
    facts: ClusterFacts, name: str, members: tuple[MemberFacts, ...], record: GroupRecord | None
) -> Iterator[Finding]:
    """Slaves of ours that follow a master of ours and have not joined its group within JOIN_MS."""
    if not all(_has_run(each) for each in facts.masters(name)) or not facts.masters(name):
        return
    for each in members:
        known = record is not None and record.member(id_of(each)) is not None
        if each.member.role == "slave" and each.member.state == "streaming" and _has_run(each) and not known:
            local = each.link.local_address
            yield Finding(
                level=Level.WARNING,
                cause="not in the record",
                subject=each.member.name,
                what=f"{each.member.name} follows, and is not in the group's record: it cannot be chosen as master, and its "
                "acknowledgements do not count once there is a record",
                fix=f"it announces {each.status.address} and {each.member.ha_address}, and connects from {local}: "
                "where the master sees it come from another IP (two networks, address translation), list that in the master's "
                "haAllowedSlaves. The master's remoting port has to be reached one below the port of haMasterAddress. "
                "With haMembers, name it there",
            )


def _has_run(each: MemberFacts) -> bool:
    """True for members of ours that have run long enough for a slave to join."""
    return (each.status.now_ms or 0) - (each.status.boot_ms or 0) > JOIN_MS


def _silent(each: MemberFacts, members: tuple[MemberFacts, ...]) -> Iterator[Finding]:
    """Members that answer us but not the member that needs them; members that answer nobody have a finding of their own."""
    answering = {other.member.address for other in members if other.member.state != "unreachable"}
    for address, seconds in each.status.silent.items():
        if address in answering:
            other = name_of(address, members)
            yield Finding(
                level=Level.WARNING,
                cause="slave not heard",
                subject=other,
                what=f"{each.member.name} has had no answer from {other} at {address} for {seconds:.0f} s",
                fix="see that each of the two machines reaches the other one's ports",
            )


def _not_whole(each: MemberFacts) -> Iterator[Finding]:
    if each.status.whole is False:
        yield Finding(
            level=Level.WARNING,
            cause="not whole",
            subject=each.member.name,
            what=f"{each.member.name} may lack messages that it once acknowledged: until it has caught up with its master, "
            "its vote does not count in a failover",
            fix="let it follow its master; if that is gone for good: twinlog failover",
        )


def _promised_epoch_without_master(
    facts: ClusterFacts, name: str, members: tuple[MemberFacts, ...]
) -> Iterator[Finding]:
    """A failover that was not finished: members that promised its epoch follow no older master."""
    taken = max((each.member.epoch or 0 for each in members), default=0)
    if any(change is not None and change.running for change in (change_of(each.status) for each in members)):
        return
    for each in members:
        promised = each.status.promised
        if promised is not None and promised.epoch > taken:
            master = next((found.member.name for found in facts.masters(name)), "MEMBER")
            yield Finding(
                level=Level.WARNING,
                cause="promise without master",
                subject=each.member.name,
                what=f"{each.member.name} has promised epoch {promised.epoch} to {name_of(promised.winner, members)}, "
                "which has not become master in it; it follows nobody older",
                fix=f"finish it, or let another one win: twinlog failover --candidate {master}",
            )


def _too_few_votes(name: str, members: tuple[MemberFacts, ...], record: GroupRecord) -> Iterator[Finding]:
    """A group in which no failover without loss could be proven if the master died now."""
    masters = [id_of(each) for each in members if each.member.role == "master"]
    present = {id_of(each) for each in members if each.is_twinlog}
    voters = record.electors & record.voters & present
    left, wanted = len(voters - set(masters)), needed(record)
    if masters and left < wanted and record.auto_failover in (None, "off"):  # See failover_rules.py.
        yield Finding(
            level=Level.NOTE,
            cause="too few for a failover",
            subject=name,
            what=f"if the master of {name} died now, no failover could be proven to lose nothing: "
            f"{wanted} of its members would have to promise, {left} could",
            fix="bring its slaves back, or let more members hold each message (SYNC_MASTER, inSyncReplicas)",
        )
