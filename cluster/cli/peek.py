"""`twinlog peek`: look at messages without consuming them."""

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
@click.option("--topic", metavar="T", shell_complete=complete.topics, help="Look for ID in this topic only.")
@click.option("--key", metavar="KEY", help="Messages with this among their keys.")
@click.option("--queue", type=click.IntRange(0), metavar="Q", help="With --offset: messages of this queue.")
@click.option("--offset", type=click.IntRange(0), metavar="N", help="From this one on.")
@click.option("--broker", metavar="NAME", shell_complete=complete.brokers, help="With --offset: of this broker group.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="So many messages.")
@click.option(
    "--body", "form", type=click.Choice(BODY_FORMS), default="auto", show_default=True, help="How to show it."
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
    """Look at the newest messages of TOPIC, at those with a key or at a place, or at the message called ID.

    All of it is shown: properties, body, and which groups have consumed it. Nothing is consumed, and nobody's place is moved.
    ID is the offsetMsgId that a broker answers, or the msgId that the producer gave; JSON is one object a line.
    """
    if (queue is None) != (offset is None):
        raise click.UsageError("--queue and --offset belong together.")
    if key is not None and queue is not None:
        raise click.UsageError("--key and --queue: one of the two.")

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


_WORDS = {
    "consumed": "has consumed it",
    "filtered": "passed it over: it wants other tags",
    "not yet": "not yet",
    "broadcast": "broadcast: each client reads it for itself",
    "unknown": "never said how far it is in this queue",
}


def _readers(peeked: PeekedMessage, *, wide: bool) -> list[str]:
    if peeked.consumed_by is None:
        return ["its broker does not tell"]
    if not peeked.consumed_by:
        return ["nobody: no group reads the topic"]
    lines = []
    for reader in peeked.consumed_by:
        place = f", it is at {reader.committed_offset}" if wide and reader.committed_offset is not None else ""
        online = "" if reader.clients else "; no client is connected"
        lines.append(f"{reader.group}: {_WORDS[reader.state]}{place}{online}")
    return lines
