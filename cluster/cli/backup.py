"""`twinlog backup` and `twinlog restore`: verified copies of a store."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from twinlog.cluster.cli.common.errors import PARTIAL
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option
from twinlog.cluster.cli.common.progress import progress
from twinlog.cluster.cli.common.render import Column, count, print_answer, table
from twinlog.cluster.cli.log.directory import directory_argument, directory_options, opened, say, user_errors
from twinlog.cluster.text import moment, size
from twinlog.store.config import StoreConfig
from twinlog.store.offline.copy.backup import back_up
from twinlog.store.offline.copy.manifest import Manifest
from twinlog.store.offline.copy.restore import Restored
from twinlog.store.offline.copy.restore import restore as restore_to


@click.command(
    "backup",
    epilog=examples(
        "twinlog backup ~/store /backup/broker-a-$(date +%F)",
        "twinlog backup ~/store /backup/broker-a -o json | jq .end_offset",
        "twinlog restore /backup/broker-a /data/new-store",
    ),
)
@directory_argument
@click.argument("target", type=click.Path(file_okay=False, path_type=Path))
@directory_options
@document_option(Manifest)
def backup(directory: Path, target: Path, fmt: str, **options: Any) -> None:
    """Copy the store in DIR to TARGET, a directory that is new or empty, while its broker runs or is stopped.

    The copy has every message that was stored before the backup started, and the configuration (topics, groups, offsets). It is
    read back from the disk and verified message by message. An interrupted backup continues when it is run again. Messages that
    are damaged in the store are copied as they are, and reported; the exit status is 6 then.
    """
    with opened(directory, **options) as store, progress("backup") as report:
        made = back_up(store, target, report)
    print_answer(made, fmt, partial(_show_backup, target))
    if made.left_out:
        click.echo(f"note: not part of a backup, left out: {', '.join(made.left_out)}", err=True)
    for damage in made.damage:
        where = f"bytes {damage.start_offset} to {damage.end_offset} of the log"
        click.echo(f"damaged in the store, and so in the backup: {where}: {damage.reason}", err=True)
    if made.damage:
        click.echo("Another replica may have these messages; compare with: twinlog log diff DIR DIR", err=True)
        click.get_current_context().exit(PARTIAL)


def _show_backup(target: Path, made: Manifest, fmt: str) -> None:
    if fmt == "tsv":
        _file_table(made, fmt)
        return
    how = "running" if made.source.was_running else "not running"
    click.echo(f"backed up  {made.source.root} ({how}) to {target}")
    log_bytes = made.end_offset - made.min_offset
    click.echo(f"log        bytes {count(made.min_offset)} to {count(made.end_offset)}, {size(log_bytes)}")
    click.echo(f"messages   {count(made.records)}{_span(made)}")
    kinds = [sum(file.path.startswith(place) for file in made.files) for place in ("commitlog/", "config/")]
    click.echo(f"files      {kinds[0]} of the log, {kinds[1]} of the configuration")
    if fmt == "wide":
        click.echo()
        _file_table(made, fmt)
    click.echo(f"To create a store from it: twinlog restore {target} NEW-DIR")


def _span(made: Manifest) -> str:
    if made.first_stored_ms is None or made.last_stored_ms is None:
        return ""
    return f", stored {moment(made.first_stored_ms)} to {moment(made.last_stored_ms)}"


def _file_table(made: Manifest, fmt: str) -> None:
    columns = [
        Column("FILE", lambda f: f.path),
        Column("DATA", lambda f: f.data_size, size, right=True),
        Column("SIZE", lambda f: f.size, size, right=True),
        Column("MODIFIED", lambda f: f.mtime_ns // 1_000_000, moment),
        Column("XXH3 128", lambda f: f.xxh3_128),
    ]
    table(columns, made.files, fmt)


@click.command(
    "restore",
    epilog=examples(
        "twinlog restore /backup/broker-a /data/new-store",
        "twinlog broker -c broker.conf --set storePathRootDir=/data/new-store",
    ),
)
@click.argument("backup", type=click.Path(file_okay=False, path_type=Path))
@directory_argument
@document_option(Restored)
def restore(backup: Path, directory: Path, fmt: str) -> None:
    """Create a store in DIR, a directory that is new or empty, from a backup.

    Every file is verified with the manifest of the backup; consume queues and index are rebuilt from the log. A broker of twinlog
    or RocketMQ starts from it as after a clean stop: as a master, or as a slave that fetches only newer messages.
    """
    unusable = user_errors("The backup cannot be used.", "Use another one, or create one: twinlog backup DIR TARGET")
    with unusable, progress("restore") as report:
        restored = restore_to(backup, directory, report)
    print_answer(restored, fmt, partial(_show_restored, directory))


def _show_restored(directory: Path, restored: Restored, fmt: str) -> None:
    made, rebuilt = restored.manifest, restored.rebuilt
    say(f"restored   {directory}, from {made.source.root} on {made.source.host}", fmt)
    say(f"log        bytes {count(made.min_offset)} to {count(made.end_offset)}", fmt)
    say(f"messages   {count(made.records)}{_span(made)}", fmt)
    say(
        f"rebuilt    {rebuilt.queues} queues, {count(rebuilt.index_keys or 0)} keys in {rebuilt.index_files} files", fmt
    )
    say("A broker that uses it needs this configuration:", fmt)
    say(f"  storePathRootDir={directory.absolute()}", fmt)
    for setting in _settings(made):
        say(f"  {setting}", fmt)


def _settings(made: Manifest) -> list[str]:
    """Return the settings of the store's layout that are not RocketMQ's defaults."""
    default = StoreConfig()
    shape = [
        ("mappedFileSizeCommitLog", made.commit_log_file_size, default.mapped_file_size_commit_log),
        ("mappedFileSizeConsumeQueue", made.consume_queue_file_size, default.consume_queue_file_size),
        ("maxHashSlotNum", made.index_slots, default.max_hash_slot_num),
        ("maxIndexNum", made.index_items, default.max_index_num),
        ("messageDelayLevel", made.message_delay_level, default.message_delay_level),
    ]
    return [f"{key}={value}" for key, value, usual in shape if value != usual]
