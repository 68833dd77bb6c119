"""`twinlog peek`: shows messages without consuming them."""

from typing import Any

import click

from twinlog.cluster.admin.admin import Admin
from twinlog.cluster.admin.messages import PeekedMessage, is_message_id
from twinlog.cluster.cli.common import complete
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option, namesrv_option
from twinlog.cluster.cli.common.render import json_line, printable, style
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.cli.messages import BODY_FORMS, TSV_TITLES, _print_tsv, body_in_form
from twinlog.cluster.client.messages import ReceivedMessage
from twinlog.cluster.text import moment


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
        _tsv(found)
    else:
        for i, each in enumerate(found):
            click.echo("\n" * bool(i), nl=False)
            _show(each, form, wide=fmt == "wide")


def _tsv(found: tuple[PeekedMessage, ...]) -> None:
    click.echo(TSV_TITLES)
    for each in found:
        _print_tsv(each.message)


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
    lines = body_in_form(message, form)
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
