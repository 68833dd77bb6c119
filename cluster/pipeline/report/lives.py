"""Picture of findings from when they were first seen to when they were repaired, over the times of the coverage. SVG."""

from collections.abc import Iterator, Sequence

from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.ledger.rows import FindingRow
from twinlog.cluster.pipeline.report.coverage import duration, time_scale
from twinlog.cluster.pipeline.report.history import History
from twinlog.cluster.pipeline.report.picture import LOOKS, letter, pattern_name, patterns
from twinlog.cluster.pipeline.report.plots import LEFT, Scale, shortened, svg, text, time_axis
from twinlog.cluster.text import moment

SHOWN = 30
_ROW, _BAR, _TOP = 38, 16, 10
_ENDS = {"repaired": "✓ repaired", "gone": "gone"}


def order(findings: Sequence[FindingRow]) -> list[FindingRow]:
    """Open ones first, by place in the log; then those that are closed, the newest first."""
    return sorted(
        findings,
        key=lambda row: (row.closed is not None, -(row.closed or 0), row.offset if row.offset is not None else 1 << 62),
    )


def lives(history: History) -> str:
    """One bar for each finding; empty if there is none."""
    shown = order(history.findings)[:SHOWN]
    if not shown:
        return ""
    whole = time_scale(history)
    times = Scale(min(whole.start, *(each.first_seen for each in shown)), whole.end)
    bottom = _TOP + _ROW * len(shown)
    parts = [
        *patterns({FindingClass(each.cls) for each in shown}, prefix="lives-"),
        *time_axis(times, _TOP - 4, bottom),
    ]
    for number, row in enumerate(shown):
        parts += _life(row, times, _TOP + _ROW * number)
    return svg("lives", "Findings, from first seen to repaired", as_text(shown), bottom + 40, parts)


def _life(row: FindingRow, times: Scale, top: int) -> Iterator[str]:
    cls = FindingClass(row.cls)
    left, right = times.at(row.first_seen), times.at(row.closed if row.closed is not None else times.end)
    fill = f"url(#lives-{pattern_name(cls)})" if cls in LOOKS else "var(--log)"
    yield text(f"{letter(cls)}{row.id} {row.cls}", 0, top + 12, kind="name")
    yield text(shortened(row.member, 22), 0, top + 28)
    box = f'x="{left:.1f}" y="{top + 4}" width="{max(4.0, right - left):.1f}" height="{_BAR}"'
    yield f'<rect class="mark life" {box} fill="{fill}"/>'
    words = f"{_ENDS.get(row.state, 'open')} after {duration((row.closed or row.last_seen) - row.first_seen)}"
    if row.closed is None:
        words = f"open, first seen {moment(row.first_seen, utc=True)[:16]}"
    room = 8 * len(words)
    if right + room < 970:
        yield text(words, right + 8, top + 17)
    elif left - room > LEFT:
        yield text(words, left - 8, top + 17, anchor="end")
    else:
        yield text(words, left, top + 33)


def as_text(shown: Sequence[FindingRow]) -> str:
    """The picture as text."""
    return " ".join(
        f"Number {row.id}, {row.cls} on {row.member}: seen first {moment(row.first_seen, utc=True)}, "
        f"{'open' if row.closed is None else f'{row.state} {moment(row.closed, utc=True)}'}."
        for row in shown
    )
