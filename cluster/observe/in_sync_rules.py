"""Rules for groups whose record etcd keeps: how many hold a message, and can their members rely on etcd? Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from twinlog.cluster.observe.findings import Finding, Level
from twinlog.cluster.observe.in_sync import change_text, in_sync_set, record_in_etcd, since, voters_of
from twinlog.cluster.observe.in_sync_status import InSyncSet
from twinlog.cluster.observe.members import ClusterFacts, MemberFacts
from twinlog.cluster.remoting.member_status import EtcdFindingStatus, EtcdStatus
from twinlog.store.role_file import GroupRecord

ONE_COPY = "one copy"  # Cause of the finding; the dashboard has words of its own for it.


def in_sync_sets(facts: ClusterFacts) -> Iterator[Finding]:
    """Findings on the sets: one copy, fewer than inSyncReplicas, members outside."""
    for name in facts.group_names:
        if (found := in_sync_set(name, facts.group(name))) is not None:
            yield from _one_copy(found)
            yield from _small(found)
            yield from _outside(found)
            yield from _stays(found)


def etcd(facts: ClusterFacts) -> Iterator[Finding]:
    """Findings on etcd as each member sees it, and on members that do not ask the same."""
    for name in facts.group_names:
        members = facts.group(name)
        record = record_in_etcd(members)
        yield from _not_usable(name, members, record)
        yield from _no_place(members, record)
        if record is not None:
            yield from _no_endpoints(members, record)
            yield from _differ(members, record)
    yield from _on_the_way(facts)


def _one_copy(found: InSyncSet) -> Iterator[Finding]:
    if found.is_one_copy:
        back = f"bring {' or '.join(found.outside)} back: once it holds the whole log, it is in the set again"
        yield Finding(
            level=Level.CRITICAL,
            cause=ONE_COPY,
            subject=found.group,
            what=f"one copy: {found.in_sync[0]} alone holds what {found.group} acknowledges now. The loss of its disk loses it, "
            f"and nobody else may be elected ({change_text(found)})",
            fix=back if found.outside else "start another member",
        )


def _small(found: InSyncSet) -> Iterator[Finding]:
    if 1 < len(found.in_sync) < found.acks_configured:
        yield Finding(
            level=Level.WARNING,
            cause="in-sync set below inSyncReplicas",
            subject=found.group,
            what=f"{found.group} has {found.text}, fewer than inSyncReplicas={found.acks_configured}: {found.acks_needed} must "
            f"hold a message now ({change_text(found)})",
            fix=f"bring {' or '.join(found.outside)} back" if found.outside else "start another member",
        )


def _outside(found: InSyncSet) -> Iterator[Finding]:
    if found.outside and len(found.in_sync) >= max(found.acks_configured, 2):
        are, their = ("is", "its") if len(found.outside) == 1 else ("are", "their")
        yield Finding(
            level=Level.NOTE,
            cause="outside of the in-sync set",
            subject=found.group,
            what=f"{', '.join(found.outside)} {are} outside of the in-sync set of {found.group}: nobody waits for {their} "
            "acknowledgement, and no election takes a member from there",
        )


def _stays(found: InSyncSet) -> Iterator[Finding]:
    if found.why_not_changed:
        yield Finding(
            level=Level.WARNING,
            cause="in-sync set stays",
            subject=found.group,
            what=f"the in-sync set of {found.group} does not shrink, and producers hear SEND_OK for nothing that it lacks: "
            f"{found.why_not_changed}",
            fix="bring the member back, or do what is said above",
        )


def _not_usable(name: str, members: Sequence[MemberFacts], record: GroupRecord | None) -> Iterator[Finding]:
    """Members without etcd, by its reason. Without a record there nothing depends on it yet."""
    by_reason: defaultdict[tuple[str, bool], list[tuple[MemberFacts, EtcdStatus]]] = defaultdict(list)
    for each in members:
        told = each.status.etcd
        if told is not None and told.why and told.why != told.no_place and told.since_ms is not None:
            by_reason[told.why, told.refused].append((each, told))
    for (why, refused), found in by_reason.items():
        who = ", ".join(each.member.name for each, _ in found)
        first_ms = min(told.since_ms or 0 for _, told in found)
        waits = "changes of the in-sync set and elections wait; acknowledgements go on by the set as it is"
        if record is None:
            waits = "the group does not use it yet"
        level = Level.NOTE if record is None else Level.CRITICAL if refused else Level.WARNING
        yield Finding(
            level=level,
            cause="refused by etcd, or its record" if refused else "etcd cannot be relied on",
            subject=found[0][0].member.name if len(found) == 1 else name,
            what=f"{who} cannot rely on etcd{since(first_ms)} ({why}): {waits}",
            fix="see what each member finds on its way there: twinlog doctor",
        )


def _no_place(members: Sequence[MemberFacts], record: GroupRecord | None) -> Iterator[Finding]:
    for each in members:
        told = each.status.etcd
        if told is not None and told.no_place and (record is not None or _begins_with_etcd(each)):
            yield Finding(
                level=Level.WARNING,
                cause="no place beside etcd",
                subject=each.member.name,
                what=f"{each.member.name}: {told.no_place}",
                fix="change its broker.conf, and start it again",
            )


def _begins_with_etcd(each: MemberFacts) -> bool:
    return each.status.auto_failover is not None and each.status.auto_failover.configured == "etcd"


def _no_endpoints(members: Sequence[MemberFacts], record: GroupRecord) -> Iterator[Finding]:
    for each in voters_of(members, record):
        if each.status.etcd is None:
            yield Finding(
                level=Level.WARNING,
                cause="no etcdEndpoints",
                subject=each.member.name,
                what=f"{each.member.name} has no etcdEndpoints, and its group's record is in etcd: it cannot be elected, and as "
                "the master it could not change the in-sync set",
                fix="set etcdEndpoints and etcdPrefix there as on the other members, and start it again",
            )


def _differ(members: Sequence[MemberFacts], record: GroupRecord) -> Iterator[Finding]:
    """Members that ask another etcd, or under another prefix, than most: the master's word counts where none are more."""
    told = [(each, each.status.etcd) for each in voters_of(members, record)]
    for key, title in (("cluster", "another etcd"), ("prefix", "another etcdPrefix")):
        known = {each.member.name: value for each, etcd in told if etcd is not None and (value := getattr(etcd, key))}
        values = list(known.values())
        common = max(dict.fromkeys(values), key=values.count, default=None)
        for name, value in known.items():
            if value != common:
                others = ", ".join(other for other, theirs in known.items() if theirs == common)
                yield Finding(
                    level=Level.CRITICAL,
                    cause=title,
                    subject=name,
                    what=f"{name} has {title}, {value}, than {others}: {common}",
                    fix="set the same etcdEndpoints and etcdPrefix on every member, and start this one again",
                )


def _on_the_way(facts: ClusterFacts) -> Iterator[Finding]:
    """Problems between members and endpoints, each once with the members that have it; only where that was asked for."""
    found: defaultdict[EtcdFindingStatus, list[str]] = defaultdict(list)
    for each in facts.members:
        for problem in (each.status.etcd.findings if each.status.etcd is not None else None) or ():
            found[problem].append(each.member.name)
    for problem, names in found.items():
        yield Finding(
            level=Level(problem.level),
            cause=f"etcd: {problem.cause}",
            subject=problem.subject,
            what=f"{', '.join(names)} to {problem.subject}: {problem.what}",
            fix=problem.fix,
        )
