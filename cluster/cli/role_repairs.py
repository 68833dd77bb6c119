"""Commands that make a member's log fit its master's: rewind and reinit."""

from typing import TYPE_CHECKING

import click

from twinlog.cluster.cli.common.confirm import confirm, dry_run_option, need_yes, yes_option
from twinlog.cluster.cli.common.options import WithAlternative, document_option, examples, namesrv_option, run_admin
from twinlog.cluster.cli.role_values import SIZE
from twinlog.cluster.cli.roles import timeout_option

if TYPE_CHECKING:
    from twinlog.cluster.admin.repair import PreparedRepair

_REPAIRED, _REPAIR_PLAN = "twinlog.cluster.admin.repair:RepairResult", "twinlog.cluster.admin.repair:RepairPlan"


@click.command(
    cls=WithAlternative,
    short_help="Cut a slave's log to what fits its master's.",
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
    """Cut the log of MEMBER, a slave, where it parted from its master's, and let it follow.

    A member does that by itself where the histories of both prove that the bytes were given up, unless haAutoRewind=false
    or a pause keeps it from it. What is cut is kept in twinlog/divergent, for `log dump` and `log diff`.
    """
    need_yes(yes or dry_run, "changes roles")
    prepared = run_admin(namesrv, lambda admin: admin.prepare_rewind(member, accept))
    _repair(namesrv, prepared, "be cut where it parted from its master", dry_run, yes, timeout_seconds, fmt)


@click.command(
    cls=WithAlternative,
    short_help="Let a slave begin anew.",
    epilog=examples("twinlog reinit broker-a-1 --dry-run", "twinlog reinit broker-a-1 --yes --timeout 3600"),
)
@click.argument("member")
@namesrv_option
@dry_run_option
@yes_option
@timeout_option(600.0)
@document_option(_REPAIRED, instead={"--dry-run": _REPAIR_PLAN})
def reinit(member: str, namesrv: str, dry_run: bool, yes: bool, timeout_seconds: float, fmt: str) -> None:
    """Put the log of MEMBER, a slave, aside and let it take its master's from the beginning.

    The old log is kept in twinlog/divergent until you delete it. Run it again, and it goes on watching.
    """
    need_yes(yes or dry_run, "changes roles")
    prepared = run_admin(namesrv, lambda admin: admin.prepare_reinit(member))
    _repair(namesrv, prepared, "begin anew with an empty log", dry_run, yes, timeout_seconds, fmt)


def _repair(
    namesrv: str, prepared: "PreparedRepair", what: str, dry_run: bool, yes: bool, timeout_seconds: float, fmt: str
) -> None:
    from twinlog.cluster.cli.common.progress import progress
    from twinlog.cluster.cli.role_values import show_repair_plan, show_repaired

    if dry_run:
        show_repair_plan(prepared.plan, fmt)
        return
    name = prepared.facts.member.name
    confirm(prepared.group.name, "group", f"{name} will {what}", yes)
    with progress(f"{name} takes its master's log") as report:
        result = run_admin(
            namesrv,
            lambda admin: admin.repair(prepared, timeout_seconds=timeout_seconds, progress=report),
        )
    show_repaired(result, fmt)
