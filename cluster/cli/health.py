"""Commands that judge: explain, check, wait and doctor."""

from typing import TYPE_CHECKING, Any

import click

from twinlog.cluster.cli.common.errors import TIMED_OUT, CliError
from twinlog.cluster.cli.common.options import document_option, examples, namesrv_option, run_admin

if TYPE_CHECKING:
    from twinlog.cluster.cli.common.render import Column
    from twinlog.cluster.observe.findings import Finding
    from twinlog.cluster.observe.members import ClusterFacts

NAGIOS = {"ok": 0, "warning": 1, "critical": 2, "unknown": 3}
SIGNS = {"note": ("-", "cyan"), "warning": ("!", "yellow"), "critical": ("X", "red")}  # Colour is never alone.


def show_findings(findings: "tuple[Finding, ...]") -> None:
    """One finding a paragraph: how bad, what, what to do."""
    from twinlog.cluster.cli.common.render import style

    for finding in findings:
        sign, colour = SIGNS[finding.level.value]
        click.echo(f"{style(f'{sign} {finding.level.value}', fg=colour)}  {finding.what}")
        if finding.fix:
            click.echo(f"    {finding.fix}")


@click.command(
    short_help="Say in sentences what a member does and why.",
    epilog=examples("twinlog explain broker-a-1", "twinlog explain 10.0.0.2:10911 -o json"),
)
@click.argument("member")
@namesrv_option
@document_option("twinlog.cluster.observe.explain:Explanation")
def explain(member: str, namesrv: str, fmt: str) -> None:
    """Say what MEMBER is, what it does, what it promises producers, what it waits for and what is wrong with it.

    MEMBER is a name as `twinlog list` shows it, or an address.
    """
    found = run_admin(namesrv, lambda admin: admin.explain(member))
    if found is None:
        raise CliError(f"Nobody is called {member}.", next_step="See who is there with: twinlog list")

    from twinlog.cluster.cli.common.render import Column, json_answer, style, table

    if fmt == "json":
        json_answer(found)
        return
    if fmt == "tsv":
        table([Column("TOPIC", lambda each: each.topic), Column("TEXT", lambda each: each.text)], found.sentences, fmt)
        return
    click.echo(style(found.member.name, bold=True))
    for sentence in found.sentences:
        click.echo(f"  {sentence.topic:<10} {sentence.text}")
    if found.findings:
        click.echo()
    show_findings(found.findings)


def parse_size_option(_context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Bytes out of 10MB."""
    from twinlog.cluster.admin.waiting import parse_size

    try:
        return parse_size(text) if text is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from None


def _check_schema(context: click.Context, _parameter: click.Parameter, fmt: str) -> str:
    if fmt == "schema":
        from twinlog.cluster.cli.common.schema import print_schema

        print_schema("twinlog.cluster.observe.findings:CheckResult")
        context.exit()
    return fmt


@click.command(
    short_help="Tell a monitoring system how the cluster is.",
    epilog=examples(
        "twinlog check --warn-lag 10MB --crit-lag 1GB --crit-behind 60",
        "twinlog check -o prometheus > /var/lib/node_exporter/twinlog.prom",
    ),
)
@namesrv_option
@click.option(
    "--warn-lag",
    "warning_bytes",
    metavar="SIZE",
    callback=parse_size_option,
    help="A slave so far behind is a warning.",
)
@click.option("--crit-lag", "critical_bytes", metavar="SIZE", callback=parse_size_option, help="The same, critical.")
@click.option("--warn-behind", "warning_seconds", metavar="SECONDS", type=float, help="The same in time.")
@click.option("--crit-behind", "critical_seconds", metavar="SECONDS", type=float, help="The same in time, critical.")
@click.option(
    "-o",
    "--output",
    "fmt",
    type=click.Choice(("nagios", "json", "prometheus", "schema")),
    default="nagios",
    show_default=True,
    is_eager=True,
    callback=_check_schema,
    help="Form of the answer.",
)
@click.pass_context
def check(context: click.Context, /, namesrv: str, fmt: str, **limits: Any) -> None:
    """Judge the whole cluster: members, masters, acknowledgements, replication lag.

    Exit status as Nagios has it: 0 ok, 1 warning, 2 critical, 3 unknown (no name server answers).
    """
    from twinlog.cluster.cli.check_formats import nagios, prometheus, unknown

    try:
        result = run_admin(namesrv, lambda admin: admin.check(_limits(limits)))
    except CliError as error:
        click.echo(unknown(fmt, " ".join(error.lines)))
        context.exit(NAGIOS["unknown"])
    if fmt == "json":
        from twinlog.cluster.cli.common.render import json_answer

        json_answer(result)
    else:
        click.echo(nagios(result, limits) if fmt == "nagios" else prometheus(result))
    context.exit(NAGIOS[result.level])


def _limits(values: dict[str, Any]) -> Any:
    from twinlog.cluster.observe.rules import Limits

    return Limits(**values)


@click.command(
    short_help="Wait until the cluster is as it should be.",
    epilog=examples(
        "twinlog wait healthy --timeout 60", "twinlog wait 'lag<1MB' members=3", "twinlog wait broker-a-1=streaming"
    ),
)
@click.argument("conditions", nargs=-1, required=True)
@namesrv_option
@click.option(
    "--timeout", "timeout_seconds", type=float, default=60.0, show_default=True, help="Seconds to wait at most."
)
def wait(conditions: tuple[str, ...], namesrv: str, timeout_seconds: float) -> None:
    """Wait for all CONDITIONS: healthy, level (no slave is behind), members=N, lag<SIZE, behind<SECONDS, MEMBER=STATE.

    What is still missing is told on stderr whenever it changes. Exit status 0 when all hold, 5 when the time is up.
    """
    import trio

    from twinlog.cluster.admin.waiting import Condition, parse_condition

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
            f"Not within {timeout_seconds:g} s: {together.text}.",
            f"Still missing: {'; '.join(missing) or 'an answer'}.",
            "See more with: twinlog doctor",
            exit_code=TIMED_OUT,
        )


@click.command(
    short_help="Look for what is wrong, and say what to do.",
    epilog=examples(
        "twinlog doctor", "twinlog doctor 10.0.0.2:10911    a broker that does not show up in twinlog list"
    ),
)
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@namesrv_option
@document_option("twinlog.cluster.observe.rules:Diagnosis")
@click.pass_context
def doctor(context: click.Context, addresses: tuple[str, ...], namesrv: str, fmt: str) -> None:
    """Ask every name server and member all there is, try the HA ports, and name each cause with what to do about it.

    ADDRESSES are brokers to ask that may not be registered. Exit status 0: nothing is wrong, 1: something is.
    """
    facts: ClusterFacts = run_admin(namesrv, lambda admin: admin.diagnose(addresses))

    from twinlog.cluster.cli.common.render import json_answer, style, table
    from twinlog.cluster.observe.rules import diagnosis

    found = diagnosis(facts)
    if fmt == "json":
        json_answer(found)
    elif fmt == "tsv":
        columns = [_finding_column(name) for name in FINDING_COLUMNS]
        table(columns, found.findings, fmt)
    else:
        for rule in found.rules:
            mark = style("ok", fg="green") if not rule.findings else f"{len(rule.findings)} found"
            click.echo(f"{rule.title:<62} {mark}")
        if found.findings:
            click.echo()
        show_findings(found.findings)
    context.exit(1 if found.verdict == "findings" else 0)


FINDING_COLUMNS = ("level", "cause", "subject", "what", "fix")


def _finding_column(name: str) -> "Column":
    from twinlog.cluster.cli.common.render import Column

    return Column(
        name.upper(), lambda each: getattr(each.level, "value", None) if name == "level" else getattr(each, name)
    )
