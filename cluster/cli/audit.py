"""`twinlog audit`: proves that the copies of a log are equal, or reports where, since when and which one is right."""

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve

from twinlog.cluster.cli.common.errors import FAILED, PARTIAL, USAGE, CliError, sentence
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.logging_setup import raise_file_limit
from twinlog.cluster.cli.common.options import document_option, namesrv_option
from twinlog.cluster.cli.common.progress import progress
from twinlog.cluster.cli.common.render import Column, count, print_answer, style, table, yes_no
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.cli.common.values import DURATION
from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.audit.live import audit_live
from twinlog.cluster.pipeline.audit.report import AuditedMember, AuditReport, AuditVerdict, ReportedFinding
from twinlog.cluster.pipeline.report.page import write_report
from twinlog.cluster.pipeline.report.picture import letter
from twinlog.cluster.pipeline.report.summary import headline, sentences
from twinlog.cluster.text import moment, size
from twinlog.store.util.text import counted

if TYPE_CHECKING:
    from twinlog.cluster.cli.audit_ledger import LedgerRuns

FULL_PASS_SECONDS = 7 * 86_400
INSTALL = (
    "Install it with: scripts/setup --spark, or pip install 'twinlog[spark]';"
    " and Java 17 or newer (apt install openjdk-17-jre-headless)"
)


@click.command(
    "audit",
    epilog=examples(
        "twinlog audit /data/broker-a-0 /data/broker-a-1",
        "twinlog audit /data/broker-a-0 /data/broker-a-1 /backup/broker-a --out audit-report",
        "twinlog audit s3://backup/broker-a /data/broker-a-0 -o json | jq '.findings[] | {cls, member, offset}'",
        "twinlog audit --live broker-a-0 broker-a-1",
        "twinlog audit --live 10.0.0.1:10911 10.0.0.2:10911 --out audit-report",
        "twinlog audit --live broker-a-0 broker-a-1 --metrics /var/lib/twinlog/audit.prom",
        "twinlog audit --incremental /var/lib/twinlog/ledger --every 1h /data/broker-a-0 /data/broker-a-1",
    ),
)
@click.argument("members", nargs=-1, metavar="MASTER SLAVE...", type=click.Path())
@click.option("--live", is_flag=True, help="Audit running brokers: names of members, or HOST:PORT.")
@namesrv_option
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write report.html, report.json and findings.parquet there.",
)
@click.option(
    "--metrics",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the time and the findings as metrics for Prometheus: see auditMetricsFile.",
)
@click.option(
    "--log-only",
    is_flag=True,
    help="Audit only the logs, which are read once: no queues, index, topics, groups and offsets.",
)
@click.option("--spark-master", metavar="URL", help="Spark master.  [default: local, on all cores]")
@click.option(
    "--locality",
    is_flag=True,
    help="Members are named as HOST=PATH: workers on that host, as Spark calls it, read the files that lie on its disk.",
)
@click.option(
    "--incremental",
    "ledger",
    type=click.Path(path_type=Path),
    metavar="LEDGER",
    help="Compare what came since the last run on this ledger, a directory, and a share of what was proved longest ago.",
)
@click.option(
    "--full-pass",
    type=DURATION,
    metavar="DURATION",
    help="With --incremental: prove every byte again within this time.  [default: 7d]",
)
@click.option(
    "--every", type=DURATION, metavar="DURATION", help="With --incremental: go on, with a run at this interval."
)
@document_option(AuditReport)
def audit(
    members: tuple[str, ...],
    live: bool,
    namesrv: str,
    out: Path | None,
    metrics: Path | None,
    log_only: bool,
    spark_master: str | None,
    locality: bool,
    ledger: Path | None,
    full_pass: float | None,
    every: float | None,
    fmt: str,
) -> None:
    """Compare the copies of a log, and report each difference: where, since when, which copy is right, which command repairs it.

    MASTER and SLAVE are store directories of RocketMQ 4.9 or 5.3 or of twinlog, running or stopped, live or archived: paths, or
    object storage (s3://; gs://, abfs:// and hdfs:// are untested). Blocks of 64 KiB are compared by digests, and record by
    record where they differ. The queues, index, topics, groups and offsets of each member are checked, too. Nothing is changed.
    Spark does the work, on this machine unless --spark-master says otherwise.

    With --live they are running brokers, which compute digests themselves, at 64 MiB per second at most; with a RocketMQ broker,
    samples of records are compared. This needs no Spark.

    With --incremental only the logs are compared, without Spark: what is new since the last run, what differed then, and the
    share of the oldest proofs that falls to the time since. The ledger keeps what is proved, by which run, and each finding from
    first seen to repaired; `twinlog check --ledger` reads it. With --every it goes on until SIGTERM, with a line for each run.

    Exit status 0: equal except for lag, 1: divergent, 6: equal as far as it could be read.
    """
    _check_names(members)
    if live and (spark_master is not None or log_only or locality):
        message = "--live uses no Spark and compares only logs: omit --spark-master, --log-only and --locality"
        raise click.UsageError(message)
    _check_ledger_options(ledger, full_pass, every, has_spark=spark_master is not None or log_only or locality)
    if out is not None:
        _make(out)
    if metrics is not None:
        _make(metrics.parent)

    def keep(report: AuditReport) -> None:
        if out is not None:
            _write(report, out, ledger)
        if metrics is not None:
            _write_metrics(report, metrics)

    if ledger is not None:
        runs = _ledger_runs(members, namesrv, ledger, full_pass, keep, is_live=live)
        if every is not None:
            runs.go_on(every)
            return
        report = runs.once()
    else:
        hosts, places = _with_hosts(members) if locality else ((), members)
        report = (
            _audit_live(members, namesrv) if live else _audit_stores(places, spark_master, hosts, log_only=log_only)
        )
    print_answer(report, fmt, show_audit)
    if ledger is None:
        keep(report)
    status, _ = _OUTCOMES[report.verdict]
    click.get_current_context().exit(status)


def _check_names(members: tuple[str, ...]) -> None:
    if len(members) < 2:
        raise click.UsageError("name a MASTER and at least one SLAVE: store directories, or brokers with --live")
    if not all(member.strip(" ;") for member in members):
        raise click.UsageError("A member without a name.")
    if len(set(members)) < len(members):
        raise click.UsageError("A member is named twice.")


def _check_ledger_options(
    ledger: Path | None, full_pass: float | None, every: float | None, *, has_spark: bool
) -> None:
    if ledger is None and (full_pass is not None or every is not None):
        raise click.UsageError("--full-pass and --every go with --incremental LEDGER")
    if ledger is not None and has_spark:
        raise click.UsageError(
            "--incremental uses no Spark and compares only logs: omit --spark-master, --log-only and --locality"
        )
    for name, value in (("--full-pass", full_pass), ("--every", every)):
        if value is not None and value < 1:
            raise click.UsageError(f"{name} is less than a second")


def _ledger_runs(
    members: tuple[str, ...],
    namesrv: str,
    ledger: Path,
    full_pass: float | None,
    keep: Callable[[AuditReport], None],
    *,
    is_live: bool,
) -> "LedgerRuns":
    from twinlog.cluster.cli.audit_ledger import LedgerRuns  # With numpy, which other audits with --live do not need.

    if not is_live:
        _check_places(members)
    return LedgerRuns(
        members=members,
        namesrv=namesrv,
        is_live=is_live,
        directory=ledger,
        full_pass_ms=round(1000 * (full_pass or FULL_PASS_SECONDS)),
        after_run=keep,
    )


def _check_places(members: tuple[str, ...]) -> None:
    from twinlog.cluster.pipeline.audit.stores import same_places  # With numpy, which --live does not need.

    if (same := same_places(members)) is not None:
        raise click.UsageError(f"{same[0]} and {same[1]} are the same store: compare separate copies")
    raise_file_limit()


def _make(out: Path) -> None:
    """Create a directory before the audit, which may take hours."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(f"{out} cannot be made.", sentence(error), exit_code=USAGE) from error


def _with_hosts(members: tuple[str, ...]) -> tuple[tuple[str | None, ...], tuple[str, ...]]:
    """Hosts and places of members that are named as HOST=PATH."""
    parts = [member.partition("=") for member in members]
    named = [bool(mark and host and place) and not set(host) & set("/;?") for host, mark, place in parts]
    if not any(named):
        raise click.UsageError("--locality is for members on disks of Spark's workers: name them as HOST=PATH")
    hosts = tuple(part[0] if is_named else None for part, is_named in zip(parts, named, strict=True))
    places = (part[2] if is_named else member for part, is_named, member in zip(parts, named, members, strict=True))
    return hosts, tuple(places)


def _audit_stores(
    members: tuple[str, ...], spark_master: str | None, hosts: tuple[str | None, ...], *, log_only: bool
) -> AuditReport:
    from twinlog.cluster.pipeline.audit.stores import inspect_all  # With numpy, which --live does not need.

    _check_places(members)
    stores = inspect_all(members)
    if not any(store.files is not None for store in stores):
        why = "\n  ".join(f"{store.place}: {store.problem}" for store in stores)
        raise CliError("None of them can be read.", why, exit_code=USAGE)
    for needed in ("pyspark", "pyarrow"):
        if find_spec(needed) is None:
            why = f"An audit of directories needs {needed}, which is not installed."
            raise CliError(f"{why} {INSTALL}", exit_code=USAGE)

    from twinlog.cluster.pipeline.jobs import audit as job

    if sys.stderr.isatty():
        click.echo("starting Spark ..", err=True)
    try:
        with job.started(spark_master) as (spark, seconds), progress("audit") as show:
            found = job.audit_stores(spark, stores, job.AuditOptions(with_tables=not log_only, hosts=hosts), show)
    except job.SparkUnusableError as error:
        if error.is_late:
            step = "See its log, give it more memory (spark.driver.memory), or audit fewer members at once."
            raise CliError("The audit was not finished.", sentence(error), step, exit_code=PARTIAL) from error
        raise CliError("Spark cannot be used.", sentence(error), INSTALL, exit_code=USAGE) from error
    return evolve(found, startup_seconds=seconds)


def _audit_live(members: tuple[str, ...], namesrv: str) -> AuditReport:
    with progress("audit") as show:
        return run_admin(namesrv, lambda admin: audit_live(admin.api, members, show))


def _write(report: AuditReport, out: Path, ledger: Path | None) -> None:
    has_arrow = find_spec("pyarrow") is not None
    try:
        written = write_report(report, out, parquet=has_arrow)
        if ledger is not None:
            from twinlog.cluster.pipeline.report.ledger_page import PAGE, write_ledger_page  # With all of its plots.

            written = (*written, write_ledger_page(ledger, out / PAGE))
    except OSError as error:
        raise CliError(f"The report cannot be written to {out}.", sentence(error), exit_code=PARTIAL) from error
    if not has_arrow:
        click.echo(f"note: no findings.parquet: pyarrow is not installed. {INSTALL}", err=True)
    if sys.stderr.isatty():
        click.echo(f"written: {', '.join(map(str, written))}", err=True)


def _write_metrics(report: AuditReport, path: Path) -> None:
    """Write the metrics of a complete audit. Otherwise the file is kept: an alert reports its age."""
    from twinlog.cluster.metrics.audit_file import of_report, write  # Imports a broker with all of its metrics.

    if report.verdict is AuditVerdict.INCOMPLETE:
        click.echo(f"note: {path} was not changed: the audit was incomplete.", err=True)
        return
    try:
        write(path, of_report(report))
    except OSError as error:
        raise CliError(f"The metrics cannot be written to {path}.", sentence(error), exit_code=PARTIAL) from error


_OUTCOMES = {  # Exit status and colour.
    AuditVerdict.EQUAL: (0, "green"),
    AuditVerdict.SAMPLES_EQUAL: (0, "green"),
    AuditVerdict.DIVERGENT: (FAILED, "red"),
    AuditVerdict.INCOMPLETE: (PARTIAL, "yellow"),
}
REPAIRS_SHOWN = 5


def show_audit(report: AuditReport, fmt: str) -> None:
    """Print the members, what was found, the repairs, and the verdict. TSV has the findings only."""
    if fmt == "tsv":
        table(_FINDING_COLUMNS, report.findings, fmt)
        return
    table(_MEMBER_COLUMNS, report.members, fmt)
    click.echo()
    if report.findings:
        table(_FINDING_COLUMNS, report.findings, fmt)
        click.echo()
    if report.findings_left_out:
        click.echo(f"and {count(report.findings_left_out)} more, counted only")
    for line in _repairs(report, every=fmt == "wide"):
        click.echo(line)
    for line in sentences(report):
        click.echo(line)
    _, colour = _OUTCOMES[report.verdict]
    click.echo(style(headline(report), fg=colour))


def _repairs(report: AuditReport, *, every: bool) -> Iterator[str]:
    """Each command once, with the findings that it repairs."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for finding in report.findings:
        if finding.mend:
            numbers.setdefault((finding.mend, finding.mend_note), []).append(finding.number)
    shown = list(numbers.items())
    for (command, note), repaired in shown if every else shown[:REPAIRS_SHOWN]:
        yield f"to repair {_numbers(repaired)}: {style(command, bold=True)}"
        yield f"  {note}"
    if not every and len(shown) > REPAIRS_SHOWN:
        yield f"and {counted(len(shown) - REPAIRS_SHOWN, 'more command')}; -o wide shows all"
    if shown:
        yield ""


def _numbers(found: list[int]) -> str:
    words = ", ".join(map(str, found[:8]))
    return words if len(found) <= 8 else f"{words} and {len(found) - 8} more"


def _equal(member: AuditedMember) -> Any:
    """Return the equal part of the bytes that others also have; never 100% if one byte differs."""
    if not member.compared_bytes:
        return None
    permille = 1000 * member.equal_bytes // member.compared_bytes
    return f"{permille / 10:g}%"


def _where(finding: ReportedFinding) -> Any:
    if finding.topic is None:
        return finding.file
    return finding.topic if finding.queue_id is None else f"{finding.topic}/{finding.queue_id}"


_MEMBER_COLUMNS = [
    Column("MEMBER", lambda m: m.name),
    Column("ROLE", lambda m: "master" if m.is_master else "slave"),
    Column("PLACE", lambda m: m.place, wide=True),
    Column("SOFTWARE", lambda m: m.software, spare=3),
    Column("RUNNING", lambda m: m.is_running, yes_no, wide=True),
    Column("FIRST", lambda m: m.first_offset, count, right=True),
    Column("LAST", lambda m: m.last_offset, count, right=True),
    Column("CONFIRMED", lambda m: m.confirmed_offset, count, right=True, spare=2),
    Column("BEHIND", lambda m: m.behind_bytes, size, right=True),
    Column("EQUAL", _equal, right=True, spare=1),
    Column("PROBLEM", lambda m: m.problem),
]
_FINDING_COLUMNS = [
    Column("NUMBER", lambda f: f.number, right=True, spare=6),
    Column("CLASS", lambda f: f.cls.value, lambda cls: f"{letter(FindingClass(cls))} {cls}"),
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
    Column("REPAIR", lambda f: f.mend, wide=True),
]
