"""What an audit of replicas can find, and a collection of findings that does not grow with the damage. No I/O.

Plain values: the report prints them as JSON, tables and pictures are made from them, and Spark carries them between processes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from attrs import define, evolve, field, frozen

KEPT_MAX = 200  # Of each class and member.
_FIRST = "the first one: "


class FindingClass(StrEnum):
    """What is wrong."""

    LAG = "lag"  # What a member has not got yet; no fault.
    TRUNCATED = "truncated"  # A tail is missing that the member had: its own files still speak of it.
    HOLE = "hole"  # Bytes that others have, and that are zeros or a missing file here; the log goes on behind.
    DIVERGENT = "divergent"  # Sound records on both sides, but others: two masters wrote.
    SHIFTED = "shifted"  # A file holds the records of another place.
    SWAPPED = "swapped"  # Sound records that stand in each other's place.
    BIT_ROT = "bit-rot"  # Bytes that changed, and it is known on which member.
    DIFFERS = "differs"  # Bytes that changed, and it cannot be told on which member.
    QUEUE = "queue"  # A consume queue out of step with the log beside it.
    INDEX = "index"  # An index file out of step with the log beside it.
    CONFIG = "config"  # Topics, groups or another file of configuration out of step between members, or not readable.
    OFFSETS = "offsets"  # Consumer offsets out of step.
    UNREADABLE = "unreadable"  # Could not be looked at; nothing is known of it.

    @property
    def is_fault(self) -> bool:
        """Whether members with such a finding are not equal."""
        return self is not FindingClass.LAG


_DAMAGE = (FindingClass.BIT_ROT, FindingClass.DIFFERS)


def _doc(text: str, default: Any = None) -> Any:
    return field(default=default, metadata={"doc": text})


@frozen(kw_only=True)
class AuditFinding:
    """One thing that is not as it should be, on one member. What does not apply or is not known is None."""

    cls: FindingClass
    member: str = field(metadata={"doc": "whose copy is wrong; where that cannot be told, one of those that differ"})
    offset: int | None = _doc("the first byte of the log that it is about")
    end: int | None = _doc("the byte behind the last one")
    what: str = field(metadata={"doc": "in a few words"})
    why: str = field(metadata={"doc": "what it was told by"})
    good: str | None = _doc("a member whose copy is right")
    epoch: int | None = _doc("the epoch in which the member's own bytes from `offset` on were written")
    since_ms: int | None = _doc("when: the store time of the first record it is about, or the start of the epoch")
    topic: str | None = _doc("of the first message that it is about")
    queue_id: int | None = _doc("of that message")
    file: str | None = _doc("below the member's directory")
    queue_offset: int | None = _doc("of the first message, in its queue")
    record: int | None = _doc(
        "where the record begins that the byte at `offset` belongs to, on a member that has it sound"
    )
    record_end: int | None = _doc("the byte behind the last record that it is about")
    count: int = _doc("so many things in a row", 1)


@define(eq=False)
class AuditFindings:
    """What was found so far: all is counted, neighbours become one, the first KEPT_MAX of each class and member are kept."""

    kept: list[AuditFinding] = field(factory=list)
    totals: Counter[tuple[str, FindingClass]] = field(factory=Counter)  # Member and class: things, kept or not.
    _counts: Counter[tuple[str, FindingClass]] = field(factory=Counter, init=False)
    _last: dict[tuple[str, FindingClass], int] = field(factory=dict, init=False)  # Where in `kept` the last one is.
    _rest: dict[tuple[str, FindingClass], AuditFinding] = field(factory=dict, init=False)

    def add(self, finding: AuditFinding) -> None:
        """Take one. Those of one member come by their offset."""
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
        """Take several."""
        for finding in findings:
            self.add(finding)

    def with_rest(self) -> list[AuditFinding]:
        """Those that are kept, and one for each class and member that stands for all the others."""
        return [*self.kept, *self._rest.values()]

    @property
    def left_out(self) -> int:
        """How many things were counted only."""
        return self.totals.total() - sum(finding.count for finding in self.kept)


def are_neighbours(first: AuditFinding, second: AuditFinding) -> bool:
    """Whether the second one begins where the first one ends, and is of the same kind. Damaged records are, whatever changed."""
    if first.cls in _DAMAGE and first.record_end is not None and first.record_end == second.record:
        return (first.cls, first.member, first.good, first.file) == (
            second.cls,
            second.member,
            second.good,
            second.file,
        )
    return (
        first.end is not None
        and first.end == second.offset
        and (first.cls, first.member, first.good, first.what, first.why, first.epoch, first.file)
        == (second.cls, second.member, second.good, second.what, second.why, second.epoch, second.file)
    )


def joined(first: AuditFinding, second: AuditFinding) -> AuditFinding:
    """One finding for two neighbours."""
    count = first.count + second.count
    both = evolve(first, end=second.end, record_end=second.record_end, count=count)
    if first.cls not in _DAMAGE or (first.what, first.why) == (second.what, second.why):
        return both
    return evolve(both, what=f"{count} records in a row are damaged", why=f"{_FIRST}{first.why.removeprefix(_FIRST)}")


def settled(
    log: Sequence[AuditFinding], own: Mapping[str, Sequence[AuditFinding]], between: Sequence[AuditFinding]
) -> Iterator[AuditFinding]:
    """All findings, but for those that only follow from others. `own`: by member, those of side_tables.py; `between`: those of
    config_tables.py."""
    parted = {finding.member for finding in log if finding.cls is FindingClass.DIVERGENT}
    for finding in log:
        if finding.cls is not FindingClass.LAG or not {finding.member, finding.good} & parted:
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
