"""One run of a row against the real RocketMQ: as one of ours, with a person who helps where RocketMQ's users would have to."""

import random
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from attrs import evolve

from scripts.fault_matrix import history as histories
from scripts.fault_matrix.checkers.verdict import Verdict, verdict
from scripts.fault_matrix.fault import Fault
from scripts.fault_matrix.history import History
from scripts.fault_matrix.judge import counts_of, judged
from scripts.fault_matrix.places import loopback, namespaces
from scripts.fault_matrix.rows import Row
from scripts.fault_matrix.run import Report, reported
from scripts.fault_matrix.schedule import BETWEEN, WARM
from scripts.fault_matrix.theirs_faults import trace_of
from scripts.fault_matrix.theirs_group import TheirGroup, running_theirs
from scripts.fault_matrix.traffic import LIMIT_S, NotRecoveredError, Traffic
from tests.support.disk.faults import Shim

PLACES = 4  # Master, slave, name server, clients.
TRIES = 3  # Of the final read: a master that was just started is not registered at once.


def run_theirs(row: Row, seed: int, root: Path) -> Report:
    """Do it. What RocketMQ does wrong is a verdict; an error is what the harness could not do."""
    return reported(row, seed, root, lambda: _run(row, seed, root))


def _run(row: Row, seed: int, root: Path) -> tuple[list[Verdict], dict[str, Any]]:
    rng = random.Random(f"{row.key} {seed}")
    stuck = ""
    with ExitStack() as stack:
        net = stack.enter_context((namespaces if row.net == "namespaces" else loopback)(PLACES))
        environment = Shim.build(root).env if row.shim else None
        group = stack.enter_context(running_theirs(root, net, row, seed, environment))
        group.own_lines.touch()
        traffic = stack.enter_context(Traffic(group, row, seed))
        try:
            _rounds(row, group, traffic, rng)
        except NotRecoveredError as error:
            stuck = str(error)
        traffic.stop()
        unread = _read_all(group)
        told = _stopped(group)
        verdicts = [_with_unread(_judged(row, oracle, told, group), unread) for oracle in row.oracles]
        verdicts += [verdict("F", [stuck], "")] if stuck else []
        helped = {"role_changes": len(group.reigns) - 1, "slaves_wiped": group.wiped, **_while_syncs_fail(told)}
        return verdicts, {**counts_of(told), **helped}


def _rounds(row: Row, group: TheirGroup, traffic: Traffic, rng: random.Random) -> None:
    """As schedule.all_kinds."""
    traffic.more(WARM)
    kinds = list(row.faults)
    rng.shuffle(kinds)
    for number in range(max(row.rounds, len(kinds))):
        _one_fault(kinds[number % len(kinds)](group, rng), group, traffic)


def _one_fault(fault: Fault, group: TheirGroup, traffic: Traffic) -> None:
    at = group.fault_begins(fault.text)
    fault.inject()
    time.sleep(fault.hold_s)
    group.write("heal", at, fault.text)
    fault.heal()
    group.restart_stale()
    _goes_on(group, traffic)
    group.traces(at, trace_of(fault))


def _goes_on(group: TheirGroup, traffic: Traffic) -> None:
    """By itself; else whoever died is started again, and a slave that does not follow begins anew. Raises NotRecoveredError."""
    for help_it in (group.start_dead, group.wipe_slave, None):
        try:
            traffic.more(BETWEEN)
            group.wait_healthy(LIMIT_S)
            return
        except (NotRecoveredError, AssertionError) as error:
            if help_it is None:
                raise NotRecoveredError(f"with its slave made anew, too: {error}") from error
            group.write("note", text=f"a person has to help: {error}")
            help_it()


def _read_all(group: TheirGroup) -> str:
    """What cannot be read; empty: nothing."""
    for _ in range(TRIES):
        group.final_lines.unlink(missing_ok=True)
        done = group.read_all(group.final_lines)
        if not done.returncode:
            return ""
        time.sleep(2)
    said = [line.strip(" |") for line in done.stderr.splitlines() if "Error" in line]
    return f"not everything can be read: {said[-1:]}"


def _stopped(group: TheirGroup) -> History:
    """Level, as far as they get, and stopped in order."""
    try:
        group.wait_level()
    except AssertionError as error:
        group.write("note", text=f"without traffic: {error}")
    for member in group.members:
        member.stop()
    return histories.load(group.own_lines, group.client_lines, group.final_lines)


def _judged(row: Row, oracle: str, told: History, group: TheirGroup) -> Verdict:
    """By one oracle. A store that our reader stumbles over is no sound one."""
    try:
        return judged(evolve(row, oracles=oracle), told, group)[0]
    except Exception as error:
        return verdict(oracle, [f"it cannot be looked at: {type(error).__name__}: {error}"], "")


def _with_unread(found: Verdict, unread: str) -> Verdict:
    """Of what could not be read nobody can say that it is lost."""
    return verdict("A", [unread], found.facts) if found.oracle == "A" and unread else found


def _while_syncs_fail(told: History) -> dict[str, int]:
    """SYNC_FLUSH promises that the master has flushed an acknowledged message."""
    texts = ("every sync of the master", "every sync of all")
    faults = {event.id: event.ns for event in told.of_kind("fault") if event.text.startswith(texts)}
    spans = [(faults[event.id], event.ns) for event in told.of_kind("heal") if event.id in faults]
    if not spans:
        return {}
    acked = [
        each for each in told.acknowledged for low, high in spans if low < each.begin_ns and (each.end_ns or 0) < high
    ]
    return {"acknowledged_while_syncs_failed": len(acked)}
