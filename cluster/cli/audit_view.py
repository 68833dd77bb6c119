"""`twinlog audit` in print."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from twinlog.cluster.cli.common.errors import FAILED, PARTIAL
from twinlog.cluster.cli.common.render import Column, count, moment, size, style, table
from twinlog.cluster.pipeline.audit.report import AuditVerdict
from twinlog.cluster.pipeline.report.picture import letter
from twinlog.cluster.pipeline.report.summary import headline, sentences
from twinlog.store.util.text import counted

if TYPE_CHECKING:
    from twinlog.cluster.pipeline.audit.report import AuditedMember, AuditReport, ReportedFinding

EXIT_STATUS = {
    AuditVerdict.EQUAL: 0,
    AuditVerdict.SAMPLES_EQUAL: 0,
    AuditVerdict.DIVERGENT: FAILED,
    AuditVerdict.INCOMPLETE: PARTIAL,
}
_COLOURS = {
    AuditVerdict.EQUAL: "green",
    AuditVerdict.SAMPLES_EQUAL: "green",
    AuditVerdict.DIVERGENT: "red",
    AuditVerdict.INCOMPLETE: "yellow",
}
MENDS_SHOWN = 5


def show_audit(report: "AuditReport", fmt: str) -> None:
    """Print the members, what was found, what mends it, and what it comes to. TSV has the findings only."""
    if fmt == "tsv":
        table(_finding_columns(), report.findings, fmt)
        return
    table(_member_columns(), report.members, fmt)
    click.echo()
    if report.findings:
        table(_finding_columns(), report.findings, fmt)
        click.echo()
    if report.findings_left_out:
        click.echo(f"and {count(report.findings_left_out)} more, counted only")
    for line in _mends(report, every=fmt == "wide"):
        click.echo(line)
    for line in sentences(report):
        click.echo(line)
    click.echo(style(headline(report), fg=_COLOURS[report.verdict]))


def _mends(report: "AuditReport", *, every: bool) -> Iterator[str]:
    """Each command once, with the findings that it mends."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for finding in report.findings:
        if finding.mend:
            numbers.setdefault((finding.mend, finding.mend_note), []).append(finding.number)
    shown = list(numbers.items())
    for (command, note), mended in shown if every else shown[:MENDS_SHOWN]:
        yield f"to mend {_numbers(mended)}: {style(command, bold=True)}"
        yield f"  {note}"
    if not every and len(shown) > MENDS_SHOWN:
        yield f"and {counted(len(shown) - MENDS_SHOWN, 'more command')}; -o wide shows all"
    if shown:
        yield ""


def _numbers(found: list[int]) -> str:
    words = ", ".join(map(str, found[:8]))
    return words if len(found) <= 8 else f"{words} and {len(found) - 8} more"


def _member_columns() -> list[Column]:
    return [
        Column("MEMBER", lambda m: m.name),
        Column("ROLE", lambda m: "master" if m.is_master else "slave"),
        Column("PLACE", lambda m: m.place, wide=True),
        Column("SOFTWARE", lambda m: m.software, spare=3),
        Column("RUNNING", lambda m: m.is_running, lambda runs: "yes" if runs else "no", wide=True),
        Column("FIRST", lambda m: m.first_offset, count, right=True),
        Column("LAST", lambda m: m.last_offset, count, right=True),
        Column("CONFIRMED", lambda m: m.confirmed_offset, count, right=True, spare=2),
        Column("BEHIND", lambda m: m.behind_bytes, size, right=True),
        Column("EQUAL", _equal, right=True, spare=1),
        Column("PROBLEM", lambda m: m.problem),
    ]


def _equal(member: "AuditedMember") -> Any:
    """What part of the bytes that others have, too; never 100% where one byte differs."""
    if not member.compared_bytes:
        return None
    permille = 1000 * member.equal_bytes // member.compared_bytes
    return f"{permille / 10:g}%"


def _finding_columns() -> list[Column]:
    return [
        Column("NUMBER", lambda f: f.number, right=True, spare=6),
        Column("CLASS", lambda f: f.cls.value, lambda cls: f"{letter_of(cls)} {cls}"),
        Column("MEMBER", lambda f: f.member),
        Column("OFFSET", lambda f: f.offset, count, right=True),
        Column("END", lambda f: f.end, count, right=True, spare=4),
        Column("SINCE", lambda f: f.since_ms or None, moment, spare=3),
        Column("EPOCH", lambda f: f.epoch, right=True, wide=True),
        Column("GOOD", lambda f: f.good, spare=5),
        Column("WHERE", _where, spare=2),
        Column("COUNT", lambda f: f.count, count, right=True, wide=True),
        Column("WHAT", lambda f: f.what),
        Column("WHY", lambda f: f.why, wide=True),
        Column("MEND", lambda f: f.mend, wide=True),
    ]


def letter_of(cls: str) -> str:
    """As the picture of the page marks it."""
    from twinlog.cluster.pipeline.audit.findings import FindingClass

    return letter(FindingClass(cls))


def _where(finding: "ReportedFinding") -> Any:
    if finding.topic is None:
        return finding.file
    return finding.topic if finding.queue_id is None else f"{finding.topic}/{finding.queue_id}"
