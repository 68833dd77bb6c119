"""Rules for the health of a cluster: what is wrong, why, and what to do about it. Pure: facts in, findings out.

The tables at the end list every rule, by what it reads: RULES read one snapshot (`twinlog check`, `explain`, `doctor`, the
dashboard), CONTRADICTIONS read two (`twinlog crosscheck`). Rules for security are in security_rules.py, rules for roles in
role_views.py, failover_rules.py and in_sync_rules.py, rules for what members report about each other in cross_rules.py.
"""

from collections.abc import Iterator
from functools import partial

from attrs import frozen

from twinlog.cluster.observe.address_rules import addresses, for_clients, reached_by
from twinlog.cluster.observe.cross_rules import (
    TwoSnapshots,
    clusters,
    in_both,
    in_second,
    lengths,
    one_direction,
    other_group,
    registered_master,
    unregistered,
)
from twinlog.cluster.observe.failover_rules import automatic_failover
from twinlog.cluster.observe.findings import Finding, Level, Rule, apply
from twinlog.cluster.observe.in_sync_rules import etcd, in_sync_sets
from twinlog.cluster.observe.members import ClusterFacts, MemberFacts, issue_of, successor_hint
from twinlog.cluster.observe.role_views import roles
from twinlog.cluster.observe.security_rules import access, encryption, group_secrets, replication_port, secret_files
from twinlog.ha.policy.ack_policy import OF_THE_SET


def name_servers(facts: ClusterFacts) -> Iterator[Finding]:
    silent = {address: answer for address, answer in facts.name_servers.items() if isinstance(answer, str)}
    for address, why in silent.items():
        yield Finding(
            level=Level.WARNING if len(silent) < len(facts.name_servers) else Level.CRITICAL,
            cause="name server does not answer",
            subject=address,
            what=f"the name server {address} does not answer ({why})",
            fix="start it, or take it out of namesrvAddr",
        )
    views = {address: _view(answer) for address, answer in facts.name_servers.items() if not isinstance(answer, str)}
    if len(set(views.values())) > 1:
        lacking = {address: set().union(*views.values()) - view for address, view in views.items()}
        for address, names in lacking.items():
            if names:
                yield Finding(
                    level=Level.WARNING,
                    cause="name servers disagree",
                    subject=address,
                    what=f"the name server {address} does not know {', '.join(sorted(names))}, another one does",
                    fix="give every broker all name servers in namesrvAddr; a restarted one learns them again within 30 s",
                )
    if not facts.members and not silent:
        yield Finding(
            level=Level.CRITICAL,
            cause="no broker",
            subject=", ".join(facts.name_servers),
            what="no broker is registered",
            fix="start one with: twinlog broker -n HOST:PORT",
        )


def _view(groups: object) -> frozenset[str]:
    assert isinstance(groups, tuple)
    return frozenset(f"{each.broker_name}-{number} ({at})" for each in groups for number, at in each.addresses.items())


def masters(facts: ClusterFacts) -> Iterator[Finding]:
    for name in facts.group_names:
        masters = facts.masters(name)
        if not masters:
            yield Finding(
                level=Level.CRITICAL,
                cause="no master",
                subject=name,
                what=f"{name} has no master: nothing can be written to it",
                fix="start its master, or look at its log",
            )
        if len(masters) > 1:
            which = " and ".join(each.member.address for each in masters)
            yield Finding(
                level=Level.CRITICAL,
                cause="two masters",
                subject=name,
                what=f"{name} has {len(masters)} masters, {which}: their logs part with every message",
                fix="stop one of them. If it was meant to be a slave, set brokerRole=SLAVE and a brokerId above 0 there",
            )
        numbers = [each.member.broker_id for each in facts.group(name) if each.member.is_registered]
        for number in sorted({number for number in numbers if number and numbers.count(number) > 1}):
            yield Finding(
                level=Level.CRITICAL,
                cause="one brokerId twice",
                subject=name,
                what=f"two members of {name} have the brokerId {number}: the name server shows the one that registered last",
                fix="give each slave a brokerId of its own",
            )


def alone(facts: ClusterFacts) -> Iterator[Finding]:
    """A SYNC_MASTER without a registered slave: the slave may run in another group, or with another role."""
    for name in facts.group_names:
        for master in facts.masters(name):
            if len(facts.group(name)) > 1 or not is_sync(master):
                continue
            others = [
                each.member.name
                for other in facts.group_names
                if other != name and len(facts.group(other)) == 1
                for each in facts.masters(other)
            ]
            hint = f" {', '.join(others)} stands alone, too: was it meant to be the slave of {name}?" if others else ""
            yield Finding(
                level=Level.CRITICAL,
                cause="no slave registered",
                subject=master.member.name,
                what=f"{master.member.name} is a SYNC_MASTER, and no slave of {name} is registered: "
                f"producers hear SLAVE_NOT_AVAILABLE.{hint}",
                fix=f"start a slave with brokerName={name}, brokerRole=SLAVE and a brokerId above 0, at the same name server",
            )


def is_sync(facts: MemberFacts) -> bool:
    return (facts.status.role or facts.config.get("brokerRole")) == "SYNC_MASTER"


def followed(facts: ClusterFacts) -> Iterator[Finding]:
    """A slave whose haMasterAddress is set by hand to another address."""
    for name in facts.group_names:
        expected = {each.status.ha_address for each in facts.masters(name) if each.status.ha_address}
        for each in facts.group(name):
            followed = each.link.ha_address
            if each.member.role == "slave" and followed and expected and followed not in expected:
                yield Finding(
                    level=Level.WARNING,
                    cause="follows another address",
                    subject=each.member.name,
                    what=f"{each.member.name} follows {followed}; its master tells slaves to use {', '.join(sorted(expected))}",
                    fix="see its haMasterAddress and the master's brokerIP2 and haListenPort",
                )


def file_sizes(facts: ClusterFacts) -> Iterator[Finding]:
    for name in facts.group_names:
        sizes = {each.member.name: _file_size(each) for each in facts.group(name)}
        known = {member: size for member, size in sizes.items() if size is not None}
        if len(set(known.values())) > 1:
            yield Finding(
                level=Level.CRITICAL,
                cause="other file size",
                subject=name,
                what=f"the members of {name} have commit log files of different size: "
                + ", ".join(f"{member} {size}" for member, size in known.items()),
                fix="set mappedFileSizeCommitLog to the master's on the slave, and let it begin anew with an empty store",
            )


def _file_size(facts: MemberFacts) -> int | None:
    size = facts.status.file_size
    return size if size is not None else facts.number("mappedFileSizeCommitLog")


def versions(facts: ClusterFacts) -> Iterator[Finding]:
    for name in facts.group_names:
        kinds = {each.member.name: each.is_twinlog for each in facts.group(name) if each.runtime}
        foreign = sorted(member for member, ours in kinds.items() if not ours)
        if foreign and len(foreign) < len(kinds):
            yield Finding(
                level=Level.NOTE,
                cause="mixed group",
                subject=name,
                what=f"{', '.join(foreign)} in {name} is RocketMQ's: what it acknowledges it has not verified",
            )


CLOCK_SECONDS_MAX = 2.0
DISK_RATIO_WARNING, DISK_RATIO_CRITICAL = 0.80, 0.90
PRODUCER_TIMEOUT_MS = 3000  # DefaultMQProducer.sendMsgTimeout, RocketMQ 4.9.8.
CRITICAL_STATES = {"unreachable", "failed", "ahead", "diverged", "below min", "failing", "refusing"}
OF_A_ROLE_CHANGE = ("fenced",)  # Refusals that say nothing of the slave: it comes back by itself.


@frozen(kw_only=True)
class LagLimits:
    """Thresholds for a slave's lag; None: no threshold."""

    warning_bytes: int | None = None
    critical_bytes: int | None = None
    warning_seconds: float | None = None
    critical_seconds: float | None = None


def states(facts: ClusterFacts) -> Iterator[Finding]:
    for each in facts.members:
        member = each.member
        if (issue := issue_of(member)) and not (member.state == "unreachable" and reached_by(facts, each)):
            yield Finding(
                level=Level.CRITICAL if member.state in CRITICAL_STATES else Level.WARNING,
                cause=member.state,
                subject=member.name,
                what=issue,
                fix=successor_hint(member, [other.member for other in facts.group(member.group)]),
            )


def ha_ports(facts: ClusterFacts) -> Iterator[Finding]:
    for name in facts.group_names:
        slaves = [each for each in facts.group(name) if each.member.role == "slave"]
        for each in facts.group(name):
            probe = each.ha_port
            if probe is None or probe.error is None or reached_by(facts, each, probe.address):
                continue  # It is for members, and this machine may be outside.
            host, own_host = probe.address.rpartition(":")[0], each.member.address.rpartition(":")[0]
            needed = each.member.role == "master" and bool(slaves)
            cause = "HA port closed"
            fix = "let the port through the firewall, and see that haListenPort is the same there"
            if host != own_host:
                cause = "wrong brokerIP2"
                fix = f"set brokerIP2 to an address that slaves reach; clients reach it at {own_host}"
            yield Finding(
                level=Level.CRITICAL if needed else Level.WARNING,
                cause=cause,
                subject=each.member.name,
                what=f"{each.member.name} tells slaves to connect to {probe.address}, which takes no connection from here "
                f"({probe.error})",
                fix=fix,
            )


def clocks(facts: ClusterFacts) -> Iterator[Finding]:
    ahead = {
        each.member.name: each.clock_ahead_seconds for each in facts.members if each.clock_ahead_seconds is not None
    }
    if ahead and max(ahead.values()) - min(ahead.values()) > CLOCK_SECONDS_MAX:
        last, first = max(ahead, key=lambda name: ahead[name]), min(ahead, key=lambda name: ahead[name])
        yield Finding(
            level=Level.WARNING,
            cause="clocks differ",
            subject=last,
            what=f"the clock of {last} is {ahead[last] - ahead[first]:.1f} s ahead of {first}'s",
            fix="keep them with NTP: delayed messages, searches by time and retention go by them",
        )


def acknowledgements(facts: ClusterFacts) -> Iterator[Finding]:
    for each in facts.members:
        name = each.member.name
        for warning in each.status.policy.warnings if each.status.policy is not None else ():
            if OF_THE_SET not in warning:  # See in_sync_rules.py.
                yield Finding(level=Level.WARNING, cause="acknowledgements", subject=name, what=f"{name}: {warning}")
        timeout_ms = each.number("slaveTimeout")
        if is_sync(each) and timeout_ms is not None and timeout_ms > PRODUCER_TIMEOUT_MS:
            yield Finding(
                level=Level.NOTE,
                cause="slaveTimeout",
                subject=name,
                what=f"{name} waits {timeout_ms} ms for its slaves, producers wait {PRODUCER_TIMEOUT_MS} ms unless they were "
                "told otherwise: they see a time-out, not FLUSH_SLAVE_TIMEOUT",
                fix="set slaveTimeout below the producers' sendMsgTimeout",
            )


def disks(facts: ClusterFacts) -> Iterator[Finding]:
    for each in facts.members:
        ratio = _ratio(each)
        if ratio is not None and ratio >= DISK_RATIO_WARNING:
            yield Finding(
                level=Level.CRITICAL if ratio >= DISK_RATIO_CRITICAL else Level.WARNING,
                cause="disk full",
                subject=each.member.name,
                what=f"the disk of {each.member.name}'s commit log is {ratio:.0%} full",
                fix="make room, or shorten fileReservedTime",
            )
        status = each.status
        for key, reported, what in (
            ("damagedBytes", status.damaged_bytes, "damaged bytes"),
            ("inDoubtBytes", status.in_doubt_bytes, "bytes in doubt"),
        ):
            if count := each.number(key, reported):
                yield Finding(
                    level=Level.CRITICAL,
                    cause="damage",
                    subject=each.member.name,
                    what=f"the commit log of {each.member.name} has {count} {what}",
                    fix="its log names them; twinlog log verify tells more",
                )
        if lost := each.number("lostBytes", status.lost_bytes):
            yield Finding(
                level=Level.CRITICAL,
                cause="lost end",
                subject=each.member.name,
                what=f"the commit log of {each.member.name} ends {lost} bytes before its last durable end",
                fix="files of it are gone: put them back while it is stopped, or let a member that has them be master",
            )
        if lost := each.number("lostStartBytes", status.lost_start_bytes):
            yield Finding(
                level=Level.WARNING,
                cause="lost start",
                subject=each.member.name,
                what=f"the commit log of {each.member.name} lacks its first {lost} bytes: it did not delete their files",
                fix="put them back while it is stopped, from another member or a backup; a slave: twinlog reinit",
            )
        if tables := status.missing_tables:
            yield Finding(
                level=Level.WARNING,
                cause="missing table",
                subject=each.member.name,
                what=f"{each.member.name} has lost tables that it had: {', '.join(tables)}",
                fix="a slave that has them is asked for them; without one, copy them from a backup while it is stopped",
            )
        if (stalls := each.number("eventLoopLongestStallMills")) and stalls >= 1000:
            yield Finding(
                level=Level.NOTE,
                cause="stalls",
                subject=each.member.name,
                what=f"{each.member.name} stood still for up to {stalls / 1000:.1f} s since it started",
                fix="its log says when and where: a slow disk, or a machine with too much to do",
            )


def _ratio(each: MemberFacts) -> float | None:
    try:
        return float(each.runtime["commitLogDiskRatio"])
    except (KeyError, ValueError):
        return each.status.commit_log_disk_ratio


def refused(facts: ClusterFacts) -> Iterator[Finding]:
    for each in facts.members:
        counts = [
            f"{count} x {cause.replace('_', ' ')}"
            for cause, count in each.status.refused.items()
            if count and cause not in OF_A_ROLE_CHANGE
        ]
        if counts:
            yield Finding(
                level=Level.NOTE,
                cause="refused connections",
                subject=each.member.name,
                what=f"{each.member.name} refused connections to its HA port: {', '.join(counts)}",
                fix="its log names the addresses; a slave that belongs here has to be registered, or listed in haAllowedSlaves",
            )


def lag(facts: ClusterFacts, limits: LagLimits) -> Iterator[Finding]:
    for each in facts.members:
        member = each.member
        for value, warning, critical, unit in (
            (member.lag_bytes, limits.warning_bytes, limits.critical_bytes, "bytes"),
            (member.lag_seconds, limits.warning_seconds, limits.critical_seconds, "s"),
        ):
            if value is None:
                continue
            level = None
            if warning is not None and value >= warning:
                level = Level.WARNING
            if critical is not None and value >= critical:
                level = Level.CRITICAL
            if level is not None:
                amount = f"{value:.1f}" if unit == "s" else str(value)
                yield Finding(
                    level=level,
                    cause="lag",
                    subject=member.name,
                    what=f"{member.name} is {amount} {unit} behind its master",
                )


@frozen(kw_only=True)
class RuleResult:
    """One rule and its findings."""

    title: str
    findings: tuple[Finding, ...]


@frozen(kw_only=True)
class Diagnosis:
    """The answer of `twinlog doctor`. `verdict`: "findings" when there is something worse than a note, else "healthy"."""

    verdict: str
    rules: tuple[RuleResult, ...]
    findings: tuple[Finding, ...]


def diagnosis(facts: ClusterFacts) -> Diagnosis:
    """Ask every rule."""
    rules = tuple(RuleResult(title=rule.title, findings=tuple(rule.find(facts))) for rule in RULES)
    findings = examine(facts)
    bad = any(finding.level is not Level.NOTE for finding in findings)
    return Diagnosis(verdict="findings" if bad else "healthy", rules=rules, findings=findings)


def examine(facts: ClusterFacts, limits: LagLimits | None = None) -> tuple[Finding, ...]:
    """Apply all rules for one snapshot; findings, worst first."""
    return apply((*RULES, Rule("slaves lag less than the limits", partial(lag, limits=limits or LagLimits()))), facts)


def contradictions(before: ClusterFacts, now: ClusterFacts) -> tuple[Finding, ...]:
    """Find contradictions, worst first; `before`: the same facts, asked a moment earlier."""
    return apply(CONTRADICTIONS, TwoSnapshots(before, now))


def between_members(facts: ClusterFacts) -> Iterator[Finding]:
    """Findings of RULES that are contradictions between two members or name servers."""
    return (finding for finding in examine(facts) if finding.cause in CAUSES_BETWEEN_MEMBERS)


CAUSES_BETWEEN_MEMBERS = frozenset(
    {
        "name servers disagree",
        "two masters",
        "one brokerId twice",
        "wrong brokerIP2",
        "HA port closed",
        "address not reached",
        "another member answers",
        "follows another address",
        "other file size",
        "clocks differ",
    }
)

RULES: tuple[Rule[ClusterFacts], ...] = (
    Rule("name servers answer and agree", name_servers),
    Rule("each group has one master, each member its own brokerId", masters),
    Rule("a SYNC_MASTER has slaves", alone),
    Rule("members answer, take messages and follow", states),
    Rule("roles are settled, and could be changed", roles),
    Rule("groups that elect by themselves could do so", automatic_failover),
    Rule("in-sync sets are large enough", in_sync_sets),
    Rule("members that keep their record in etcd can rely on it", etcd),
    Rule("HA ports take connections", ha_ports),
    Rule("members find each other at what they tell members", addresses),
    Rule("clients find members at what they are told", for_clients),
    Rule("slaves follow the address that their master announces", followed),
    Rule("commit log files have one size in a group", file_sizes),
    Rule("clocks agree", clocks),
    Rule("acknowledgements are held by enough members", acknowledgements),
    Rule("disks have room, logs are sound, event loops run", disks),
    Rule("no replication connection is refused", refused),
    Rule("one kind of broker in a group", versions),
    Rule("requests are checked where other machines can connect", access),
    Rule("connections are encrypted where other machines can connect", encryption),
    Rule("only slaves receive the log", replication_port),
    Rule("secrets are readable to their owner only", secret_files),
    Rule("members of a group prove who they are", group_secrets),
)

CONTRADICTIONS: tuple[Rule[TwoSnapshots], ...] = (
    Rule("members and name servers agree on addresses, roles, sizes and clocks", in_second(between_members)),
    Rule("a group is in one cluster", in_second(clusters)),
    Rule("slaves follow the master that is registered", in_second(registered_master)),
    Rule("slaves follow a master of their own group", in_second(other_group)),
    Rule("both ends of a connection report it", in_both(one_direction)),
    Rule("only registered slaves are connected", in_both(unregistered)),
    Rule("no slave holds more than its master, or less than it acknowledged", lengths),
)
