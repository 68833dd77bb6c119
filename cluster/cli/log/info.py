"""`twinlog log info`: summarises a store directory."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option
from twinlog.cluster.cli.common.render import Column, count, print_answer, style, table
from twinlog.cluster.cli.log.directory import directory_argument, directory_options, opened
from twinlog.cluster.text import moment, size
from twinlog.store.offline.info import StoreInfo, inspect
from twinlog.store.offline.role_info import MemberInfo

_WRITERS = {"rocketmq-4": "RocketMQ 4", "rocketmq-5": "RocketMQ 5", "twinlog": "twinlog"}
_UNREADABLE = "cannot be read: see the error below"
_STATES = {
    "running": "running, process {info.process_id}",
    "stopped": "stopped cleanly",
    "crashed": "not running, and not stopped cleanly: its next start will run recovery",
}


def show_info(info: StoreInfo, fmt: str) -> None:
    """Print the summary; TSV has only the queues."""
    if fmt == "tsv":
        table(_QUEUE_COLUMNS, info.queues, fmt)
        return
    _facts(info)
    if info.queues:
        click.echo()
        if fmt == "wide":
            table(_QUEUE_COLUMNS, info.queues, fmt)
        else:
            by_topic = [list(queues) for _, queues in groupby(info.queues, lambda queue: queue.topic)]
            table(_TOPIC_COLUMNS, by_topic, fmt)
    if fmt == "wide":
        _files(info, fmt)
    for problem in info.problems:
        place = problem.file or (f"{problem.topic}/{problem.queue_id}" if problem.topic else "log")
        at = f" at {problem.phy_offset}" if problem.phy_offset is not None else ""
        click.echo(style(f"{problem.severity}: {place}{at}: {problem.message}", fg="yellow"))
    click.echo()
    click.echo(f"No checksums were verified. To check every message: twinlog log verify {info.root}")


def _facts(info: StoreInfo) -> None:
    log = info.log
    on_disk = sum(file.disk_bytes for file in log.files)
    lines = [
        ("store", info.root),
        ("last written by", _WRITERS[info.writer]),
        ("state", _STATES[info.state].format(info=info)),
        ("log", f"bytes {count(log.min_offset)} to {count(log.end_offset)}, {size(log.end_offset - log.min_offset)}"),
        (
            "",
            f"{len(log.files)} files of {size(log.file_size)}, {size(on_disk)} on the disk"
            if log.files
            else "no files",
        ),
        ("messages", f"{count(info.messages)} in {len(info.queues)} queues"),
        ("stored", f"{_time(info.first_stored_ms)} to {_time(info.last_stored_ms)}"),
    ]
    if info.checkpoint is not None:
        known = info.checkpoint
        words = f"log {_time(known.physic_ms)}, queues {_time(known.logics_ms)}, index {_time(known.index_ms)}"
        lines.append(("on disk up to", words))
    if info.index_files:
        keys = sum(file.keys for file in info.index_files)
        span = f"{_time(info.index_files[0].begin_ms)} to {_time(info.index_files[-1].end_ms)}"
        lines.append(("index", f"{count(keys)} keys in {len(info.index_files)} files, {span}"))
    if info.config_files:
        lines.append(("configuration", ", ".join(file.name for file in info.config_files if ".bak" not in file.name)))
    if info.digest is not None:
        covered = f"bytes {info.digest.start_offset} to {info.digest.end_offset}"
        lines.append(("digests", info.digest.error or covered))
    if info.recovery_point is not None and info.recovery_point.damaged_ranges:
        damaged = info.recovery_point.damaged_ranges
        total = sum(end - start for start, end in damaged)
        lines.append(("known damage", f"{size(total)} in {len(damaged)} places of the log"))
    for cut in info.divergent:
        words = f"{size(cut.size_bytes)} from {count(cut.first_offset)} on, {_time(cut.cut_ms)}: {cut.why}"
        lines += [("was cut", words), ("", f"kept in {cut.path}")]
    lines += _role(info)
    width = max(len(name) for name, _ in lines)
    for name, words in lines:
        click.echo(f"{style(name.ljust(width), dim=True)}  {words}")


def _role(info: StoreInfo) -> Iterable[tuple[str, str]]:
    """Return who the member is, its role, the promised epoch and the epochs of the log."""
    if info.member is not None:
        yield "member", _UNREADABLE if info.member.error else _identity(info.member)
    if info.role is not None:
        role = info.role
        promised = (
            f"{role.role}, brokerId {role.broker_id}; "
            f"promised epoch {role.promised_epoch} to {role.promised_winner_label or '-'}"
        )
        yield (
            "role",
            _UNREADABLE if role.error else promised + ("" if role.is_whole else "; may lack what it acknowledged"),
        )
    if info.history is not None:
        if info.history.error:
            yield "epochs", _UNREADABLE
        for number, entry in enumerate(info.history.epochs):
            who = f"{entry.winner_label or entry.winner or '-'}, {entry.kind}, {_time(entry.began_ms)}"
            yield "" if number else "epochs", f"{entry.epoch} from {count(entry.start_offset)} on: {who}"


def _identity(member: MemberInfo) -> str:
    words = f"{member.id}, made {_time(member.made_ms)}"
    words += f" under {member.made_address}" if member.made_address else ""
    return words + (f"; of {member.group} in {member.cluster}" if member.group else "")


def _time(milliseconds: int | None) -> str:
    return moment(milliseconds) if milliseconds else "-"


_TOPIC_COLUMNS = [  # A row is the queues of a topic.
    Column("TOPIC", lambda queues: queues[0].topic),
    Column("QUEUES", len, right=True),
    Column("MESSAGES", lambda queues: sum(q.messages for q in queues), count, right=True),
    Column("EVER", lambda queues: sum(q.max_offset for q in queues), count, right=True, spare=1),
    Column("LAST MESSAGE", lambda queues: max(q.last_stored_ms or 0 for q in queues) or None, moment),
    Column("ON DISK", lambda queues: sum(q.disk_bytes for q in queues), size, right=True, spare=2),
]
_QUEUE_COLUMNS = [
    Column("TOPIC", lambda q: q.topic),
    Column("QUEUE", lambda q: q.queue_id, right=True),
    Column("FIRST", lambda q: q.min_offset, count, right=True),
    Column("NEXT", lambda q: q.max_offset, count, right=True),
    Column("MESSAGES", lambda q: q.messages, count, right=True),
    Column("LAST MESSAGE", lambda q: q.last_stored_ms, moment),
    Column("FILES", lambda q: q.files, right=True),
    Column("ON DISK", lambda q: q.disk_bytes, size, right=True),
]


def _files(info: StoreInfo, fmt: str) -> None:
    log_files = [
        Column("LOG FILE", lambda f: f.name),
        Column("SIZE", lambda f: f.size_bytes, size, right=True),
        Column("ON DISK", lambda f: f.disk_bytes, size, right=True),
        Column("FIRST MESSAGE", lambda f: f.first_stored_ms, moment),
        Column("MODIFIED", lambda f: f.modified_ms, moment),
    ]
    index_files = [
        Column("INDEX FILE", lambda f: f.name),
        Column("KEYS", lambda f: f.keys, count, right=True),
        Column("FIRST MESSAGE", lambda f: f.begin_ms or None, moment),
        Column("LAST MESSAGE", lambda f: f.end_ms or None, moment),
        Column("FROM OFFSET", lambda f: f.begin_phy_offset, count, right=True),
        Column("TO OFFSET", lambda f: f.end_phy_offset, count, right=True),
        Column("ON DISK", lambda f: f.disk_bytes, size, right=True),
    ]
    others = [
        Column("FILE", lambda f: f.name),
        Column("SIZE", lambda f: f.size_bytes, size, right=True),
        Column("MODIFIED", lambda f: f.modified_ms, moment),
    ]
    for columns, files in (
        (log_files, info.log.files),
        (index_files, info.index_files),
        (others, (*info.config_files, *info.side_files)),
    ):
        if files:
            click.echo()
            table(columns, files, fmt)


@click.command(
    "info",
    epilog=examples(
        "twinlog log info ~/store",
        "twinlog log info ~/store -o wide",
        "twinlog log info ~/store -o json | jq .log.end_offset",
    ),
)
@directory_argument
@directory_options
@document_option(StoreInfo)
def info(directory: Path, fmt: str, **options: Any) -> None:
    """Show a summary of a store directory: who wrote it, the extent of its log, its queues and files.

    FIRST and NEXT are queue offsets, EVER is the number of messages that a topic ever had. No checksums are verified.
    """
    with opened(directory, **options) as store:
        found = inspect(store)
    print_answer(found, fmt, show_info)
