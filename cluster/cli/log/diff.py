"""`twinlog log diff`: opening both sides, and the comparison in print."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twinlog.cluster.cli.common.render import UNKNOWN, Column, count, moment, size, style, table
from twinlog.cluster.cli.log.dump import printable
from twinlog.store.integrity.digest import decode
from twinlog.store.offline.copy.pinned import pinned_log
from twinlog.store.offline.diff import DiffVerdict, Side
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.file_series import open_cut

if TYPE_CHECKING:
    from twinlog.cluster.observe.live_diff import LiveDifference
    from twinlog.store.offline.diff import Difference, DiffRecord, DiffReport

# Where the two messages lie and what follows from that is no field of its own.
_FOLLOWS = {"offset_message_id", "body_base64"}


SIDE_BY_SIDE = [
    Column("", lambda row: row[0]),
    Column("LEFT", lambda row: row[1], str),
    Column("RIGHT", lambda row: row[2], str),
]


@contextmanager
def open_sides(
    paths: tuple[Path, Path], logs: tuple[Path | None, Path | None], log_file_size: int | None, *, trust_digest: bool
) -> Iterator[tuple[Side, Side]]:
    """Both sides for reading. A file of cut bytes takes its file size from the other one."""
    with ExitStack() as stack:
        sides: list[Side | None] = [None, None]
        for number, path in enumerate(paths):
            if not path.is_file():
                options = DirectoryOptions(
                    commit_log_dirs=tuple(filter(None, [logs[number]])), log_file_size=log_file_size
                )
                store = stack.enter_context(StoreDirectory.open(path, options))
                log = stack.enter_context(pinned_log(store))
                digests = _digests(path) if trust_digest else None
                sides[number] = Side(str(path), log, store.queues, store.is_running, store.has_crashed, digests)
        known = [side.log.file_size for side in sides if side is not None]
        for number, path in enumerate(paths):
            if sides[number] is None:
                cut = open_cut(path, log_file_size or max(known, default=1 << 30))
                stack.callback(cut.reader.close)
                sides[number] = Side(str(path), cut, {})
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


def show_diff(report: "DiffReport", fmt: str) -> None:
    """Print what differs, side by side."""
    if fmt == "tsv":
        _tsv(report)
        return
    left, right = report.left, report.right
    rows = [
        ("store", left.root, right.root),
        ("log", *(f"{count(side.min_offset)} to {count(side.end_offset)}" for side in (left, right))),
        ("newest message", *(moment(s.last_stored_ms) if s.last_stored_ms else UNKNOWN for s in (left, right))),
    ]
    if report.difference is not None:
        rows += difference_rows(report.difference)
    table(SIDE_BY_SIDE, rows, "wide")
    click.echo()
    for line in _sentences(report):
        click.echo(line)


def _sentences(report: "DiffReport") -> Iterator[str]:
    common = f"bytes {count(report.common_start)} to {count(report.common_end)}"
    found = report.difference
    if report.verdict is DiffVerdict.NOTHING_IN_COMMON:
        yield style("nothing in common: one log ends before the other begins", fg="yellow")
        return
    if found is None:
        yield style(f"equal over all that both have, {common}", fg="green")
    else:
        span = f"first at {count(found.first_offset)}, last at {count(found.last_offset)}"
        yield style(f"different in {found.blocks} blocks of 64 KiB: {span}; compared: {common}", fg="red")
        yield from who_is_wrong(found)
    if report.digest_bytes:
        yield f"{size(report.digest_bytes)} compared by their digests only, {size(report.read_bytes)} read"
    behind = report.right_behind_bytes
    if behind:
        yield f"the {'right' if behind > 0 else 'left'} one is {size(abs(behind))} behind"
    for queue in report.queues or ():
        where = "only one of the two has it" if queue.first_offset is None else f"first at message {queue.first_offset}"
        yield style(f"queue {queue.topic}/{queue.queue_id} differs: {where}", fg="red")


def who_is_wrong(found: "Difference | LiveDifference") -> Iterator[str]:
    """Which side is damaged, if one is."""
    broken = [name for name, side in (("left", found.left), ("right", found.right)) if side.problem]
    if len(broken) == 1:
        problem = found.left.problem or found.right.problem
        yield f"the {broken[0]} one is damaged there: {problem}"
    elif not broken:
        yield "both are sound there: different messages were written, or a byte changed that no CRC covers"


def difference_rows(found: "Difference | LiveDifference") -> list[tuple[str, str, str]]:
    """What each has there, field by field."""
    left, right = found.left, found.right
    rows = [("there", _place(left), _place(right)), ("it is", left.problem or "sound", right.problem or "sound")]
    if left.message is None and right.message is None:
        return rows
    for name in ("topic", "queue_id", "queue_offset", "stored_ms", "message_id", *found.fields):
        if name in _FOLLOWS or any(name == row[0] for row in rows):
            continue
        rows.append((name, _field(left, name), _field(right, name)))
    return rows


def _place(record: "DiffRecord") -> str:
    return f"bytes {record.start_offset} to {record.end_offset}"


def _field(record: "DiffRecord", name: str) -> str:
    value = getattr(record.message, name, None)
    if value is None:
        return UNKNOWN
    text = moment(value) if name.endswith("_ms") else printable(str(value))
    return text if len(text) <= 60 else f"{text[:59]}…"


def _tsv(report: "DiffReport") -> None:
    columns = [
        Column("VERDICT", lambda r: r.verdict.value),
        Column("COMMON START", lambda r: r.common_start),
        Column("COMMON END", lambda r: r.common_end),
        Column("FIRST DIFFERENCE", lambda r: None if r.difference is None else r.difference.first_offset),
        Column("LAST DIFFERENCE", lambda r: None if r.difference is None else r.difference.last_offset),
        Column("RIGHT BEHIND", lambda r: r.right_behind_bytes),
    ]
    table(columns, [report], "tsv")
