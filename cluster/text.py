"""Formats of numbers, sizes and times for people, shared by command line, dashboard and reports. Pure.

Every number has a unit, thousands are grouped, and an unknown value is a dash. `parse_size` reads sizes.
"""

import re
import time
from datetime import UTC, datetime

UNKNOWN = "\u2013"  # A dash of a figure's width.
NARROW_SPACE = "\u202f"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?i?)B?", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def count(value: int | None, gap: str = NARROW_SPACE) -> str:
    """41203882 -> 41 203 882; lines do not break at the default gap."""
    return UNKNOWN if value is None else f"{value:,}".replace(",", gap)


def size(value: float | None) -> str:
    """Bytes in powers of 1000: 0 B, 812 B, 1.2 MB."""
    if value is None:
        return UNKNOWN
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 999.95 or (unit == "B" and abs(value) < 1000):
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def rate(value: float | None) -> str:
    """Bytes per second: 1.2 MB/s."""
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
    """An estimate, rounded to its precision: 3.4 -> 3 s, 43 -> 45 s, 260 -> 4 min."""
    if value < 10:
        return f"{max(1, round(value))} s"
    if value < 120:
        return f"{round(value / 5) * 5} s"
    return f"{round(value / 60)} min" if value < 7200 else f"{round(value / 3600)} h"


def latency(value: float | None) -> str:
    """Seconds in milliseconds: 0.42 ms, 12 ms, 1.8 s."""
    if value is None:
        return UNKNOWN
    if value >= 1:
        return f"{value:.1f} s"
    return f"{value * 1000:.0f} ms" if value >= 0.01 else f"{value * 1000:.2f} ms"


def clock(at: float) -> str:
    """Local time of day of seconds since 1970: 12:03:11."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def day_and_clock(at: float) -> str:
    """Local date and time of seconds since 1970: 2026-11-22 12:03:11."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def moment(milliseconds: int, *, utc: bool = False) -> str:
    """Date and time of ms since 1970, local unless `utc`: 2026-11-22 12:03:11.042."""
    at = datetime.fromtimestamp(milliseconds / 1000, UTC if utc else None)
    return f"{at.replace(tzinfo=None).isoformat(' ', 'milliseconds')}{' UTC' * utc}"


def parse_size(text: str) -> int:
    """Bytes in `500`, `64kB`, `1MB`, `1GiB`. Raises ValueError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size: expected a number with B, kB, MB, GB, KiB, MiB or GiB")
    number, unit = float(found[1]), found[2].lower()
    factor = 1024 ** (" kmgt".index(unit[0])) if unit.endswith("i") else _UNITS[unit]
    return int(number * factor)
