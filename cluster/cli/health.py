"""`twinlog explain`, `check`, `wait` and `doctor`: the health of a cluster and its members."""

import time
from pathlib import Path
from typing import Any

import click
import orjson
import trio

from twinlog.cluster.admin.waiting import Condition, parse_condition
from twinlog.cluster.cli.common.errors import TIMED_OUT, CliError
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option, namesrv_option
from twinlog.cluster.cli.common.render import json_answer, print_answer, print_tsv, style
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.cli.common.values import DURATION, SIZE
from twinlog.cluster.observe.explain import Explanation
from twinlog.cluster.observe.findings import CheckResult, Finding
from twinlog.cluster.observe.rules import Diagnosis, LagLimits, diagnosis

NAGIOS = {"ok": 0, "warning": 1, "critical": 2, "unknown": 3}
SIGNS = {"note": ("-", "cyan"), "warning": ("!", "yellow"), "critical": ("X", "red")}  # Colour is never the only mark.


def show_findings(findings: tuple[Finding, ...]) -> None:
    """Print each finding as a paragraph: severity, what, what to do."""
    for finding in findings:
        sign, colour = SIGNS[finding.level.value]
        click.echo(f"{style(f'{sign} {finding.level.value}', fg=colour)}  {finding.what}")
        if finding.fix:
            click.echo(f"    {finding.fix}")


@click.command(epilog=examples("twinlog explain broker-a-1", "twinlog explain 10.0.0.2:10911 -o json"))
@click.argument("member")
@namesrv_option
@document_option(Explanation)
def explain(member: str, namesrv: str, fmt: str) -> None:
    """Explain what MEMBER is and does, what it guarantees to producers, what it waits for, and what is wrong with it.

    MEMBER is a name as `twinlog list` shows it, or an address.
    """
    found = run_admin(namesrv, lambda admin: admin.explain(member))
    if found is None:
        raise CliError(f"No member is called {member}.", next_step="See who is there with: twinlog list")
    print_answer(found, fmt, _show_explanation)


def _show_explanation(found: Explanation, fmt: str) -> None:
    if fmt == "tsv":
        print_tsv(("topic", "text"), found.sentences)
        return
    click.echo(style(found.member.name, bold=True))
    for sentence in found.sentences:
        click.echo(f"  {sentence.topic:<10} {sentence.text}")
    if found.findings:
        click.echo()
    show_findings(found.findings)


@click.command(
    epilog=examples(
        "twinlog check --warn-lag 10MB --crit-lag 1GB --crit-behind 60",
        "twinlog check -o prometheus > /var/lib/node_exporter/twinlog.prom",
        "twinlog check --ledger /var/lib/twinlog/ledger",
    ),
)
@namesrv_option
@click.option("--warn-lag", "warning_bytes", metavar="SIZE", type=SIZE, help="Warn when a slave is this far behind.")
@click.option("--crit-lag", "critical_bytes", metavar="SIZE", type=SIZE, help="Critical when it is this far behind.")
@click.option(
    "--warn-behind", "warning_seconds", metavar="SECONDS", type=float, help="Warn when a slave is behind by this time."
)
@click.option(
    "--crit-behind", "critical_seconds", metavar="SECONDS", type=float, help="Critical when it is behind by this time."
)
@click.option(
    "--ledger",
    "ledgers",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="LEDGER",
    help="Also what is proved by a ledger of `twinlog audit --incremental`, or by a copy of its status.json; may be repeated.",
)
@click.option(
    "--warn-audit",
    type=DURATION,
    default="2d",
    show_default=True,
    metavar="DURATION",
    help="Warn when the last run on a ledger is this old.",
)
@document_option(CheckResult, formats=("nagios", "json", "prometheus"))
@click.pass_context
def check(
    context: click.Context, /, namesrv: str, ledgers: tuple[Path, ...], warn_audit: float, fmt: str, **limits: Any
) -> None:
    """Check the whole cluster for a monitoring system: members, masters, acknowledgements, replication lag, audits.

    The exit status follows Nagios: 0 ok, 1 warning, 2 critical, 3 unknown (no name server answers).
    """
    try:
        result = run_admin(namesrv, lambda admin: admin.check(LagLimits(**limits)))
        if ledgers:
            result = _with_ledgers(result, ledgers, warn_audit)
    except CliError as error:
        click.echo(unknown(fmt, " ".join(error.report.lines)))
        context.exit(NAGIOS["unknown"])
    if fmt == "json":
        json_answer(result)
    else:
        click.echo(nagios(result, limits) if fmt == "nagios" else prometheus(result))
    context.exit(NAGIOS[result.level])


def _with_ledgers(result: CheckResult, ledgers: tuple[Path, ...], stale_seconds: float) -> CheckResult:
    from twinlog.cluster.pipeline.ledger.checks import findings_of, with_audit  # Only this option needs them.
    from twinlog.cluster.pipeline.ledger.files import LedgerError, read_standing

    now_ms = int(time.time() * 1000)
    for ledger in ledgers:
        try:
            standing = read_standing(ledger)
        except LedgerError as error:
            raise CliError("A ledger cannot be read.", str(error)) from error
        result = with_audit(result, tuple(findings_of(standing, str(ledger), now_ms, stale_seconds)))
    return result


@click.command(
    epilog=examples(
        "twinlog wait healthy --timeout 60", "twinlog wait 'lag<1MB' members=3", "twinlog wait broker-a-1=streaming"
    ),
)
@click.argument("conditions", nargs=-1, required=True)
@namesrv_option
@click.option(
    "--timeout",
    "timeout_seconds",
    type=float,
    default=60.0,
    show_default=True,
    help="Maximum number of seconds to wait.",
)
def wait(conditions: tuple[str, ...], namesrv: str, timeout_seconds: float) -> None:
    """Wait until all CONDITIONS hold: healthy, level (no slave is behind), members=N, lag<SIZE, behind<SECONDS, MEMBER=STATE.

    The conditions that do not hold yet are printed on stderr whenever they change. Exit status 0 when all hold, 5 on timeout.
    """
    try:
        parsed = [parse_condition(each) for each in conditions]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    together = Condition(" ".join(conditions), lambda facts: [what for each in parsed for what in each.missing(facts)])
    missing: list[str] = []

    def tell(what: list[str]) -> None:
        missing[:] = what
        if what:
            click.echo(f"waiting: {'; '.join(what)}", err=True)

    async def bounded(admin: Any) -> bool:
        with trio.move_on_after(timeout_seconds):
            await admin.wait(together, tell, poll_seconds=0.2)
            return True
        return False

    if not run_admin(namesrv, bounded):
        raise CliError(
            f"Not reached within {timeout_seconds:g} s: {together.text}.",
            f"Still missing: {'; '.join(missing) or 'a response'}.",
            "Find the cause with: twinlog doctor",
            exit_code=TIMED_OUT,
        )


@click.command(
    epilog=examples(
        "twinlog doctor", "twinlog doctor 10.0.0.2:10911    a broker that does not show up in twinlog list"
    ),
)
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@namesrv_option
@document_option(Diagnosis)
@click.pass_context
def doctor(context: click.Context, addresses: tuple[str, ...], namesrv: str, fmt: str) -> None:
    """Examine name servers, members and HA ports, and print each problem with its cause and its fix.

    ADDRESSES are further brokers to ask, which may not be registered. Exit status 0: no problem, 1: problems.
    """
    found = diagnosis(run_admin(namesrv, lambda admin: admin.diagnose(addresses)))
    print_answer(found, fmt, _show_diagnosis)
    context.exit(1 if found.verdict == "findings" else 0)


def _show_diagnosis(found: Diagnosis, fmt: str) -> None:
    if fmt == "tsv":
        print_tsv(("level", "cause", "subject", "what", "fix"), found.findings)
        return
    for rule in found.rules:
        mark = style("ok", fg="green") if not rule.findings else f"{len(rule.findings)} found"
        click.echo(f"{rule.title:<62} {mark}")
    if found.findings:
        click.echo()
    show_findings(found.findings)


def nagios(result: CheckResult, limits: dict[str, Any]) -> str:
    """Format one line, then one for each further finding, notes last; performance data after the bar.

    Source: monitoring-plugins development guidelines, "Plugin output for Nagios", "Performance data".
    """
    bad = [finding.what for finding in result.findings if finding.level.value != "note"]
    notes = [f"note: {finding.what}" for finding in result.findings if finding.level.value == "note"]
    slaves = [member for member in result.members if member.role == "slave"]
    summary = bad[0] if bad else f"{len(result.members)} members, slaves among them: {len(slaves)}"
    data = []
    for member in slaves:
        for label, value, unit, kind in (
            ("lag", member.lag_bytes, "B", "bytes"),
            ("behind", member.lag_seconds, "s", "seconds"),
        ):
            if value is not None:
                warning, critical = (limits.get(f"{level}_{kind}") for level in ("warning", "critical"))
                bounds = ";".join("" if bound is None else str(bound) for bound in (warning, critical))
                data.append(f"'{member.name}_{label}'={round(value, 3)}{unit};{bounds};0")
    first = f"TWINLOG {result.level.upper()} - {_one_line(summary)}"
    return "\n".join([f"{first} | {' '.join(data)}" if data else first, *map(_one_line, (*bad[1:], *notes))])


def prometheus(result: CheckResult) -> str:
    """Format as Prometheus text format 0.0.4, for node_exporter's textfile collector."""
    lines = [*_metric("twinlog_check_status", "0 ok, 1 warning, 2 critical, 3 unknown.", [("", NAGIOS[result.level])])]
    counts = [
        (f'{{level="{level}"}}', sum(finding.level.value == level for finding in result.findings))
        for level in ("note", "warning", "critical")
    ]
    lines += _metric("twinlog_check_findings", "Number of findings.", counts)
    for name, what, attribute in (
        ("twinlog_member_written_offset_bytes", "End of the member's log.", "written_offset"),
        ("twinlog_replica_lag_bytes", "What a slave has not acknowledged.", "lag_bytes"),
        ("twinlog_replica_lag_seconds", "Age of the oldest byte that a slave has not acknowledged.", "lag_seconds"),
    ):
        rows = [(_labels(member), getattr(member, attribute)) for member in result.members]
        lines += _metric(name, what, [(labels, value) for labels, value in rows if value is not None])
    up = [(_labels(member), int(member.state != "unreachable")) for member in result.members]
    lines += _metric("twinlog_member_up", "Whether the member answers.", up)
    return "\n".join(lines)


def unknown(fmt: str, why: str) -> str:
    """Format the result when nothing answers."""
    if fmt == "json":
        return orjson.dumps({"schema": 1, "level": "unknown", "findings": [], "members": [], "why": why}).decode()
    if fmt == "prometheus":
        return "\n".join(_metric("twinlog_check_status", "0 ok, 1 warning, 2 critical, 3 unknown.", [("", 3)]))
    return f"TWINLOG UNKNOWN - {_one_line(why)}"


def _metric(name: str, what: str, rows: list[tuple[str, Any]]) -> list[str]:
    return [f"# HELP {name} {what}", f"# TYPE {name} gauge", *(f"{name}{labels} {value}" for labels, value in rows)]


def _labels(member: Any) -> str:
    pairs = (("cluster", member.cluster), ("group", member.group), ("member", member.name), ("role", member.role))
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in pairs) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _one_line(text: str) -> str:
    return " ".join(text.replace("|", "/").split())
