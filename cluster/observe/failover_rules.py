"""Rules for groups that elect by themselves: could they, do their members agree, does anything keep them from it? Pure."""

from collections.abc import Iterator, Sequence

from twinlog.cluster.observe.elections import GroupFailover
from twinlog.cluster.observe.failover import failover_of
from twinlog.cluster.observe.findings import Finding, Level
from twinlog.cluster.observe.members import ClusterFacts, MemberFacts
from twinlog.cluster.observe.role_views import id_of, newest_record
from twinlog.cluster.remoting.member_status import AutoFailoverStatus
from twinlog.ha.election.group_record import needed
from twinlog.ha.election.in_sync_set import floor_of, is_last_copy
from twinlog.store.role_file import GroupRecord

THIS_MACHINE = "127.0.0.1"


def automatic_failover(facts: ClusterFacts) -> Iterator[Finding]:
    """Findings on what keeps members from electing, or will."""
    for name in facts.group_names:
        members = facts.group(name)
        record, group = newest_record(members), failover_of(name, members)
        if record is None or group is None:
            continue
        yield from _disagree(group)
        yield from _otherwise_configured(group, members)
        if group.mode == "off":
            continue
        yield from _nobody(group, record)
        yield from _suspected(group)
        yield from _holds_off(group, members)
        yield from _elected_alone(group, members, record)
        yield from _older(group, members, record)
        yield from _times(group, members)
        yield from _witnesses(group, members, record)
        if any(each.config for each in members):
            yield from _one_host(group, members, record)


def _disagree(group: GroupFailover) -> Iterator[Finding]:
    if modes := group.disagreeing:
        says = ", ".join(f"{member} has {mode}" for member, mode in sorted(modes.items()))
        yield Finding(
            level=Level.WARNING,
            cause="members disagree on autoFailover",
            subject=group.group,
            what=f"the members of {group.group} disagree who begins a failover, so nobody elects by itself: {says}",
            fix="see that all of them reach their master; or say it again: twinlog auto-failover "
            f"{group.mode if group.mode != 'off' else 'members'}",
        )


def _otherwise_configured(group: GroupFailover, members: Sequence[MemberFacts]) -> Iterator[Finding]:
    for each in members:
        own = each.status.auto_failover
        if own is not None and own.configured != own.mode:
            yield Finding(
                level=Level.NOTE,
                cause="other autoFailover in broker.conf",
                subject=each.member.name,
                what=f"broker.conf of {each.member.name} says autoFailover={own.configured}, its group has {own.mode}: the "
                "group's word holds",
                fix=f"write autoFailover={own.mode} there, or change the group: twinlog auto-failover {own.configured}",
            )


def _nobody(group: GroupFailover, record: GroupRecord) -> Iterator[Finding]:
    if group.nobody is not None and not is_last_copy(floor_of(record)):  # That is said by in_sync_rules.py.
        against = (f"{each.member}: {each.against}" for each in group.successors if each.rank is None)
        yield Finding(
            level=Level.WARNING,
            cause="nobody could be elected",
            subject=group.group,
            what=f"if the master of {group.group} died now, its members could elect nobody: {group.nobody}"
            + "".join(f"; {each}" for each in against if not each.endswith("it is the master")),
            fix="bring its slaves back, or let more members hold each message (SYNC_MASTER, inSyncReplicas)",
        )


def _suspected(group: GroupFailover) -> Iterator[Finding]:
    for each in group.members:
        if each.suspects:
            given_up = f"; it gave up {each.given_up} elections, the last: {each.why_given_up}" if each.given_up else ""
            yield Finding(
                level=Level.WARNING,
                cause="master suspected",
                subject=each.member,
                what=f"{each.member} takes the master of {group.group} for dead ({each.why}){given_up}",
                fix="start the master, or see that each of the two machines reaches the other one's ports",
            )


def _holds_off(group: GroupFailover, members: Sequence[MemberFacts]) -> Iterator[Finding]:
    told = [each.status.auto_failover for each in members if each.status.auto_failover is not None]
    if group.holds_off:
        seconds = max(each.held_off_ms for each in told) / 1000
        count = max(each.elections for each in told)
        yield Finding(
            level=Level.WARNING,
            cause="elections are held off",
            subject=group.group,
            what=f"{group.group} elected {count} masters by itself within 10 minutes: the next one waits {seconds:.0f} s more",
            fix="a member comes and goes, or a network does: twinlog history says which; twinlog pause stops elections",
        )


def _elected_alone(group: GroupFailover, members: Sequence[MemberFacts], record: GroupRecord) -> Iterator[Finding]:
    for each in members:
        policy, epoch = each.status.policy, each.status.epoch
        if (
            policy is None
            or epoch is None
            or epoch.decided_by != "group"
            or len(record.voters) != 2
            or record.is_in_etcd
        ):
            continue
        if each.status.role_state == "serving" and (policy.in_sync or 0) < record.acks_needed:
            yield Finding(
                level=Level.WARNING,
                cause="elected alone",
                subject=each.member.name,
                what=f"{each.member.name} was elected without its master and stands alone: consumers go on, and SEND_OK is said "
                "to nobody before a second member follows",
                fix="start the old master: it follows by itself",
            )


def _older(group: GroupFailover, members: Sequence[MemberFacts], record: GroupRecord) -> Iterator[Finding]:
    for each in members:
        if each.is_twinlog and each.status.auto_failover is None and id_of(each) in record.voters:
            yield Finding(
                level=Level.WARNING,
                cause="voter of an older version",
                subject=each.member.name,
                what=f"{each.member.name} is of a version that cannot say whether it hears the master: while it answers, nobody "
                f"elects in {group.group}",
                fix="upgrade it",
            )


def _times(group: GroupFailover, members: Sequence[MemberFacts]) -> Iterator[Finding]:
    told = [(each.member.name, each.status.auto_failover) for each in members]
    after = {name: own.after_ms for name, own in told if own is not None and own.after_ms is not None}
    lease = {name: own.lease_ms for name, own in told if own is not None and own.lease_ms is not None}
    if not after or not lease:
        return
    first, longest = min(after, key=lambda name: after[name]), max(lease, key=lambda name: lease[name])
    if after[first] < lease[longest]:
        yield Finding(
            level=Level.WARNING,
            cause="times contradict each other",
            subject=first,
            what=f"{first} suspects a master after autoFailoverAfterMs={after[first]}, and {longest} as a master answers "
            f"producers for haLeaseMs={lease[longest]} without hearing anybody",
            fix="set both to the same values on all members, autoFailoverAfterMs to haLeaseMs or more",
        )
    elif len(set(after.values())) > 1 and any(each.config for each in members):
        yield Finding(
            level=Level.NOTE,
            cause="other autoFailoverAfterMs",
            subject=group.group,
            what=f"members of {group.group} wait for different times: "
            + ", ".join(f"{name} {ms} ms" for name, ms in sorted(after.items()))
            + "; the slowest of those that answer decides",
            fix="set autoFailoverAfterMs to the same value on all members",
        )


def _witnesses(group: GroupFailover, members: Sequence[MemberFacts], record: GroupRecord) -> Iterator[Finding]:
    """Pairs: a member's own vote alone elects, and there is no other voter to ask. With etcd, that is the witness."""
    if needed(record) > 1 or len(record.voters) != 2 or record.is_in_etcd:
        return
    for each in members:
        own, others = each.status.auto_failover, [other for other in members if other is not each]
        if own is None or own.witnesses is None:
            continue
        if not own.witnesses:
            what = f"{each.member.name} has nobody to ask whether the other member of its pair is dead: it never elects"
            yield _no_witness(each, what)
        elif any(other.config for other in others) and _only_beside_other(each, others, own):
            yield _no_witness(
                each,
                f"all that {each.member.name} asks whether the other member of its pair is dead runs on that member's own "
                f"machine ({', '.join(own.witnesses)}): if the machine dies, it never elects",
                Level.NOTE,
            )


def _no_witness(each: MemberFacts, what: str, level: Level = Level.WARNING) -> Finding:
    return Finding(
        level=level,
        cause="pair without a witness",
        subject=each.member.name,
        what=what,
        fix="run a name server on a third machine, and name it in namesrvAddr or autoFailoverWitness",
    )


def _only_beside_other(each: MemberFacts, others: Sequence[MemberFacts], own: AutoFailoverStatus) -> bool:
    hosts, other_hosts = set(map(_host, own.witnesses or ())), {_host(_address(other)) for other in others}
    return hosts <= other_hosts and _host(_address(each)) not in hosts


def _one_host(group: GroupFailover, members: Sequence[MemberFacts], record: GroupRecord) -> Iterator[Finding]:
    hosts = {_host(_address(each)) for each in members if id_of(each) in record.voters}
    if len(hosts) == 1 and len(record.voters) > 1:
        yield Finding(
            level=Level.NOTE,
            cause="one host for all",
            subject=group.group,
            what=f"all members of {group.group} run on {hosts.pop()}: when that machine dies, nobody is left to elect",
            fix="run each member on a machine of its own; to try things out, one machine is enough",
        )


def _address(each: MemberFacts) -> str:
    return each.member.member_address or each.member.address


def _host(address: str) -> str:
    host = address.rpartition(":")[0]
    return THIS_MACHINE if host.startswith("127.") or host in ("localhost", "[::1]") else host
