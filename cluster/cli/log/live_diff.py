"""`twinlog log diff --live` in print."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from twinlog.cluster.cli.common.errors import FAILED, PARTIAL
from twinlog.cluster.cli.common.render import UNKNOWN, Column, count, size, style, table
from twinlog.cluster.cli.log.diff import SIDE_BY_SIDE, difference_rows, who_is_wrong
from twinlog.cluster.observe.live_diff import LiveVerdict
from twinlog.store.util.text import agreeing, counted

if TYPE_CHECKING:
    from twinlog.cluster.observe.live_diff import LiveDiffReport

EXIT_STATUS = {
    LiveVerdict.EQUAL: 0,
    LiveVerdict.SAMPLES_EQUAL: 0,
    LiveVerdict.DIFFERENT: FAILED,
    LiveVerdict.NOTHING_IN_COMMON: FAILED,
    LiveVerdict.INCOMPLETE: PARTIAL,
}


def show_live_diff(report: "LiveDiffReport", fmt: str) -> None:
    """Print both sides, and what it comes to."""
    if fmt == "tsv":
        _tsv(report)
        return
    left, right = report.left, report.right
    rows = [
        ("member", left.name, right.name),
        ("address", left.address, right.address),
        ("software", left.software, right.software),
        ("role", left.role or UNKNOWN, right.role or UNKNOWN),
        ("log", *(f"{count(side.min_offset)} to {count(side.end_offset)}" for side in (left, right))),
    ]
    if report.difference is not None:
        rows += difference_rows(report.difference)
    table(SIDE_BY_SIDE, rows, "wide")
    click.echo()
    for line in sentences(report):
        click.echo(line)


def sentences(report: "LiveDiffReport") -> Iterator[str]:
    """What it comes to, in words."""
    yield verdict_of(report)
    if report.difference is not None:
        yield from who_is_wrong(report.difference)
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


def verdict_of(report: "LiveDiffReport") -> str:
    """In one sentence."""
    common = f"bytes {count(report.common_start)} to {count(report.common_end)}"
    samples = counted(report.samples or 0, "record")
    match report.verdict:
        case LiveVerdict.NOTHING_IN_COMMON:
            return style("nothing in common: one log ends before the other begins", fg="yellow")
        case LiveVerdict.EQUAL:
            return style(f"equal over all that both have, {common}; every byte was compared, by digests", fg="green")
        case LiveVerdict.SAMPLES_EQUAL:
            equal = f"{samples} in {common} {agreeing(report.samples or 0, 'is', 'are')} equal"
            return style(f"sampled: {equal}; the others were not compared", fg="green")
        case LiveVerdict.INCOMPLETE:
            why = report.reason or "there is no place where both tell a record"
            return style(f"not complete: equal up to {count(report.equal_to)} of {common}, then: {why}", fg="yellow")
    assert report.difference is not None
    first = f"first at {count(report.difference.first_offset)}"
    if report.samples is None:
        return style(f"different: {first}; {common_equal(report)}", fg="red")
    return style(f"sampled: different, {first} of {samples}; {common_equal(report)}", fg="red")


def common_equal(report: "LiveDiffReport") -> str:
    """How far they are equal."""
    if report.equal_to <= report.common_start:
        return "nothing before that is common to both"
    what = "all" if report.samples is None else "the samples"
    return f"{what} before that is equal, from byte {count(report.common_start)} on"


def _tsv(report: "LiveDiffReport") -> None:
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
