"""Gathers findings without growing with the damage: all are counted, the first ones are kept."""

from collections import Counter

from attrs import define, field

from store.offline.finding import Finding, Kind, Severity

KEPT_MAX = 1000


@define(eq=False)
class Findings:
    """What was found so far. A finding of `count` things counts as so many."""

    kept: list[Finding] = field(factory=list)
    totals: Counter[tuple[Kind, Severity]] = field(factory=Counter)

    def add(self, finding: Finding) -> None:
        """Take one."""
        self.totals[finding.kind, finding.severity] += finding.count
        if len(self.kept) < KEPT_MAX:
            self.kept.append(finding)

    def merge(self, other: "Findings") -> None:
        """Take all of another collection."""
        self.totals += other.totals
        self.kept += other.kept[: KEPT_MAX - len(self.kept)]

    def total(self, severity: Severity) -> int:
        """How many things of this severity there are."""
        return sum(count for (_, of), count in self.totals.items() if of is severity)
