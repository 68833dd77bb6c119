"""The report of a run, in the form of `twinlog audit`, with what its ledger proves. Pure."""

from collections.abc import Sequence

from attrs import evolve

from twinlog.cluster.pipeline.audit.assembly import assembled
from twinlog.cluster.pipeline.audit.findings import AuditFindings, FindingClass
from twinlog.cluster.pipeline.audit.report import AuditedMember, AuditReport, AuditVerdict
from twinlog.cluster.pipeline.ledger.standing import standing_of
from twinlog.cluster.pipeline.ledger.values import Basis, Piece, RunResult
from twinlog.store.integrity.digest import BLOCK_SIZE


def report_of(result: RunResult, members: Sequence[AuditedMember]) -> AuditReport:
    """All findings that are open, and the members as they were found; sizes are of what this run compared."""
    state = result.state
    findings = AuditFindings()
    shown = [seen.finding for seen in state.findings]
    shown += [found for found in result.compared.findings if found.cls is FindingClass.LAG]
    findings.extend(sorted(shown, key=lambda found: (found.member, found.cls, found.offset or 0)))
    is_sampled = result.compared.by is Basis.SAMPLES
    report = assembled(
        [_with_sizes(member, result.compared.pieces, is_read=state.kind != "live") for member in members],
        findings,
        clock_ms=state.started_ms,
        is_sampled=is_sampled,
        blocks=0 if is_sampled else sum(map(_blocks, result.compared.pieces)),
        differing_blocks=0 if is_sampled else sum(_blocks(each) for each in result.compared.pieces if each.different),
        ledger=standing_of(state),
    )
    return evolve(report, verdict=AuditVerdict(state.verdict), seconds=(state.ended_ms - state.started_ms) / 1000)


def _with_sizes(member: AuditedMember, pieces: Sequence[Piece], *, is_read: bool) -> AuditedMember:
    equal = sum(each.end - each.start for each in pieces if member.name in each.equal)
    compared = equal + sum(each.end - each.start for each in pieces if member.name in each.different)
    return evolve(member, compared_bytes=compared, equal_bytes=equal, read_bytes=compared if is_read else 0)


def _blocks(piece: Piece) -> int:
    return -(-piece.end // BLOCK_SIZE) - piece.start // BLOCK_SIZE
