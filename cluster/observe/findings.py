"""Findings about a cluster, with their level, and the form of the rules that make them."""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Generic, TypeVar

from attrs import frozen

from twinlog.cluster.observe.members import Member


class Level(Enum):
    """Severity, as in Nagios, with notes in addition."""

    NOTE = "note"
    WARNING = "warning"
    CRITICAL = "critical"


@frozen(kw_only=True)
class Finding:
    """A problem, or a note. `subject`: a member, group or name server. `cause`: the rule's case, in documented words."""

    level: Level
    cause: str
    subject: str
    what: str
    fix: str = ""


Input = TypeVar("Input")


@frozen
class Rule(Generic[Input]):
    """One rule: what it demands, and the function that finds where its input breaks it. All are listed in rules.py."""

    title: str
    find: Callable[[Input], Iterable[Finding]]


def apply(rules: Iterable[Rule[Input]], given: Input) -> tuple[Finding, ...]:
    """The findings of these rules, worst first; those of one level in the order of the rules."""
    worst_first = list(reversed(Level))
    found = [finding for rule in rules for finding in rule.find(given)]
    return tuple(sorted(found, key=lambda finding: worst_first.index(finding.level)))


@frozen(kw_only=True)
class CheckResult:
    """The state of a whole cluster for a monitoring system. `level` is that of the worst finding, "ok" without any."""

    level: str
    findings: tuple[Finding, ...]
    members: tuple[Member, ...]
