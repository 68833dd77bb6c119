"""Report of a ledger to a monitoring system: findings for `twinlog check --ledger`. Pure."""

from collections.abc import Iterator

from attrs import evolve

from twinlog.cluster.observe.findings import CheckResult, Finding, Level
from twinlog.cluster.pipeline.audit.standing import Standing
from twinlog.cluster.pipeline.ledger.text import proved
from twinlog.cluster.text import seconds
from twinlog.store.util.text import agreeing, counted

_LATE = 1.5  # A proof that is older than so many full passes: its turn is long past.


def with_audit(result: CheckResult, found: tuple[Finding, ...]) -> CheckResult:
    """The result of a check with findings of audits."""
    worst_first = list(reversed(Level))
    findings = tuple(sorted((*result.findings, *found), key=lambda each: worst_first.index(each.level)))
    worst = findings[0].level if findings else Level.NOTE
    return evolve(result, findings=findings, level="ok" if worst is Level.NOTE else worst.value)


def findings_of(standing: Standing, subject: str, now_ms: int, stale_seconds: float) -> Iterator[Finding]:
    """Findings on a ledger. `subject` names it; a last run that is `stale_seconds` old is a warning."""
    if standing.open_findings:
        what = f"{counted(standing.open_findings, 'finding')} {agreeing(standing.open_findings, 'is', 'are')} open"
        fix = (
            f"See them, and what repairs each, with the next run: twinlog audit --incremental {subject} MASTER SLAVE..."
        )
        yield Finding(level=Level.CRITICAL, cause="audit", subject=subject, what=f"audit {subject}: {what}", fix=fix)
    away = [member.name for member in standing.members if member.is_away]
    if away:
        what = f"the last run could not read {', '.join(away)}: nothing new is proved of {agreeing(len(away), 'it', 'them')}"
        yield Finding(
            level=Level.WARNING,
            cause="audit",
            subject=subject,
            what=f"audit {subject}: {what}",
            fix="See why with: twinlog doctor",
        )
    elif standing.verdict == "incomplete":
        what = "the last run was not complete: something could not be read, or it was stopped"
        fix = f"See what with the next run: twinlog audit --incremental {subject} MASTER SLAVE..."
        yield Finding(level=Level.WARNING, cause="audit", subject=subject, what=f"audit {subject}: {what}", fix=fix)
    age = (now_ms - standing.checked_ms) / 1000
    if not standing.run or age > stale_seconds:
        what = f"the last run was {seconds(age)} ago" if standing.run else "there was no run yet"
        fix = f"Is the service running? Next: twinlog audit --incremental {subject} --every 1h MASTER SLAVE..."
        yield Finding(level=Level.WARNING, cause="audit", subject=subject, what=f"audit {subject}: {what}", fix=fix)
    oldest = (now_ms - standing.oldest_proof_ms) / 1000 if standing.oldest_proof_ms is not None else 0.0
    if oldest > _LATE * standing.full_pass_seconds + stale_seconds:
        what = f"the oldest proof is {seconds(oldest)} old, and a full pass is to take {seconds(standing.full_pass_seconds)}"
        fix = (
            "Runs are too rare, or a member is away: bytes are proved again only while all of their members can be read"
        )
        yield Finding(level=Level.WARNING, cause="audit", subject=subject, what=f"audit {subject}: {what}", fix=fix)
    yield Finding(level=Level.NOTE, cause="audit", subject=subject, what=f"audit {subject}: {proved(standing, now_ms)}")
