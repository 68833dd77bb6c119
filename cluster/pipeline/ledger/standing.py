"""What a ledger's state says now: up to where all members are proved equal, since when, and what is wrong. Pure."""

from collections.abc import Iterable

from attrs import frozen

from twinlog.cluster.pipeline.audit.findings import documented
from twinlog.cluster.pipeline.audit.report import AuditVerdict, verdict_of
from twinlog.cluster.pipeline.ledger.values import Basis, LedgerState, Proof, is_open_fault


@frozen(kw_only=True)
class MemberStanding:
    """What is proved of one member."""

    name: str
    place: str
    first_offset: int = documented("start of its log, when it was last read")
    last_offset: int = documented("end of its log then")
    proved_to: int = documented("its bytes are proved equal to those of another member from the start up to here")
    is_away: bool = documented("the last run could not read it", False)


@frozen(kw_only=True)
class Standing:
    """What is proved of the copies of a log, by the runs of its ledger."""

    run: int = documented("number of the last run; 0: there was none yet", 0)
    kind: str = documented("directories, or live: running brokers", "")
    verdict: str = documented("of the last run, with what was found earlier and is still open", "")
    checked_ms: int = documented("when the last run began; what is said here was so then", 0)
    proved_from: int | None = documented("where the bytes begin that all members have; null: there are none")
    proved_to: int | None = documented(
        "from there up to here all members are proved equal; null: they have no byte in common"
    )
    log_end: int | None = documented("end of the longest log")
    compared_by: str = documented("digests; written: digests that running members keep; samples", "")
    newest_proof_ms: int | None = documented("time of the newest proof")
    oldest_proof_ms: int | None = documented(
        "time of the oldest proof that holds: every byte is proved again within a full pass"
    )
    proved_bytes: int = documented("bytes that are proved equal between two members or more", 0)
    open_findings: int = documented("differences and damage that were found and are not repaired", 0)
    full_pass_seconds: float = documented("time within which every byte is proved again", 0.0)
    members: tuple[MemberStanding, ...] = ()


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
        open_findings=sum(is_open_fault(seen) for seen in state.findings),
        full_pass_seconds=state.full_pass_ms / 1000,
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
