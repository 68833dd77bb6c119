"""`twinlog log verify`: checks every message, queue entry and key of a store."""

from pathlib import Path
from typing import Any

import click
from attrs import evolve

from twinlog.cluster.cli.common.errors import FAILED
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option
from twinlog.cluster.cli.common.progress import progress
from twinlog.cluster.cli.common.render import Column, count, print_answer, style, table
from twinlog.cluster.cli.log.directory import directory_argument, directory_options, opened
from twinlog.cluster.text import seconds, size
from twinlog.store.offline.finding import Finding
from twinlog.store.offline.verify.verify import VerifyReport, VerifyVerdict
from twinlog.store.offline.verify.verify import verify as check

_COLOURS = {VerifyVerdict.SOUND: "green", VerifyVerdict.WARNINGS: "yellow", VerifyVerdict.DAMAGED: "red"}


def shortened(report: VerifyReport, findings_max: int | None) -> VerifyReport:
    """Limit the findings of a report; the others are only counted."""
    if findings_max is None or len(report.findings) <= findings_max:
        return report
    left_out = report.findings[findings_max:]
    omitted = report.findings_omitted + sum(finding.count for finding in left_out)
    return evolve(report, findings=report.findings[:findings_max], findings_omitted=omitted)


def show_verify(report: VerifyReport, fmt: str) -> None:
    """Print the findings, then the result."""
    if report.findings or fmt == "tsv":
        table(_COLUMNS, report.findings, fmt)
    if fmt == "tsv":
        return
    if report.findings:
        click.echo()
    if report.findings_omitted:
        click.echo(f"and {count(report.findings_omitted)} more")
    checked = [
        f"{count(report.records)} messages in {size(report.log_end - report.log_start)} of log",
        f"{count(report.units)} entries of {report.queues} queues",
        f"{count(report.index_items)} keys of {report.index_files} index files",
    ]
    checked += [f"digests of {size(report.digest_bytes)}"] if report.digest_bytes else []
    click.echo(f"checked {', '.join(checked)} in {seconds(report.seconds)}")
    click.echo(style(_verdict(report), fg=_COLOURS[report.verdict]))


def _verdict(report: VerifyReport) -> str:
    if report.verdict is VerifyVerdict.SOUND:
        return "sound: no errors, no warnings"
    what = f"{count(report.errors)} errors, {count(report.warnings)} warnings"
    if report.verdict is VerifyVerdict.WARNINGS:
        return f"no message is affected: {what}"
    lost = f", {size(report.damaged_bytes)} of the log have no readable message" if report.damaged_bytes else ""
    return f"damaged: {what}{lost}"


def _where(finding: Finding) -> Any:
    if finding.topic is None:
        return finding.file
    queue = finding.topic if finding.queue_id is None else f"{finding.topic}/{finding.queue_id}"
    return queue if finding.queue_offset is None else f"{queue} message {finding.queue_offset}"


_COLUMNS = [
    Column("SEVERITY", lambda f: f.severity.value),
    Column("KIND", lambda f: f.kind.value),
    Column("WHERE", _where),
    Column("OFFSET", lambda f: f.phy_offset, count, right=True, spare=1),
    Column("FILE POSITION", lambda f: f.position, count, right=True, wide=True),
    Column("COUNT", lambda f: f.count, count, right=True, spare=2),
    Column("EXPECTED", lambda f: f.expected, wide=True),
    Column("ACTUAL", lambda f: f.actual, wide=True),
    Column("WHAT", lambda f: f.message),
]


@click.command(
    "verify",
    epilog=examples(
        "twinlog log verify ~/store",
        "twinlog log verify ~/store --max-findings 20 -o wide",
        "twinlog log verify ~/store -o json | jq .verdict",
    ),
)
@directory_argument
@click.option("--max-findings", type=click.IntRange(0), metavar="N", help="List at most N findings; all are counted.")
@click.option("--processes", type=click.IntRange(1), metavar="N", help="Number of processes.  [default: by size]")
@directory_options
@document_option(VerifyReport)
def verify(directory: Path, fmt: str, max_findings: int | None, processes: int | None, **options: Any) -> None:
    """Check every message of a store, every entry of its queues and index, and its other files.

    Nothing is changed; a running broker is affected only by the load on the disk. An error means that a message is lost, damaged
    or cannot be found; a warning affects no message. Exit status 0: no findings, 1: errors or warnings.
    """
    with opened(directory, **options) as store, progress("verify") as show:
        report = shortened(check(store, progress=show, processes=processes), max_findings)
    print_answer(report, fmt, show_verify)
    if report.verdict is not VerifyVerdict.SOUND:
        click.get_current_context().exit(FAILED)
