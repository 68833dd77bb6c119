"""Findings of a check of a store directory, and their collection.

Plain values: the command line prints them and describes them as JSON Schema. A collection does not grow with the damage: all
findings are counted, the first of each kind are kept."""

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Any

from attrs import define, field, frozen


def doc(text: str) -> Any:
    """A field of a report, with its description for the JSON Schema."""
    return field(metadata={"doc": text})


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"  # Messages are lost, damaged or cannot be found where they should be; or a start will fail.
    WARNING = "warning"  # To be examined; no message is harmed.


class FindingKind(StrEnum):
    """The kind of a finding. docs/reference/formats/findings.md explains each."""

    STRAY_ENTRY = "stray-entry"
    WRONG_FILE_SIZE = "wrong-file-size"
    MISSING_FILE = "missing-file"
    UNREADABLE_FILE = "unreadable-file"
    DAMAGED_RECORD = "damaged-record"
    LOG_TAIL = "log-tail"
    QUEUE_OFFSET = "queue-offset"
    STORE_TIME = "store-time"
    UNIT_MISSING = "unit-missing"
    UNIT_WRONG = "unit-wrong"
    UNIT_DANGLING = "unit-dangling"
    INDEX_HEADER = "index-header"
    INDEX_SLOT = "index-slot"
    INDEX_ITEM = "index-item"
    INDEX_GAP = "index-gap"
    DIGEST = "digest"
    CHECKPOINT = "checkpoint"
    CONFIG_FILE = "config-file"
    SIDE_FILE = "side-file"
    ROLE_FILE = "role-file"
    UNFINISHED_CUT = "unfinished-cut"


@frozen(kw_only=True)
class Finding:
    """One fault; fields that do not apply are None.

    `file` is relative to the store's root where it lies below it, `position` counts bytes in that file. `phy_offset` counts
    bytes of the log, `queue_offset` messages of a queue. `count` such faults in a row are one finding.
    """

    kind: FindingKind
    severity: Severity = Severity.ERROR
    message: str
    file: str | None = None
    position: int | None = None
    phy_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    expected: int | str | None = None
    actual: int | str | None = None
    count: int = 1


def stray_entry(path: Path, message: str) -> Finding:
    """An entry of a directory that does not belong there."""
    return Finding(kind=FindingKind.STRAY_ENTRY, severity=Severity.WARNING, file=str(path), message=message)


def queue_finding(
    kind: FindingKind,
    key: tuple[str, int],
    queue_offset: int,
    message: str,
    *,
    severity: Severity = Severity.ERROR,
    phy_offset: int | None = None,
    file: str | None = None,
    position: int | None = None,
    expected: int | None = None,
    actual: int | None = None,
    count: int = 1,
) -> Finding:
    """A fault of a queue, or of `count` messages of it from `queue_offset` on."""
    return Finding(
        kind=kind,
        severity=severity,
        message=message,
        file=file,
        position=position,
        phy_offset=phy_offset,
        topic=key[0],
        queue_id=key[1],
        queue_offset=queue_offset,
        expected=expected,
        actual=actual,
        count=count,
    )


KEPT_MAX = 200  # Of each kind and severity.


@define(eq=False)
class Findings:
    """Findings collected so far. A finding of `count` faults counts as so many."""

    kept: list[Finding] = field(factory=list)
    totals: Counter[tuple[FindingKind, Severity]] = field(factory=Counter)
    _counts: Counter[tuple[FindingKind, Severity]] = field(factory=Counter, init=False)

    def add(self, finding: Finding) -> None:
        """Add one finding."""
        self.totals[finding.kind, finding.severity] += finding.count
        self._keep(finding)

    def _keep(self, finding: Finding) -> None:
        key = finding.kind, finding.severity
        if self._counts[key] < KEPT_MAX:
            self._counts[key] += 1
            self.kept.append(finding)

    def merge(self, other: "Findings") -> None:
        """Add all findings of another collection."""
        self.totals += other.totals
        for finding in other.kept:
            self._keep(finding)

    def total(self, severity: Severity) -> int:
        """The number of faults of this severity."""
        return sum(count for (_, of), count in self.totals.items() if of is severity)
