"""Commands that make a member's log fit its master's: rewind and reinit."""

from operator import attrgetter

import click

from twinlog.cluster.admin.repair import PreparedRepair, RepairPlan, RepairResult
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import (
    WithAlternative,
    confirm,
    document_option,
    dry_run_option,
    namesrv_option,
    need_yes,
    yes_option,
)
from twinlog.cluster.cli.common.progress import progress
from twinlog.cluster.cli.common.render import Column, count, json_answer, table
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.cli.common.values import SIZE
from twinlog.cluster.cli.roles import timeout_option

_REPAIRED, _REPAIR_PLAN = RepairResult, RepairPlan


@click.command(
    cls=WithAlternative,
    epilog=examples("twinlog rewind broker-a-0 --dry-run", "twinlog rewind broker-a-0 --yes"),
)
@click.argument("member")
@namesrv_option
@click.option(
    "--accept-data-loss",
    "accept",
    metavar="BYTES",
    type=SIZE,
    help="Cut so many bytes although it is not proven that they were given up.",
)
@dry_run_option
@yes_option
@timeout_option(60.0)
@document_option(_REPAIRED, instead={"--dry-run": _REPAIR_PLAN})
def rewind(
    member: str, namesrv: str, accept: int | None, dry_run: bool, yes: bool, timeout_seconds: float, fmt: str
) -> None:
    """Truncate the log of MEMBER, a slave, where it diverged from its master's, so that it can follow again.

    A member does that by itself where the histories of both prove that the bytes were given up, unless haAutoRewind=false
    or a pause keeps it from it. What is cut is kept in twinlog/divergent, for `log dump` and `log diff`.
    """
    need_yes(yes or dry_run, "changes roles")
    prepared = run_admin(namesrv, lambda admin: admin.repairs.prepare_rewind(member, accept))
    _repair(namesrv, prepared, "be cut where it diverged from its master", dry_run, yes, timeout_seconds, fmt)


@click.command(
    cls=WithAlternative,
    epilog=examples("twinlog reinit broker-a-1 --dry-run", "twinlog reinit broker-a-1 --yes --timeout 3600"),
)
@click.argument("member")
@namesrv_option
@dry_run_option
@yes_option
@timeout_option(600.0)
@document_option(_REPAIRED, instead={"--dry-run": _REPAIR_PLAN})
def reinit(member: str, namesrv: str, dry_run: bool, yes: bool, timeout_seconds: float, fmt: str) -> None:
    """Move the log of MEMBER, a slave, aside and copy its master's log from the start.

    The old log is kept in twinlog/divergent until you delete it. If interrupted, run the command again to watch the progress.
    """
    need_yes(yes or dry_run, "changes roles")
    prepared = run_admin(namesrv, lambda admin: admin.repairs.prepare_reinit(member))
    _repair(namesrv, prepared, "start again with an empty log", dry_run, yes, timeout_seconds, fmt)


def _repair(
    namesrv: str, prepared: PreparedRepair, what: str, dry_run: bool, yes: bool, timeout_seconds: float, fmt: str
) -> None:
    if dry_run:
        show_repair_plan(prepared.plan, fmt)
        return
    name = prepared.facts.member.name
    confirm(prepared.group.name, "group", f"{name} will {what}", yes)
    with progress(f"{name} copies its master's log") as report:
        result = run_admin(
            namesrv,
            lambda admin: admin.repairs.carry_out(prepared, timeout_seconds=timeout_seconds, progress=report),
        )
    show_repaired(result, fmt)


def show_repair_plan(plan: RepairPlan, fmt: str) -> None:
    """Print what a rewind or reinit would move aside."""
    if fmt == "json":
        json_answer(plan)
    elif fmt == "tsv":
        names = ("verb", "member", "first_offset", "end_offset", "why")
        table([Column(name, attrgetter(name)) for name in names], [plan], fmt)
    elif plan.first_offset is None:
        click.echo(f"nothing of {plan.member}'s log would be moved aside: {plan.why}")
    else:
        where = f"bytes {count(plan.first_offset)} to {count(plan.end_offset)} of {plan.member}"
        click.echo(f"{where} would be moved aside, to twinlog/divergent of its store: {plan.why}")


def show_repaired(result: RepairResult, fmt: str) -> None:
    """Print the result of a rewind or reinit."""
    if fmt == "json":
        json_answer(result)
    elif fmt == "tsv":
        columns = [
            Column("PATH", lambda part: part.path),
            Column("FIRST OFFSET", lambda part: part.first_offset),
            Column("SIZE", lambda part: part.size),
            Column("WHY", lambda part: part.why),
        ]
        table(columns, result.kept, fmt)
    else:
        for part in result.kept:
            click.echo(
                f"{count(part.size)} bytes from {count(part.first_offset)} on are kept in {part.path} ({part.why})"
            )
            click.echo(f"    read it there with: twinlog log dump {part.path} --from {part.first_offset} --body")
        click.echo(f"{result.member} follows its master and holds its log up to byte {count(result.written_offset)}")
