"""One member in sentences: what it is, what it does, what it promises, what it waits for, what is wrong. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen

from twinlog.cluster.observe.findings import Finding
from twinlog.cluster.observe.members import ClusterFacts, Member, MemberFacts
from twinlog.cluster.observe.role_views import name_of, record_of
from twinlog.cluster.observe.rules import examine
from twinlog.ha.election.votes import needed


@frozen(kw_only=True)
class Sentence:
    """`topic` is one word for what it is about."""

    topic: str
    text: str


@frozen(kw_only=True)
class Explanation:
    """Everything about one member."""

    member: Member
    sentences: tuple[Sentence, ...]
    findings: tuple[Finding, ...]


def find_member(facts: ClusterFacts, name: str) -> MemberFacts | None:
    """By name, or by address."""
    return next((each for each in facts.members if name in (each.member.name, each.member.address)), None)


def explain_member(facts: ClusterFacts, each: MemberFacts) -> Explanation:
    """What there is to say; findings about its group are among its own."""
    subjects = {each.member.name, each.member.group, each.member.address}
    findings = tuple(finding for finding in examine(facts) if finding.subject in subjects)
    sentences = (Sentence(topic=topic, text=text) for topic, text in _sentences(facts, each))
    return Explanation(member=each.member, sentences=tuple(sentences), findings=findings)


def _sentences(facts: ClusterFacts, each: MemberFacts) -> Iterator[tuple[str, str]]:
    member, status = each.member, each.status
    kind = "a twinlog" if each.is_twinlog else "a RocketMQ" if each.runtime else "a"
    yield "is", f"{kind} {member.role} of {member.group} (brokerId {member.broker_id}), for clients at {member.address}"
    if member.state == "unreachable":
        yield "state", f"it does not answer: {member.reason or 'no reason given'}"
        return
    is_told = bool((status.get("master") or {}).get("finding"))  # Below, in the same words.
    yield "state", f"{member.state}" + (f": {member.reason}" if member.reason and not is_told else "")
    if member.written_offset is not None:
        yield "log", _log(facts, each)
    yield from _epoch(facts, each)
    if member.role == "slave":
        yield from _as_slave(member, status.get("master") or {}, status)
    else:
        yield from _as_master(member, status)
    for cut in status.get("divergent") or ():
        yield "kept", f"{cut.get('size')} bytes that were cut from its log are in {cut.get('path')} ({cut.get('why')})"


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
    """Nothing where roles have never been able to change."""
    status, members = each.status, facts.group(each.member.group)
    record = record_of(status)
    if record is None:
        return
    told, promised = status.get("epoch") or {}, status.get("promised") or {}
    winner = name_of(told.get("winner") or "", members) or "nobody that it knows of"
    yield "epoch", f"{told.get('epoch', 0)}, of {winner}, from byte {told.get('startOffset', 0)} of its log on"
    if (promised.get("epoch") or 0) > (told.get("epoch") or 0):
        yield "promised", f"epoch {promised['epoch']} to {name_of(promised.get('winner') or '', members)}"
    if (lease := status.get("lease")) is not None:
        held = "it may acknowledge: enough members follow it, or were asked a moment ago"
        yield "lease", held if lease.get("held") else f"it may acknowledge nothing: {lease.get('why')}"
    names = ", ".join(name_of(kept.address, members) for kept in record.members)
    yield "group", f"{names}; {record.acks_needed} must hold a message, {needed(record)} must promise for a failover"


def _as_slave(member: Member, master: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    followed = master.get("haAddress")
    yield "follows", f"the master at {followed}" if followed else "nobody: no name server knows a master of its group"
    if member.lag_bytes is not None:
        time = f", {member.lag_seconds:.1f} s" if member.lag_seconds is not None else ""
        yield "lag", f"{member.lag_bytes} bytes{time} behind its master"
    if unverified := master.get("unverifiedBytes"):
        yield "received", f"{unverified} bytes more, which are verified next: until then they are no part of its log"
    if (proven := master.get("provenOffset")) is not None:
        yield "proof", f"its log is proven equal to its master's below {proven}"
    if (mode := status.get("ackMode")) is not None:
        yield (
            "acks",
            {"flushed": "once bytes are verified and on its disk"}.get(mode, "once bytes are verified and written"),
        )
    if finding := master.get("finding"):
        yield "finding", str(finding.get("text") or finding.get("kind"))


def _as_master(member: Member, status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    policy: Mapping[str, Any] = status.get("policy") or {}
    words = policy.get("words") or member.ack_policy
    if words:
        yield "SEND_OK", f"a producer hears it when a message is {words}"
    if member.confirmed_offset is not None and member.written_offset is not None:
        behind = member.written_offset - member.confirmed_offset
        waiting = status.get("waitingMessages") or 0
        text = f"up to byte {member.confirmed_offset}"
        yield "confirmed", text + (f"; {behind} bytes are not, {waiting} messages wait" if behind else ", all of it")
    slaves = status.get("slaves") or ()
    if not slaves and status:
        yield "slaves", "none is connected"
    for slave in slaves:
        yield "slave", _slave(slave)


def _slave(slave: Mapping[str, Any]) -> str:
    words = [f"{slave.get('address')} {slave.get('state')}", f"{slave.get('lagBytes')} bytes behind"]
    words.append("counts" if slave.get("counted") else "does not count")
    words += [word for key, word in (("suspended", "suspended"), ("stalled", "stalled")) if slave.get(key)]
    if slave.get("inSync") is not None:
        words.append("in sync" if slave["inSync"] else "not in sync")
    if slave.get("verified") is False:
        words.append("acknowledges without verifying (RocketMQ)")
    if slave.get("reason"):
        words.append(str(slave["reason"]))
    return ", ".join(words)
