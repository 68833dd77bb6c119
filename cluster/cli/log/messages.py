"""`twinlog log dump` and `log diff`: the messages of one log, and of two."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twinlog.cluster.cli.common.errors import FAILED, PARTIAL
from twinlog.cluster.cli.common.options import WithAlternative, document_option, examples, namesrv_option, run_admin
from twinlog.cluster.cli.log.directory import directory_argument, directory_options, opened, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinlog.store.offline.dump import DumpedMessage, Selection


@click.command(
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
@document_option("twinlog.store.offline.dump:DumpedMessage")
def dump(directory: Path, fmt: str, by_index: bool, with_body: bool, count: int | None, **options: Any) -> None:
    """Print the messages of a log, in the order of the log.

    WHERE is an offset of the log in bytes (269484), a time in your time zone (2026-11-21T12:55:30, 2026-11-21) or with its
    own (2026-11-21T12:55:30+00:00), or milliseconds since 1970 (@1795265730000). Times are those of storing.

    JSON is one object a line. Bodies that a client compressed with zlib, lz4 or zstd are decompressed; one that cannot be
    is given as it is stored, and body_problem says why. A body that is not UTF-8 is shown in hex, and given as body_base64 in
    JSON. Damaged parts of the log are told on stderr, and make the exit status 6.

    --by-index finds at once what the index has; a message that it lacks, because it is damaged or not level with the log, is only
    found without.
    """
    if by_index and options["key"] is None:
        raise click.UsageError("--by-index needs --key.")
    selection = _selection(**{name: options.pop(name) for name in ("topics", "queues", "start", "end", "key")})
    damaged = 0
    with opened(directory, **options) as store:
        from itertools import islice

        from twinlog.cluster.cli.log.dump import show_messages
        from twinlog.store.offline.copy.pinned import pinned_log
        from twinlog.store.offline.dump import DumpedMessage, dump_at
        from twinlog.store.offline.dump import dump as dump_log
        from twinlog.store.offline.index_view import offsets_by_key

        def messages(log: Any) -> "Iterator[DumpedMessage]":
            nonlocal damaged
            if by_index and selection.key is not None:
                offsets = offsets_by_key(store, selection.key, selection.topics)
                yield from dump_at(log, offsets, selection, with_body=with_body)
                return
            flags = {"may_grow": store.is_running, "after_crash": store.has_crashed}
            for found in dump_log(log, selection, with_body=with_body, **flags):
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
    from twinlog.cluster.cli.log.dump import moment_or_offset
    from twinlog.store.offline.dump import Selection

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


@click.command(
    "diff",
    cls=WithAlternative,
    short_help="Compare two logs.",
    epilog=examples(
        "twinlog log diff /data/master /data/slave",
        "twinlog log diff /data/master /backup/broker-a -o json | jq .difference.first_offset",
        "twinlog log diff ~/store ~/store/twinlog/cut/00000000000000269484-1795265744320",
        "twinlog log diff --live broker-a-0 broker-a-1",
        "twinlog log diff --live 10.0.0.1:10911 10.0.0.2:10911 -o json | jq .verdict",
    ),
)
@click.argument("left", metavar="LEFT")
@click.argument("right", metavar="RIGHT")
@click.option("--live", is_flag=True, help="LEFT and RIGHT are running brokers: names of members, or HOST:PORT.")
@namesrv_option
@click.option("--queues", "with_queues", is_flag=True, help="Compare the consume queues, too.")
@click.option("--trust-digest", is_flag=True, help="Read only where the digests that twinlog keeps of both differ.")
@click.option(
    "--left-log", type=click.Path(path_type=Path), metavar="DIR", help="Where the left log lies, if elsewhere."
)
@click.option("--right-log", type=click.Path(path_type=Path), metavar="DIR", help="The same for the right one.")
@click.option("--log-file-size", type=click.IntRange(4096), metavar="BYTES", help="mappedFileSizeCommitLog of both.")
@document_option(
    "twinlog.store.offline.diff:DiffReport", instead={"--live": "twinlog.cluster.observe.live_diff:LiveDiffReport"}
)
def diff(
    left: str,
    right: str,
    live: bool,
    namesrv: str,
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

    With --live they are running brokers, under traffic or not, that are compared up to where the shorter log ends now: between
    members of twinlog every byte, by digests of what was written; damage on a disk is what `twinlog list` and `log verify` tell.
    With RocketMQ on a side samples of records are compared. The exit status is 3 when one cannot be asked, 6 when the comparison
    could not be completed.
    """
    if live:
        if with_queues or trust_digest or left_log or right_log or log_file_size:
            raise click.UsageError("--live takes none of the options about store directories.")
        _diff_live(left, right, namesrv, fmt)
        return
    with told():
        from twinlog.cluster.cli.common.progress import progress
        from twinlog.cluster.cli.log.diff import open_sides
        from twinlog.store.offline.diff import DiffVerdict
        from twinlog.store.offline.diff import diff as compare

        with (
            open_sides(
                (Path(left), Path(right)), (left_log, right_log), log_file_size, trust_digest=trust_digest
            ) as sides,
            progress("diff") as show,
        ):
            report = compare(*sides, with_queues=with_queues, progress=show)
    if fmt == "json":
        from twinlog.cluster.cli.common.render import json_answer

        json_answer(report)
    else:
        from twinlog.cluster.cli.log.diff import show_diff

        show_diff(report, fmt)
    if report.verdict is not DiffVerdict.EQUAL:
        click.get_current_context().exit(FAILED)


def _diff_live(left: str, right: str, namesrv: str, fmt: str) -> None:
    from twinlog.cluster.cli.common.progress import progress

    with progress("diff") as show:
        report = run_admin(namesrv, lambda admin: admin.live_diff(left, right, show))

    from twinlog.cluster.cli.common.render import json_answer
    from twinlog.cluster.cli.log.live_diff import EXIT_STATUS, show_live_diff

    if fmt == "json":
        json_answer(report)
    else:
        show_live_diff(report, fmt)
    click.get_current_context().exit(EXIT_STATUS[report.verdict])
