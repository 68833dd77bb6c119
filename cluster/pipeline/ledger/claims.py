"""Proofs that still hold when members are looked at again. Pure.

A member's part in a proof ends where its log is not the one of that time:

    its store is another one              everything
    its history branches off              from there on: the bytes of one epoch are one sequence (ha/election/epochs.py)
    its log ends earlier                  from there on, even if it grew again, which its history tells
    its log begins later                  up to there
    a file was replaced, or written       the bytes of this file; while a file grows, only another file counts
    its last proved block changed         from the last proved block on that did not; RocketMQ's logs have no history

The last one needs bytes of the logs: `check_marks` asks for them. Samples are taken anew in each run.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from attrs import evolve

from twinlog.cluster.pipeline.ledger.values import (
    Basis,
    Fault,
    LedgerState,
    LogEpoch,
    Look,
    Lost,
    Proof,
    Span,
    joined_spans,
)
from twinlog.ha.election.epochs import common_end
from twinlog.store.epoch_file import EpochEntry

END = 1 << 62  # Behind every log.


class OtherLedgerError(Exception):
    """The ledger is of other members, or of members that were read in another way. The message says what to do."""


def check_ledger(state: LedgerState, looks: Sequence[Look], kind: str) -> None:
    """Raises OtherLedgerError for a ledger on which nothing of this audit can go on."""
    known = [look.name for look in state.members]
    if not state.run or (state.kind == kind and {look.name for look in looks} & set(known)):
        return
    what = "running brokers" if state.kind == "live" else "directories"
    raise OtherLedgerError(
        f"the ledger is of {what}: {', '.join(known)}. Each log has a ledger of its own, and another one for running brokers. "
        "Name another directory."
    )


class Gone(NamedTuple):
    """Bytes of which a member's proofs end. `why` is None where it only deleted old files."""

    span: Span
    why: str | None


class Mark(NamedTuple):
    """A question: do bytes `start` to `end` of a member have this digest?"""

    member: str
    start: int
    end: int
    digest: str


MarkCheck = Generator[tuple[Mark, ...], Mapping[Mark, bool], tuple[LedgerState, tuple[Lost, ...]]]


def still_holding(state: LedgerState, looks: Sequence[Look]) -> tuple[LedgerState, tuple[Lost, ...]]:
    """The state with what still holds, as far as the looks tell. Members that cannot be read keep what they had."""
    now = {look.name: look for look in looks}
    lost: list[Lost] = []
    state = evolve(state, proofs=tuple(proof for proof in state.proofs if proof.by is not Basis.SAMPLES))
    proofs = state.proofs
    for before in state.members:
        look = now.get(before.name)
        gone = [Gone(Span(0, END), None)] if look is None else list(gone_of(before, look))
        state = without(state, before.name, gone)
        lost += lost_of(proofs, before.name, gone)
    return state, tuple(lost)


def gone_of(before: Look, now: Look) -> Iterator[Gone]:
    """Bytes that a member's log has lost since a look."""
    if now.problem is not None:
        return
    if before.store != now.store if before.store and now.store else before.place != now.place:
        yield Gone(Span(0, END), "another store is in its place")
        return
    yield Gone(Span(0, now.first), None)
    if now.last < before.last:
        yield Gone(Span(now.last, END), f"its log was cut at {now.last}")
    if before.epochs and now.epochs:
        common = common_end(_entries(before.epochs), before.last, _entries(now.epochs), now.last)
        if common < min(before.last, now.last):
            yield Gone(Span(common, END), f"its history is another one from {common} on")
    parts = {part.start: part for part in now.parts}
    for old in before.parts:
        part = parts.get(old.start)
        if part is None:
            yield Gone(Span(old.start, old.end), None if old.end <= now.first else "a file is missing")
        elif not old.is_same(part):
            yield Gone(Span(old.start, old.end), f"the file at {old.start} was replaced or written again")


def _entries(epochs: Iterable[LogEpoch]) -> list[EpochEntry]:
    return [EpochEntry(epoch=each.epoch, winner=each.winner, start_offset=each.start) for each in epochs]


def without(state: LedgerState, member: str, gone: Sequence[Gone]) -> LedgerState:
    """The state without a member's part in proofs and faults in some bytes."""
    spans = joined_spans(each.span for each in gone)
    proofs, faults = tuple(_left(state.proofs, member, spans)), tuple(_left_faults(state.faults, member, spans))
    return evolve(state, proofs=proofs, faults=faults)


def lost_of(proofs: Iterable[Proof], member: str, gone: Sequence[Gone]) -> list[Lost]:
    """Bytes of these proofs that a member loses for a reason, each once."""
    mine = [proof for proof in proofs if member in proof.members]
    return _disjoint(
        [
            Lost(member=member, start=part.start, end=part.end, why=each.why)
            for each in gone
            if each.why is not None
            for part in joined_spans(each.span.part(proof.start, proof.end) for proof in mine)
        ]
    )


def _left(proofs: Iterable[Proof], member: str, spans: Sequence[Span]) -> Iterator[Proof]:
    for proof in proofs:
        if member not in proof.members:
            yield proof
            continue
        rest = tuple(name for name in proof.members if name != member)
        for part, is_gone in _parted(proof.start, proof.end, spans):
            found = proof.cut(*part)
            assert found is not None
            if not is_gone:
                yield found
            elif len(rest) > 1:
                yield evolve(found, members=rest)


def _left_faults(faults: Iterable[Fault], member: str, spans: Sequence[Span]) -> Iterator[Fault]:
    for fault in faults:
        if member not in fault.members:
            yield fault
            continue
        rest = tuple(name for name in fault.members if name != member)
        for part, is_gone in _parted(fault.start, fault.end, spans):
            if not is_gone:
                yield evolve(fault, start=part.start, end=part.end)
            elif rest:
                yield Fault(start=part.start, end=part.end, members=rest)


def _parted(start: int, end: int, spans: Sequence[Span]) -> Iterator[tuple[Span, bool]]:
    """The parts of a range outside and inside of spans, in order."""
    at = start
    for span in spans:
        inside = span.part(at, end)
        if inside.start >= inside.end:
            continue
        if at < inside.start:
            yield Span(at, inside.start), False
        yield inside, True
        at = inside.end
    if at < end:
        yield Span(at, end), False


def _disjoint(lost: Sequence[Lost]) -> list[Lost]:
    """Each byte once, with the first reason."""
    found: list[Lost] = []
    taken: list[Span] = []
    for each in lost:
        found += [
            evolve(each, start=part.start, end=part.end)
            for part, is_taken in _parted(each.start, each.end, taken)
            if not is_taken
        ]
        taken = joined_spans([*taken, (each.start, each.end)])
    return found


def check_marks(state: LedgerState, looks: Sequence[Look]) -> MarkCheck:
    """Ask whether the last proved blocks are still there: of each member the highest one, and lower ones until one is.

    Yields questions, is sent the answers, and returns the state with what still holds: of each member what lies below that block.
    """
    proofs = state.proofs
    limits = {look.name: END for look in looks if look.problem is None}
    good: dict[str, int] = {}
    while marks := tuple(mark for name in limits if (mark := _highest(state.proofs, name, limits[name])) is not None):
        answers = yield marks
        for mark in marks:
            if answers[mark]:
                good[mark.member] = mark.end
                del limits[mark.member]
            else:
                limits[mark.member] = mark.start
    lost: list[Lost] = []
    for name in (look.name for look in looks if look.problem is None):
        start = good.get(name, 0)
        gone = [Gone(Span(start, END), f"its last proved block that is still there ends at {start}")]
        lost += lost_of(proofs, name, gone)
        state = without(state, name, gone)
    return state, tuple(lost)


def _highest(proofs: Sequence[Proof], member: str, limit: int) -> Mark | None:
    for proof in reversed(proofs):
        if proof.end <= limit and proof.digest and member in proof.members:
            return Mark(member, *proof.mark, proof.digest)
    return None
