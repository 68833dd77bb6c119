"""Axes of the pictures: places of offsets and times, and round numbers for their ticks. Pure.

Pictures are WIDTH units wide, with room for names at the left. Times are ms since 1970, shown in UTC.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from html import escape

from attrs import frozen

WIDTH, LEFT, RIGHT = 1000, 190, 30
_MINUTE = 60_000
_HOUR, _DAY = 60 * _MINUTE, 24 * 60 * _MINUTE
_STEPS_MS = (
    *(_MINUTE * n for n in (1, 2, 5, 10, 30)),
    *(_HOUR * n for n in (1, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 7, 14, 28, 91, 182, 364)),
)
_TICKS_MAX = 7


@frozen
class Scale:
    """Numbers `start` to `end` as coordinates `low` to `high`; by default x coordinates from left to right."""

    start: int
    end: int
    low: float = LEFT
    high: float = WIDTH - RIGHT

    def at(self, value: float) -> float:
        """Coordinate of a value, at the edge if it lies outside."""
        within = min(max(value, self.start), self.end) - self.start
        return self.low + (self.high - self.low) * within / max(1, self.end - self.start)


def time_ticks(start_ms: int, end_ms: int) -> list[int]:
    """Round times within a span, at most eight."""
    step = next((each for each in _STEPS_MS if (end_ms - start_ms) / each <= _TICKS_MAX), _STEPS_MS[-1])
    return list(range(-(-start_ms // step) * step, end_ms + 1, step))


def time_axis(scale: Scale, top: float, bottom: float) -> Iterator[str]:
    """Vertical lines with times below them. The day is named where it is another one."""
    day = ""
    for tick in time_ticks(scale.start, scale.end):
        at = datetime.fromtimestamp(tick / 1000, UTC)
        x, new_day = scale.at(tick), f"{at:%Y-%m-%d}"
        yield f'<path class="tick" d="M{x:.1f} {top:.1f}V{bottom:.1f}"/>'
        lines = [f"{at:%H:%M}"] * (tick % _DAY != 0) + [new_day] * (new_day != day)
        for number, line in enumerate(lines):
            yield text(line, x, bottom + 16 + 15 * number, anchor="middle")
        day = new_day


def round_values(end: int, count: int) -> list[int]:
    """0 and some round numbers up to `end`, about `count` of them."""
    rough = max(1, end / count)
    power = 10 ** (len(str(int(rough))) - 1)
    step = next(int(power * n) for n in (1, 2, 5, 10) if power * n >= rough)
    return list(range(0, end + 1, step))


def text(words: str, x: float, y: float, *, kind: str = "small", anchor: str = "start") -> str:
    """One line of text."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def shortened(name: str, room: int = 24) -> str:
    """A name that is too long for its place, without its start."""
    return name if len(name) <= room else f"…{name[1 - room :]}"


def svg(name: str, title: str, as_text: str, height: float, parts: Iterable[str]) -> str:
    """The element. `name`: a prefix for the ids of title and text, which a page has once."""
    return "".join(
        (
            f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-labelledby="{name}-title {name}-text">',
            f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-text">{escape(as_text)}</desc>',
            *parts,
            "</svg>",
        )
    )
