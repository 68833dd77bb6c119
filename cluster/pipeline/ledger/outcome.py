"""Changes that a run makes: proofs, faults, and findings from first seen to repaired. Pure."""

from collections.abc import Iterable, Sequence

from attrs import define, evolve

from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.cluster.pipeline.audit.report import AuditVerdict, verdict_of
from twinlog.cluster.pipeline.ledger.standing import open_verdict
from twinlog.cluster.pipeline.ledger.values import (
    MARK_EVERY,
    Basis,
    Compared,
    Fault,
    LedgerState,
    Look,
    Lost,
    Piece,
    Planned,
    Proof,
    Reason,
    RunResult,
    SeenFinding,
    Span,
    cut_out,
    joined_spans,
    mark_of,
    reason_of,
    size_of,
)

_ROUNDING = (
    64  # Neighbours whose times differ by less than this part of a full pass become one proof, of the older time.
)


@define(kw_only=True)
class RunFacts:
    """Time and manner of a run. The proofs are of its start: no byte was read before."""

    started_ms: int
    ended_ms: int
    kind: str
    full_pass_ms: int


def after(
    state: LedgerState,
    looks: Sequence[Look],
    planned: Sequence[Planned],
    compared: Compared,
    facts: RunFacts,
    lost: Sequence[Lost] = (),
) -> RunResult:
    """The run and the state after it. `state`: with what still held when the run began."""
    run = state.run + 1
    examined = joined_spans((piece.start, piece.end) for piece in compared.pieces)
    new = [
        Proof(
            start=piece.start,
            end=piece.end,
            members=tuple(sorted(piece.equal)),
            at_ms=facts.started_ms,
            run=run,
            by=compared.by,
            digest=piece.digest,
        )
        for piece in compared.pieces
        if len(piece.equal) > 1
    ]
    proofs = sorted([*cut_out(state.proofs, examined), *new], key=lambda proof: proof.start)
    proofs = _merged(proofs, facts.full_pass_ms // _ROUNDING)
    is_whole = size_of(joined_spans((each.start, each.end) for each in planned)) == size_of(examined)
    told = [finding for finding in compared.findings if finding.cls is not FindingClass.LAG]
    findings = _Followed(run, facts.started_ms, looks, examined, proofs).of(state.findings, told, state.next_id)
    is_explained = _are_explained(compared.pieces, told)
    is_complete = is_whole and is_explained and all(look.problem is None for look in looks) and len(looks) > 1
    verdict = verdict_of({each.cls for each in told}, is_complete=is_complete, is_sampled=compared.by is Basis.SAMPLES)
    again_left = _is_left_out(planned, examined)
    found = evolve(
        state,
        run=run,
        started_ms=facts.started_ms,
        ended_ms=facts.ended_ms,
        kind=facts.kind,
        paced_ms=state.paced_ms if again_left else facts.started_ms,
        full_pass_ms=facts.full_pass_ms,
        members=tuple(_remembered(state, look) for look in looks),
        away=tuple(look.name for look in looks if look.problem is not None),
        proofs=tuple(proofs),
        faults=tuple(_faults(state.faults, compared, examined, [look for look in looks if look.problem is None])),
        findings=tuple(each for each in findings if each.closed_ms is None),
        next_id=max([state.next_id, *(each.id + 1 for each in findings)]),
        read_bytes=compared.read_bytes,
        lost_bytes=size_of(lost),
        new_bytes=_size_for(Reason.NEW, planned, compared),
        again_bytes=_size_for(Reason.AGAIN, planned, compared),
        fault_bytes=_size_for(Reason.FAULT, planned, compared),
    )
    found = evolve(found, verdict=open_verdict(AuditVerdict(verdict), found).value)
    closed = tuple(each for each in findings if each.closed_ms is not None)
    return RunResult(
        state=found, looks=tuple(looks), planned=tuple(planned), compared=compared, lost=tuple(lost), closed=closed
    )


def _are_explained(pieces: Iterable[Piece], findings: Iterable[AuditFinding]) -> bool:
    """True if a finding tells of each piece that differs. A log that changed in the meantime may leave one without."""
    told = joined_spans(_bounds(finding) for finding in findings if finding.offset is not None)
    different = (piece for piece in pieces if piece.different)
    return all(any(span.start < piece.end and piece.start < span.end for span in told) for piece in different)


def _size_for(reason: Reason, planned: Sequence[Planned], compared: Compared) -> int:
    return sum(piece.end - piece.start for piece in compared.pieces if reason_of(planned, piece) is reason)


def _remembered(state: LedgerState, look: Look) -> Look:
    """A member as last seen readable; an empty log for one that never was."""
    if look.problem is None:
        return look
    return state.member(look.name) or Look(name=look.name, place=look.place)


def _is_left_out(planned: Sequence[Planned], examined: Sequence[Span]) -> bool:
    """True if a part of the share in the full pass was not compared: the next run takes it on."""
    wanted = [Fault(start=each.start, end=each.end, members=()) for each in planned if each.reason is Reason.AGAIN]
    return any(True for _ in cut_out(wanted, examined))


def _merged(proofs: Iterable[Proof], rounding_ms: int) -> list[Proof]:
    """Neighbours of the same members and about the same time as one, which claims the older time.

    Not where a digest would be lost, and not at multiples of MARK_EVERY: these digests tell up to where a cut log is unchanged.
    """
    found: list[Proof] = []
    for proof in proofs:
        last = found[-1] if found else None
        if (
            last is not None
            and last.end % MARK_EVERY
            and (last.end, last.members, last.by) == (proof.start, proof.members, proof.by)
            and mark_of(last.start, proof.end) == proof.mark
            and abs(last.at_ms - proof.at_ms) < max(1, rounding_ms)
        ):
            older = min(last, proof, key=lambda each: each.at_ms)
            found[-1] = evolve(proof, start=last.start, at_ms=older.at_ms, run=older.run)
        else:
            found.append(proof)
    return found


def _faults(
    before: Sequence[Fault], compared: Compared, examined: Sequence[Span], readable: Sequence[Look]
) -> list[Fault]:
    """Faults after a run. The rest of a long one whose beginning is equal now is compared as a whole next time."""
    below = sorted(look.first for look in readable)[1:2]  # Only one member has bytes below, or none.
    before = list(cut_out(before, [Span(0, low) for low in below]))
    new = [
        Fault(start=piece.start, end=piece.end, members=piece.different) for piece in compared.pieces if piece.different
    ]
    kept: list[Fault] = []
    for fault in before:
        is_probed = any(span.start < fault.end and fault.start < span.end for span in examined)
        still = any(each.start < fault.end and fault.start < each.end for each in new)
        if not is_probed or still:
            kept += cut_out([fault], examined)
    return _merged_faults(sorted([*kept, *new], key=lambda fault: fault.start))


def _merged_faults(faults: Iterable[Fault]) -> list[Fault]:
    found: list[Fault] = []
    for fault in faults:
        if found and (found[-1].end, found[-1].members) == (fault.start, fault.members):
            fault = evolve(fault, start=found.pop().start)
        found.append(fault)
    return found


@define(eq=False)
class _Followed:
    """Findings over runs. `proofs`: after the run."""

    run: int
    at_ms: int
    looks: Sequence[Look]
    examined: Sequence[Span]
    proofs: Sequence[Proof]

    def of(self, known: Sequence[SeenFinding], found: Sequence[AuditFinding], next_id: int) -> list[SeenFinding]:
        """Known findings as they are now, then new ones."""
        left, result = list(found), list[SeenFinding]()
        for seen in known:
            same = [each for each in left if _is_same(seen.finding, each)]
            left = [each for each in left if each not in same]
            result.append(self._seen(seen, same))
        for number, finding in enumerate(left, start=next_id):
            result.append(
                SeenFinding(
                    id=number,
                    state="new",
                    first_run=self.run,
                    first_ms=self.at_ms,
                    last_run=self.run,
                    last_ms=self.at_ms,
                    finding=finding,
                )
            )
        return result

    def _seen(self, seen: SeenFinding, same: Sequence[AuditFinding]) -> SeenFinding:
        if same:
            finding = _united(seen.finding, same, is_whole=self._is_examined(seen.finding))
            return evolve(seen, state="seen", last_run=self.run, last_ms=self.at_ms, finding=finding)
        if self._is_gone(seen.finding):
            return evolve(seen, state="gone", closed_ms=self.at_ms)
        if self._is_repaired(seen.finding):
            return evolve(seen, state="repaired", closed_ms=self.at_ms)
        return evolve(seen, state="unchecked")

    def _is_examined(self, finding: AuditFinding) -> bool:
        start, end = _bounds(finding)
        return any(span.start <= start and end <= span.end for span in self.examined)

    def _is_gone(self, finding: AuditFinding) -> bool:
        """True if there is nothing to compare there any more: its bytes were deleted or cut, or its member is not audited."""
        look = next((each for each in self.looks if each.name == finding.member), None)
        if look is None:
            return True
        if finding.offset is None or any(each.problem is not None for each in self.looks):
            return False
        start, end = _bounds(finding)
        having = [each for each in self.looks if each.first < end and start < each.last]
        if finding.cls is FindingClass.TRUNCATED:  # The member lacks these bytes.
            return not having
        return look not in having or len(having) < 2

    def _is_repaired(self, finding: AuditFinding) -> bool:
        """True if all of its bytes are proved equal with the member; without a place: if the member was looked at."""
        look = next((each for each in self.looks if each.name == finding.member and each.problem is None), None)
        if finding.offset is None or look is None:
            return look is not None
        at, end = _bounds(finding)
        at = max(at, look.first, *sorted(each.first for each in self.looks)[1:2])  # What is left of it, and comparable.
        end = end if finding.cls is FindingClass.TRUNCATED else min(end, look.last)
        for proof in self.proofs:
            if proof.start <= at < proof.end and finding.member in proof.members:
                at = proof.end
        return at >= end


def _bounds(finding: AuditFinding) -> tuple[int, int]:
    start = finding.offset or 0
    return start, max(start + 1, finding.end or 0)


def _is_same(known: AuditFinding, found: AuditFinding) -> bool:
    """True if both are about the same bytes of a member, or about the same thing beside its log."""
    if known.member != found.member:
        return False
    if known.offset is None or found.offset is None:
        return (known.offset, known.cls, known.file) == (found.offset, found.cls, found.file)
    (start, end), (low, high) = _bounds(known), _bounds(found)
    return start < high and low < end


def _united(known: AuditFinding, found: Sequence[AuditFinding], *, is_whole: bool) -> AuditFinding:
    """The finding as it is seen now; where it was not compared as a whole, with the bytes that it had."""
    if known.offset is None:
        return found[0]
    parts = [*found] if is_whole else [known, *found]
    bounds = [_bounds(each) for each in parts]
    return evolve(found[0], offset=min(low for low, _ in bounds), end=max(high for _, high in bounds))
