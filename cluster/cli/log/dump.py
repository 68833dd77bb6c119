"""`twinlog log dump`: prints the messages of a log."""

from base64 import b64decode
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import click

from twinlog.cluster.cli.common.errors import PARTIAL
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option
from twinlog.cluster.cli.common.render import Column, cells_of, json_line, plain, printable, style, table
from twinlog.cluster.cli.log.directory import directory_argument, directory_options, opened
from twinlog.cluster.text import moment
from twinlog.store.offline.copy.pinned import pinned_log
from twinlog.store.offline.dump import DumpedMessage, Selection, dump_at
from twinlog.store.offline.dump import dump as dump_log
from twinlog.store.offline.index_view import offsets_by_key
from twinlog.store.record.walk import Gap

_AT_ONCE = 200  # Messages of one batch, whose columns have the same width.
_BODY_SHOWN_MAX = 60  # Characters, without -o wide.


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
            f"{option} {text}: expected an offset of the log (269484), a time (2026-11-21T12:55:30, 2026-11-21), or @ and"
            " milliseconds since 1970 (@1795265730000)"
        ) from None


def show_messages(messages: Iterable[DumpedMessage], fmt: str, *, with_body: bool) -> None:
    """Print messages as they are read."""
    if fmt == "tsv":
        table(_tsv_columns(), messages, fmt)
    elif fmt == "pretty":
        _table(messages, with_body=with_body)
    else:
        show = json_line if fmt == "json" else _print_wide
        for message in messages:
            show(message)


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


def _table(messages: Iterable[DumpedMessage], *, with_body: bool) -> None:
    """Print a table of unknown length in batches."""
    columns, first_line, rows = _columns(with_body=with_body), 0, iter(messages)
    while batch := list(islice(rows, _AT_ONCE)):
        lines = plain(columns, cells_of(columns, batch)).split("\n")
        click.echo("\n".join(lines[first_line:]))
        first_line = 1  # The titles are printed once.


def _tsv_columns() -> list[Column]:
    return [
        *_columns(with_body=False),
        Column("MESSAGE ID", lambda m: m.message_id),
        Column("OFFSET MESSAGE ID", lambda m: m.offset_message_id),
        Column("BORN", lambda m: m.born_ms),
        Column("BORN HOST", lambda m: m.born_host),
        Column("TRANSACTION", lambda m: m.transaction),
        Column("BODY SIZE", lambda m: m.body_size),
        Column("BODY", _body),
    ]


def _body(message: DumpedMessage) -> str | None:
    if message.body is not None or message.body_base64 is None:
        return message.body

    body = b64decode(message.body_base64)
    if message.body_problem is None:
        return f"<{len(body)} bytes> {body[:32].hex(' ')}"
    # The reason comes last, because a table cuts the text.
    what = f"not decompressed, {message.compression}, {len(body)} bytes as stored: {message.body_problem}"
    return f"<{what}> {body[:32].hex(' ')}"


def _shortened(text: str) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= _BODY_SHOWN_MAX else f"{text[: _BODY_SHOWN_MAX - 1]}…"


def _print_wide(message: DumpedMessage) -> None:
    """Print all of one message on several lines."""
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


@click.command(
    "dump",
    epilog=examples(
        "twinlog log dump ~/store --topic orders --queue 0 --body",
        "twinlog log dump ~/store --from 2026-11-21T12:55:30 --to 2026-11-21T12:56",
        "twinlog log dump ~/store --from 262144 --count 10 -o wide --body",
        "twinlog log dump ~/store --key order-4711 -o json | jq .phy_offset",
    ),
)
@directory_argument
@click.option("--topic", "topics", multiple=True, metavar="T", help="Only messages of this topic; repeatable.")
@click.option(
    "--queue",
    "queues",
    multiple=True,
    type=click.IntRange(0),
    metavar="N",
    help="Only messages of this queue id; repeatable.",
)
@click.option("--from", "start", metavar="WHERE", help="Start there.")
@click.option("--to", "end", metavar="WHERE", help="Stop there; a message at this place is excluded.")
@click.option("--key", metavar="KEY", help="Only messages with this key or message id (UNIQ_KEY).")
@click.option("--by-index", is_flag=True, help="With --key: use the index instead of reading the whole log.")
@click.option("--count", type=click.IntRange(1), help="Stop after this number of messages.")
@click.option("--body", "with_body", is_flag=True, help="Print the bodies.")
@directory_options
@document_option(DumpedMessage)
def dump(directory: Path, fmt: str, by_index: bool, with_body: bool, count: int | None, **options: Any) -> None:
    """Print the messages of a log, in the order of the log.

    WHERE is an offset of the log in bytes (269484), a store time in local time (2026-11-21T12:55:30, 2026-11-21) or with a time
    zone (2026-11-21T12:55:30+00:00), or milliseconds since 1970 (@1795265730000).

    JSON is one object per line. Bodies that a client compressed with zlib, lz4 or zstd are decompressed; if that fails, the
    body is printed as stored, and body_problem has the reason. A body that is not UTF-8 is printed in hex, and in JSON as
    body_base64. Damaged parts of the log are reported on stderr; the exit status is 6 then.

    --by-index is fast, but misses messages that are not in the index, because it is damaged or behind the log.
    """
    if by_index and options["key"] is None:
        raise click.UsageError("--by-index requires --key")
    selection = _selection(**{name: options.pop(name) for name in ("topics", "queues", "start", "end", "key")})
    shown = damaged = 0
    with opened(directory, **options) as store:

        def messages(log: Any) -> Iterator[DumpedMessage]:
            nonlocal shown, damaged
            read: Iterable[DumpedMessage | Gap]
            if by_index and selection.key is not None:
                offsets = offsets_by_key(store, selection.key, selection.topics)
                read = dump_at(log, offsets, selection, with_body=with_body)
            else:
                flags = {"may_grow": store.is_running, "after_crash": store.has_crashed}
                read = dump_log(log, selection, with_body=with_body, **flags)
            for found in read:
                if isinstance(found, DumpedMessage):
                    shown += 1
                    yield found
                else:
                    damaged += 1
                    where = f"bytes {found.start} to {found.end} of the log"
                    click.echo(f"damaged: {where} have no readable message: {found.reason}", err=True)

        with pinned_log(store) as log:
            show_messages(islice(messages(log), count), fmt, with_body=with_body)
    if not shown:
        click.echo("No message of the log matches.", err=True)
    if damaged:
        click.get_current_context().exit(PARTIAL)


def _selection(
    topics: tuple[str, ...], queues: tuple[int, ...], start: str | None, end: str | None, key: str | None
) -> Selection:
    from_offset, from_ms = moment_or_offset(start, "--from") if start is not None else (None, None)
    to_offset, to_ms = moment_or_offset(end, "--to") if end is not None else (None, None)
    return Selection(
        topics=frozenset(topics),
        queue_ids=frozenset(queues),
        from_offset=from_offset,
        to_offset=to_offset,
        from_ms=from_ms,
        to_ms=to_ms,
        key=key,
    )
