"""`twinlog crosscheck`: compares what members report about each other."""

import sys

import click

from twinlog.cluster.cli.common.errors import FAILED, PARTIAL
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option, namesrv_option
from twinlog.cluster.cli.common.render import Column, count, print_answer, style, table, yes_no
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.cli.common.values import SIZE
from twinlog.cluster.cli.health import show_findings
from twinlog.cluster.cli.log.diff import verdict_of
from twinlog.cluster.observe.cross_check import Crosscheck

EXIT_STATUS = {"agree": 0, "contradictions": FAILED, "incomplete": PARTIAL}


@click.command(epilog=examples("twinlog crosscheck", "twinlog crosscheck --last 10GiB -o json | jq .verdict"))
@click.option(
    "--last",
    "last_bytes",
    metavar="SIZE",
    default="256MiB",
    show_default=True,
    type=SIZE,
    help="Size of the end of the logs that is compared.",
)
@namesrv_option
@document_option(Crosscheck)
def crosscheck(last_bytes: int, namesrv: str, fmt: str) -> None:
    """Ask name servers and members what each of them sees of the others, and report contradictions.

    Compared are which master each slave follows, what the master received from it, registrations, HA ports, file sizes and
    clocks, and the ends of the logs of master and slave: by digests, or by samples of records if one is RocketMQ's. Members
    are asked twice, a second apart. Exit status 0: all agree, 1: contradictions, 6: a member could not be asked.
    """

    def tell(what: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"{what} ..", err=True)

    found = run_admin(namesrv, lambda admin: admin.crosscheck(last_bytes=last_bytes, progress=tell))
    print_answer(found, fmt, _show)
    click.get_current_context().exit(EXIT_STATUS[found.verdict])


def _show(found: Crosscheck, fmt: str) -> None:
    columns = [
        Column("SLAVE", lambda d: d.slave),
        Column("FOLLOWS", lambda d: d.slave_connects_to),
        Column("SAYS", lambda d: d.slave_says),
        Column("HOLDS", lambda d: d.slave_holds, count, right=True),
        Column("MASTER", lambda d: d.master),
        Column("SEES IT", lambda d: d.master_says),
        Column("HEARD", lambda d: d.master_heard, count, right=True),
        Column("COUNTS", lambda d: d.counted, yes_no),
    ]
    table(columns, found.directions, fmt)
    if fmt == "tsv":
        return
    click.echo()
    for report in found.logs:
        click.echo(f"{report.left.name} and {report.right.name}: {verdict_of(report)}")
    show_findings(found.findings)
    for what in found.not_asked:
        click.echo(style(f"not asked  {what}", fg="yellow"))
    if found.verdict == "agree":
        click.echo(style("all agree", fg="green"))
