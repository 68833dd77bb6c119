"""Picture of the logs of an audit: one bar for each member over its offsets, with findings marked. SVG, no script.

Colour is never the only sign: each class of findings has a pattern and a letter, and each mark its number in the table of
findings. A text describes the picture for readers who cannot see it. Colours are those of Okabe and Ito.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape

from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.audit.report import LOG_CLASSES, AuditedMember, AuditReport, ReportedFinding
from twinlog.cluster.pipeline.report.plots import RIGHT, WIDTH, Scale, shortened, svg, text
from twinlog.cluster.text import size

_TOP, _ROW, BAR = 34, 64, 26
_MARK_WIDTH_MIN = 4.0
_LABEL_ROOM = 16.0  # Numbers closer to each other are omitted.
_TICKS = 5

# By class: letter, colour, pattern in a square of 8.
LOOKS = {
    FindingClass.LAG: ("L", "#56b4e9", '<path d="M0 4h8" stroke="{0}" stroke-width="2"/>'),
    FindingClass.TRUNCATED: ("T", "#0072b2", '<path d="M0 2h8M0 6h8" stroke="{0}" stroke-width="2"/>'),
    FindingClass.HOLE: ("H", "#0072b2", '<circle cx="4" cy="4" r="2.5" fill="{0}"/>'),
    FindingClass.DIVERGENT: ("D", "#d55e00", '<path d="M-2 2l4-4M0 8l8-8M6 10l4-4" stroke="{0}" stroke-width="3"/>'),
    FindingClass.SHIFTED: ("S", "#cc79a7", '<path d="M2 0v8M6 0v8" stroke="{0}" stroke-width="2"/>'),
    FindingClass.SWAPPED: ("W", "#cc79a7", '<path d="M0 0h4v4h-4zM4 4h4v4h-4z" fill="{0}"/>'),
    FindingClass.BIT_ROT: ("B", "#d55e00", '<path d="M0 0h8v8h-8z" fill="{0}"/>'),
    FindingClass.DIFFERS: ("X", "#000000", '<path d="M0 0l8 8M8 0l-8 8" stroke="{0}" stroke-width="1.5"/>'),
}
_NOT_DRAWN = "-"  # For findings without a place in the log.


def letter(cls: FindingClass) -> str:
    """Letter of a class, the same in picture and table."""
    return LOOKS[cls][0] if cls in LOOKS else _NOT_DRAWN


def picture(report: AuditReport) -> str:
    """The SVG element; empty if no member's log is known."""
    known = [member for member in report.members if member.first_offset is not None and member.last_offset is not None]
    if not known or report.start_offset is None or report.end_offset is None:
        return ""
    scale = Scale(report.start_offset, report.end_offset)
    height = _TOP + _ROW * len(known) + 30
    shown = {finding.cls for finding in report.findings if finding.cls in LOOKS}
    parts = [*patterns(shown), *axis(scale, height)]
    for row, member in enumerate(known):
        findings = [each for each in report.findings if each.member == member.name and each.cls in LOOKS]
        parts += _bar(scale, member, _TOP + _ROW * row, findings)
    return svg("picture", "The logs, and where they differ", as_text(report), height, parts)


def as_text(report: AuditReport) -> str:
    """The picture as text."""
    return " ".join(_sentences(report))


def _sentences(report: AuditReport) -> Iterator[str]:
    for member in report.members:
        if member.first_offset is None or member.last_offset is None:
            yield f"{member.name} could not be read."
            continue
        span = f"{member.name} has bytes {member.first_offset} to {member.last_offset}"
        found = [each for each in report.findings if each.member == member.name and each.cls in LOG_CLASSES]
        if not found:
            yield f"{span}, without a marked difference."
            continue
        places = "; ".join(f"number {each.number}, {each.cls.value} at {each.offset}" for each in found[:10])
        more = f"; and {len(found) - 10} more" if len(found) > 10 else ""
        yield f"{span}. Marked: {places}{more}."


def patterns(shown: Collection[FindingClass], *, prefix: str = "") -> Iterator[str]:
    """Definitions of the patterns of some classes. `prefix`: of their ids, where a page has several pictures."""
    yield f"<defs>{''.join(_pattern(cls, prefix) for cls in LOOKS if cls in shown)}</defs>"


def _pattern(cls: FindingClass, prefix: str) -> str:
    _, colour, inside = LOOKS[cls]
    name = prefix + pattern_name(cls)
    ground = '<path class="ground" d="M0 0h8v8h-8z"/>'
    return f'<pattern id="{name}" width="8" height="8" patternUnits="userSpaceOnUse">{ground}{inside.format(colour)}</pattern>'


def pattern_name(cls: FindingClass) -> str:
    """Id of a class's pattern."""
    return f"mark-{cls.value}"


def axis(scale: Scale, height: int) -> Iterator[str]:
    """Vertical lines with sizes below them."""
    for number in range(_TICKS + 1):
        offset = scale.start + (scale.end - scale.start) * number // _TICKS
        at = scale.at(offset)
        anchor = "start" if number == 0 else "end" if number == _TICKS else "middle"
        yield f'<path class="tick" d="M{at:.1f} {_TOP - 8}V{height - 22}"/>'
        yield text(size(offset), at, height - 8, anchor=anchor)


def _bar(scale: Scale, member: AuditedMember, top: int, findings: Sequence[ReportedFinding]) -> Iterator[str]:
    assert member.first_offset is not None
    assert member.last_offset is not None
    left, right = scale.at(member.first_offset), scale.at(member.last_offset)
    role = "master" if member.is_master else "slave"
    yield text(shortened(member.name), 0, top + 12, kind="name")
    yield text(f"{role}, {size(member.last_offset - member.first_offset)}", 0, top + 28)
    yield f'<rect class="log" x="{left:.1f}" y="{top}" width="{max(1.0, right - left):.1f}" height="{BAR}"/>'
    if member.confirmed_offset is not None:
        at = scale.at(member.confirmed_offset)
        yield (
            f'<path class="confirmed" d="M{at:.1f} {top - 4}v{BAR + 8}">'
            f"<title>confirmed up to {member.confirmed_offset}</title></path>"
        )
    yield from marks(scale, top, findings)


def marks(scale: Scale, top: int, findings: Iterable[ReportedFinding]) -> Iterator[str]:
    """Findings on a bar, each with its letter and number below it where there is room."""
    free_from = 0.0
    for finding in sorted((each for each in findings if each.offset is not None), key=lambda each: each.offset or 0):
        assert finding.offset is not None
        left = scale.at(finding.offset)
        width = max(_MARK_WIDTH_MIN, scale.at(finding.end if finding.end is not None else finding.offset) - left)
        left = min(left, WIDTH - RIGHT - width)
        told = f"{finding.number}: {finding.cls.value} at {finding.offset}: {finding.what}"
        yield (
            f'<rect class="mark" x="{left:.1f}" y="{top}" width="{width:.1f}" height="{BAR}"'
            f' fill="url(#{pattern_name(finding.cls)})"><title>{escape(told)}</title></rect>'
        )
        middle = left + width / 2
        if middle >= free_from:
            label = f"{letter(finding.cls)}{finding.number}"
            yield text(label, middle, top + BAR + 13, anchor="middle")
            free_from = middle + _LABEL_ROOM + 4 * len(label)


def legend(report: AuditReport) -> str:
    """List of the patterns, with a sample each."""
    items = list(samples({finding.cls for finding in report.findings}))
    if any(member.confirmed_offset is not None for member in report.members):
        items.append("<li>vertical line: confirmed up to here</li>")
    return f'<ul class="legend">{"".join(items)}</ul>' if items else ""


def samples(shown: Collection[FindingClass]) -> Iterator[str]:
    """Items of a legend, for those of some classes that have a pattern."""
    for cls in LOOKS:
        if cls in shown:
            yield sample(f"url(#{pattern_name(cls)})", f"{letter(cls)}: {cls.value}, {MEANINGS[cls]}")


def sample(fill: str, words: str) -> str:
    """One item of a legend."""
    box = f'<rect width="28" height="16" class="mark" fill="{fill}"/>'
    return f'<li><svg width="28" height="16" aria-hidden="true">{box}</svg> {escape(words)}</li>'


MEANINGS = {
    FindingClass.LAG: "not received yet; no fault",
    FindingClass.TRUNCATED: "the member lost it, or a file is cut",
    FindingClass.HOLE: "no data, and the log continues behind it",
    FindingClass.DIVERGENT: "different messages were written there",
    FindingClass.SHIFTED: "records of another offset",
    FindingClass.SWAPPED: "messages in each other's place",
    FindingClass.BIT_ROT: "bytes changed since they were written",
    FindingClass.DIFFERS: "bytes differ, and nothing shows which are right",
    FindingClass.QUEUE: "a consume queue does not match its log",
    FindingClass.INDEX: "an index is missing or does not match its log",
    FindingClass.CONFIG: "topics, groups or other configuration differ or cannot be read",
    FindingClass.OFFSETS: "consumer offsets differ",
    FindingClass.UNREADABLE: "it could not be read",
}
