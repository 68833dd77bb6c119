"""Findings of an audit, and a collection of them that does not grow with the damage. No I/O.

Plain values: reports print them as JSON, tables and pictures are drawn from them, and Spark sends them between processes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Any

from attrs import define, evolve, field, frozen

KEPT_MAX = 200  # Of each class and member.
_FIRST = "the first one: "


class FindingClass(StrEnum):
    """Kind of difference or damage."""

    LAG = "lag"  # Bytes that a member has not received yet; no fault.
    TRUNCATED = "truncated"  # A tail that the member lost: its own files still refer to it; or a file that is cut.
    HOLE = "hole"  # Zeros, or a missing or short file, where others have bytes; the log continues behind it.
    DIVERGENT = "divergent"  # Different sound records on both sides: two masters wrote.
    SHIFTED = "shifted"  # A file with records of another offset.
    SWAPPED = "swapped"  # Sound records in each other's place.
    BIT_ROT = "bit-rot"  # Bytes that changed on this member.
    DIFFERS = "differs"  # Bytes that changed on an unknown member.
    QUEUE = "queue"  # A consume queue that does not match its log.
    INDEX = "index"  # An index that is missing or does not match its log.
    CONFIG = "config"  # Topics, groups or other configuration that differ between members or cannot be read.
    OFFSETS = "offsets"  # Consumer offsets that differ.
    UNREADABLE = "unreadable"  # Could not be read; its state is unknown.

    @property
    def is_fault(self) -> bool:
        """True if it makes members unequal."""
        return self is not FindingClass.LAG


_DAMAGE = (FindingClass.BIT_ROT, FindingClass.DIFFERS)
_COPY = attrgetter("cls", "member", "good", "file")
_KIND = attrgetter("cls", "member", "good", "file", "what", "why", "epoch")


def documented(text: str, default: Any = None) -> Any:
    """A field with a default; `text` is for the schema of the JSON and for Parquet."""
    return field(default=default, metadata={"doc": text})


@frozen(kw_only=True)
class AuditFinding:
    """One difference or damage on one member. A field that does not apply or is unknown is None."""

    cls: FindingClass
    member: str = field(metadata={"doc": "the member whose copy is wrong; if unknown, one of those that differ"})
    offset: int | None = documented("first byte of the log that is affected")
    end: int | None = documented("end of the affected bytes")
    what: str = field(metadata={"doc": "short description"})
    why: str = field(metadata={"doc": "the evidence"})
    good: str | None = documented("a member whose copy is right")
    epoch: int | None = documented("the epoch in which the member's own bytes from `offset` on were written")
    since_ms: int | None = documented("store time of the first affected record, or start of the epoch")
    topic: str | None = documented("topic of the first affected message")
    queue_id: int | None = documented("its queue")
    file: str | None = documented("path below the member's directory")
    queue_offset: int | None = documented("queue offset of the first affected message")
    record: int | None = documented("start of the record at `offset`, on a member where it is sound")
    record_end: int | None = documented("end of the last affected record")
    count: int = documented("number of consecutive things merged into one finding", 1)


@define(eq=False)
class AuditFindings:
    """Collects findings: counts all, merges neighbours, and keeps the first KEPT_MAX of each class and member."""

    kept: list[AuditFinding] = field(factory=list)
    totals: Counter[tuple[str, FindingClass]] = field(factory=Counter)  # By member and class, kept or not.
    _counts: Counter[tuple[str, FindingClass]] = field(factory=Counter, init=False)
    _last: dict[tuple[str, FindingClass], int] = field(factory=dict, init=False)  # Index of the last one in `kept`.
    _rest: dict[tuple[str, FindingClass], AuditFinding] = field(factory=dict, init=False)

    def add(self, finding: AuditFinding) -> None:
        """Add a finding. Those of one member come in order of offset."""
        key = finding.member, finding.cls
        self.totals[key] += finding.count
        last = self._last.get(key)
        if last is not None and are_neighbours(self.kept[last], finding):
            self.kept[last] = joined(self.kept[last], finding)
        elif self._counts[key] < KEPT_MAX:
            self._counts[key] += 1
            self._last[key] = len(self.kept)
            self.kept.append(finding)
        else:
            rest = self._rest.get(key)
            self._rest[key] = joined(rest, finding) if rest is not None else evolve(finding, what="more of this class")

    def extend(self, findings: Iterable[AuditFinding]) -> None:
        """Add several."""
        for finding in findings:
            self.add(finding)

    def with_rest(self) -> list[AuditFinding]:
        """The kept findings, and one for each class and member that stands for all others."""
        return [*self.kept, *self._rest.values()]

    @property
    def left_out(self) -> int:
        """Number of things that were only counted."""
        return self.totals.total() - sum(finding.count for finding in self.kept)


def are_neighbours(first: AuditFinding, second: AuditFinding) -> bool:
    """True if the second finding begins where the first one ends and is of the same kind, for damage whatever the change."""
    if first.cls in _DAMAGE and first.record_end is not None and first.record_end == second.record:
        return bool(_COPY(first) == _COPY(second))
    return first.end is not None and first.end == second.offset and bool(_KIND(first) == _KIND(second))


def joined(first: AuditFinding, second: AuditFinding) -> AuditFinding:
    """Merge two neighbours."""
    count = first.count + second.count
    both = evolve(first, end=second.end, record_end=second.record_end, count=count)
    if first.cls not in _DAMAGE or (first.what, first.why) == (second.what, second.why):
        return both
    return evolve(both, what=f"{count} records in a row are damaged", why=f"{_FIRST}{first.why.removeprefix(_FIRST)}")


def settled(
    log: Sequence[AuditFinding], own: Mapping[str, Sequence[AuditFinding]], between: Sequence[AuditFinding]
) -> Iterator[AuditFinding]:
    """All findings except those that only follow from others.

    `own`: by member, from side_tables.py; `between`: from config_tables.py and completeness.py.
    """
    diverged = {finding.member for finding in log if finding.cls is FindingClass.DIVERGENT}
    for finding in log:
        if finding.cls is not FindingClass.LAG or not {finding.member, finding.good} & diverged:
            yield finding
    wrong = {_queue_of(finding) for findings in own.values() for finding in findings if _is_of_offsets(finding)}
    for findings in own.values():
        yield from findings
    for finding in between:
        if not (_is_of_offsets(finding) and _queue_of(finding) in wrong):
            yield finding


def _is_of_offsets(finding: AuditFinding) -> bool:
    return finding.cls is FindingClass.OFFSETS


def _queue_of(finding: AuditFinding) -> tuple[str | None, int | None, str | None]:
    return finding.topic, finding.queue_id, finding.file
