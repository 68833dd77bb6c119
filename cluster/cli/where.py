"""Places in a queue, as people say them: first, last, a time, an offset, so many messages further."""

import re
import time
from datetime import datetime
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from twinlog.cluster.admin.offsets import Where

ALLOWED = (
    "first, last, a time (2026-11-21T12:55:30, 2026-11-21, 12:55), a time ago (30m, 2h, 1d), or @ and milliseconds since"
    " 1970"
)
_AGO = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?")


def moment_ms(text: str, now: float | None = None) -> int:
    """ms since 1970 of a time as people write it. Raises ValueError."""
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


def where_to(text: str, option: str) -> "Where":
    """A place for all queues of a topic. Raises click.UsageError."""
    from twinlog.cluster.admin.offsets import At, First, Last

    if text == "first":
        return First()
    if text == "last":
        return Last()
    try:
        return At(moment_ms(text))
    except (ValueError, OverflowError):
        raise click.UsageError(f"{option} {text}: allowed is {ALLOWED}") from None


def where_in_queue(text: str) -> "Where":
    """A place in one queue: an offset, or +N or -N messages from where the group is, too. Raises click.UsageError."""
    from twinlog.cluster.admin.offsets import Offset, Shift

    if text.isdecimal():
        return Offset(int(text))
    if re.fullmatch(r"[+-]\d+", text):
        return Shift(int(text))
    try:
        return where_to(text, "WHERE")
    except click.UsageError:
        raise click.UsageError(
            f"WHERE {text}: allowed is an offset (1234), +N or -N messages from where the group is, {ALLOWED}"
        ) from None
