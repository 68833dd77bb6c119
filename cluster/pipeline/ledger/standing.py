"""From a ledger's state to what it says now. Pure."""

from collections.abc import Iterable

from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.audit.report import AuditVerdict, verdict_of
from twinlog.cluster.pipeline.audit.standing import MemberStanding, Standing
from twinlog.cluster.pipeline.ledger.values import Basis, LedgerState, Proof, is_open_fault


def standing_of(state: LedgerState) -> Standing:
    """Summarise a state."""
    names = {look.name for look in state.members}
    logs = [look for look in state.members if look.first < look.last]
    start = max((look.first for look in state.members), default=0)
    has_common = start < min((look.last for look in state.members), default=0)
    by = {proof.by for proof in state.proofs}
    return Standing(
        run=state.run,
        kind=state.kind,
        verdict=state.verdict,
        checked_ms=state.started_ms,
        proved_from=start if has_common else None,
        proved_to=proved_end(state.proofs, start, names) if has_common else None,
        log_end=max((look.last for look in logs), default=None),
        compared_by=next((str(basis) for basis in reversed(Basis) if basis in by), ""),
        newest_proof_ms=max((proof.at_ms for proof in state.proofs), default=None),
        oldest_proof_ms=min((proof.at_ms for proof in state.proofs), default=None),
        proved_bytes=sum(proof.end - proof.start for proof in state.proofs),
        open_findings=sum(
            is_open_fault(seen) and seen.finding.cls is not FindingClass.UNREADABLE for seen in state.findings
        ),
        full_pass_seconds=state.full_pass_ms / 1000,
        new_bytes=state.new_bytes,
        again_bytes=state.again_bytes,
        fault_bytes=state.fault_bytes,
        read_bytes=state.read_bytes,
        lost_bytes=state.lost_bytes,
        members=tuple(
            MemberStanding(
                name=look.name,
                place=look.place,
                first_offset=look.first,
                last_offset=look.last,
                proved_to=member_proved_end(state, look.name),
                is_away=look.name in state.away,
            )
            for look in state.members
        ),
    )


def proved_end(proofs: Iterable[Proof], start: int, names: Iterable[str]) -> int:
    """End of the bytes from `start` on that are proved equal for these members, without a gap."""
    wanted, at = set(names), start
    for proof in proofs:
        if proof.start <= at < proof.end and wanted <= set(proof.members):
            at = proof.end
    return at


def member_proved_end(state: LedgerState, name: str) -> int:
    """End of a member's proved bytes, from the first one that another member has, too."""
    own = next(look for look in state.members if look.name == name)
    others = [look.first for look in state.members if look.name != name]
    start = max(own.first, min(others, default=own.first))
    return proved_end(state.proofs, start, [name])


def open_verdict(verdict: AuditVerdict, state: LedgerState) -> AuditVerdict:
    """The verdict of a run, with what is open from earlier runs."""
    classes = {seen.finding.cls for seen in state.findings if is_open_fault(seen)}
    if not classes:
        return verdict
    is_complete = verdict is not AuditVerdict.INCOMPLETE
    return verdict_of(classes, is_complete=is_complete, is_sampled=verdict is AuditVerdict.SAMPLES_EQUAL)
