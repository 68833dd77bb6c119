"""Rules about single members: that each answers, takes messages, has room and time. Pure; see health.py."""

from collections.abc import Iterator, Mapping

from attrs import frozen

from twinlog.cluster.observe.facts import ClusterFacts
from twinlog.cluster.observe.finding import Finding, Level
from twinlog.cluster.observe.health_group import is_sync
from twinlog.cluster.observe.members import issue_of, successor_hint

CLOCK_SECONDS_MAX = 2.0
DISK_RATIO_WARNING, DISK_RATIO_CRITICAL = 0.80, 0.90
PRODUCER_TIMEOUT_MS = 3000  # DefaultMQProducer.sendMsgTimeout, RocketMQ 4.9.8.
CRITICAL_STATES = {"unreachable", "failed", "ahead", "diverged", "below min", "failing", "refusing"}
OF_A_ROLE_CHANGE = ("fenced",)  # Refusals that say nothing of the slave: it comes back by itself.


@frozen(kw_only=True)
class Limits:
    """From where on a slave's lag is bad; None: never."""

    warning_bytes: int | None = None
    critical_bytes: int | None = None
    warning_seconds: float | None = None
    critical_seconds: float | None = None


def states(facts: ClusterFacts) -> Iterator[Finding]:
    for each in facts.members:
        member = each.member
        if issue := issue_of(member):
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
            if probe is None or probe.error is None:
                continue
            host, own_host = probe.address.rpartition(":")[0], each.member.address.rpartition(":")[0]
            needed = each.member.role == "master" and bool(slaves)
            if host != own_host:
                cause, fix = (
                    "wrong brokerIP2",
                    f"set brokerIP2 to an address that slaves reach; clients reach it at {own_host}",
                )
            else:
                cause, fix = (
                    "HA port closed",
                    "let the port through the firewall, and see that haListenPort is the same there",
                )
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


def promises(facts: ClusterFacts) -> Iterator[Finding]:
    for each in facts.members:
        name = each.member.name
        for warning in (each.status.get("policy") or {}).get("warnings") or ():
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
        ratio = _ratio(str(each.runtime.get("commitLogDiskRatio") or each.status.get("commitLogDiskRatio") or ""))
        if ratio is not None and ratio >= DISK_RATIO_WARNING:
            yield Finding(
                level=Level.CRITICAL if ratio >= DISK_RATIO_CRITICAL else Level.WARNING,
                cause="disk full",
                subject=each.member.name,
                what=f"the disk of {each.member.name}'s commit log is {ratio:.0%} full",
                fix="make room, or shorten fileReservedTime",
            )
        for key, what in (("damagedBytes", "damaged bytes"), ("inDoubtBytes", "bytes in doubt")):
            if count := each.number(key):
                yield Finding(
                    level=Level.CRITICAL,
                    cause="damage",
                    subject=each.member.name,
                    what=f"the commit log of {each.member.name} has {count} {what}",
                    fix="its log names them; twinlog log verify tells more",
                )
        if lost := each.number("lostBytes"):
            yield Finding(
                level=Level.CRITICAL,
                cause="lost end",
                subject=each.member.name,
                what=f"the commit log of {each.member.name} ends {lost} bytes before where it is known to have ended",
                fix="files of it are gone: put them back while it is stopped, or let a member that has them be master",
            )
        if lost := each.number("lostStartBytes"):
            yield Finding(
                level=Level.WARNING,
                cause="lost start",
                subject=each.member.name,
                what=f"the commit log of {each.member.name} lacks its first {lost} bytes: it did not delete their files",
                fix="put them back while it is stopped, from another member or a backup; a slave: twinlog reinit",
            )
        if tables := each.status.get("missingTables"):
            yield Finding(
                level=Level.WARNING,
                cause="missing table",
                subject=each.member.name,
                what=f"{each.member.name} has lost tables that it had: {', '.join(map(str, tables))}",
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


def _ratio(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def refused(facts: ClusterFacts) -> Iterator[Finding]:
    for each in facts.members:
        told: Mapping[str, int] = each.status.get("refused") or {}
        counts = [
            f"{count} x {cause.replace('_', ' ')}"
            for cause, count in told.items()
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


def lag(facts: ClusterFacts, limits: Limits) -> Iterator[Finding]:
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
