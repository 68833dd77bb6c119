"""`twinlog group reset`, `seek` and `clone`: move the offsets of a consumer group."""

import re
from typing import Any

import click

from twinlog.cluster.admin.offsets import At, First, Last, Offset, OffsetPlan, Shift, Where
from twinlog.cluster.cli.common import complete
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import change_options, confirm, document_option, namesrv_option, need_yes
from twinlog.cluster.cli.common.pages import Block, Page, preview, show
from twinlog.cluster.cli.common.render import Column, count
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.cli.common.values import ALLOWED, moment_ms
from twinlog.store.util.text import agreeing, counted


@click.command(
    "reset",
    short_help="Move the offsets of a group in a topic.",
    epilog=examples(
        "twinlog group reset audit orders --to first --dry-run",
        "twinlog group reset audit orders --to 2h --yes",
        "twinlog group reset audit orders --to 2026-11-21T12:55:30",
    ),
)
@click.argument("group", shell_complete=complete.groups)
@click.argument("topic", shell_complete=complete.topics)
@namesrv_option
@click.option(
    "--to",
    required=True,
    metavar="WHERE",
    help="first, last, a time (2026-11-21T12:55, 12:55), a time ago (30m, 2h, 1d).",
)
@change_options
@document_option(OffsetPlan)
def reset(group: str, topic: str, namesrv: str, to: str, dry_run: bool, yes: bool, fmt: str) -> None:
    """Move the offsets of GROUP in all queues of TOPIC, to read messages again or to skip them.

    The broker notifies connected consumers, which continue there at once. Without consumers the offsets are stored.
    """
    place = where_to(to, "--to")
    _move(group, namesrv, lambda admin: admin.offsets.prepare_reset(group, topic, place), dry_run, yes, fmt)


@click.command(
    "seek",
    short_help="Move the offset of a group in one queue.",
    epilog=examples(
        "twinlog group seek audit orders 3 +1           skip a message that cannot be processed",
        "twinlog group seek audit orders 3 41200 --broker broker-a --dry-run",
        "twinlog group seek audit orders 0 last --yes",
    ),
    context_settings={"ignore_unknown_options": True},  # -1 is a WHERE.
)
@click.argument("group", shell_complete=complete.groups)
@click.argument("topic", shell_complete=complete.topics)
@click.argument("queue", type=click.IntRange(0))
@click.argument("where")
@namesrv_option
@click.option("--broker", metavar="NAME", shell_complete=complete.brokers, help="The broker group of the queue.")
@change_options
@document_option(OffsetPlan)
def seek(
    group: str,
    topic: str,
    queue: int,
    where: str,
    namesrv: str,
    broker: str | None,
    dry_run: bool,
    yes: bool,
    fmt: str,
) -> None:
    """Move the offset of GROUP in one QUEUE of TOPIC to WHERE: an offset, +N or -N messages, first, last, or a time.

    A WHERE outside of the queue means the nearest end of the queue.
    """
    if where.startswith("-") and not where[1:].isdecimal():
        raise click.UsageError(f"No such option: {where}")
    place: Where = where_in_queue(where)
    _move(
        group,
        namesrv,
        lambda admin: admin.offsets.prepare_reset(group, topic, place, broker=broker, queue_id=queue),
        dry_run,
        yes,
        fmt,
    )


@click.command(
    "clone",
    short_help="Copy the offsets of another group.",
    epilog=examples(
        "twinlog group clone audit audit-2 --dry-run", "twinlog group clone audit audit-2 --topic orders --yes"
    ),
)
@click.argument("source", shell_complete=complete.groups)
@click.argument("group", shell_complete=complete.groups)
@namesrv_option
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T",
    shell_complete=complete.topics,
    help="Only in this topic; repeatable.",
)
@change_options
@document_option(OffsetPlan)
def clone(source: str, group: str, namesrv: str, topics: tuple[str, ...], dry_run: bool, yes: bool, fmt: str) -> None:
    """Copy the offsets of SOURCE to GROUP, in all topics or in some. Refused (exit status 4) while GROUP has clients."""
    _move(group, namesrv, lambda admin: admin.offsets.prepare_clone(source, group, topics), dry_run, yes, fmt)


def _move(group: str, namesrv: str, prepare: Any, dry_run: bool, yes: bool, fmt: str) -> None:
    need_yes(yes or dry_run, "moves the offsets of a group")
    planned: OffsetPlan = run_admin(namesrv, prepare)
    if not dry_run:
        preview(planned, fmt, plan_page, yes=yes)
        confirm(group, "group", f"{group} will continue at these offsets", yes)
        planned = run_admin(namesrv, lambda admin: admin.offsets.apply(planned))
    show(planned, fmt, plan_page)


def plan_page(plan: OffsetPlan) -> Page:
    """Return the offset of each queue before and after."""
    columns = [
        Column("TOPIC", lambda m: m.topic),
        Column("BROKER", lambda m: m.broker),
        Column("QUEUE", lambda m: m.queue_id, right=True),
        Column("BEFORE", lambda m: m.before, count, right=True),
        Column("AFTER", lambda m: m.after, count, right=True),
        Column("SKIPPED", lambda m: m.skipped, count, right=True),
        Column("AGAIN", lambda m: m.again, count, right=True),
        Column("FIRST", lambda m: m.min_offset, count, right=True, wide=True),
        Column("NEXT", lambda m: m.max_offset, count, right=True, wide=True),
    ]
    skipped = sum(move.skipped or 0 for move in plan.moves)
    again = sum(move.again or 0 for move in plan.moves)
    will = "" if plan.done else "would be "
    notes = [f"messages {will}skipped: {count(skipped)}, {will}read again: {count(again)}"]
    if plan.clients:
        number = len(plan.clients)
        notified = agreeing(number, "was", "were") if plan.done else "would be"
        broker = agreeing(number, "its broker", "their broker")
        notes.append(f"{counted(number, 'connected client')} {notified} notified by {broker}")
    else:
        notes.append("no client is connected: the offsets are stored" if plan.done else "no client is connected")
    title = f"{plan.group}, as {plan.source}" if plan.source else plan.group
    return Page((Block(title, columns, plan.moves),), tuple(notes), nothing_changed=not plan.done)


def where_to(text: str, option: str) -> Where:
    """Parse a place for all queues of a topic. Raises click.UsageError."""
    if text == "first":
        return First()
    if text == "last":
        return Last()
    try:
        return At(moment_ms(text))
    except (ValueError, OverflowError):
        raise click.UsageError(f"{option} {text}: expected {ALLOWED}") from None


def where_in_queue(text: str) -> Where:
    """Parse a place in one queue, which may also be an offset, +N or -N messages. Raises click.UsageError."""
    if text.isdecimal():
        return Offset(int(text))
    if re.fullmatch(r"[+-]\d+", text):
        return Shift(int(text))
    try:
        return where_to(text, "WHERE")
    except click.UsageError:
        raise click.UsageError(f"WHERE {text}: expected an offset (1234), +N or -N messages, {ALLOWED}") from None
