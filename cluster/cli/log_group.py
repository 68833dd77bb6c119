"""Commands that look into a store directory of RocketMQ or twinlog, running or stopped."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cluster.cli.errors import FAILED, PARTIAL
from cluster.cli.offline import directory_argument, directory_options, opened, options_of, say, told
from cluster.cli.options import document_option, examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.offline.dump import DumpedMessage, Selection
    from store.offline.rebuild import RebuildReport


@click.group(
    "log",
    epilog=examples(
        "twinlog log info ~/store", "twinlog log verify ~/store", "twinlog log dump ~/store --topic orders"
    ),
)
def log_group() -> None:
    """Look into a store directory: RocketMQ's 4.9 or 5.3, or twinlog's, while its broker runs or not.

    DIR is the store's root (storePathRootDir), which holds commitlog/ and consumequeue/. Nothing in it is changed, except by
    rebuild.
    """


@log_group.command(
    "info",
    short_help="Show what a store directory is.",
    epilog=examples(
        "twinlog log info ~/store",
        "twinlog log info ~/store -o wide",
        "twinlog log info ~/store -o json | jq .log.end_offset",
    ),
)
@directory_argument
@directory_options
@document_option("store.offline.info:StoreInfo")
def info(directory: Path, fmt: str, **options: Any) -> None:
    """Show what a store directory is: who wrote it, how far its log goes, what is in its queues.

    FIRST and NEXT are queue offsets, EVER is how many messages a topic ever had. Only cheap facts: no checksum is looked at.
    """
    with opened(directory, **options) as store:
        from store.offline.info import look

        found = look(store)
    if fmt == "json":
        from cluster.cli.render import json_answer

        json_answer(found)
        return
    from cluster.cli.log_info import show_info

    show_info(found, fmt)


@log_group.command(
    "verify",
    short_help="Check every message, queue entry and key.",
    epilog=examples(
        "twinlog log verify ~/store",
        "twinlog log verify ~/store --max-findings 20 -o wide",
        "twinlog log verify ~/store -o json | jq .verdict",
    ),
)
@directory_argument
@click.option("--max-findings", type=click.IntRange(0), metavar="N", help="List so many at most; all are counted.")
@click.option(
    "--processes", type=click.IntRange(1), metavar="N", help="Check with so many processes.  [default: by size]"
)
@directory_options
@document_option("store.offline.verify:VerifyReport")
def verify(directory: Path, fmt: str, max_findings: int | None, processes: int | None, **options: Any) -> None:
    """Check every message of a store, every entry of its queues and index, and its other files.

    Nothing is changed, and a running broker shares no more than the disk. An error is a message that is lost, damaged or cannot
    be found; a warning harms none. The exit status is 0 when there is neither, else 1.
    """
    with opened(directory, **options) as store:
        from cluster.cli.log_verify import shortened, show_verify
        from cluster.cli.progress import progress
        from store.offline.verify import Verdict
        from store.offline.verify import verify as check

        with progress("verify") as show:
            report = shortened(check(store, progress=show, processes=processes), max_findings)
    if fmt == "json":
        from cluster.cli.render import json_answer

        json_answer(report)
    else:
        show_verify(report, fmt)
    if report.verdict is not Verdict.SOUND:
        click.get_current_context().exit(FAILED)


@log_group.command(
    "dump",
    short_help="Print the messages of a log.",
    epilog=examples(
        "twinlog log dump ~/store --topic orders --queue 0 --body",
        "twinlog log dump ~/store --from 2026-11-21T12:55:30 --to 2026-11-21T12:56",
        "twinlog log dump ~/store --from 262144 --count 10 -o wide --body",
        "twinlog log dump ~/store --key order-4711 -o json | jq .phy_offset",
    ),
)
@directory_argument
@click.option("--topic", "topics", multiple=True, metavar="T", help="Only of this topic; repeatable.")
@click.option("--queue", "queues", multiple=True, type=click.IntRange(0), metavar="N", help="Only of this queue id.")
@click.option("--from", "start", metavar="WHERE", help="Only from there on.")
@click.option("--to", "end", metavar="WHERE", help="Only up to there; what is at that very place is left out.")
@click.option("--key", metavar="KEY", help="Only with this among its KEYS, or as its message id (UNIQ_KEY).")
@click.option("--by-index", is_flag=True, help="With --key: look it up instead of reading the whole log.")
@click.option("--count", type=click.IntRange(1), help="Stop after that many.")
@click.option("--body", "with_body", is_flag=True, help="With the bodies.")
@directory_options
@document_option("store.offline.dump:DumpedMessage")
def dump(directory: Path, fmt: str, by_index: bool, with_body: bool, count: int | None, **options: Any) -> None:
    """Print the messages of a log, in the order of the log.

    WHERE is an offset of the log in bytes (269484), a time in your time zone (2026-11-21T12:55:30, 2026-11-21) or with its
    own (2026-11-21T12:55:30+00:00), or milliseconds since 1970 (@1795265730000). Times are those of storing.

    JSON is one object a line. Bodies that are compressed with zlib are decompressed; of others it is said how they are
    compressed. A body that is not UTF-8 is shown in hex, and given as body_base64 in JSON. Damaged parts of the log are told on
    stderr, and make the exit status 6.

    --by-index finds at once what the index has; a message that it lacks, because it is damaged or not level with the log, is only
    found without.
    """
    if by_index and options["key"] is None:
        raise click.UsageError("--by-index needs --key.")
    selection = _selection(**{name: options.pop(name) for name in ("topics", "queues", "start", "end", "key")})
    damaged = 0
    with opened(directory, **options) as store:
        from itertools import islice

        from cluster.cli.log_dump import show_messages
        from store.offline.dump import DumpedMessage, dump_at
        from store.offline.dump import dump as dump_log
        from store.offline.key_lookup import offsets_by_key
        from store.offline.pinned import pinned_log

        def messages(log: Any) -> "Iterator[DumpedMessage]":
            nonlocal damaged
            if by_index and selection.key is not None:
                offsets = offsets_by_key(store, selection.key, selection.topics)
                yield from dump_at(log, offsets, selection, with_body=with_body)
                return
            for found in dump_log(log, selection, with_body=with_body, may_grow=store.is_running):
                if isinstance(found, DumpedMessage):
                    yield found
                else:
                    damaged += 1
                    where = f"bytes {found.start} to {found.end} of the log"
                    click.echo(f"damaged: {where} hold no sound message: {found.reason}", err=True)

        with pinned_log(store) as log:
            shown = show_messages(islice(messages(log), count), fmt, with_body=with_body)
    if not shown:
        click.echo("No message of the log is like that.", err=True)
    if damaged:
        click.get_current_context().exit(PARTIAL)


def _selection(
    topics: tuple[str, ...], queues: tuple[int, ...], start: str | None, end: str | None, key: str | None
) -> "Selection":
    from cluster.cli.log_dump import moment_or_offset
    from store.offline.dump import Selection

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


@log_group.command(
    "diff",
    short_help="Compare two logs.",
    epilog=examples(
        "twinlog log diff /data/master /data/slave",
        "twinlog log diff /data/master /backup/broker-a -o json | jq .difference.first_offset",
        "twinlog log diff ~/store ~/store/twinlog/cut/00000000000000269484-1795265744320",
    ),
)
@click.argument("left", metavar="LEFT", type=click.Path(path_type=Path))
@click.argument("right", metavar="RIGHT", type=click.Path(path_type=Path))
@click.option("--queues", "with_queues", is_flag=True, help="Compare the consume queues, too.")
@click.option("--trust-digest", is_flag=True, help="Read only where the digests that twinlog keeps of both differ.")
@click.option(
    "--left-log", type=click.Path(path_type=Path), metavar="DIR", help="Where the left log lies, if elsewhere."
)
@click.option("--right-log", type=click.Path(path_type=Path), metavar="DIR", help="The same for the right one.")
@click.option("--log-file-size", type=click.IntRange(4096), metavar="BYTES", help="mappedFileSizeCommitLog of both.")
@document_option("store.offline.diff:DiffReport")
def diff(
    left: Path,
    right: Path,
    fmt: str,
    with_queues: bool,
    trust_digest: bool,
    left_log: Path | None,
    right_log: Path | None,
    log_file_size: int | None,
) -> None:
    """Compare two logs, byte by byte, over what both have: a master and its slave, a store and its backup.

    LEFT and RIGHT are store directories, or files of twinlog/cut/. Where they differ first, both messages are shown, and which of
    them is damaged. A log that only begins or ends elsewhere is not different: its lag is told. The exit status is 0 for equal, 1
    for different.
    """
    with told():
        from cluster.cli.log_diff import open_sides
        from cluster.cli.progress import progress
        from store.offline.diff import DiffVerdict
        from store.offline.diff import diff as compare

        with (
            open_sides((left, right), (left_log, right_log), log_file_size, trust_digest=trust_digest) as sides,
            progress("diff") as show,
        ):
            report = compare(*sides, with_queues=with_queues, progress=show)
    if fmt == "json":
        from cluster.cli.render import json_answer

        json_answer(report)
    else:
        from cluster.cli.log_diff import show_diff

        show_diff(report, fmt)
    if report.verdict is not DiffVerdict.EQUAL:
        click.get_current_context().exit(FAILED)


@log_group.command(
    "rebuild",
    short_help="Make queues and index anew from the log.",
    epilog=examples(
        "twinlog log rebuild ~/store --consumequeue --index",
        "twinlog log rebuild ~/store --index --dry-run",
    ),
)
@directory_argument
@click.option("--consumequeue", "queues", is_flag=True, help="Make consumequeue/ anew.")
@click.option("--index", "index", is_flag=True, help="Make index/ anew.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@directory_options
@document_option("store.offline.rebuild:RebuildReport")
def rebuild(directory: Path, queues: bool, index: bool, dry_run: bool, yes: bool, fmt: str, **options: Any) -> None:
    """Make consume queues and index anew from the log of a stopped store.

    They are made beside the old ones, which stay in their place until the new ones are whole and on the disk. Interrupted, run it
    again. A queue whose messages are all gone from the log keeps its numbers. The log is read, never written.
    """
    if not (queues or index):
        raise click.UsageError("Say what to make anew: --consumequeue, --index, or both.")
    with opened(directory, **options) as store:
        from store.offline.rebuild import plan_rebuild

        report = plan_rebuild(store, queues=queues, index=index)
    if not dry_run:
        if not yes and report.process_id is None:
            _ask(f"Replace {' and '.join(report.parts)} in {report.root}?")
        report = _rebuild(directory, report, options, queues=queues, index=index)
    if fmt == "json":
        from cluster.cli.render import json_answer

        json_answer(report)
        return
    _show_rebuild(report, fmt)


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is nobody to ask: add --yes.")
    click.confirm(question, abort=True, err=True)


def _rebuild(
    directory: Path, report: "RebuildReport", options: dict[str, Any], *, queues: bool, index: bool
) -> "RebuildReport":
    with told():
        from attrs import evolve

        from cluster.cli.progress import progress
        from store.offline.rebuild import rebuild as make

        with progress("rebuild") as show:
            done = make(directory, options_of(**options), queues=queues, index=index, progress=show)
    return evolve(report, done=done)


def _show_rebuild(report: "RebuildReport", fmt: str) -> None:
    from cluster.cli.render import count, size

    done = report.done
    if done is None:
        say(f"would read  {size(report.log_bytes)} of log in {report.log_files} files", fmt)
        say(f"would make  {' and '.join(report.parts)} in {report.root}", fmt)
        if report.process_id is not None:
            say(f"but first   stop the broker, process {report.process_id}", fmt)
        return
    say(f"read       {count(done.records)} messages, bytes {count(done.min_offset)} to {count(done.end_offset)}", fmt)
    if done.queues is not None:
        kept = f", of which {done.kept_queues} only keep their numbers" if done.kept_queues else ""
        say(f"queues     {done.queues} with {count(done.queue_messages or 0)} messages{kept}", fmt)
    if done.index_files is not None:
        say(f"index      {count(done.index_keys or 0)} keys in {done.index_files} files", fmt)
    for start, end in done.damaged_ranges:
        click.echo(f"damaged: bytes {start} to {end} of the log hold no message", err=True)
