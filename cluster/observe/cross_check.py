"""Comparison of what members report about each other. Pure except for crosscheck(): answers in, directions and findings out.

Members are asked twice, a moment apart, because they do not answer at the same instant; their logs are compared meanwhile.
The rules for two snapshots are CONTRADICTIONS in rules.py. The rule for two logs is here: its input is a LiveDiffReport, whose
module would make every command that applies rules start 0.2 s later.
"""

from collections.abc import Callable, Iterator

import anyio
from attrs import frozen

from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.observe.cross_rules import SILENT, all_slaves, connection_of, follows, master_of
from twinlog.cluster.observe.findings import Finding, Level
from twinlog.cluster.observe.gather import gather
from twinlog.cluster.observe.live_diff import LiveDiffReport, LiveVerdict, live_diff
from twinlog.cluster.observe.members import ClusterFacts, MemberFacts
from twinlog.cluster.observe.rules import contradictions
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.store.offline.finding import doc


@frozen(kw_only=True)
class Direction:
    """A slave and its master, as both report the connection. null: not reported."""

    slave: str
    master: str | None
    slave_connects_to: str | None = doc("the HA address")
    slave_says: str = doc("its state")
    master_says: str | None = doc("the state of its connection; null: it sees none")
    slave_holds: int | None = doc("the end of its log")
    master_heard: int | None = doc("what it acknowledged")
    counted: bool | None = doc("whether its acknowledgements count for producers")


def directions(facts: ClusterFacts) -> tuple[Direction, ...]:
    """Each slave with its master, and what both report."""
    return tuple(_direction(facts, slave) for slave in all_slaves(facts))


def _direction(facts: ClusterFacts, slave: MemberFacts) -> Direction:
    master = master_of(facts, slave)
    connection = connection_of(master, slave) if master is not None else None
    return Direction(
        slave=slave.member.name,
        master=master.member.name if master is not None else None,
        slave_connects_to=follows(slave),
        slave_says=slave.member.state,
        master_says=connection.state if connection is not None else None,
        slave_holds=slave.member.written_offset,
        master_heard=connection.ack_offset if connection is not None else None,
        counted=connection.counted if connection is not None else None,
    )


# Logs, and the result


@frozen(kw_only=True)
class Crosscheck:
    """Comparison of what every member sees of every other."""

    verdict: str = doc("agree, contradictions, or incomplete when somebody could not be asked")
    directions: tuple[Direction, ...]
    logs: tuple[LiveDiffReport, ...]
    findings: tuple[Finding, ...]
    not_asked: tuple[str, ...] = doc("one sentence for each member or name server, with the reason")


def result(before: ClusterFacts, now: ClusterFacts, logs: tuple[LiveDiffReport, ...]) -> Crosscheck:
    """Assemble the result."""
    findings = (*(each for report in logs for each in _logs(report)), *contradictions(before, now))
    not_asked = (*_not_asked(now), *(_not_compared(each) for each in logs if each.verdict is LiveVerdict.INCOMPLETE))
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


def _not_compared(report: LiveDiffReport) -> str:
    why = report.reason or "there is no offset at which both return a record"
    return f"the logs of {report.left.name} and {report.right.name} could not be compared: {why}"


def _not_asked(facts: ClusterFacts) -> Iterator[str]:
    for address, answer in facts.name_servers.items():
        if isinstance(answer, str):
            yield f"the name server {address} does not answer: {answer}"
    for each in facts.members:
        if each.member.state in SILENT:
            yield f"{each.member.name} at {each.member.address} does not answer: {each.member.reason}"


SECONDS_BETWEEN = 1.0


async def crosscheck(api: ClientApi, *, last_bytes: int, progress: Callable[[str], None]) -> Crosscheck:
    """Ask all members, compare their logs, and ask again.

    `last_bytes`: of the logs' common end, to compare. `progress` is called at each step. Raises RemotingError without
    a name server.
    """
    progress("asking members")
    before = await gather(api, thorough=True)
    logs = []
    began = anyio.current_time()
    for master, slave in _pairs(before):
        progress(f"comparing the logs of {master.member.name} and {slave.member.name}")
        report = await _compare(api, master, slave, last_bytes)
        logs += [report] if report is not None else []
    await anyio.sleep_until(began + SECONDS_BETWEEN)
    progress("asking members once more")
    return result(before, await gather(api, thorough=True), tuple(logs))


def _pairs(facts: ClusterFacts) -> Iterator[tuple[MemberFacts, MemberFacts]]:
    for slave in all_slaves(facts):
        master = master_of(facts, slave)
        if master is not None and not {master.member.state, slave.member.state} & SILENT:
            yield master, slave


async def _compare(api: ClientApi, master: MemberFacts, slave: MemberFacts, last_bytes: int) -> LiveDiffReport | None:
    """Return None when one of them is gone: the second round of questions reports that."""
    left, right = ((each.member.name, each.member.address) for each in (master, slave))
    try:
        return await live_diff(api, left, right, last_bytes=last_bytes)
    except RemotingError:
        return None
