"""Values of options and arguments: sizes, durations, dates, times, places in a queue."""

import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import click

from twinlog.cluster.text import parse_size

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class _Value(click.ParamType):  # type: ignore[type-arg]  # Generic only in click's stubs.
    """A type of option whose `read` raises ValueError with a message for the user."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self.read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert the text of an option."""
        try:
            return self.read(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _duration(text: str) -> float:
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a duration: expected a number with s, m, h or d")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def _loss(text: str) -> int | str:
    return text if text == "unknown" else parse_size(text)


def _at(text: str) -> int | str:
    """ms since 1970, by this machine's clock and time zone."""
    return text if text in ("now", "off") else round(moment_of(text, datetime.now()).timestamp() * 1000)


DURATION, SIZE = _Value("duration", _duration), _Value("size", parse_size)
LOSS, AT = _Value("loss", _loss), _Value("time", _at)


def moment_of(text: str, now: datetime) -> datetime:
    """Return the next 03:00, or a date and time in the future. Raises ValueError."""
    try:
        if re.fullmatch(r"\d{1,2}:\d\d", text):
            hour, minute = map(int, text.split(":"))
            found = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
            return found if found > now else found + timedelta(days=1)
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: expected now, off, HH:MM or YYYY-MM-DDTHH:MM") from None
    if found.timestamp() <= now.timestamp():
        raise ValueError(f"{text} has passed")
    return found


ALLOWED = (
    "first, last, a time (2026-11-21T12:55:30, 2026-11-21, 12:55), a time ago (30m, 2h, 1d), or @ and milliseconds since"
    " 1970"
)
_AGO = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?")


def moment_ms(text: str, now: float | None = None) -> int:
    """Return the ms since 1970 of a time as users write it. Raises ValueError."""
    now = time.time() if now is None else now
    if found := _AGO.fullmatch(text):
        return round((now - float(found[1]) * _SECONDS[found[2]]) * 1000)
    if text == "now":
        return round(now * 1000)
    if text.startswith("@"):
        return int(text[1:])
    if found := _CLOCK.fullmatch(text):
        today = datetime.fromtimestamp(now)
        at = today.replace(
            hour=int(found[1]), minute=int(found[2]), second=int(found[3] or 0), microsecond=0
        ).timestamp()
        return round((at if at <= now else at - 86400) * 1000)
    return round(datetime.fromisoformat(text).timestamp() * 1000)
