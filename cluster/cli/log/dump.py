"""`twinlog log dump`: which messages, and how they look in print."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

import click

from twinlog.cluster.cli.common.render import Column, cells_of, json_line, moment, plain, style, table

if TYPE_CHECKING:
    from twinlog.store.offline.dump import DumpedMessage

_AT_ONCE = 200  # Messages whose lines get columns of one width.
_BODY_SHOWN_MAX = 60  # Characters, in a table that is not wide.


def moment_or_offset(text: str, option: str) -> tuple[int | None, int | None]:
    """(offset, None) for a number, (None, ms) for @MS or a date. Raises click.UsageError."""
    if text.isdecimal():
        return int(text), None
    try:
        if text.startswith("@"):
            return None, int(text[1:])
        return None, round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise click.UsageError(
            f"{option} {text}: allowed is an offset of the log (269484), a time (2026-11-21T12:55:30, 2026-11-21), or @ and"
            " milliseconds since 1970 (@1795265730000)"
        ) from None


def show_messages(messages: "Iterable[DumpedMessage]", fmt: str, *, with_body: bool) -> int:
    """Print messages as they come; how many there were."""
    if fmt == "json":
        return _each(messages, json_line)
    if fmt == "tsv":
        return _tsv(messages)
    if fmt == "wide":
        return _each(messages, _print_wide)
    return _table(messages, with_body=with_body)


def _each(messages: "Iterable[DumpedMessage]", show: "Callable[[DumpedMessage], None]") -> int:
    shown = 0
    for message in messages:
        show(message)
        shown += 1
    return shown


def _columns(*, with_body: bool) -> list[Column]:
    columns = [
        Column("OFFSET", lambda m: m.phy_offset, right=True),
        Column("SIZE", lambda m: m.size, right=True),
        Column("TOPIC", lambda m: m.topic),
        Column("QUEUE", lambda m: m.queue_id, right=True),
        Column("NUMBER", lambda m: m.queue_offset, right=True),
        Column("STORED", lambda m: m.stored_ms, moment),
        Column("TAGS", lambda m: m.tags, printable),
        Column("KEYS", lambda m: m.keys, printable),
    ]
    return [*columns, Column("BODY", _body, _shortened)] if with_body else columns


def _table(messages: "Iterable[DumpedMessage]", *, with_body: bool) -> int:
    """A table that may be endless: widths only grow."""
    columns, shown, rows = _columns(with_body=with_body), 0, iter(messages)
    while batch := list(islice(rows, _AT_ONCE)):
        lines = plain(columns, cells_of(columns, batch)).split("\n")
        click.echo("\n".join(lines if not shown else lines[1:]))
        shown += len(batch)
    return shown


def _tsv(messages: "Iterable[DumpedMessage]") -> int:
    columns = [
        *_columns(with_body=False),
        Column("MESSAGE ID", lambda m: m.message_id),
        Column("OFFSET MESSAGE ID", lambda m: m.offset_message_id),
        Column("BORN", lambda m: m.born_ms),
        Column("BORN HOST", lambda m: m.born_host),
        Column("TRANSACTION", lambda m: m.transaction),
        Column("BODY SIZE", lambda m: m.body_size),
        Column("BODY", _body),
    ]
    shown = 0

    def counted() -> "Iterator[DumpedMessage]":
        nonlocal shown
        for message in messages:
            shown += 1
            yield message

    table(columns, counted(), "tsv")
    return shown


def _body(message: "DumpedMessage") -> str | None:
    if message.body is not None or message.body_base64 is None:
        return message.body
    from base64 import b64decode

    body = b64decode(message.body_base64)
    if message.body_problem is None:
        return f"<{len(body)} bytes> {body[:32].hex(' ')}"
    # What it is comes before why it is shown so: a table cuts the rest off.
    what = f"not decompressed, {message.compression}, {len(body)} bytes as stored: {message.body_problem}"
    return f"<{what}> {body[:32].hex(' ')}"


def printable(text: str) -> str:
    """Text without characters that a terminal obeys: those are shown as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _shortened(text: str) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= _BODY_SHOWN_MAX else f"{text[: _BODY_SHOWN_MAX - 1]}…"


def _print_wide(message: "DumpedMessage") -> None:
    """Everything of one message, over several lines."""
    head = f"{message.topic}/{message.queue_id} message {message.queue_offset}"
    click.echo(f"{style(head, bold=True)}  {message.size} bytes at {message.phy_offset}")
    stored = f"stored {moment(message.stored_ms)} at {message.store_host}"
    click.echo(f"  {stored}, sent {moment(message.born_ms)} from {message.born_host}")
    click.echo(f"  msgId {message.message_id or '-'}  offsetMsgId {message.offset_message_id}")
    states = [f"flag {message.flag}"] if message.flag else []
    states += [f"transaction {message.transaction}"] if message.transaction else []
    states += [f"compressed with {message.compression}"] if message.compression else []
    states += [f"delivered again {message.reconsume_times} times"] if message.reconsume_times else []
    if states:
        click.echo(f"  {', '.join(states)}")
    for name, value in sorted(message.properties.items()):
        click.echo(f"  {style(printable(name), fg='blue')} {printable(value)}")
    for line in (_body(message) or "").splitlines():
        click.echo(f"  {printable(line)}")
