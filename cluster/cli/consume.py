"""The `consume` command, and how a message looks in print."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from cluster.cli.options import examples, format_option, namesrv_option, run_admin

if TYPE_CHECKING:
    from cluster.client.consumer import From, ReceivedMessage

_CONSUME_EXAMPLES = (
    "twinlog consume orders",
    'twinlog consume orders --tags "TagA || TagB" --from last --follow',
    "twinlog consume orders --group audit --count 100 -o json | jq -r .body",
)


@click.command("consume", short_help="Print a topic's messages.", epilog=examples(*_CONSUME_EXAMPLES))
@click.argument("topic")
@namesrv_option
@format_option
@click.option("--group", metavar="G", help="Go on where this group stands, and move its offsets.")
@click.option("--tags", default="*", metavar="EXPR", help='Only these, for example "TagA || TagB".')
@click.option("--from", "start", metavar="first|last|OFFSET", help="Where to begin in each queue.  [default: first]")
@click.option("--count", type=click.IntRange(1), help="Stop after that many messages.")
@click.option("--follow", "-f", is_flag=True, help="Wait for more until Ctrl-C.")
def consume(namesrv: str, topic: str, fmt: str, start: str | None, count: int | None, **options: Any) -> None:
    """Print a topic's messages, over all queues in the order in which they were stored.

    Without --group no offsets are moved: a look disturbs nobody. JSON is one object a line; a body that is not UTF-8 is
    given as body_base64.
    """
    begin = _start(start)
    show = _MESSAGE_PRINTERS[fmt]
    shown = 0

    def deliver(message: "ReceivedMessage") -> bool:
        nonlocal shown
        show(message)
        shown += 1
        return shown != count

    if fmt == "tsv":
        click.echo("topic\tbroker\tqueue\tqueue_offset\tstored_ms\ttags\tkeys\tbody")
    try:
        run_admin(namesrv, lambda admin: admin.consume(topic, deliver, start=begin, **options))
    except KeyboardInterrupt:
        if not options["follow"]:
            raise
    if not shown:
        click.echo(_nothing(topic, start, options["tags"], options["group"]), err=True)


def _nothing(topic: str, start: str | None, tags: str, group: str | None) -> str:
    """What was looked for and is not there."""
    with_tags = f" with the tags {tags}" if tags not in ("", "*") else ""
    place = f" from {start} on" if start not in (None, "first") else ""
    new = f" that are new to the group {group}" if group is not None and start is None else ""
    return f"No messages in {topic}{with_tags}{place}{new}."


def _start(text: str | None) -> "From | int | None":
    from cluster.client.consumer import From

    if text is None:
        return None
    if text in ("first", "last"):
        return From(text)
    if not text.isdigit():
        raise click.UsageError(f"--from {text}: allowed is first, last or a queue offset.")
    return int(text)


def _body_text(message: "ReceivedMessage") -> str | None:
    try:
        return message.body.decode()
    except UnicodeDecodeError:
        return None


def _print_pretty(message: "ReceivedMessage", *, wide: bool = False) -> None:
    from cluster.cli.render import moment, style

    queue = message.queue
    head = f"{queue.broker_name}/{queue.queue_id} offset {message.queue_offset}  {moment(message.store_timestamp)}"
    parts = [style(head, dim=True)]
    parts += [style(message.tags, fg="cyan")] if message.tags else []
    parts += [style(f"keys {message.keys}", fg="blue")] if message.keys else []
    if wide:
        parts.append(f"msgId {message.message_id}  offsetMsgId {message.offset_message_id}  from {message.born_host}")
        parts += [f"{name}={value}" for name, value in _own_properties(message).items()]
    text = _body_text(message)
    click.echo("  ".join(parts))
    click.echo(f"  {text}" if text is not None else f"  <{len(message.body)} bytes> {message.body[:32].hex(' ')}")


def _print_wide(message: "ReceivedMessage") -> None:
    _print_pretty(message, wide=True)


def _print_tsv(message: "ReceivedMessage") -> None:
    text = _body_text(message)
    queue = message.queue
    fields = (queue.topic, queue.broker_name, queue.queue_id, message.queue_offset, message.store_timestamp)
    last = (message.tags or "-", message.keys or "-", message.body.hex() if text is None else text)
    click.echo("\t".join(str(f).translate({9: "\\t", 10: "\\n", 13: "\\r"}) for f in (*fields, *last)))


def _print_json(message: "ReceivedMessage") -> None:
    from base64 import b64encode

    from cluster.cli.render import json_line

    text = _body_text(message)
    body = {"body": text} if text is not None else {"body_base64": b64encode(message.body).decode()}
    json_line(
        {
            "topic": message.queue.topic,
            "broker": message.queue.broker_name,
            "queue_id": message.queue.queue_id,
            "queue_offset": message.queue_offset,
            "message_id": message.message_id,
            "offset_message_id": message.offset_message_id,
            "tags": message.tags or None,
            "keys": message.keys or None,
            "properties": _own_properties(message),
            "born_ms": message.born_timestamp,
            "born_host": message.born_host,
            "stored_ms": message.store_timestamp,
            "reconsume_times": message.reconsume_times,
            **body,
        }
    )


# Properties that clients and brokers keep for themselves. Source: MessageConst (4.9.8).
_SYSTEM_PROPERTIES = frozenset(
    {"UNIQ_KEY", "WAIT", "TAGS", "KEYS", "CLUSTER", "MSG_REGION", "TRACE_ON", "MIN_OFFSET", "MAX_OFFSET", "BORN_HOST"}
)


def _own_properties(message: "ReceivedMessage") -> dict[str, str]:
    """The properties that say something about this message, without those that RocketMQ gives to each."""
    return {name: value for name, value in message.properties.items() if name not in _SYSTEM_PROPERTIES}


_MESSAGE_PRINTERS: "dict[str, Callable[[ReceivedMessage], None]]" = {
    "pretty": _print_pretty,
    "wide": _print_wide,
    "tsv": _print_tsv,
    "json": _print_json,
}
