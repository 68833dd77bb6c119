"""Which faults a run has, one after the other, and what is waited for around each."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from scripts.fault_matrix.checkers.recovery import MAY_NEED_SOMEBODY
from scripts.fault_matrix.fault import Fault, fail_over
from scripts.fault_matrix.group import Group
from scripts.fault_matrix.rows import Row
from scripts.fault_matrix.traffic import LIMIT_S, NotRecoveredError, Traffic

WARM, BETWEEN = 60, 40  # Acknowledgements before the first fault, and between two.
HELP_AFTER_S = 5.0
Schedule = Callable[[Row, Group, Traffic, random.Random], None]


def all_kinds(row: Row, group: Group, traffic: Traffic, rng: random.Random) -> None:
    """Each kind of fault at least once, in random order."""
    traffic.more(WARM)
    kinds = list(row.faults)
    rng.shuffle(kinds)
    for number in range(max(row.rounds, len(kinds))):
        time.sleep(row.calm_s)
        one_fault(kinds[number % len(kinds)](group, rng), group, traffic, is_helped=not row.recovers)


def one_kind(row: Row, group: Group, traffic: Traffic, rng: random.Random) -> None:
    """One fault of the row, chosen by the seed: the short form."""
    traffic.more(WARM)
    time.sleep(row.calm_s)
    one_fault(rng.choice(row.faults)(group, rng), group, traffic, is_helped=not row.recovers)


def one_fault(fault: Fault, group: Group, traffic: Traffic, *, is_helped: bool) -> None:
    """From its begin until all members are back. Raises NotRecoveredError."""
    at = group.fault_begins(fault.text)
    try:
        _carry_out(fault, at, group, traffic, is_helped=is_helped)
    except KeyboardInterrupt:  # Whoever is on a frozen disk cannot be ended, either.
        with suppress(Exception):
            fault.heal()
        raise
    settle(group)
    if at not in group.seen:
        group.traces(at, fault.trace)


def _carry_out(fault: Fault, at: int, group: Group, traffic: Traffic, *, is_helped: bool) -> None:
    fault.inject()
    with ThreadPoolExecutor(1) as beside:  # `twinlog check` waits for silent members, the fault not for it.
        ends = time.monotonic() + fault.hold_s
        looked = beside.submit(_look, group, at, fault.trace, ends)
        time.sleep(fault.hold_s)
        group.write("heal", at, fault.text)
        fault.heal()
        if is_helped:
            group.write("note", at, MAY_NEED_SOMEBODY)
            _help(group, fault.rng)
        traffic.more(BETWEEN)
        looked.result()


def _help(group: Group, rng: random.Random) -> None:
    """What a person does who finds the group without a master: chooses one that may be chosen. Raises NotRecoveredError."""
    for member in group.members:
        member.wait_ready()
    deadline = time.monotonic() + HELP_AFTER_S
    while time.monotonic() < deadline:
        with suppress(LookupError):
            group.master()
            return
    try:
        fail_over(group, list(group.members), rng)
    except AssertionError as error:  # Nobody is left who has everything: a finding, and no trouble of ours.
        raise NotRecoveredError(str(error)) from error


def _look(group: Group, at: int, pattern: str, ends: float) -> None:
    """For a trace, again and again until the fault ends."""
    while True:
        time.sleep(0.2)
        if group.traces(at, pattern) or time.monotonic() > ends:
            return
        time.sleep(0.5)


def settle(group: Group) -> None:
    """All are back before the next fault: each row says what one fault does, row 18 what many do."""
    try:
        group.wait_healthy(LIMIT_S)
    except AssertionError as error:
        raise NotRecoveredError(f"the group was not healthy again within {LIMIT_S:g} s: {error}") from error
