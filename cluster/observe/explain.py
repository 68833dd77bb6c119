"""Explanation of one member in sentences: role, state, log, promises, slaves, and findings. Pure."""

from collections.abc import Iterator

from attrs import frozen

from twinlog.cluster.observe.failover import failover_of
from twinlog.cluster.observe.findings import Finding
from twinlog.cluster.observe.in_sync import change_text, in_sync_set, since
from twinlog.cluster.observe.in_sync_status import InSyncSet
from twinlog.cluster.observe.members import ClusterFacts, Member, MemberFacts
from twinlog.cluster.observe.role_views import name_of
from twinlog.cluster.observe.rules import examine
from twinlog.cluster.remoting.member_status import NO_STATUS, EpochStatus, MasterLinkStatus, MemberStatus, SlaveStatus
from twinlog.cluster.text import day_and_clock
from twinlog.ha.election.group_record import needed


@frozen(kw_only=True)
class Sentence:
    """One sentence with its topic in a word."""

    topic: str
    text: str


@frozen(kw_only=True)
class Explanation:
    """Everything about one member."""

    member: Member
    sentences: tuple[Sentence, ...]
    findings: tuple[Finding, ...]


def explain_member(facts: ClusterFacts, each: MemberFacts) -> Explanation:
    """Explain a member; findings about its group are included."""
    subjects = {each.member.name, each.member.group, each.member.address}
    findings = tuple(finding for finding in examine(facts) if finding.subject in subjects)
    sentences = (Sentence(topic=topic, text=text) for topic, text in _sentences(facts, each))
    return Explanation(member=each.member, sentences=tuple(sentences), findings=findings)


def _sentences(facts: ClusterFacts, each: MemberFacts) -> Iterator[tuple[str, str]]:
    member, status = each.member, each.status
    kind = "a twinlog" if each.is_twinlog else "a RocketMQ" if each.runtime else "a"
    at = f"for clients at {member.address}" + (
        f", for members at {member.member_address}" if member.member_address else ""
    )
    yield "is", f"{kind} {member.role} of {member.group} (brokerId {member.broker_id}), {at}"
    if member.member_id is not None:
        yield "member", _identity(member)
    if member.state == "unreachable":
        yield "state", f"it does not answer: {member.reason or 'no reason given'}"
        return
    has_finding = each.link.finding is not None  # Below, in the same words.
    yield "state", f"{member.state}" + (f": {member.reason}" if member.reason and not has_finding else "")
    if member.written_offset is not None:
        yield "log", _log(facts, each)
    yield from _epoch(facts, each)
    if member.role == "slave":
        yield from _as_slave(member, each.link, status)
    else:
        yield from _as_master(facts, member, status)
    for cut in status.divergent:
        yield "kept", f"{cut.size} bytes that were cut from its log are in {cut.path} ({cut.why})"


def _identity(member: Member) -> str:
    text = f"its group knows it as {member.member_id}, whatever its address"
    if not member.made_ms:
        return text
    at = f" at {member.made_address}" if member.made_address else ""
    return f"{text}; that id was made on {day_and_clock(member.made_ms / 1000)}{at}"


def _log(facts: ClusterFacts, each: MemberFacts) -> str:
    member = each.member
    text = f"it holds bytes {member.min_offset} to {member.written_offset}"
    if member.flushed_offset is not None and member.written_offset is not None:
        unflushed = member.written_offset - member.flushed_offset
        text += ", all on its disk" if not unflushed else f", of which the last {unflushed} are in memory only"
    for master in facts.masters(member.group):
        first = master.member.min_offset
        if (
            master.member != member
            and first is not None
            and member.min_offset is not None
            and first < member.min_offset
        ):
            text += f"; its master has {member.min_offset - first} older bytes that it lacks"
    return text


def _epoch(facts: ClusterFacts, each: MemberFacts) -> Iterator[tuple[str, str]]:
    """Yield nothing for groups without a record, whose roles cannot change."""
    status, members = each.status, facts.group(each.member.group)
    record = status.group_record
    if record is None:
        return
    epoch, promised = status.epoch or EpochStatus(epoch=0, winner="", start_offset=0), status.promised
    winner = name_of(epoch.winner, members) or "nobody that it knows of"
    yield "epoch", f"{epoch.epoch}, of {winner}, from byte {epoch.start_offset} of its log on"
    if promised is not None and promised.epoch > epoch.epoch:
        yield "promised", f"epoch {promised.epoch} to {name_of(promised.winner, members)}"
    if (lease := status.lease) is not None:
        held = "it may acknowledge: enough members follow it, or were asked a moment ago"
        yield "lease", held if lease.held else f"it may acknowledge nothing: {lease.why}"
    names = ", ".join(name_of(kept.id, members) for kept in record.members)
    found = in_sync_set(each.member.group, members)
    if found is None:
        yield (
            "group",
            f"{names}; {record.acks_needed} must hold a message, {needed(record)} must promise for a failover",
        )
    else:
        yield from _in_sync(found)
    yield from _etcd(each)
    yield from _failover(facts, each)


def _in_sync(found: InSyncSet) -> Iterator[tuple[str, str]]:
    names = ", ".join((*found.in_sync, *found.outside))
    of = "the one in sync" if found.is_one_copy else f"the {len(found.in_sync)} in sync"
    yield (
        "group",
        f"{names}; {found.acks_needed} of {of} must hold a message, {found.promises_needed} must promise for a failover",
    )
    yield "in sync", found.text
    yield "record", f"etcd keeps it: {change_text(found)}"


def _etcd(each: MemberFacts) -> Iterator[tuple[str, str]]:
    """Line on etcd as this member sees it; none where it knows no etcd."""
    told = each.status.etcd
    if told is None:
        return
    where = f"cluster {told.cluster}, {told.prefix}" if told.cluster else "not reached yet"
    if told.why:
        yield "etcd", f"{where}: it cannot rely on it{since(told.since_ms)}: {told.why}"
    else:
        yield "etcd", f"{where}: it answers"


def _failover(facts: ClusterFacts, each: MemberFacts) -> Iterator[tuple[str, str]]:
    """Lines on who begins a failover, who would be elected, and what this member has heard and tried."""
    group, own = failover_of(each.member.group, facts.group(each.member.group)), each.status.auto_failover
    if group is None or own is None:
        return
    if own.mode == "off":
        yield (
            "failover",
            "a person begins it: twinlog failover; with twinlog auto-failover members, or etcd, the group does",
        )
    else:
        members = "members of the in-sync set" if own.mode == "etcd" else "members"
        after = f" for {own.after_ms / 1000:g} s" if own.after_ms is not None else ""
        yield (
            "failover",
            f"the {members} elect another master by themselves once theirs is not heard{after}, or its process is gone",
        )
    if own.heard_ms is not None:
        suspects = next((found.why for found in group.members if found.member == each.member.name and found.why), None)
        yield "heard", f"its master {own.heard_ms / 1000:.1f} s ago" + (f"; {suspects}" if suspects else "")
    against = [f"{found.member}: {found.against}" for found in group.successors if found.against]
    if group.successors:
        yield "next", "; ".join([group.next or f"nobody: {group.nobody}", *against])
    if own.tried:
        last = f", the last because {own.why_given_up}" if own.why_given_up else ""
        yield "elections", f"it began {own.tried} by itself, won {own.won}, gave up {own.given_up}{last}"
    if own.held_off_ms:
        yield "hold-off", f"{own.elections} elections within 10 minutes: it waits {own.held_off_ms / 1000:.0f} s more"


def _as_slave(member: Member, master: MasterLinkStatus, status: MemberStatus) -> Iterator[tuple[str, str]]:
    followed = master.ha_address
    tls = " over TLS" if master.tls else ""
    yield (
        "follows",
        f"the master at {followed}{tls}" if followed else "nobody: no name server knows a master of its group",
    )
    if member.lag_bytes is not None:
        time = f", {member.lag_seconds:.1f} s" if member.lag_seconds is not None else ""
        yield "lag", f"{member.lag_bytes} bytes{time} behind its master"
    if unverified := master.unverified_bytes:
        yield "received", f"{unverified} bytes more, which are verified next: until then they are no part of its log"
    if (proven := master.proven_offset) is not None:
        yield "proof", f"its log is proven equal to its master's below {proven}"
    if (mode := status.ack_mode) is not None:
        yield "acks", f"once bytes are verified and {'on its disk' if mode == 'flushed' else 'written'}"
    if master.finding is not None:
        yield "finding", master.finding.text or master.finding.kind


def _as_master(facts: ClusterFacts, member: Member, status: MemberStatus) -> Iterator[tuple[str, str]]:
    policy = (status.policy.words if status.policy is not None else None) or member.ack_policy
    if policy:
        yield "SEND_OK", f"a producer hears it when a message is {policy}"
    if member.confirmed_offset is not None and member.written_offset is not None:
        behind = member.written_offset - member.confirmed_offset
        waiting = status.waiting_messages or 0
        text = f"up to byte {member.confirmed_offset}"
        yield "confirmed", text + (f"; {behind} bytes are not, {waiting} messages wait" if behind else ", all of it")
    if not status.slaves and status != NO_STATUS:
        yield "slaves", "none is connected"
    for slave in status.slaves or ():
        yield "slave", _slave(slave, facts.group(member.group))


def _slave(slave: SlaveStatus, members: tuple[MemberFacts, ...]) -> str:
    name = name_of(slave.member_id, members) if slave.member_id is not None else ""
    who = f"{name} ({slave.address})" if name not in ("", slave.address) else slave.address
    parts = [f"{who} {slave.state}", f"{slave.lag_bytes} bytes behind"]
    parts.append("counts" if slave.counted else "does not count")
    parts += ["over TLS"] * bool(slave.tls)
    parts += ["suspended"] * slave.suspended + ["stalled"] * slave.stalled
    if slave.in_sync is not None:
        parts.append("in sync" if slave.in_sync else "not in sync")
    if slave.verified is False:
        parts.append("acknowledges without verifying (RocketMQ)")
    if slave.reason:
        parts.append(slave.reason)
    return ", ".join(parts)
