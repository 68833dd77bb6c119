"""Pictures of what is proved: replicas side by side as they are now, and the coverage over time. SVG, no script.

A range has a state: how old its proof is, as a part of the time within which every byte is to be proved again. States differ
by pattern, not by colour alone, and the older a proof the less ink it has. What is not proved has no ink at all.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.audit.report import ReportedFinding
from twinlog.cluster.pipeline.ledger.rows import FindingRow, MemberRow, ProofRow
from twinlog.cluster.pipeline.report.history import Coverage, History
from twinlog.cluster.pipeline.report.picture import BAR, LOOKS, axis, marks, patterns, sample, samples
from twinlog.cluster.pipeline.report.plots import (
    LEFT,
    RIGHT,
    WIDTH,
    Scale,
    round_values,
    shortened,
    svg,
    text,
    time_axis,
)
from twinlog.cluster.text import moment, seconds, size

_WEEK_S = 7 * 24 * 3600.0
_TOP, _ROW = 20, 58
_MAP_HEIGHT, _AGE_HEIGHT, _BETWEEN = 260, 90, 34


class ProofState(StrEnum):
    """State of a range."""

    NEW = "new"
    MIDDLE = "middle"
    OLD = "old"
    OVERDUE = "overdue"
    PARTLY = "partly"  # Not of all members that have these bytes.


_TILES = {
    ProofState.NEW: '<path class="p-new" d="M0 0h8v8h-8z"/>',
    ProofState.MIDDLE: '<path class="p-ground" d="M0 0h8v8h-8z"/><path class="p-line" d="M0 2h8M0 6h8" stroke-width="2.2"/>',
    ProofState.OLD: '<path class="p-ground" d="M0 0h8v8h-8z"/><circle class="p-new" cx="4" cy="4" r="1.7"/>',
    ProofState.OVERDUE: '<path class="p-ground" d="M0 0h8v8h-8z"/><path class="p-late" d="M-2 2l4-4M0 8l8-8M6 10l4-4"/>',
    ProofState.PARTLY: '<path class="p-ground" d="M0 0h8v8h-8z"/><path class="p-some" d="M0 0l8 8M8 0l-8 8"/>',
}


class Band(NamedTuple):
    """A range of one state."""

    start: int
    end: int
    state: ProofState


def pass_ms(history: History) -> int:
    """The time within which every byte is to be proved again; a week, if none is set."""
    return int(1000 * (history.last.run.full_pass_seconds or _WEEK_S))


def bands(coverage: Coverage, at_ms: int, limit_ms: int, member: str | None = None) -> list[Band]:
    """Proved ranges at a time, of one member or of all; neighbours of one state are one."""
    found: list[Band] = []
    for proof in sorted(coverage.proofs, key=lambda proof: proof.start):
        if member is not None and member not in proof.members:
            continue
        is_whole = member is not None or set(proof.members) >= _who_has(coverage.members, proof)
        state = _state(at_ms - proof.proved, limit_ms) if is_whole else ProofState.PARTLY
        if found and found[-1].end == proof.start and found[-1].state is state:
            found[-1] = found[-1]._replace(end=proof.end)
        else:
            found.append(Band(proof.start, proof.end, state))
    return found


def _who_has(members: Iterable[MemberRow], proof: ProofRow) -> set[str]:
    return {
        each.member
        for each in members
        if each.first is not None and each.last is not None and each.first < proof.end and proof.start < each.last
    }


def _state(age_ms: int, limit_ms: int) -> ProofState:
    if age_ms > limit_ms:
        return ProofState.OVERDUE
    return (ProofState.NEW, ProofState.MIDDLE, ProofState.OLD, ProofState.OLD, ProofState.OLD)[4 * age_ms // limit_ms]


def known(coverage: Coverage) -> list[MemberRow]:
    """Members whose log is known."""
    return [each for each in coverage.members if each.first is not None and each.last is not None]


# Replicas side by side


def replicas(history: History) -> str:
    """One bar for each member over its log; empty if no log is known."""
    members = known(history.last)
    if not members:
        return ""
    scale = Scale(min(each.first or 0 for each in members), max(each.last or 0 for each in members))
    height = _TOP + _ROW * len(members) + 30
    shown = {FindingClass(each.cls) for each in _open(history)}
    parts = [*_tiles("replicas"), *patterns(shown), *axis(scale, height)]
    for row, member in enumerate(members):
        parts += _replica(history, scale, member, _TOP + _ROW * row)
    return svg("replicas", "What is proved of each replica", replicas_as_text(history), height, parts)


def _replica(history: History, scale: Scale, member: MemberRow, top: int) -> Iterator[str]:
    assert member.first is not None
    assert member.last is not None
    left, right = scale.at(member.first), scale.at(member.last)
    yield text(shortened(member.member), 0, top + 12, kind="name")
    yield text(f"{'master' if member.is_master else 'slave'}, {size(member.last - member.first)}", 0, top + 28)
    yield f'<rect class="log" x="{left:.1f}" y="{top}" width="{max(1.0, right - left):.1f}" height="{BAR}"/>'
    for band in bands(history.last, history.last.run.ended, pass_ms(history), member.member):
        x = scale.at(band.start)
        yield _filled("replicas", band, x, top, scale.at(band.end) - x, BAR)
    yield from marks(scale, top, [_marked(each) for each in _open(history) if each.member == member.member])


def _open(history: History) -> list[FindingRow]:
    """Findings with a place in the log that are open."""
    return [
        each
        for each in history.findings
        if each.closed is None and each.offset is not None and FindingClass(each.cls) in LOOKS
    ]


def _marked(row: FindingRow) -> ReportedFinding:
    return ReportedFinding(
        cls=FindingClass(row.cls),
        member=row.member,
        offset=row.offset,
        end=row.end,
        what=row.what,
        why=row.why,
        number=row.id,
    )


def replicas_as_text(history: History) -> str:
    """The picture as text."""
    sentences = []
    now = history.last
    for member in known(now):
        told = [f"{member.member} has bytes {member.first} to {member.last}"]
        of_each: dict[ProofState, int] = {}
        for band in bands(now, now.run.ended, pass_ms(history), member.member):
            of_each[band.state] = of_each.get(band.state, 0) + band.end - band.start
        told += [f"{size(total)} proved {within(state, pass_ms(history))}" for state, total in of_each.items()]
        found = [each for each in _open(history) if each.member == member.member]
        told += [f"number {each.id}, {each.cls} at {each.offset}" for each in found[:10]]
        sentences.append("; ".join(told) + ".")
    return " ".join(sentences)


# Over time


def over_time(history: History) -> str:
    """Offsets upwards, time to the right: what was proved after each run, and below it the age of the oldest proof."""
    logs = [member for coverage in history.drawn for member in known(coverage)]
    if not logs:
        return ""
    times = time_scale(history)
    top, bottom = 12.0, 12.0 + _MAP_HEIGHT
    highest = max(each.last or 0 for each in logs)
    scale = Scale(min(each.first or 0 for each in logs), highest, bottom, top)
    age_top = bottom + _BETWEEN
    age_bottom = age_top + _AGE_HEIGHT
    parts = [*_tiles("time")]
    for tick in round_values(highest, 5):
        if tick >= scale.start:
            y = scale.at(tick)
            parts.append(f'<path class="tick" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
            parts.append(text(size(tick), LEFT - 8, y + 4, anchor="end"))
    parts += time_axis(times, top, age_bottom)
    for coverage, start, end in columns(history):
        parts += _column(history, coverage, times, scale, start, end)
    parts.append(text("place in the log", 0, top + 12, kind="name"))
    parts += [text("age of the", 0, age_top + 12, kind="name"), text("oldest proof", 0, age_top + 30, kind="name")]
    parts += _ages(history, times, age_top, age_bottom)
    return svg("time", "What was proved when", over_time_as_text(history), age_bottom + 40, parts)


def time_scale(history: History) -> Scale:
    """From the first run that is drawn to a little behind the last one, so that this has a width, too."""
    start, end = history.drawn[0].run.started, history.last.run.ended
    usual = (end - start) // max(1, len(history.drawn) - 1) if len(history.drawn) > 1 else 60_000
    return Scale(start, end + max(usual, (end - start) // 50, 1000))


def columns(history: History) -> Iterator[tuple[Coverage, int, int]]:
    """Each drawn run with the time for which its proofs stood. A long one comes in parts, since proofs grow old in it."""
    limit = pass_ms(history) // 4
    ends = [*(each.run.ended for each in history.drawn[1:]), time_scale(history).end]
    for coverage, end in zip(history.drawn, ends, strict=True):
        at = coverage.run.ended
        while at < end:
            until = min(end, at + limit)
            yield coverage, at, until
            at = until


def _column(history: History, coverage: Coverage, times: Scale, scale: Scale, start: int, end: int) -> Iterator[str]:
    logs = known(coverage)
    if not logs:
        return
    left, right = times.at(start), times.at(end)
    low, high = scale.at(min(each.first or 0 for each in logs)), scale.at(max(each.last or 0 for each in logs))
    yield f'<rect class="unproved" x="{left:.1f}" y="{high:.1f}" width="{right - left:.1f}" height="{low - high:.1f}"/>'
    for band in bands(coverage, start, pass_ms(history)):
        y = scale.at(band.end)
        yield _filled("time", band, left, y, right - left, scale.at(band.start) - y)


def _ages(history: History, times: Scale, top: float, bottom: float) -> Iterator[str]:
    limit = pass_ms(history)
    ages = [
        (start, start - coverage.run.oldest_proof)
        for coverage, start, _ in columns(history)
        if coverage.run.oldest_proof
    ]
    scale = Scale(0, max([round(1.15 * limit), *(age for _, age in ages)]), bottom, top)
    yield f'<path class="tick" d="M{LEFT} {bottom:.1f}H{WIDTH - RIGHT}"/>'
    yield f'<path class="limit" d="M{LEFT} {scale.at(limit):.1f}H{WIDTH - RIGHT}"/>'
    yield text(f"limit {duration(limit)}", LEFT - 8, scale.at(limit) + 4, anchor="end")
    yield text("0", LEFT - 8, bottom + 4, anchor="end")
    if ages:
        points = " ".join(f"{times.at(at):.1f},{scale.at(age):.1f}" for at, age in ages)
        yield f'<polyline class="line" points="{points}"/>'
        at, age = ages[-1]
        yield f'<circle class="end" cx="{times.at(at):.1f}" cy="{scale.at(age):.1f}" r="3.5"/>'


def over_time_as_text(history: History) -> str:
    """The picture as text."""
    sentences = []
    for coverage in history.drawn[:: max(1, len(history.drawn) // 8)]:
        run = coverage.run
        upto = "nothing" if run.proved_to is None else f"bytes {run.proved_from} to {run.proved_to}"
        oldest = "" if run.oldest_proof is None else f", the oldest proof {duration(run.ended - run.oldest_proof)} old"
        sentences.append(f"Run {run.run}, {moment(run.ended, utc=True)}: proved {upto} of {run.log_end}{oldest}.")
    return " ".join(sentences)


# What both have


def legend(history: History) -> str:
    """List of the states and of the classes of findings, with a sample each."""
    limit = pass_ms(history)
    items = [sample(f"url(#replicas-{state})", f"proved {within(state, limit)}") for state in ProofState]
    items.append(sample("var(--log)", "not proved yet, or not equal"))
    items += samples({FindingClass(each.cls) for each in _open(history)})
    return f'<ul class="legend">{"".join(items)}</ul>'


def within(state: ProofState, limit_ms: int) -> str:
    """Time at which a range of this state was proved."""
    match state:
        case ProofState.NEW:
            return f"in the last {duration(limit_ms // 4)}"
        case ProofState.MIDDLE:
            return f"in the last {duration(limit_ms // 2)}"
        case ProofState.OLD:
            return f"in the last {duration(limit_ms)}"
        case ProofState.OVERDUE:
            return f"longer ago than {duration(limit_ms)}, the time of a full pass"
        case ProofState.PARTLY:
            return "of some of the members that have it"


def duration(milliseconds: float) -> str:
    """A time span without what nobody needs to know: 7 d, 1 d 18 h."""
    return seconds(max(0.0, milliseconds / 1000)).removesuffix(" 0 h").removesuffix(" 00 min").removesuffix(" 00 s")


def _tiles(prefix: str) -> Iterator[str]:
    """Definitions of the patterns; each picture has its own, so that it can be taken out of the page."""
    for state, inside in _TILES.items():
        yield (
            f'<defs><pattern id="{prefix}-{state}" width="8" height="8" patternUnits="userSpaceOnUse">{inside}</pattern></defs>'
        )


def _filled(prefix: str, band: Band, x: float, y: float, width: float, height: float) -> str:
    size_of_it = f'width="{max(width, 0.6):.1f}" height="{max(height, 0.6):.1f}"'
    title = f"<title>{band.start} to {band.end}</title>"
    return (
        f'<rect class="proved" x="{x:.1f}" y="{y:.1f}" {size_of_it} fill="url(#{prefix}-{band.state})">{title}</rect>'
    )
