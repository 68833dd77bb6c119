"""Rules for addresses: each member's view of the others', and this machine's. Pure."""

from collections import defaultdict
from collections.abc import Iterator

from twinlog.cluster.observe.findings import Finding, Level
from twinlog.cluster.observe.members import ClusterFacts, MemberFacts
from twinlog.cluster.observe.role_views import id_of, name_of
from twinlog.cluster.remoting.member_status import ReachStatus

_WORDS = {
    "refused": "the connection is refused",
    "timed out": "nothing answers",
    "name unknown": "the name is not known there",
    "another member": "another member answers",
    "no answer": "the answer is of no use",
}
_NEXT = {
    "refused": "see that it listens there, and that no rule in front of it refuses {askers}",
    "timed out": "let {port} through the firewalls between them",
    "name unknown": "let {askers} resolve {host}",
    "another member": "one address must lead to one member",
    "no answer": "see what listens there",
}


def reached_by(facts: ClusterFacts, each: MemberFacts, ha_address: str | None = None) -> list[str]:
    """Names of the members that reach a member, as they say: with requests, or at this HA address."""
    use = "requests" if ha_address is None else "replication"
    return [
        other.member.name
        for other, seen in _views(facts, each.member.group)
        if (seen.result, seen.use) == ("reached", use) and ha_address in (None, seen.address) and _is_about(seen, each)
    ]


def addresses(facts: ClusterFacts) -> Iterator[Finding]:
    """Addresses in a group's record at which its members do not find each other."""
    for name in facts.group_names:
        members = facts.group(name)
        failing: defaultdict[ReachStatus, list[str]] = defaultdict(list)
        for other, seen in _views(facts, name):
            if seen.result != "reached":
                failing[seen].append(other.member.name)
        for seen, askers in failing.items():
            target = next((each for each in members if _is_about(seen, each)), None)
            if target is None or (target.member.state == "unreachable" and not reached_by(facts, target)):
                continue  # It does not run: another finding.
            yield _not_reached(seen, askers, target, members)


def for_clients(facts: ClusterFacts) -> Iterator[Finding]:
    """Members that other members reach, and this machine does not at what clients are told."""
    for each in facts.members:
        member = each.member
        if member.state == "unreachable" and (askers := reached_by(facts, each)):
            yield Finding(
                level=Level.CRITICAL if member.role == "master" else Level.WARNING,
                cause="wrong brokerIP1",
                subject=member.name,
                what=f"{member.name} tells clients that it is at {member.address}, and does not answer there from this machine "
                f"({member.reason}); {_and(askers)} {_verb(askers, 'reaches', 'reach')} it",
                fix=f"set brokerIP1 of {member.name} (brokerPort1 for a published port) to what clients reach; for those beyond "
                "an address translation: outsideListenPort and outsideAddress of the name server",
            )
    asked: defaultdict[str, list[MemberFacts]] = defaultdict(list)
    for each in facts.members:
        if each.status.member_id is not None:
            asked[each.status.member_id].append(each)
    for same in (each for each in asked.values() if len(each) > 1):
        for each in (one for one in same if one.status.address != one.member.address):
            yield Finding(
                level=Level.CRITICAL,
                cause="another member answers",
                subject=each.member.name,
                what=f"{each.member.address} leads from this machine to {each.status.name or each.status.member_id}, which is at "
                f"{each.status.address}: brokerId {each.member.broker_id} was registered with that address by another member",
                fix="give each member of the group an own brokerIP1 or brokerPort1",
            )


def _views(facts: ClusterFacts, group: str) -> Iterator[tuple[MemberFacts, ReachStatus]]:
    for each in facts.group(group):
        for seen in each.status.reach or ():
            yield each, seen


def _is_about(seen: ReachStatus, each: MemberFacts) -> bool:
    return seen.member_id in (id_of(each), each.member.member_id, each.member.address)


def _not_reached(
    seen: ReachStatus, askers: list[str], target: MemberFacts, members: tuple[MemberFacts, ...]
) -> Finding:
    name, who = target.member.name, _and(askers)
    host, _, port = seen.address.rpartition(":")
    has_own = target.status.member_address is not None or seen.use == "replication"
    key = "brokerIP2" if has_own else "brokerIP1 or, for members only, brokerIP2"
    published = "haPort" if seen.use == "replication" else "brokerPort2" if has_own else "brokerPort1"
    answers = f" ({name_of(seen.found, members)})" if seen.found and seen.result == "another member" else ""
    why = f" ({seen.why})" if seen.why and not answers else ""
    return Finding(
        level=Level.WARNING,
        cause="address not reached",
        subject=name,
        what=f"{name} tells members that it is at {seen.address} for {seen.use}; from {who}, "
        f"{_WORDS.get(seen.result, seen.result)}{answers}{why}",
        fix=f"{_NEXT.get(seen.result, _NEXT['no answer']).format(askers=who, host=host, port=port)}; or set {key} of {name} "
        f"({published} for a published port) to what {who} {_verb(askers, 'reaches', 'reach')}",
    )


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _verb(names: list[str], one: str, many: str) -> str:
    return one if len(names) == 1 else many
