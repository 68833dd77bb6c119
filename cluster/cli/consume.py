"""`twinlog consume` and `tail`: print messages of a topic."""

from typing import Any

import click

from twinlog.cluster.admin.message_view import MessageView
from twinlog.cluster.cli.common import complete
from twinlog.cluster.cli.common.errors import sentence
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option, namesrv_option
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.cli.common.values import ALLOWED, moment_ms
from twinlog.cluster.cli.messages import printer
from twinlog.cluster.client.messages import ReceivedMessage
from twinlog.cluster.client.subscription import From, FromTime, Sql, Subscription

_VIEW = MessageView
tags_option = click.option(
    "--tags", default="*", metavar="EXPR", help='Only messages with these tags, for example "TagA || TagB".'
)
sql_option = click.option(
    "--sql", metavar="EXPR", help="Only messages whose properties match, for example \"price > 10 AND city = 'Bonn'\"."
)


@click.command(
    "consume",
    epilog=examples(
        "twinlog consume orders",
        'twinlog consume orders --tags "TagA || TagB" --from last --follow',
        "twinlog consume orders --from 30m",
        "twinlog consume orders --group audit --count 100 -o json | jq -r .body",
    ),
)
@click.argument("topic", shell_complete=complete.topics)
@namesrv_option
@document_option(_VIEW)
@click.option(
    "--group",
    metavar="G",
    shell_complete=complete.groups,
    help="Continue at the offsets of this group, and commit to them.",
)
@tags_option
@sql_option
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    help="Start in each queue: first, last, an offset, a time, or a time ago (30m).  [default: first]",
)
@click.option("--count", type=click.IntRange(1), help="Stop after this number of messages.")
@click.option("--follow", "-f", is_flag=True, help="Wait for new messages until Ctrl-C.")
def consume(
    namesrv: str, topic: str, fmt: str, start: str | None, count: int | None, tags: str, sql: str | None, **options: Any
) -> None:
    """Print a topic's messages from all queues, in the order in which they were stored.

    Without --group no offsets are committed, so no consumer is affected. JSON is one object per line; a body that is not UTF-8
    is in body_base64.
    """
    begin = _start(start)
    wanted = _wanted(tags, sql)
    shown = _print(namesrv, topic, fmt, count, start=begin, tags=wanted, **options)
    if not shown:
        click.echo(_nothing(topic, start, tags if sql is None else f"{sql} (SQL)", options["group"]), err=True)


@click.command(
    "tail",
    epilog=examples(
        "twinlog tail orders",
        "twinlog tail orders --tags paid -o json | jq -r .body",
        'twinlog tail orders --sql "price > 100" --since 10m',
    ),
)
@click.argument("topic", shell_complete=complete.topics)
@namesrv_option
@document_option(_VIEW)
@tags_option
@sql_option
@click.option("--since", metavar="TIME", help="Start at a time, or a time ago (30m, 2h).  [default: now]")
@click.option("--count", type=click.IntRange(1), help="Stop after this number of messages.")
def tail(namesrv: str, topic: str, fmt: str, tags: str, sql: str | None, since: str | None, count: int | None) -> None:
    """Print new messages of TOPIC from all queues as they arrive, until Ctrl-C. No consumer group is created or moved."""
    begin = _start(since) if since is not None else From.LAST
    wanted = _wanted(tags, sql)
    click.echo(f"waiting for messages of {topic}; Ctrl-C ends", err=True)
    _print(namesrv, topic, fmt, count, start=begin, tags=wanted, follow=True)


def _print(namesrv: str, topic: str, fmt: str, count: int | None, **options: Any) -> int:
    show = printer(fmt)
    shown = 0

    def deliver(message: ReceivedMessage) -> bool:
        nonlocal shown
        show(message)
        shown += 1
        return shown != count

    try:
        run_admin(namesrv, lambda admin: admin.consume(topic, deliver, **options))
    except KeyboardInterrupt:
        if not options.get("follow"):
            raise
    return shown


def _nothing(topic: str, start: str | None, tags: str, group: str | None) -> str:
    """Return a message for an empty result."""
    with_tags = f" with the tags {tags}" if tags not in ("", "*") else ""
    place = f" from {start} on" if start not in (None, "first") else ""
    new = f" that are new to the group {group}" if group is not None and start is None else ""
    return f"No messages in {topic}{with_tags}{place}{new}."


def _wanted(tags: str, sql: str | None) -> str | Sql:
    if sql is not None:
        if tags != "*":
            raise click.UsageError("use either --tags or --sql; in SQL a tag is a property: TAGS = 'paid'")
        return Sql(sql)
    try:
        Subscription.of("", tags, 0)
    except ValueError as error:
        raise click.UsageError(f"--tags: {sentence(error)}") from error
    return tags


def _start(text: str | None) -> From | FromTime | int | None:
    if text is None:
        return None
    if text in ("first", "last"):
        return From(text)
    if text.isdecimal():
        return int(text)
    try:
        return FromTime(moment_ms(text))
    except (ValueError, OverflowError):
        raise click.UsageError(f"--from {text}: expected an offset, {ALLOWED}") from None
