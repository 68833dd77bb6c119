"""Rules for what members report about each other: contradictions between two of them. Pure. See rules.py.

Members do not answer at the same instant. A connection that changes between two snapshots is no contradiction, so
`in_both` keeps what a rule finds in both; `lengths` compares offsets of the first with offsets of the second.
"""

from collections.abc import Callable, Iterator

from attrs import frozen

from twinlog.cluster.observe.findings import Finding, Level
from twinlog.cluster.observe.members import ClusterFacts, MemberFacts, slave_connection
from twinlog.cluster.remoting.member_status import SlaveStatus
from twinlog.cluster.remoting.names import ip_of, is_ip

SILENT = frozenset({"unreachable", "failing", "refusing"})
_STREAMING = frozenset({"streaming", "catching up"})


@frozen
class TwoSnapshots:
    """The same members, asked twice, a moment apart."""

    before: ClusterFacts
    now: ClusterFacts


def in_both(rule: Callable[[ClusterFacts], Iterator[Finding]]) -> Callable[[TwoSnapshots], Iterator[Finding]]:
    """The rule for two snapshots, where one alone may show a change under way: what it finds in both."""

    def found(asked: TwoSnapshots) -> Iterator[Finding]:
        earlier = {(finding.cause, finding.subject) for finding in rule(asked.before)}
        yield from (finding for finding in rule(asked.now) if (finding.cause, finding.subject) in earlier)

    return found


def in_second(rule: Callable[[ClusterFacts], Iterator[Finding]]) -> Callable[[TwoSnapshots], Iterator[Finding]]:
    """The rule for two snapshots, where waiting cannot explain a finding: the second decides."""
    return lambda asked: rule(asked.now)


def all_slaves(facts: ClusterFacts) -> Iterator[MemberFacts]:
    """The slaves of all groups."""
    return (slave for name in facts.group_names for slave in slaves_of(facts, name))


def slaves_of(facts: ClusterFacts, group: str) -> list[MemberFacts]:
    """Members of a group that report the role of a slave."""
    return [each for each in facts.group(group) if each.member.role == "slave"]


def master_of(facts: ClusterFacts, slave: MemberFacts) -> MemberFacts | None:
    """The master of the slave's group; of several masters the one that it follows."""
    masters = facts.masters(slave.member.group)
    followed = follows(slave)
    return next((each for each in masters if each.member.ha_address == followed), masters[0] if masters else None)


def follows(slave: MemberFacts) -> str | None:
    """The HA address that the slave connects to."""
    return slave.link.ha_address or None


def connection_of(master: MemberFacts, slave: MemberFacts) -> SlaveStatus | None:
    """The master's view of the slave."""
    return slave_connection(slave.member, slave.status, master.status)


def clusters(facts: ClusterFacts) -> Iterator[Finding]:
    for name in facts.group_names:
        clusters = {each.member.name: each.status.cluster or each.member.cluster for each in facts.group(name)}
        if len(set(clusters.values())) > 1:
            yield Finding(
                level=Level.WARNING,
                cause="clusters differ",
                subject=name,
                what=f"the members of {name} are of different clusters: "
                + ", ".join(f"{member} {cluster}" for member, cluster in clusters.items()),
                fix="set one brokerClusterName: clients find topics by it",
            )


def registered_master(facts: ClusterFacts) -> Iterator[Finding]:
    """The slave learned of another master than we did: it asks other name servers, or one of them is behind."""
    for slave in all_slaves(facts):
        address = slave.link.address
        registered = [each.member.address for each in facts.masters(slave.member.group)]
        if address and registered and address not in registered:
            yield Finding(
                level=Level.CRITICAL,
                cause="another master registered",
                subject=slave.member.name,
                what=f"{slave.member.name} follows {address} as its master; registered is {', '.join(registered)}",
                fix="see that both have the same namesrvAddr, and that nobody else registers as this group's master",
            )


def other_group(facts: ClusterFacts) -> Iterator[Finding]:
    for slave in all_slaves(facts):
        followed = follows(slave)
        for other in facts.members:
            if followed and other.member.ha_address == followed and other.member.group != slave.member.group:
                yield Finding(
                    level=Level.CRITICAL,
                    cause="follows another group",
                    subject=slave.member.name,
                    what=f"{slave.member.name} follows {other.member.name}, which is of the group {other.member.group}: "
                    "it gets messages that are not its own",
                    fix="take its haMasterAddress out, or give it the brokerName of that group",
                )


def one_direction(facts: ClusterFacts) -> Iterator[Finding]:
    """One side reports a connection that the other side does not."""
    for slave in all_slaves(facts):
        master = master_of(facts, slave)
        if master is None or not (master.is_twinlog and slave.is_twinlog) or follows(slave) != master.member.ha_address:
            continue
        connection = connection_of(master, slave)
        local = slave.link.local_address
        if slave.member.state in _STREAMING and connection is None:
            seen = ", ".join(each.address for each in master.status.slaves or ()) or "nobody"
            yield Finding(
                level=Level.CRITICAL,
                cause="the master does not see it",
                subject=slave.member.name,
                what=f"{slave.member.name} says that it is connected to {master.member.name} as {local}; "
                f"{master.member.name} sees {seen}",
                fix="one direction of the network is cut, or somebody else answers at that HA address: look at firewalls between "
                "the two. An address translator between them looks like this, too: then list its address in haAllowedSlaves",
            )
        elif connection is not None and slave.member.state not in _STREAMING | SILENT and local:
            yield Finding(
                level=Level.WARNING,
                cause="the slave does not see it",
                subject=slave.member.name,
                what=f"{master.member.name} sees {slave.member.name} connected ({connection.state}), which says of itself "
                f"that it is {slave.member.state}",
                fix=f"see why with: twinlog explain {slave.member.name}",
            )


def unregistered(facts: ClusterFacts) -> Iterator[Finding]:
    """A connection is served that belongs to no registered member."""
    for name in facts.group_names:
        for master in facts.masters(name):
            slaves = slaves_of(facts, master.member.group)
            known = {
                one for each in slaves for one in (each.link.local_address, each.status.member_id) if one is not None
            }
            hosts = {ip_of(each.member.address) for each in slaves if not each.is_twinlog}
            has_names = not all(map(is_ip, hosts))  # The master alone says which IPs these have there.
            for connection in master.status.slaves or ():
                address = connection.address
                is_known = not known.isdisjoint((address, connection.member_id)) or ip_of(address) in hosts
                if (connection.ack_offset or 0) < 0 or is_known or (connection.counted and has_names):
                    continue
                counts = "producers are answered on its word" if connection.counted else "it does not count"
                yield Finding(
                    level=Level.WARNING if connection.counted else Level.NOTE,
                    cause="a stranger follows",
                    subject=f"{master.member.name} {address}",
                    what=f"{address} follows {master.member.name} and is no member that is registered and answers; {counts}",
                    fix="find out what it is: a slave that is not registered yet, one that does not answer, or a tool",
                )


def lengths(asked: TwoSnapshots) -> Iterator[Finding]:
    """Logs that are longer than they can be: the member asked first had less time to grow than the one asked last."""
    before, now = asked.before, asked.now
    earlier = {each.member.address: each for each in before.members}
    for slave in all_slaves(now):
        master, slave_before = master_of(now, slave), earlier.get(slave.member.address)
        if master is None or slave_before is None:
            continue
        master_before = earlier.get(master.member.address)
        held, end = slave_before.member.written_offset, master.member.written_offset
        if held is not None and end is not None and held > end:
            yield Finding(
                level=Level.CRITICAL,
                cause="longer than its master",
                subject=slave.member.name,
                what=f"the log of {slave.member.name} ended at {held}, that of {master.member.name} ends at {end} only",
                fix="stop producers, and compare the two: twinlog log diff --live "
                f"{master.member.name} {slave.member.name}",
            )
        connection = connection_of(master_before, slave_before) if master_before is not None else None
        heard = connection.ack_offset if connection is not None else None
        now_held = slave.member.written_offset
        if heard is not None and now_held is not None and heard > now_held:
            yield Finding(
                level=Level.CRITICAL,
                cause="acknowledged what it lacks",
                subject=slave.member.name,
                what=f"{master.member.name} heard from {slave.member.name} that it holds all up to {heard}; its log ends at "
                f"{now_held}",
                fix="do not rely on that slave: its log was cut, or its disk lost bytes",
            )
