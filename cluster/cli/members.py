"""`twinlog list`: the status of the members."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import click

from twinlog.cluster.cli import common
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option, namesrv_option
from twinlog.cluster.cli.common.render import (
    Column,
    cells_of,
    count,
    fitting,
    json_answer,
    json_line,
    rich_table,
    table,
)
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.observe.members import Member, MemberList
from twinlog.cluster.text import rate, seconds, size


def member_columns(members: Sequence[Member]) -> list[Column]:
    """Return the columns of the table of members, also for `twinlog up`."""
    have_changed = any(member.epoch for member in members)  # Until the first role change all are in epoch 0.

    return [
        Column("MEMBER", lambda m: m.name),
        Column("ADDRESS", lambda m: m.address, spare=1),
        Column("ROLE", lambda m: m.role),
        Column("STATE", lambda m: m.state),
        Column("EPOCH", lambda m: m.epoch, right=True, spare=4, wide=not have_changed),
        Column("WRITTEN", lambda m: m.written_offset, count, right=True),
        Column("FLUSHED", lambda m: m.flushed_offset, count, right=True, wide=True),
        Column("CONFIRMED", lambda m: m.confirmed_offset, count, right=True, spare=2),
        Column("LAG", lambda m: m.lag_bytes, size, right=True),
        Column("BEHIND", lambda m: m.lag_seconds, seconds, right=True, spare=3),
        Column("RATE", lambda m: m.rate_bytes_per_second, rate, right=True),
        Column("CLUSTER", lambda m: m.cluster, wide=True),
        Column("GROUP", lambda m: m.group, wide=True),
        Column("ID", lambda m: m.broker_id, right=True, wide=True),
        Column("HA ADDRESS", lambda m: m.ha_address, wide=True),
        Column("ACKS", lambda m: m.ack_policy, wide=True),
    ]


@click.command(
    "list",
    epilog=examples(
        "twinlog list", "twinlog list -w 5", "twinlog list -n 10.0.0.1:9876 -o json | jq '.members[].lag_bytes'"
    ),
)
@namesrv_option
@click.option(
    "-w",
    "--watch",
    "watch_seconds",
    metavar="[SECS]",
    type=click.FloatRange(min=0.1),
    is_flag=False,
    flag_value=2.0,
    help="Refresh every SECS seconds (2) until Ctrl-C.",
)
@document_option(MemberList)
def list_members(namesrv: str, watch_seconds: float | None, fmt: str) -> None:
    """Show the role, the state and the lag of each member.

    WRITTEN is the end of its log in bytes, CONFIRMED the part that as many members have as the acknowledgement policy requires.
    LAG and BEHIND are what a slave has not acknowledged yet, in bytes and in time. A dash means unknown.
    """
    if watch_seconds is None:
        _show(run_admin(namesrv, lambda admin: admin.list_members()), fmt)
        return
    seconds = watch_seconds
    with _screen(fmt) as show:
        run_admin(namesrv, lambda admin: admin.watch_members(seconds, show))


def _show(found: MemberList, fmt: str) -> None:
    if fmt == "json":
        json_answer(found)
        return
    table(member_columns(found.members), found.members, fmt)
    for note in found.notes:
        click.echo(f"note: {note}", err=fmt == "tsv")
    for issue in found.issues:
        click.echo(f"issue: {issue}", err=fmt == "tsv")


@contextmanager
def _screen(fmt: str) -> Iterator[Callable[[MemberList], None]]:
    """Refresh one table in place on a terminal; elsewhere print one after the other, JSON as one line each."""
    if fmt == "json":
        yield lambda found: _flushed(lambda: json_line(found))
    elif fmt == "tsv" or not sys.stdout.isatty():
        yield lambda found: _flushed(lambda: _show(found, fmt))
    else:
        with _live(fmt) as show:
            yield show


def _flushed(show: Callable[[], None]) -> None:
    show()
    sys.stdout.flush()


@contextmanager
def _live(fmt: str) -> Iterator[Callable[[MemberList], None]]:
    console = common.drawing.Console()
    with common.drawing.Live(console=console, auto_refresh=False) as live:

        def show(found: MemberList) -> None:
            columns = [column for column in member_columns(found.members) if fmt == "wide" or not column.wide]
            cells = cells_of(columns, found.members)
            kept = range(len(columns)) if fmt == "wide" else fitting(columns, cells, console.width)
            drawn = rich_table([columns[i] for i in kept], [[line[i] for i in kept] for line in cells])
            notes = (common.drawing.Text(f"note: {note}", style="cyan") for note in found.notes)
            issues = (common.drawing.Text(f"issue: {issue}", style="yellow") for issue in found.issues)
            at = common.drawing.Text(f"{datetime.now():%H:%M:%S}  Ctrl-C ends", style="dim")
            live.update(common.drawing.Group(drawn, *notes, *issues, at), refresh=True)

        yield show
