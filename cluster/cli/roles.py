"""Roles of the members of a group: `twinlog switchover`, `failover`, `pause`, `resume`, `auto-failover`, `history`, repairs."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar

import click

from twinlog.cluster.admin.repair import PreparedRepair, RepairPlan, RepairResult
from twinlog.cluster.admin.roles import (
    AutoFailoverState,
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
    change_options,
    confirm,
    document_option,
    namesrv_option,
    need_yes,
    secret_file_option,
)
from twinlog.cluster.cli.common.pages import Block, Page, show
from twinlog.cluster.cli.common.progress import progress
from twinlog.cluster.cli.common.render import Column, count, json_answer, print_answer, print_tsv, style, table
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.cli.common.values import AT, DURATION, LOSS, SIZE
from twinlog.cluster.cli.members import member_columns
from twinlog.cluster.text import day_and_clock, moment, size
from twinlog.store.role_file import AutoFailover

F = TypeVar("F", bound=Callable[..., Any])

group_option = click.option("--group", metavar="NAME", help="The broker group, if there are several.")
reason_option = click.option("--reason", metavar="TEXT", default="", help="Reason, kept in the history.")


def timeout_option(seconds: float) -> Callable[[F], F]:
    """--timeout."""
    return click.option(
        "--timeout", "timeout_seconds", metavar="SECONDS", type=float, default=seconds, show_default=True
    )


@click.command(
    epilog=examples(
        "twinlog switchover --dry-run",
        "twinlog switchover --candidate broker-a-1 --yes",
        "twinlog switchover --at 03:00",
    ),
)
@namesrv_option
@secret_file_option
@group_option
@click.option("--candidate", metavar="MEMBER", help="The new master.  [default: the best slave that is in sync]")
@click.option("--at", metavar="TIME", type=AT, help="Schedule it: now, HH:MM, YYYY-MM-DDTHH:MM, or off to cancel.")
@change_options
@timeout_option(30.0)
@reason_option
@document_option(ChangeOutcome, instead={"--dry-run": ChangeState, "--at": PlannedSwitchover})
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
    """Make a slave the master of its group while both run. Producers wait for a moment; no message is lost.

    The master stops accepting messages, both logs are proven equal, the roles change, and the old master forwards the messages
    that it receives meanwhile and for a minute afterwards. If anything interrupts it, run the same command again to finish it.
    """
    order = RoleOrder(verb="switchover", member=candidate, group=group, reason=reason, timeout_seconds=timeout_seconds)
    if at is not None and at != "now":
        _schedule(namesrv, order, None if at == "off" else at, fmt)
    else:
        _change(namesrv, order, dry_run=dry_run, yes=yes, fmt=fmt)


def _schedule(namesrv: str, order: RoleOrder, at_ms: int | None, fmt: str) -> None:
    group = run_admin(namesrv, lambda admin: admin.roles.schedule(order, at_ms))
    when = (
        f"is to change its master at {day_and_clock(at_ms / 1000)}"
        if at_ms is not None
        else "has no switchover planned"
    )
    click.echo(f"{group.name} {when}", err=True)
    if fmt == "json":
        json_answer(PlannedSwitchover(group=group.name, at_ms=at_ms, candidate=order.member))


@click.command(
    epilog=examples(
        "twinlog failover --candidate broker-a-1 --dry-run",
        "twinlog failover --candidate broker-a-1 --yes",
        "twinlog failover --candidate broker-a-1 --accept-data-loss 4096",
    ),
)
@namesrv_option
@secret_file_option
@group_option
@click.option("--candidate", metavar="MEMBER", required=True, help="The new master.")
@click.option(
    "--accept-data-loss",
    "accept",
    metavar="BYTES|unknown",
    type=LOSS,
    help="Accept the loss of this many acknowledged bytes; unknown: of any number.",
)
@change_options
@timeout_option(30.0)
@reason_option
@document_option(ChangeOutcome, instead={"--dry-run": ChangeState})
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
    """Make a slave the master of a group whose master is down or unreachable.

    Refused (exit status 4) unless enough members vote for the new epoch: their votes prove that no acknowledged message can be
    missing. Otherwise the number of bytes that would be lost is shown; those bytes are kept on the member that has them.
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
    prepared: Prepared = run_admin(namesrv, lambda admin: admin.roles.prepare(order))
    if dry_run:
        print_answer(prepared.state, fmt, partial(_show_plan, prepared))
        return
    if fmt in ("pretty", "wide"):
        members = [each.member for each in prepared.group.members]
        table(member_columns(members), members, fmt)
    verb = "become the master" if order.verb == "switchover" else "become the master in place of the one that is down"
    confirm(prepared.group.name, "group", f"{prepared.candidate.name} will {verb}", yes)
    tell = _step_teller(prepared.group)
    result = run_admin(namesrv, lambda admin: admin.roles.carry_out(prepared, tell))
    print_answer(result, fmt, partial(_show_result, prepared.group))
    if result.late:
        raise CliError(
            f"Not following yet: {prepared.group.named(result.late)}.",
            next_step="Wait for them with: twinlog wait healthy",
            exit_code=PARTIAL,
        )


def _step_teller(group: RoleGroup) -> Callable[[ChangeState], None]:
    """Make a function that prints each step on stderr once, when it is done or failed."""
    printed: set[tuple[int, str]] = set()

    def tell(state: ChangeState) -> None:
        for step in state.steps:
            if step.state in ("done", "failed") and (step.number, step.state) not in printed:
                printed.add((step.number, step.state))
                mark = "ok" if step.state == "done" else "failed"
                click.echo(f"{step.number}. {group.in_names(step.text)}: {mark}", err=True)

    return tell


def _show_plan(prepared: Prepared, state: ChangeState, fmt: str) -> None:
    """Print the steps of a dry run, and the accepted losses."""
    group = prepared.group
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


@click.command(epilog=examples("twinlog pause --for 30m --reason 'new switches'", "twinlog resume"))
@namesrv_option
@secret_file_option
@group_option
@click.option(
    "--for", "for_seconds", metavar="TIME", type=DURATION, help="Duration, as 90s, 30m or 2h.  [default: until resume]"
)
@reason_option
def pause(namesrv: str, group: str | None, for_seconds: float | None, reason: str) -> None:
    """Prevent all role changes: by command, scheduled, and automatic ones.

    A master that loses its lease still stops serving.
    """
    found = run_admin(namesrv, lambda admin: admin.roles.pause(group, for_seconds=for_seconds, reason=reason))
    click.echo(f"role changes of {found.name} are paused", err=True)


@click.command(epilog=examples("twinlog resume"))
@namesrv_option
@secret_file_option
@group_option
def resume(namesrv: str, group: str | None) -> None:
    """Allow role changes again after `twinlog pause`."""
    found = run_admin(namesrv, lambda admin: admin.roles.resume(group))
    click.echo(f"role changes of {found.name} are allowed again", err=True)


@click.command(
    "auto-failover",
    epilog=examples("twinlog auto-failover", "twinlog auto-failover members", "twinlog auto-failover etcd"),
)
@click.argument("mode", metavar="[off|members|etcd]", type=click.Choice(["off", "members", "etcd"]), required=False)
@namesrv_option
@secret_file_option
@group_option
@document_option(AutoFailoverState)
def auto_failover(mode: AutoFailover | None, namesrv: str, group: str | None, fmt: str) -> None:
    """Show or change who begins a failover when a group's master is gone.

    off: a person, with `twinlog failover`. members: the group elects another master by itself, never at the price of an
    acknowledged message. etcd: likewise, and etcd keeps the set of members that are in sync, so that the group goes on with
    fewer of them, down to one; every member needs etcdEndpoints. It holds for all members of the group, and while it runs.
    Given again in a group with etcd, it puts the record there anew after etcd lost it.
    """
    if mode is None:
        found = run_admin(namesrv, lambda admin: admin.roles.auto_failover(group))
    else:
        found = run_admin(namesrv, lambda admin: admin.roles.set_auto_failover(group, mode))
    print_answer(found, fmt, _show_auto_failover)


def _show_auto_failover(found: AutoFailoverState, fmt: str) -> None:
    if fmt == "tsv":
        print_tsv(("group", "mode"), [found])
        return
    who = {
        "off": "a person begins a failover",
        "members": "its members elect another master by themselves",
        "etcd": "its members elect another master by themselves, of those that etcd knows to be in sync",
    }
    click.echo(f"{found.group}: autoFailover={found.mode}, {who[found.mode]}")
    for name, mode in sorted(found.members.items()):
        if mode != found.mode:
            click.echo(
                style(f"{name} does not know that yet: its record has {mode}. Until it does nobody elects", fg="yellow")
            )


@click.command(epilog=examples("twinlog history", "twinlog history -o json | jq '.reigns[-1]'"))
@namesrv_option
@group_option
@document_option(History)
def history(namesrv: str, group: str | None, fmt: str) -> None:
    """Show each epoch: its first byte, the old and the new master, who decided it and why, and the acknowledged bytes lost."""
    show(run_admin(namesrv, lambda admin: admin.roles.history(group)), fmt, _history_page)


def _history_page(found: History) -> Page:
    columns = [
        Column("EPOCH", lambda e: e.epoch, right=True),
        Column("FROM", lambda e: e.start_offset, count, right=True),
        Column("OLD", lambda e: e.old),
        Column("NEW", lambda e: e.new),
        Column("KIND", lambda e: e.kind),
        Column("BY", lambda e: e.decided_by or None),
        Column("WHEN", lambda e: e.at_ms or None, moment),
        Column("LOST", lambda e: "unknown" if e.lost_bytes is None else e.lost_bytes, _lost, right=True),
        Column("REASON", lambda e: e.reason),
    ]
    return Page((Block(None, columns, found.reigns),))


def _lost(lost_bytes: int | str) -> str:
    return lost_bytes if isinstance(lost_bytes, str) else size(lost_bytes)


def _show_result(group: RoleGroup, result: ChangeOutcome, fmt: str) -> None:
    if fmt == "tsv":
        print_tsv(("epoch", "winner", "start_offset", "pause_ms", "lost_bytes"), [result])
        return
    winner = group.named([result.winner])
    done = f"{winner} is the master of {group.name} in epoch {result.epoch}, from byte {count(result.start_offset)} on"
    click.echo(style(done, fg="green"))
    if result.pause_ms is not None:
        click.echo(f"write pause {result.pause_ms:.0f} ms")
    if result.lost_bytes != 0:
        lost = "an unknown number of" if result.lost_bytes is None else count(result.lost_bytes)
        click.echo(style(f"{lost} acknowledged bytes were lost", fg="red"))
    if result.kept:
        holders = group.named(result.kept)
        click.echo(f"{holders} will keep the lost bytes in twinlog/divergent once they follow")
    if result.absent:
        follows = (
            "It follows by itself when it comes back" if len(result.absent) == 1 else "They follow when they come back"
        )
        click.echo(f"missing: {group.named(result.absent)}, unreachable since before this began. {follows}")


@click.command(epilog=examples("twinlog rewind broker-a-0 --dry-run", "twinlog rewind broker-a-0 --yes"))
@click.argument("member")
@namesrv_option
@secret_file_option
@click.option(
    "--accept-data-loss",
    "accept",
    metavar="BYTES",
    type=SIZE,
    help="Cut so many bytes although it is not proven that they were given up.",
)
@change_options
@timeout_option(60.0)
@document_option(RepairResult, instead={"--dry-run": RepairPlan})
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
    epilog=examples("twinlog reinit broker-a-1 --dry-run", "twinlog reinit broker-a-1 --yes --timeout 3600"),
)
@click.argument("member")
@namesrv_option
@secret_file_option
@change_options
@timeout_option(600.0)
@document_option(RepairResult, instead={"--dry-run": RepairPlan})
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
        print_answer(prepared.plan, fmt, _show_repair_plan)
        return
    name = prepared.facts.member.name
    confirm(prepared.group.name, "group", f"{name} will {what}", yes)
    with progress(f"{name} copies its master's log") as report:
        result = run_admin(
            namesrv, lambda admin: admin.repairs.carry_out(prepared, timeout_seconds=timeout_seconds, progress=report)
        )
    print_answer(result, fmt, _show_repaired)


def _show_repair_plan(plan: RepairPlan, fmt: str) -> None:
    if fmt == "tsv":
        print_tsv(("verb", "member", "first_offset", "end_offset", "why"), [plan])
    elif plan.first_offset is None:
        click.echo(f"nothing of {plan.member}'s log would be moved aside: {plan.why}")
    else:
        where = f"bytes {count(plan.first_offset)} to {count(plan.end_offset)} of {plan.member}"
        click.echo(f"{where} would be moved aside, to twinlog/divergent of its store: {plan.why}")


def _show_repaired(result: RepairResult, fmt: str) -> None:
    if fmt == "tsv":
        print_tsv(("path", "first_offset", "size", "why"), result.kept)
    else:
        for part in result.kept:
            click.echo(
                f"{count(part.size)} bytes from {count(part.first_offset)} on are kept in {part.path} ({part.why})"
            )
            click.echo(f"    read it there with: twinlog log dump {part.path} --from {part.first_offset} --body")
        click.echo(f"{result.member} follows its master and holds its log up to byte {count(result.written_offset)}")
