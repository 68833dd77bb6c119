"""Printing messages, for consume, tail and peek."""

import sys
from base64 import b64decode
from collections.abc import Callable

import click
import orjson

from twinlog.cluster.admin.message_view import MessageView, view_of
from twinlog.cluster.cli.common.render import json_line, printable, style
from twinlog.cluster.client.messages import ReceivedMessage
from twinlog.cluster.text import moment

TSV_TITLES = "topic\tbroker\tqueue\tqueue_offset\tstored_ms\ttags\tkeys\tbody"
BODY_FORMS = ("auto", "text", "json", "hex", "none")
_HEX_LINE = 16


def printer(fmt: str) -> Callable[[ReceivedMessage], None]:
    """Return a function that prints one message in the format `fmt`; with TSV print the titles first."""
    if fmt == "tsv":
        click.echo(TSV_TITLES)
    one = {"pretty": print_pretty, "wide": _print_wide, "tsv": _print_tsv, "json": _print_json}[fmt]

    def show(message: ReceivedMessage) -> None:
        one(view_of(message))
        sys.stdout.flush()

    return show


def print_pretty(message: MessageView, *, wide: bool = False) -> None:
    """Print a line about the message, and its body below it."""
    click.echo(headline(message, wide=wide))
    if message.body is not None:
        click.echo("\n".join(f"  {printable(line)}" for line in message.body.split("\n")))
    else:
        stored = f" as stored, not decompressed: {message.body_problem}" if message.body_problem else ""
        click.echo(f"  <{message.body_size} bytes{stored}> {b64decode(message.body_base64 or '')[:32].hex(' ')}")


def headline(message: MessageView, *, wide: bool = False) -> str:
    """Format place, store time, tags and keys."""
    place = f"{message.broker}/{message.queue_id} offset {message.queue_offset}  {moment(message.stored_ms)}"
    parts = [style(place, dim=True)]
    parts += [style(printable(message.tags), fg="cyan")] if message.tags else []
    parts += [style(f"keys {printable(message.keys)}", fg="blue")] if message.keys else []
    if wide:
        parts.append(f"msgId {message.message_id}  offsetMsgId {message.offset_message_id}  from {message.born_host}")
        parts += [printable(f"{name}={value}") for name, value in message.properties.items()]
    return "  ".join(parts)


def _print_wide(message: MessageView) -> None:
    print_pretty(message, wide=True)


def _print_tsv(message: MessageView) -> None:
    body = b64decode(message.body_base64).hex() if message.body_base64 is not None else message.body
    fields = (message.topic, message.broker, message.queue_id, message.queue_offset, message.stored_ms)
    last = (message.tags or "-", message.keys or "-", body)
    click.echo("\t".join(str(f).translate({9: "\\t", 10: "\\n", 13: "\\r"}) for f in (*fields, *last)))


def _print_json(message: MessageView) -> None:
    json_line(message)


def body_in_form(message: MessageView, form: str) -> list[str]:
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
