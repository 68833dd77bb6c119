"""Numbers as people read them: always with a unit, thousands apart. What is not known is a dash."""

import time

UNKNOWN = "\u2013"  # A dash of a figure's width.
NARROW_SPACE = "\u202f"


def count(value: int | None) -> str:
    """41203882 -> 41 203 882, with spaces at which no line breaks."""
    return UNKNOWN if value is None else f"{value:,}".replace(",", NARROW_SPACE)


def size(value: float | None) -> str:
    """Bytes: 0 B, 812 B, 1.2 MB."""
    if value is None:
        return UNKNOWN
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 999.95 or (unit == "B" and abs(value) < 1000):
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def rate(value: float | None) -> str:
    """Bytes a second."""
    return UNKNOWN if value is None else f"{size(value)}/s"


def seconds(value: float | None) -> str:
    """0 s, 0.4 s, 12 s, 4 min 12 s, 3 h 05 min, 2 d 4 h."""
    if value is None:
        return UNKNOWN
    if value < 10:
        return f"{value:.1f} s" if value >= 0.05 else "0 s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s" if minutes < 10 else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def about(value: float) -> str:
    """An estimate, to no more than it is worth: 3.4 -> 3 s, 43 -> 45 s, 260 -> 4 min."""
    if value < 10:
        return f"{max(1, round(value))} s"
    if value < 120:
        return f"{round(value / 5) * 5} s"
    return f"{round(value / 60)} min" if value < 7200 else f"{round(value / 3600)} h"


def latency(value: float | None) -> str:
    """Seconds as milliseconds: 0.42 ms, 12 ms, 1.8 s."""
    if value is None:
        return UNKNOWN
    if value >= 1:
        return f"{value:.1f} s"
    return f"{value * 1000:.0f} ms" if value >= 0.01 else f"{value * 1000:.2f} ms"


def clock(at: float) -> str:
    """Local time of seconds since 1970: 12:03:11."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def day_and_clock(at: float) -> str:
    """The same with the day: 2026-11-22 12:03:11."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def several(number: int, one: str, many: str) -> str:
    """1 slave, 2 slaves."""
    return f"{number} {one if number == 1 else many}"
