"""`twinlog consume`, `tail` and `peek`: print messages of a topic."""

import sys
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from typing import Any

import click
import orjson

from twinlog.cluster.admin.admin import Admin
from twinlog.cluster.admin.message_view import MessageView, PeekedMessage, is_message_id, view_of
from twinlog.cluster.cli.common import complete
from twinlog.cluster.cli.common.errors import sentence
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option, namesrv_option
from twinlog.cluster.cli.common.render import json_line, printable, style
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.cli.common.values import ALLOWED, moment_ms
from twinlog.cluster.client.messages import ReceivedMessage
from twinlog.cluster.client.subscription import From, FromTime, Sql, Subscription
from twinlog.cluster.text import moment

TSV_TITLES = "topic\tbroker\tqueue\tqueue_offset\tstored_ms\ttags\tkeys\tbody"
BODY_FORMS = ("auto", "text", "json", "hex", "none")
_HEX_LINE = 16

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
@document_option(MessageView)
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
    shown = _print(namesrv, topic, fmt, count, start=_start(start), tags=_wanted(tags, sql), **options)
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
@document_option(MessageView)
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


@click.command(
    "peek",
    epilog=examples(
        "twinlog peek orders                                  the newest message",
        "twinlog peek orders --key order-4711",
        "twinlog peek orders --queue 2 --offset 41200 --count 3 --body hex",
        "twinlog peek 7F00000100002A9F0000000000000000         either of a message's ids",
        "twinlog peek orders --count 20 -o json | jq -r .message.body",
    ),
)
@click.argument("what", metavar="TOPIC|ID", shell_complete=complete.topics)
@namesrv_option
@document_option(PeekedMessage)
@click.option("--topic", metavar="T", shell_complete=complete.topics, help="Search ID only in this topic.")
@click.option("--key", metavar="KEY", help="Show messages with this key.")
@click.option("--queue", type=click.IntRange(0), metavar="Q", help="With --offset: show messages of this queue.")
@click.option("--offset", type=click.IntRange(0), metavar="N", help="Queue offset of the first message.")
@click.option(
    "--broker", metavar="NAME", shell_complete=complete.brokers, help="With --offset: the broker group of the queue."
)
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Number of messages.")
@click.option(
    "--body", "form", type=click.Choice(BODY_FORMS), default="auto", show_default=True, help="Format of the body."
)
def peek(
    what: str,
    namesrv: str,
    fmt: str,
    topic: str | None,
    key: str | None,
    queue: int | None,
    offset: int | None,
    broker: str | None,
    count: int,
    form: str,
) -> None:
    """Show the newest messages of TOPIC, those with a key or at a queue offset, or the message with an ID.

    Shown are properties, body, and which groups have consumed the message. Nothing is consumed, and no offsets are moved. ID is
    the offsetMsgId from a broker or the msgId from the producer. JSON is one object per line.
    """
    if (queue is None) != (offset is None):
        raise click.UsageError("use --queue and --offset together")
    if key is not None and queue is not None:
        raise click.UsageError("use either --key or --queue")

    async def find(admin: Admin) -> tuple[ReceivedMessage, ...]:
        messages = admin.messages
        if key is not None:
            return await messages.by_key(what, key, count)
        if queue is not None and offset is not None:
            return await messages.at(what, queue, offset, count, broker=broker)
        if is_message_id(what):
            return (await messages.by_id(what, topic),)
        return await messages.newest(what, count)

    async def work(admin: Admin) -> tuple[PeekedMessage, ...]:
        return await admin.messages.with_readers(await find(admin))

    found = run_admin(namesrv, work)
    if fmt == "json":
        for each in found:
            json_line(each)
    elif fmt == "tsv":
        click.echo(TSV_TITLES)
        for each in found:
            _print_tsv(each.message)
    else:
        for i, each in enumerate(found):
            click.echo("\n" * bool(i), nl=False)
            _show(each, form, wide=fmt == "wide")


def _show(peeked: PeekedMessage, form: str, *, wide: bool) -> None:
    message = peeked.message

    def line(name: str, value: Any) -> None:
        click.echo(f"  {style(f'{name:<11}', fg='blue')} {printable(str(value))}")

    click.echo(
        style(f"{message.topic}  {message.broker} queue {message.queue_id} offset {message.queue_offset}", bold=True)
    )
    line("stored", moment(message.stored_ms))
    line("sent", f"{moment(message.born_ms)} from {message.born_host}")
    line("msgId", message.message_id)
    line("offsetMsgId", message.offset_message_id)
    if message.tags:
        line("tags", message.tags)
    if message.keys:
        line("keys", message.keys)
    if message.reconsume_times:
        line("retries", message.reconsume_times)
    for name, value in sorted(message.properties.items()):
        line("property", f"{name}={value}")
    for i, text in enumerate(_readers(peeked, wide=wide)):
        line("consumed by" if not i else "", text)
    lines = _body_in_form(message, form)
    stored = f" as stored, not decompressed: {message.body_problem}" if message.body_problem else ""
    line("body", f"{message.body_size} bytes{stored}" + (":" if lines else ""))
    for each in lines:
        click.echo(f"    {each}")


_STATES = {
    "consumed": "has consumed it",
    "filtered": "has skipped it: its subscription has other tags",
    "not yet": "not yet",
    "broadcast": "broadcast: each client keeps its own offset",
    "unknown": "has no committed offset in this queue",
}


def _readers(peeked: PeekedMessage, *, wide: bool) -> list[str]:
    if peeked.consumed_by is None:
        return ["its broker does not report it"]
    if not peeked.consumed_by:
        return ["no group: nobody reads the topic"]
    lines = []
    for reader in peeked.consumed_by:
        place = f", committed offset {reader.committed_offset}" if wide and reader.committed_offset is not None else ""
        online = "" if reader.clients else "; no client is connected"
        lines.append(f"{reader.group}: {_STATES[reader.state]}{place}{online}")
    return lines


def printer(fmt: str) -> Callable[[ReceivedMessage], None]:
    """Return a function that prints one message in the format `fmt`; with TSV print the titles first."""
    if fmt == "tsv":
        click.echo(TSV_TITLES)
    printers: dict[str, Callable[[MessageView], None]] = {
        "pretty": print_pretty,
        "wide": partial(print_pretty, wide=True),
        "tsv": _print_tsv,
        "json": json_line,
    }

    def show(message: ReceivedMessage) -> None:
        printers[fmt](view_of(message))
        sys.stdout.flush()

    return show


def print_pretty(message: MessageView, *, wide: bool = False) -> None:
    """Print a line about the message, and its body below it."""
    click.echo(_headline(message, wide=wide))
    if message.body is not None:
        click.echo("\n".join(f"  {printable(line)}" for line in message.body.split("\n")))
    else:
        stored = f" as stored, not decompressed: {message.body_problem}" if message.body_problem else ""
        click.echo(f"  <{message.body_size} bytes{stored}> {b64decode(message.body_base64 or '')[:32].hex(' ')}")


def _headline(message: MessageView, *, wide: bool = False) -> str:
    place = f"{message.broker}/{message.queue_id} offset {message.queue_offset}  {moment(message.stored_ms)}"
    parts = [style(place, dim=True)]
    parts += [style(printable(message.tags), fg="cyan")] if message.tags else []
    parts += [style(f"keys {printable(message.keys)}", fg="blue")] if message.keys else []
    if wide:
        parts.append(f"msgId {message.message_id}  offsetMsgId {message.offset_message_id}  from {message.born_host}")
        parts += [printable(f"{name}={value}") for name, value in message.properties.items()]
    return "  ".join(parts)


def _print_tsv(message: MessageView) -> None:
    body = b64decode(message.body_base64).hex() if message.body_base64 is not None else message.body
    fields = (message.topic, message.broker, message.queue_id, message.queue_offset, message.stored_ms)
    last = (message.tags or "-", message.keys or "-", body)
    click.echo("\t".join(str(f).translate({9: "\\t", 10: "\\n", 13: "\\r"}) for f in (*fields, *last)))


def _body_in_form(message: MessageView, form: str) -> list[str]:
    """Return the lines of a body as text, indented JSON or hex; auto is JSON or text, else hex."""
    body = b64decode(message.body_base64) if message.body_base64 is not None else (message.body or "").encode()
    if form == "none":
        return []
    if form in ("json", "auto") and body[:1] in (b"{", b"["):
        try:
            return orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2).decode().split("\n")
        except orjson.JSONDecodeError:
            pass
    if form == "hex" or (form != "text" and message.body is None):
        return list(_hex_lines(body))
    return [printable(line) for line in body.decode(errors="backslashreplace").split("\n")]


def _hex_lines(body: bytes) -> list[str]:
    lines = []
    for at in range(0, len(body), _HEX_LINE):
        part = body[at : at + _HEX_LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{_HEX_LINE * 3}} {text}")
    return lines
