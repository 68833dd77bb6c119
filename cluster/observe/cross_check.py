"""Comparison of what members report about each other. Pure except for crosscheck(): answers in, directions and findings out.

Members are asked twice, a moment apart, because they do not answer at the same instant. A connection or offset that changes
between the two answers is no contradiction; a difference in both, or one that waiting cannot explain, is.
"""

from collections.abc import Callable, Iterator
from typing import Any

import trio
from attrs import field, frozen

from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.observe.findings import Finding, Level
from twinlog.cluster.observe.gather import gather
from twinlog.cluster.observe.live_diff import LiveDiffReport, LiveVerdict, live_diff
from twinlog.cluster.observe.members import ClusterFacts, MemberFacts, slave_connection
from twinlog.cluster.observe.rules import examine
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.member_status import SlaveStatus

# Causes of twinlog.cluster.observe.rules that are contradictions between two members.
_OF_HEALTH = frozenset(
    {
        "name servers disagree",
        "two masters",
        "one brokerId twice",
        "wrong brokerIP2",
        "HA port closed",
        "follows another address",
        "other file size",
        "clocks differ",
    }
)
_SILENT = frozenset({"unreachable", "failing", "refusing"})
_STREAMING = frozenset({"streaming", "catching up"})
_OF_ONE_MOMENT = frozenset({"the master does not see it", "the slave does not see it", "a stranger follows"})


def _doc(text: str) -> Any:
    return field(metadata={"doc": text})


@frozen(kw_only=True)
class Direction:
    """A slave and its master, as both report the connection. null: not reported."""

    slave: str
    master: str | None
    slave_connects_to: str | None = _doc("the HA address")
    slave_says: str = _doc("its state")
    master_says: str | None = _doc("the state of its connection; null: it sees none")
    slave_holds: int | None = _doc("the end of its log")
    master_heard: int | None = _doc("what it acknowledged")
    counted: bool | None = _doc("whether its acknowledgements count for producers")


def directions(facts: ClusterFacts) -> tuple[Direction, ...]:
    """Each slave with its master, and what both report."""
    return tuple(_direction(facts, slave) for name in facts.group_names for slave in slaves_of(facts, name))


def _direction(facts: ClusterFacts, slave: MemberFacts) -> Direction:
    master = master_of(facts, slave)
    connection = connection_of(master, slave) if master is not None else None
    return Direction(
        slave=slave.member.name,
        master=master.member.name if master is not None else None,
        slave_connects_to=_follows(slave),
        slave_says=slave.member.state,
        master_says=connection.state if connection is not None else None,
        slave_holds=slave.member.written_offset,
        master_heard=connection.ack_offset if connection is not None else None,
        counted=connection.counted if connection is not None else None,
    )


def slaves_of(facts: ClusterFacts, group: str) -> list[MemberFacts]:
    """Members of a group that report the role of a slave."""
    return [each for each in facts.group(group) if each.member.role == "slave"]


def master_of(facts: ClusterFacts, slave: MemberFacts) -> MemberFacts | None:
    """The master of the slave's group; of several masters the one that it follows."""
    masters = facts.masters(slave.member.group)
    followed = _follows(slave)
    return next((each for each in masters if each.member.ha_address == followed), masters[0] if masters else None)


def _follows(slave: MemberFacts) -> str | None:
    return (slave.status.master.ha_address or None) if slave.status.master is not None else None


def _local_address(slave: MemberFacts) -> str | None:
    """The slave's end of its connection."""
    return slave.status.master.local_address if slave.status.master is not None else None


def connection_of(master: MemberFacts, slave: MemberFacts) -> SlaveStatus | None:
    """The master's view of the slave."""
    return slave_connection(slave.member, slave.status, master.status)


# Contradictions


def contradictions(before: ClusterFacts, now: ClusterFacts) -> tuple[Finding, ...]:
    """Find contradictions, worst first; `before`: the same facts, asked a moment earlier."""
    earlier = {(finding.cause, finding.subject) for finding in _found(before, before)}
    found = [
        finding
        for finding in _found(before, now)
        if finding.cause not in _OF_ONE_MOMENT or (finding.cause, finding.subject) in earlier
    ]
    order = list(Level)
    return tuple(sorted(found, key=lambda finding: -order.index(finding.level)))


def _found(before: ClusterFacts, now: ClusterFacts) -> Iterator[Finding]:
    yield from (finding for finding in examine(now) if finding.cause in _OF_HEALTH)
    for name in now.group_names:
        yield from _clusters(now, name)
        for slave in slaves_of(now, name):
            yield from _registered_master(now, slave)
            yield from _other_group(now, slave)
            yield from _one_direction(now, slave)
        for master in now.masters(name):
            yield from _unregistered(now, master)
    yield from _lengths(before, now)


def _clusters(facts: ClusterFacts, name: str) -> Iterator[Finding]:
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


def _registered_master(facts: ClusterFacts, slave: MemberFacts) -> Iterator[Finding]:
    """The slave learned of another master than we did: it asks other name servers, or one of them is behind."""
    address = slave.status.master.address if slave.status.master is not None else None
    registered = [each.member.address for each in facts.masters(slave.member.group)]
    if address and registered and address not in registered:
        yield Finding(
            level=Level.CRITICAL,
            cause="another master registered",
            subject=slave.member.name,
            what=f"{slave.member.name} follows {address} as its master; registered is {', '.join(registered)}",
            fix="see that both have the same namesrvAddr, and that nobody else registers as this group's master",
        )


def _other_group(facts: ClusterFacts, slave: MemberFacts) -> Iterator[Finding]:
    followed = _follows(slave)
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


def _one_direction(facts: ClusterFacts, slave: MemberFacts) -> Iterator[Finding]:
    """One side reports a connection that the other side does not."""
    master = master_of(facts, slave)
    if master is None or not (master.is_twinlog and slave.is_twinlog) or _follows(slave) != master.member.ha_address:
        return
    connection = connection_of(master, slave)
    local = _local_address(slave)
    if slave.member.state in _STREAMING and connection is None:
        seen = ", ".join(each.address for each in master.status.slaves or ()) or "nobody"
        yield Finding(
            level=Level.CRITICAL,
            cause="the master does not see it",
            subject=slave.member.name,
            what=f"{slave.member.name} says that it is connected to {master.member.name} as {local}; "
            f"{master.member.name} sees {seen}",
            fix="one direction of the network is cut, or somebody else answers at that HA address: look at firewalls between the "
            "two. An address translator between them looks like this, too: then list its address in haAllowedSlaves",
        )
    elif connection is not None and slave.member.state not in _STREAMING | _SILENT and local:
        yield Finding(
            level=Level.WARNING,
            cause="the slave does not see it",
            subject=slave.member.name,
            what=f"{master.member.name} sees {slave.member.name} connected ({connection.state}), which says of itself "
            f"that it is {slave.member.state}",
            fix=f"see why with: twinlog explain {slave.member.name}",
        )


def _unregistered(facts: ClusterFacts, master: MemberFacts) -> Iterator[Finding]:
    """A connection is served that belongs to no registered member."""
    slaves = slaves_of(facts, master.member.group)
    known = {_local_address(each) for each in slaves}
    hosts = {each.member.address.rpartition(":")[0] for each in slaves if not each.is_twinlog}
    for connection in master.status.slaves or ():
        address = connection.address
        if (connection.ack_offset or 0) < 0 or address in known or address.rpartition(":")[0] in hosts:
            continue
        counts = "producers are answered on its word" if connection.counted else "it does not count"
        yield Finding(
            level=Level.WARNING if connection.counted else Level.NOTE,
            cause="a stranger follows",
            subject=f"{master.member.name} {address}",
            what=f"{address} follows {master.member.name} and is no member that is registered and answers; {counts}",
            fix="find out what it is: a slave that is not registered yet, one that does not answer, or a tool",
        )


def _lengths(before: ClusterFacts, now: ClusterFacts) -> Iterator[Finding]:
    """Logs that are longer than they can be: the member asked first had less time to grow than the one asked last."""
    earlier = {each.member.address: each for each in before.members}
    for name in now.group_names:
        for slave in slaves_of(now, name):
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


# Logs, and the result


@frozen(kw_only=True)
class Crosscheck:
    """Comparison of what every member sees of every other."""

    verdict: str = _doc("agree, contradictions, or incomplete when somebody could not be asked")
    directions: tuple[Direction, ...]
    logs: tuple[LiveDiffReport, ...]
    findings: tuple[Finding, ...]
    not_asked: tuple[str, ...] = _doc("one sentence for each member or name server, with the reason")


def result(before: ClusterFacts, now: ClusterFacts, logs: tuple[LiveDiffReport, ...]) -> Crosscheck:
    """Assemble the result."""
    findings = (*(each for report in logs for each in _logs(report)), *contradictions(before, now))
    not_asked = (*_not_asked(now), *(_not_compared(report) for report in logs if _is_incomplete(report)))
    bad = any(finding.level is not Level.NOTE for finding in findings)
    return Crosscheck(
        verdict="contradictions" if bad else "incomplete" if not_asked else "agree",
        directions=directions(now),
        logs=logs,
        findings=findings,
        not_asked=not_asked,
    )


def _logs(report: LiveDiffReport) -> Iterator[Finding]:
    names = f"{report.left.name} and {report.right.name}"
    compare = f"see both messages with: twinlog log diff --live {report.left.name} {report.right.name}"
    if report.verdict is LiveVerdict.DIFFERENT:
        assert report.difference is not None
        yield Finding(
            level=Level.CRITICAL,
            cause="logs differ",
            subject=report.right.name,
            what=f"the logs of {names} differ from byte {report.difference.first_offset} on",
            fix=compare,
        )
    elif report.verdict is LiveVerdict.NOTHING_IN_COMMON:
        yield Finding(
            level=Level.CRITICAL,
            cause="nothing in common",
            subject=report.right.name,
            what=f"the logs of {names} have no byte in common: one ends before the other begins",
            fix="a slave that was away for too long begins anew with an empty store",
        )


def _is_incomplete(report: LiveDiffReport) -> bool:
    return report.verdict is LiveVerdict.INCOMPLETE


def _not_compared(report: LiveDiffReport) -> str:
    why = report.reason or "there is no offset at which both return a record"
    return f"the logs of {report.left.name} and {report.right.name} could not be compared: {why}"


def _not_asked(facts: ClusterFacts) -> Iterator[str]:
    for address, answer in facts.name_servers.items():
        if isinstance(answer, str):
            yield f"the name server {address} does not answer: {answer}"
    for each in facts.members:
        if each.member.state in _SILENT:
            yield f"{each.member.name} at {each.member.address} does not answer: {each.member.reason}"


LAST_BYTES = 256 << 20
SECONDS_BETWEEN = 1.0

Progress = Callable[[str], None]


async def crosscheck(
    api: ClientApi, *, last_bytes: int = LAST_BYTES, progress: Progress = lambda _what: None
) -> Crosscheck:
    """Ask all members, compare their logs, and ask again.

    `last_bytes`: of the logs' common end, to compare. `progress` is called at each step. Raises RemotingError without
    a name server.
    """
    progress("asking members")
    before = await gather(api, thorough=True)
    logs = []
    began = trio.current_time()
    for master, slave in _pairs(before):
        progress(f"comparing the logs of {master.member.name} and {slave.member.name}")
        report = await _compare(api, master, slave, last_bytes)
        logs += [report] if report is not None else []
    await trio.sleep_until(began + SECONDS_BETWEEN)
    progress("asking members once more")
    return result(before, await gather(api, thorough=True), tuple(logs))


def _pairs(facts: ClusterFacts) -> Iterator[tuple[MemberFacts, MemberFacts]]:
    for name in facts.group_names:
        for slave in slaves_of(facts, name):
            master = master_of(facts, slave)
            if master is not None and not {master.member.state, slave.member.state} & {
                "unreachable",
                "failing",
                "refusing",
            }:
                yield master, slave


async def _compare(api: ClientApi, master: MemberFacts, slave: MemberFacts, last_bytes: int) -> LiveDiffReport | None:
    """Return None when one of them is gone: the second round of questions reports that."""
    left, right = ((each.member.name, each.member.address) for each in (master, slave))
    try:
        return await live_diff(api, left, right, last_bytes=last_bytes)
    except RemotingError:
        return None
