"""`twinlog log diff`: opening both sides, and the comparison in print."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from twinlog.cluster.cli.common.errors import FAILED, PARTIAL
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option, namesrv_option
from twinlog.cluster.cli.common.progress import progress
from twinlog.cluster.cli.common.render import UNKNOWN, Column, count, print_answer, printable, style, table
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.cli.log.directory import user_errors
from twinlog.cluster.observe.live_diff import LiveDifference, LiveDiffReport, LiveVerdict
from twinlog.cluster.text import moment, size
from twinlog.store.integrity.digest import decode
from twinlog.store.offline.copy.pinned import pinned_log
from twinlog.store.offline.diff import ComparedLog, Difference, DiffRecord, DiffReport, DiffVerdict
from twinlog.store.offline.diff import diff as compare
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.file_series import open_cut
from twinlog.store.util.text import agreeing, counted

# Fields that follow from others or from the place of a message.
_FOLLOWS = {"offset_message_id", "body_base64"}


SIDE_BY_SIDE = [
    Column("", lambda row: row[0]),
    Column("LEFT", lambda row: row[1]),
    Column("RIGHT", lambda row: row[2]),
]


@contextmanager
def open_sides(
    paths: tuple[Path, Path], logs: tuple[Path | None, Path | None], log_file_size: int | None, *, trust_digest: bool
) -> Iterator[tuple[ComparedLog, ComparedLog]]:
    """Open both sides for reading. A file of cut bytes has the file size of the other side."""
    with ExitStack() as stack:
        sides: list[ComparedLog | None] = [None, None]
        for number, path in enumerate(paths):
            if not path.is_file():
                options = DirectoryOptions(
                    commit_log_dirs=tuple(filter(None, [logs[number]])), log_file_size=log_file_size
                )
                store = stack.enter_context(StoreDirectory.open(path, options))
                log = stack.enter_context(pinned_log(store))
                digests = _digests(path) if trust_digest else None
                sides[number] = ComparedLog(str(path), log, store.queues, store.is_running, store.has_crashed, digests)
        known = [side.log.file_size for side in sides if side is not None]
        for number, path in enumerate(paths):
            if sides[number] is None:
                cut = open_cut(path, log_file_size or max(known, default=1 << 30))
                stack.callback(cut.reader.close)
                sides[number] = ComparedLog(str(path), cut, {})
        left, right = sides
        assert left is not None
        assert right is not None
        yield left, right


def _digests(root: Path) -> Any:
    try:
        found = decode((root / "twinlog" / "digest").read_bytes())
    except FileNotFoundError:
        return None
    return None if isinstance(found, str) else found.digests


def show_diff(report: DiffReport, fmt: str) -> None:
    """Print the differences side by side."""
    if fmt == "tsv":
        _tsv(report)
        return
    left, right = report.left, report.right
    rows = [
        ("store", left.root, right.root),
        ("log", *(f"{count(side.min_offset)} to {count(side.end_offset)}" for side in (left, right))),
        ("newest message", *(moment(s.last_stored_ms) if s.last_stored_ms else UNKNOWN for s in (left, right))),
    ]
    _print_sides(rows, report.difference, _sentences(report))


def _print_sides(
    rows: list[tuple[str, ...]], difference: Difference | LiveDifference | None, lines: Iterator[str]
) -> None:
    rows += _difference_rows(difference) if difference is not None else []
    table(SIDE_BY_SIDE, rows, "wide")
    click.echo()
    for line in lines:
        click.echo(line)


def _sentences(report: DiffReport) -> Iterator[str]:
    common = f"bytes {count(report.common_start)} to {count(report.common_end)}"
    found = report.difference
    if report.verdict is DiffVerdict.NOTHING_IN_COMMON:
        yield style("nothing in common: one log ends before the other starts", fg="yellow")
        return
    if found is None:
        yield style(f"equal where they overlap, {common}", fg="green")
    else:
        span = f"first at {count(found.first_offset)}, last at {count(found.last_offset)}"
        yield style(f"different in {found.blocks} blocks of 64 KiB: {span}; compared: {common}", fg="red")
        yield from _who_is_wrong(found)
    if report.digest_bytes:
        yield f"{size(report.digest_bytes)} compared by their digests only, {size(report.read_bytes)} read"
    behind = report.right_behind_bytes
    if behind:
        yield f"the {'right' if behind > 0 else 'left'} one is {size(abs(behind))} behind"
    for queue in report.queues or ():
        where = "only one side has it" if queue.first_offset is None else f"first at message {queue.first_offset}"
        yield style(f"queue {queue.topic}/{queue.queue_id} differs: {where}", fg="red")


def _who_is_wrong(found: Difference | LiveDifference) -> Iterator[str]:
    """Name the damaged side, if there is one."""
    broken = [name for name, side in (("left", found.left), ("right", found.right)) if side.problem]
    if len(broken) == 1:
        problem = found.left.problem or found.right.problem
        yield f"the {broken[0]} one is damaged there: {problem}"
    elif not broken:
        yield "both are intact there: different messages were written, or a byte changed that no CRC covers"


def _difference_rows(found: Difference | LiveDifference) -> list[tuple[str, str, str]]:
    left, right = found.left, found.right
    rows = [("there", _place(left), _place(right)), ("it is", left.problem or "sound", right.problem or "sound")]
    if left.message is None and right.message is None:
        return rows
    for name in ("topic", "queue_id", "queue_offset", "stored_ms", "message_id", *found.fields):
        if name in _FOLLOWS or any(name == row[0] for row in rows):
            continue
        rows.append((name, _field(left, name), _field(right, name)))
    return rows


def _place(record: DiffRecord) -> str:
    return f"bytes {record.start_offset} to {record.end_offset}"


def _field(record: DiffRecord, name: str) -> str:
    value = getattr(record.message, name, None)
    if value is None:
        return UNKNOWN
    text = moment(value) if name.endswith("_ms") else printable(str(value))
    return text if len(text) <= 60 else f"{text[:59]}…"


def _tsv(report: DiffReport) -> None:
    columns = [
        Column("VERDICT", lambda r: r.verdict.value),
        Column("COMMON START", lambda r: r.common_start),
        Column("COMMON END", lambda r: r.common_end),
        Column("FIRST DIFFERENCE", lambda r: None if r.difference is None else r.difference.first_offset),
        Column("LAST DIFFERENCE", lambda r: None if r.difference is None else r.difference.last_offset),
        Column("RIGHT BEHIND", lambda r: r.right_behind_bytes),
    ]
    table(columns, [report], "tsv")


@click.command(
    "diff",
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
@click.option("--queues", "with_queues", is_flag=True, help="Also compare the consume queues.")
@click.option("--trust-digest", is_flag=True, help="Read only where the stored digests of both differ.")
@click.option(
    "--left-log", type=click.Path(path_type=Path), metavar="DIR", help="Directory of the left log, if not in LEFT."
)
@click.option(
    "--right-log", type=click.Path(path_type=Path), metavar="DIR", help="Directory of the right log, if not in RIGHT."
)
@click.option("--log-file-size", type=click.IntRange(4096), metavar="BYTES", help="mappedFileSizeCommitLog of both.")
@document_option(DiffReport, instead={"--live": LiveDiffReport})
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
    """Compare two logs byte by byte where they overlap: a master and its slave, a store and its backup.

    LEFT and RIGHT are store directories, or files of twinlog/cut/. At the first difference both messages are shown, and which of
    them is damaged. Logs that only start or end at other offsets are not different: the lag is reported. Exit status 0: equal, 1:
    different.

    With --live they are running brokers, with or without traffic, compared up to the end of the shorter log. Two twinlog members
    are compared completely, by digests of the bytes as written; use `twinlog list` and `log verify` for damage on a disk. With a
    RocketMQ broker, samples of records are compared. Exit status 3: a broker cannot be asked, 6: the comparison is incomplete.
    """
    if live:
        if with_queues or trust_digest or left_log or right_log or log_file_size:
            raise click.UsageError("--live excludes the options about store directories")
        _diff_live(left, right, namesrv, fmt)
        return
    with (
        user_errors(),
        open_sides((Path(left), Path(right)), (left_log, right_log), log_file_size, trust_digest=trust_digest) as sides,
        progress("diff") as show,
    ):
        report = compare(*sides, with_queues=with_queues, progress=show)
    print_answer(report, fmt, show_diff)
    if report.verdict is not DiffVerdict.EQUAL:
        click.get_current_context().exit(FAILED)


def _diff_live(left: str, right: str, namesrv: str, fmt: str) -> None:
    with progress("diff") as show:
        report = run_admin(namesrv, lambda admin: admin.live_diff(left, right, show))
    print_answer(report, fmt, show_live_diff)
    click.get_current_context().exit(EXIT_STATUS[report.verdict])


EXIT_STATUS = {
    LiveVerdict.EQUAL: 0,
    LiveVerdict.SAMPLES_EQUAL: 0,
    LiveVerdict.DIFFERENT: FAILED,
    LiveVerdict.NOTHING_IN_COMMON: FAILED,
    LiveVerdict.INCOMPLETE: PARTIAL,
}


def show_live_diff(report: LiveDiffReport, fmt: str) -> None:
    """Print both sides and the result."""
    if fmt == "tsv":
        _live_tsv(report)
        return
    left, right = report.left, report.right
    rows = [
        ("member", left.name, right.name),
        ("address", left.address, right.address),
        ("software", left.software, right.software),
        ("role", left.role or UNKNOWN, right.role or UNKNOWN),
        ("log", *(f"{count(side.min_offset)} to {count(side.end_offset)}" for side in (left, right))),
    ]
    _print_sides(rows, report.difference, _live_sentences(report))


def _live_sentences(report: LiveDiffReport) -> Iterator[str]:
    yield verdict_of(report)
    if report.difference is not None:
        yield from _who_is_wrong(report.difference)
    for piece in report.not_compared:
        having = report.left if piece.side == "left" else report.right
        bytes_ = size(piece.end_offset - piece.start_offset)
        where = f"bytes {count(piece.start_offset)} to {count(piece.end_offset)}"
        yield f"not compared: {where} of {having.name} ({bytes_}): {piece.reason}"
    for side in (report.left, report.right):
        if side.damaged_bytes:
            bytes_ = f"{count(side.damaged_bytes)} {agreeing(side.damaged_bytes, 'byte', 'bytes')}"
            damaged = f"{bytes_} of {side.name} changed on its disk since they were written"
            yield style(f"{damaged}: see twinlog log verify there", fg="yellow")


def verdict_of(report: LiveDiffReport) -> str:
    """Return the result in one sentence."""
    common = f"bytes {count(report.common_start)} to {count(report.common_end)}"
    samples = counted(report.samples or 0, "record")
    match report.verdict:
        case LiveVerdict.NOTHING_IN_COMMON:
            return style("nothing in common: one log ends before the other starts", fg="yellow")
        case LiveVerdict.EQUAL:
            return style(f"equal where they overlap, {common}; every byte was compared by digests", fg="green")
        case LiveVerdict.SAMPLES_EQUAL:
            equal = f"{samples} in {common} {agreeing(report.samples or 0, 'is', 'are')} equal"
            return style(f"sampled: {equal}; the others were not compared", fg="green")
        case LiveVerdict.INCOMPLETE:
            why = report.reason or "there is no place at which both report a record"
            return style(f"incomplete: equal up to {count(report.equal_to)} of {common}, then: {why}", fg="yellow")
    assert report.difference is not None
    first = f"first at {count(report.difference.first_offset)}"
    if report.samples is None:
        return style(f"different: {first}; {_common_equal(report)}", fg="red")
    return style(f"sampled: different, {first} of {samples}; {_common_equal(report)}", fg="red")


def _common_equal(report: LiveDiffReport) -> str:
    if report.equal_to <= report.common_start:
        return "nothing before that is common to both"
    what = "all" if report.samples is None else "the samples"
    return f"{what} before that is equal, from byte {count(report.common_start)} on"


def _live_tsv(report: LiveDiffReport) -> None:
    columns = [
        Column("VERDICT", lambda r: r.verdict.value),
        Column("COMPARED BY", lambda r: r.compared_by),
        Column("COMMON START", lambda r: r.common_start),
        Column("COMMON END", lambda r: r.common_end),
        Column("EQUAL TO", lambda r: r.equal_to),
        Column("FIRST DIFFERENCE", lambda r: None if r.difference is None else r.difference.first_offset),
        Column("RIGHT BEHIND", lambda r: r.right_behind_bytes),
    ]
    table(columns, [report], "tsv")
