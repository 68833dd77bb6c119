"""Values of a ledger: proofs, members as a run saw them, findings, and the state after a run. Pure.

Offsets are bytes of the log, times ms since 1970. A proof says that some members had equal bytes at a time. It holds for a member
while that member's log has the bytes that it had then: not if it was cut, written anew, replaced, or lost its first files. What a
disk changes by itself nobody sees; therefore each proof is made again within the time of a full pass.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeVar

from attrs import evolve, frozen

from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.store.integrity.digest import floor_block

MARK_EVERY = 1 << 30  # Pieces, and so proofs, end at its multiples, each with its digest.


class Basis(StrEnum):
    """Evidence that a comparison is based on."""

    DIGESTS = "digests"  # Of all bytes, as they were read.
    WRITTEN = "written"  # Digests that running members keep of what they wrote.
    SAMPLES = "samples"  # Some records: this proves nothing of the bytes between.


class Span(NamedTuple):
    """Bytes `start` to `end`."""

    start: int
    end: int

    def part(self, start: int, end: int) -> "Span":
        """The part inside; may be empty."""
        low = max(self.start, start)
        return Span(low, max(low, min(self.end, end)))


@frozen(kw_only=True)
class Proof:
    """Bytes `start` to `end` of `members` were equal at `at_ms`, in run `run`.

    `digest`: xxh3-128, as hex digits, of its last block or its part in that; "": not known, as after the range was cut.
    """

    start: int
    end: int
    members: tuple[str, ...]
    at_ms: int
    run: int
    by: Basis = Basis.DIGESTS
    digest: str = ""

    @property
    def mark(self) -> Span:
        """The bytes of `digest`."""
        return mark_of(self.start, self.end)

    def cut(self, start: int, end: int) -> "Proof | None":
        """The part inside of `start` to `end`; None: nothing is left."""
        low, high = max(self.start, start), min(self.end, end)
        if low >= high:
            return None
        is_same = mark_of(low, high) == self.mark
        return evolve(self, start=low, end=high, digest=self.digest if is_same else "")


def mark_of(start: int, end: int) -> Span:
    """The last block of a range, or its part in that."""
    return Span(max(start, floor_block(end - 1)), end)


@frozen(kw_only=True)
class Fault:
    """Bytes `start` to `end` in which `members` were not equal to the others, or could not be read."""

    start: int
    end: int
    members: tuple[str, ...]

    def cut(self, start: int, end: int) -> "Fault | None":
        """The part inside of `start` to `end`; None: nothing is left."""
        low, high = max(self.start, start), min(self.end, end)
        return evolve(self, start=low, end=high) if low < high else None


@frozen(kw_only=True)
class LogEpoch:
    """One epoch of a member's history: number and winner name it; it begins at byte `start`."""

    epoch: int
    winner: str
    start: int


@frozen(kw_only=True)
class LogPart:
    """A file of a member's log with bytes `start` to `end`.

    `id` names the file for its file system: another value is another file. `written`: when it was last written, once it is full;
    "" before.
    """

    start: int
    end: int
    id: str
    written: str = ""

    def is_same(self, other: "LogPart") -> bool:
        """True if nothing shows that this file was replaced or written again."""
        return self.id == other.id and ("" in (self.written, other.written) or self.written == other.written)


@frozen(kw_only=True)
class Look:
    """A member as a run saw it: its log has bytes `first` to `last`.

    `store` names the store directory for good, where that is known: another value is another store. `problem`: why it could not
    be read; then nothing else is known.
    """

    name: str
    place: str
    first: int = 0
    last: int = 0
    store: str = ""
    epochs: tuple[LogEpoch, ...] = ()
    parts: tuple[LogPart, ...] = ()
    software: str | None = None
    problem: str | None = None

    def has(self, span: Span) -> bool:
        """True if it has all of these bytes."""
        return self.problem is None and self.first <= span.start and span.end <= self.last


@frozen(kw_only=True)
class SeenFinding:
    """A finding over several runs. `closed_ms`: when it was repaired or gone; None: it is open."""

    id: int
    state: str
    first_run: int
    first_ms: int
    last_run: int
    last_ms: int
    finding: AuditFinding
    closed_ms: int | None = None


@frozen(kw_only=True)
class LedgerState:
    """Everything that the next run needs. `proofs` and `faults` are in order, and do not overlap among themselves.

    `paced_ms`: up to this time the share of each run in the full pass is accounted for. `members`: as last seen readable.
    """

    run: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    kind: str = ""
    verdict: str = ""
    paced_ms: int = 0
    full_pass_ms: int = 0
    members: tuple[Look, ...] = ()
    away: tuple[str, ...] = ()  # Members that the last run could not read.
    proofs: tuple[Proof, ...] = ()
    faults: tuple[Fault, ...] = ()
    findings: tuple[SeenFinding, ...] = ()  # That are open.
    next_id: int = 1
    new_bytes: int = 0  # This and the following: of the last run, as in its row.
    again_bytes: int = 0
    fault_bytes: int = 0
    read_bytes: int = 0
    lost_bytes: int = 0

    def member(self, name: str) -> Look | None:
        """A member as last seen."""
        return next((each for each in self.members if each.name == name), None)


class Reason(StrEnum):
    """Reason to compare a range."""

    NEW = "new"
    AGAIN = "again"
    FAULT = "fault"


@frozen(kw_only=True)
class Planned:
    """A range to compare."""

    start: int
    end: int
    reason: Reason


@frozen(kw_only=True)
class Piece:
    """A compared range: `equal` members, and those that have these bytes and are `different`, or could not be read."""

    start: int
    end: int
    equal: tuple[str, ...]
    different: tuple[str, ...] = ()
    digest: str = ""


@frozen(kw_only=True)
class Compared:
    """Pieces that a run compared, in order of offset. A part of the plan without a piece was not compared."""

    pieces: tuple[Piece, ...] = ()
    findings: tuple[AuditFinding, ...] = ()
    read_bytes: int = 0
    by: Basis = Basis.DIGESTS


@frozen(kw_only=True)
class Lost:
    """Bytes of a member whose proof ended, and why."""

    member: str
    start: int
    end: int
    why: str


@frozen(kw_only=True)
class RunResult:
    """A run, complete: what ledger files are written from. `state`: after it; `closed`: findings that it closed."""

    state: LedgerState
    looks: tuple[Look, ...]
    planned: tuple[Planned, ...]
    compared: Compared
    lost: tuple[Lost, ...] = ()
    closed: tuple[SeenFinding, ...] = ()


def size_of(spans: Iterable[Span | Proof | Piece | Planned | Fault | Lost]) -> int:
    """Number of bytes of several ranges that do not overlap."""
    return sum(each.end - each.start for each in spans)


def reason_of(planned: Iterable[Planned], piece: Piece) -> Reason:
    """Reason for which a piece was compared."""
    found = (each.reason for each in planned if each.start <= piece.start < each.end)
    return next(found, Reason.NEW)


Cuttable = TypeVar("Cuttable", Proof, Fault)


def cut_out(parts: Iterable[Cuttable], holes: Sequence[Span]) -> Iterator[Cuttable]:
    """The parts without the bytes of `holes`, which are in order and do not overlap."""
    for part in parts:
        at = part.start
        for hole in holes:
            if hole.end <= at or hole.start >= part.end:
                continue
            if (rest := part.cut(at, hole.start)) is not None:
                yield rest
            at = max(at, hole.end)
        if (rest := part.cut(at, part.end)) is not None:
            yield rest


def joined_spans(spans: Iterable[tuple[int, int]]) -> list[Span]:
    """In order, and neighbours and overlaps merged; empty ones are left out."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, end))
        elif start < end:
            found.append(Span(start, end))
    return found


def is_open_fault(seen: SeenFinding) -> bool:
    """True if it makes members unequal."""
    return seen.closed_ms is None and seen.finding.cls is not FindingClass.LAG
