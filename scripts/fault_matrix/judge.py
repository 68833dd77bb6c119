"""What the oracles of a row say of a run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve

from scripts.fault_matrix import history as histories
from scripts.fault_matrix.checkers.append_log import one_log_per_queue
from scripts.fault_matrix.checkers.masters import one_acking_master
from scripts.fault_matrix.checkers.members import members_equal
from scripts.fault_matrix.checkers.porcupine import an_order_explains
from scripts.fault_matrix.checkers.record import each_named_once
from scripts.fault_matrix.checkers.recovery import nothing_silent, recovered_in_time, recoveries
from scripts.fault_matrix.checkers.sets import compare_sets, nothing_invented, nothing_lost, only_a_tail_lost
from scripts.fault_matrix.checkers.unattended import (
    goes_on_in_time,
    never_paused,
    no_needless_election,
    nobody_typed,
    takeovers,
)
from scripts.fault_matrix.checkers.verdict import Verdict
from scripts.fault_matrix.group import Group
from scripts.fault_matrix.history import History
from scripts.fault_matrix.rows import SECONDS_TO_RECOVER, Row


def judged(row: Row, told: History, group: Group) -> list[Verdict]:
    """By the oracles of the row, in their order."""
    judges = _of_history(row, told) | {
        "B": lambda: members_equal({member.label: member.store for member in group.members}),
        "E": lambda: one_acking_master(told, group.epochs(), group.names),
        "I": lambda: nobody_typed(group.entries()),
        "J": lambda: no_needless_election(told, group.entries()),
        "H": lambda: each_named_once(group.records(), {each.label: each.address for each in group.members}),
    }
    return _with_complaints([judges[oracle]() for oracle in row.oracles], group.complaints)


def _with_complaints(found: list[Verdict], complaints: Mapping[str, list[str]]) -> list[Verdict]:
    """What faults saw comes first, also of an oracle that was not asked."""
    asked = {each.oracle for each in found}
    others = [Verdict(oracle, (), "") for oracle in complaints if oracle not in asked]
    return [evolve(each, wrong=(*complaints.get(each.oracle, ()), *each.wrong)) for each in (*found, *others)]


def _of_history(row: Row, told: History) -> dict[str, Callable[[], Verdict]]:
    """The oracles that need nothing else."""
    return {
        "A": lambda: only_a_tail_lost(told) if row.only_tail else nothing_lost(told),
        "C": lambda: nothing_invented(told),
        "D": lambda: one_log_per_queue(told),
        "F": lambda: recovered_in_time(told, SECONDS_TO_RECOVER),
        "G": lambda: nothing_silent(told),
        "K": lambda: goes_on_in_time(told),
        "L": lambda: never_paused(told),
        "P": lambda: an_order_explains(told),
    }


def counts_of(told: History) -> dict[str, Any]:
    outcomes = [append.outcome for append in told.appends]
    return {
        "operations": len(outcomes) + len(told.reads),
        "acknowledged": outcomes.count("ok"),
        "refused": outcomes.count("fail"),
        "unknown": outcomes.count("unknown"),
        "read": len(told.reads),
        "lost": len(compare_sets(told).lost) if told.final else None,
        "faults": [event.text for event in told.of_kind("fault")],
        "recovery_seconds": [round(each.seconds, 2) if each.seconds is not None else None for each in recoveries(told)],
        "takeover_seconds": [round(each.seconds, 2) if each.seconds is not None else None for each in takeovers(told)],
    }


def judged_again(row: Row, root: Path) -> list[Verdict]:
    """A stored history, by those oracles of the row that need nothing else."""
    judges = _of_history(row, histories.load(*sorted(root.glob("history.*"))))
    return [judges[oracle]() for oracle in row.oracles if oracle in judges]
