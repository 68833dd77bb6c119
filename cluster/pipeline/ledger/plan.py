"""Ranges that a run compares. Pure.

new     bytes that two readable members or more have, and no proof of all of them: they came since, a member did, or it lost some
fault   bytes in which members differed; of a long range only its beginning: is that equal, the next run compares all of it
again   the oldest proofs, as many bytes as fall to the time since the last run if all are to be proved within a full pass
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Generic

from attrs import define

from twinlog.cluster.pipeline.ledger.values import (
    Cuttable,
    Fault,
    LedgerState,
    Look,
    Planned,
    Proof,
    Reason,
    Span,
    cut_out,
    joined_spans,
)
from twinlog.store.integrity.digest import ceil_block

PROBE = 64 << 20  # Bytes at the beginning of a range that differed.


def plan(state: LedgerState, looks: Sequence[Look], now_ms: int, full_pass_ms: int) -> tuple[Planned, ...]:
    """Ranges to compare, in order; they do not overlap."""
    readable = [look for look in looks if look.problem is None and look.first < look.last]
    new: list[Span] = []
    faulty: list[tuple[Span, Fault]] = []
    for span, missing, fault in _unproved(state, readable):
        if fault is None or not missing <= set(fault.members):
            new.append(span)
        elif span.start < fault.start + PROBE:
            faulty.append((Span(span.start, min(span.end, fault.start + PROBE)), fault))
    found = [Planned(start=start, end=end, reason=Reason.NEW) for start, end in joined_spans(new)]
    found += [
        Planned(start=start, end=end, reason=Reason.FAULT) for start, end in joined_spans(span for span, _ in faulty)
    ]
    taken = joined_spans((each.start, each.end) for each in found)
    share = share_of(state, now_ms, full_pass_ms)
    found += [
        Planned(start=start, end=end, reason=Reason.AGAIN)
        for start, end in joined_spans(oldest(state.proofs, readable, taken, share))
    ]
    return tuple(sorted(found, key=lambda each: each.start))


def share_of(state: LedgerState, now_ms: int, full_pass_ms: int) -> int:
    """Bytes to prove again, for the time since the last run."""
    total = sum(proof.end - proof.start for proof in state.proofs)
    elapsed = max(0, now_ms - state.paced_ms) if state.run else 0
    return total if elapsed >= full_pass_ms else -(-total * elapsed // full_pass_ms)


def _unproved(state: LedgerState, readable: Sequence[Look]) -> Iterator[tuple[Span, set[str], Fault | None]]:
    """Ranges that several members have and that are not proved of all of these: (range, members without proof, fault)."""
    bounds = {bound for look in readable for bound in (look.first, look.last)}
    bounds |= set(chain.from_iterable((each.start, each.end) for each in state.proofs))
    bounds |= set(chain.from_iterable((each.start, each.end) for each in state.faults))
    proofs, faults = _Cursor(state.proofs), _Cursor(state.faults)
    for span in map(Span._make, pairwise(sorted(bounds))):
        having = {look.name for look in readable if look.has(span)}
        proof, fault = proofs.at(span.start), faults.at(span.start)
        missing = having - set(proof.members if proof is not None else ())
        if len(having) > 1 and missing:
            yield span, missing, fault


@define(eq=False)
class _Cursor(Generic[Cuttable]):
    """The part that a byte lies in, for offsets that rise."""

    parts: Sequence[Cuttable]
    _number: int = 0

    def at(self, offset: int) -> Cuttable | None:
        while self._number < len(self.parts) and self.parts[self._number].end <= offset:
            self._number += 1
        part = self.parts[self._number] if self._number < len(self.parts) else None
        return part if part is not None and part.start <= offset else None


def oldest(proofs: Iterable[Proof], readable: Sequence[Look], taken: Sequence[Span], share: int) -> Iterator[Span]:
    """About `share` bytes of the oldest proofs whose members are all readable, outside of what is compared anyhow."""
    names = {look.name for look in readable}
    chosen = [proof for proof in cut_out(proofs, taken) if set(proof.members) <= names]
    for proof in sorted(chosen, key=lambda proof: (proof.at_ms, proof.start)):
        if share <= 0:
            return
        end = min(proof.end, ceil_block(proof.start + share))
        yield Span(proof.start, end)
        share -= end - proof.start
