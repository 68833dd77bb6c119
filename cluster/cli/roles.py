"""Commands that change roles: switchover, failover, pause, resume; and history."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Literal, TypeVar

import click

from twinlog.cluster.admin.roles import (
    ChangeOutcome,
    History,
    PlannedSwitchover,
    Prepared,
    RoleGroup,
    RoleOrder,
    lost_text,
)
from twinlog.cluster.broker.peers.role_messages import ChangeState
from twinlog.cluster.cli.common.errors import PARTIAL, CliError
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
from twinlog.cluster.cli.common.render import Column, count, json_answer, style, table
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.cli.common.values import AT, DURATION, LOSS
from twinlog.cluster.cli.members import member_columns
from twinlog.cluster.text import day_and_clock, moment, size

F = TypeVar("F", bound=Callable[..., Any])
_RESULT, _PLAN = ChangeOutcome, ChangeState

group_option = click.option("--group", metavar="NAME", help="The broker group, where there are several.")
reason_option = click.option("--reason", metavar="TEXT", default="", help="For the history.")


def timeout_option(seconds: float) -> Callable[[F], F]:
    """--timeout."""
    return click.option(
        "--timeout", "timeout_seconds", metavar="SECONDS", type=float, default=seconds, show_default=True
    )


@click.command(
    cls=WithAlternative,
    epilog=examples(
        "twinlog switchover --dry-run",
        "twinlog switchover --candidate broker-a-1 --yes",
        "twinlog switchover --at 03:00",
    ),
)
@namesrv_option
@group_option
@click.option(
    "--candidate", metavar="MEMBER", help="Who becomes the master. Without it: the best slave that is in sync."
)
@click.option("--at", "at", metavar="TIME", type=AT, help="now, HH:MM, YYYY-MM-DDTHH:MM, or off: not any more.")
@dry_run_option
@yes_option
@timeout_option(30.0)
@reason_option
@document_option(_RESULT, instead={"--dry-run": _PLAN, "--at": PlannedSwitchover})
def switchover(
    namesrv: str,
    group: str | None,
    candidate: str | None,
    at: int | Literal["now", "off"] | None,
    dry_run: bool,
    yes: bool,
    timeout_seconds: float,
    reason: str,
    fmt: str,
) -> None:
    """Make a slave the master of its group while both run. Producers wait for a moment, no message is lost.

    The master stops taking messages, the candidate's log is proven equal to its, the roles change, and what the master was sent
    meanwhile and for a minute after it hands on. Whatever happens on the way: the same command again finishes it.
    """
    order = RoleOrder(verb="switchover", member=candidate, group=group, reason=reason, timeout_seconds=timeout_seconds)
    if at is not None and at != "now":
        _schedule(namesrv, order, None if at == "off" else at, fmt)
    else:
        _change(namesrv, order, dry_run=dry_run, yes=yes, fmt=fmt)


def _schedule(namesrv: str, order: RoleOrder, at_ms: int | None, fmt: str) -> None:
    group = run_admin(namesrv, lambda admin: admin.schedule_switchover(order, at_ms))
    when = (
        f"is to change its master at {day_and_clock(at_ms / 1000)}"
        if at_ms is not None
        else "has no switchover planned"
    )
    click.echo(f"{group.name} {when}", err=True)
    if fmt == "json":
        json_answer(PlannedSwitchover(group=group.name, at_ms=at_ms, candidate=order.member))


@click.command(
    cls=WithAlternative,
    epilog=examples(
        "twinlog failover --candidate broker-a-1 --dry-run",
        "twinlog failover --candidate broker-a-1 --yes",
        "twinlog failover --candidate broker-a-1 --accept-data-loss 4096",
    ),
)
@namesrv_option
@group_option
@click.option("--candidate", metavar="MEMBER", required=True, help="Who becomes the master.")
@click.option(
    "--accept-data-loss",
    "accept",
    metavar="BYTES|unknown",
    type=LOSS,
    help="Go on although so many acknowledged bytes are given up; unknown: however many.",
)
@dry_run_option
@yes_option
@timeout_option(30.0)
@reason_option
@document_option(_RESULT, instead={"--dry-run": _PLAN})
def failover(
    namesrv: str,
    group: str | None,
    candidate: str,
    accept: int | Literal["unknown"] | None,
    dry_run: bool,
    yes: bool,
    timeout_seconds: float,
    reason: str,
    fmt: str,
) -> None:
    """Make CANDIDATE the master of a group whose master is dead or cut off.

    Refused (exit status 4) unless enough members promise to serve nobody older: then no message that was acknowledged can be
    missing. What would be given up otherwise is named, byte for byte; it is kept where it lies.
    """
    order = RoleOrder(
        verb="failover",
        member=candidate,
        group=group,
        reason=reason,
        accept_data_loss=accept,
        timeout_seconds=timeout_seconds,
    )
    _change(namesrv, order, dry_run=dry_run, yes=yes, fmt=fmt)


def _change(namesrv: str, order: RoleOrder, *, dry_run: bool, yes: bool, fmt: str) -> None:
    need_yes(yes or dry_run, "changes roles")
    prepared: Prepared = run_admin(namesrv, lambda admin: admin.prepare_role_change(order))
    if dry_run:
        show_plan(prepared, fmt)
        return
    if fmt in ("pretty", "wide"):
        _show_members(prepared, fmt)
    verb = "become the master" if order.verb == "switchover" else "become the master in place of the one that is gone"
    confirm(prepared.group.name, "group", f"{prepared.candidate.name} will {verb}", yes)
    tell = StepTeller(prepared.group)
    result = run_admin(namesrv, lambda admin: admin.change_role(prepared, tell))

    show_result(result, prepared, fmt)
    if result.late:
        raise CliError(
            f"Not following yet: {prepared.group.named(result.late)}.",
            next_step="Wait for all with: twinlog wait healthy",
            exit_code=PARTIAL,
        )


def _show_members(prepared: Prepared, fmt: str) -> None:
    members = [each.member for each in prepared.group.members]
    table(member_columns(members), members, fmt)


class StepTeller:
    """Tells each step on stderr, once when it begins to fail or is done."""

    def __init__(self, group: RoleGroup) -> None:
        self._group = group
        self._told: set[tuple[int, str]] = set()

    def __call__(self, state: ChangeState) -> None:
        for step in state.steps:
            if step.state in ("done", "failed") and (step.number, step.state) not in self._told:
                self._told.add((step.number, step.state))
                mark = "ok" if step.state == "done" else "failed"
                click.echo(f"{step.number}. {self._group.in_names(step.text)}: {mark}", err=True)


def show_plan(prepared: Prepared, fmt: str) -> None:
    """The steps of a dry run, and what speaks for it."""
    group, state = prepared.group, prepared.state
    if fmt == "json":
        json_answer(state)
        return
    columns = [
        Column("STEP", lambda step: step.number, right=True),
        Column("NAME", lambda step: step.name),
        Column("STATE", lambda step: step.state),
        Column("WHAT", lambda step: group.in_names(step.text)),
    ]
    table(columns, state.steps, fmt)
    if fmt == "tsv":
        return
    for each in state.judgements:
        if each.forced and each.lost is not None:
            click.echo(f"accepted: {lost_text(each.lost, group)}")
    click.echo(f"{prepared.candidate.name} would become the master of {group.name}. Nothing was changed")


@click.command(
    epilog=examples("twinlog pause --for 30m --reason 'new switches'", "twinlog resume"),
)
@namesrv_option
@group_option
@click.option("--for", "for_seconds", metavar="TIME", type=DURATION, help="As 90s, 30m, 2h; without it until resume.")
@reason_option
def pause(namesrv: str, group: str | None, for_seconds: float | None, reason: str) -> None:
    """Allow no role changes: neither by command, nor planned ones, nor what members do by themselves.

    A master that may not be one any more stops serving all the same.
    """
    found = run_admin(namesrv, lambda admin: admin.pause_roles(group, for_seconds=for_seconds, reason=reason))
    click.echo(f"role changes of {found.name} are paused", err=True)


@click.command(epilog=examples("twinlog resume"))
@namesrv_option
@group_option
def resume(namesrv: str, group: str | None) -> None:
    """Allow role changes again."""
    found = run_admin(namesrv, lambda admin: admin.resume_roles(group))
    click.echo(f"role changes of {found.name} are allowed again", err=True)


@click.command(
    epilog=examples("twinlog history", "twinlog history -o json | jq '.reigns[-1]'"),
)
@namesrv_option
@group_option
@document_option(History)
def history(namesrv: str, group: str | None, fmt: str) -> None:
    """Show each epoch: from which byte on, who was the master before and who then, why, and what it cost."""
    found = run_admin(namesrv, lambda admin: admin.history(group))
    if fmt == "json":
        json_answer(found)
        return
    columns = [
        Column("EPOCH", lambda e: e.epoch, right=True),
        Column("FROM", lambda e: e.start_offset, count, right=True),
        Column("OLD", lambda e: e.old),
        Column("NEW", lambda e: e.new),
        Column("KIND", lambda e: e.kind),
        Column("WHEN", lambda e: e.at_ms or None, moment),
        Column("LOST", lambda e: "unknown" if e.lost_bytes is None else e.lost_bytes, _lost, right=True),
        Column("REASON", lambda e: e.reason),
    ]
    table(columns, found.reigns, fmt)


def _lost(lost_bytes: int | str) -> str:
    return lost_bytes if isinstance(lost_bytes, str) else size(lost_bytes)


def show_result(result: ChangeOutcome, prepared: Prepared, fmt: str) -> None:
    """What became of a switchover or failover."""
    if fmt == "json":
        json_answer(result)
        return
    if fmt == "tsv":
        names = ("epoch", "winner", "start_offset", "pause_ms", "lost_bytes")
        table([Column(name, attrgetter(name)) for name in names], [result], fmt)
        return
    group, winner = prepared.group.name, prepared.group.named([result.winner])
    done = f"{winner} is the master of {group} in epoch {result.epoch}, from byte {count(result.start_offset)} on"
    click.echo(style(done, fg="green"))
    if result.pause_ms is not None:
        click.echo(f"write pause {result.pause_ms:.0f} ms")
    if result.lost_bytes != 0:
        lost = "an unknown number of" if result.lost_bytes is None else count(result.lost_bytes)
        click.echo(style(f"{lost} acknowledged bytes were given up", fg="red"))
    if result.kept:
        holders = prepared.group.named(result.kept)
        click.echo(f"{holders} will keep what was given up in twinlog/divergent once they follow")
    if result.absent:
        follows = (
            "It follows by itself when it comes back" if len(result.absent) == 1 else "They follow when they come back"
        )
        click.echo(f"missing: {prepared.group.named(result.absent)}, unreachable since before this began. {follows}")
