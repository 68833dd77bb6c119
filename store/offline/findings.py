"""Gathers findings without growing with the damage: all are counted, the first ones of each kind are kept."""

from collections import Counter

from attrs import define, field

from twinlog.store.offline.finding import Finding, Kind, Severity

KEPT_MAX = 200  # Of each kind and severity.


@define(eq=False)
class Findings:
    """What was found so far. A finding of `count` things counts as so many."""

    kept: list[Finding] = field(factory=list)
    totals: Counter[tuple[Kind, Severity]] = field(factory=Counter)
    _counts: Counter[tuple[Kind, Severity]] = field(factory=Counter, init=False)

    def add(self, finding: Finding) -> None:
        """Take one."""
        self.totals[finding.kind, finding.severity] += finding.count
        self._keep(finding)

    def _keep(self, finding: Finding) -> None:
        key = finding.kind, finding.severity
        if self._counts[key] < KEPT_MAX:
            self._counts[key] += 1
            self.kept.append(finding)

    def merge(self, other: "Findings") -> None:
        """Take all of another collection."""
        self.totals += other.totals
        for finding in other.kept:
            self._keep(finding)

    def total(self, severity: Severity) -> int:
        """How many things of this severity there are."""
        return sum(count for (_, of), count in self.totals.items() if of is severity)
