"""Values that the commands of roles take, and what they print at their end."""

import re
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from twinlog.cluster.admin.repair import RepairPlan, RepairResult
    from twinlog.cluster.admin.roles import ChangeOutcome, Prepared

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)?")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class _Value(click.ParamType):  # type: ignore[type-arg]  # Generic only in click's stubs.
    """A type whose conversion raises ValueError with the words that a person needs."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the option's text."""
        try:
            return self.read(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def read(self, text: str) -> Any:
        raise NotImplementedError


class _Duration(_Value):
    name = "duration"

    def read(self, text: str) -> float:
        found = _DURATION.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"{text!r} is no time: allowed is a number with s, m, h or d")
        return float(found[1]) * _UNITS[found[2] or "s"]


class _Size(_Value):
    name = "size"

    def read(self, text: str) -> int:
        from twinlog.cluster.admin.waiting import parse_size

        return parse_size(text)


class _Loss(_Size):
    name = "loss"

    def read(self, text: str) -> Any:
        return text if text == "unknown" else super().read(text)


class _At(_Value):
    """ms since 1970, by this machine's clock and time zone."""

    name = "time"

    def read(self, text: str) -> Any:
        if text in ("now", "off"):
            return text
        return round(moment_of(text, datetime.now()).timestamp() * 1000)


DURATION, SIZE, LOSS, AT = _Duration(), _Size(), _Loss(), _At()


def moment_of(text: str, now: datetime) -> datetime:
    """The next 03:00, or a date and time that is still to come. Raises ValueError."""
    try:
        if re.fullmatch(r"\d{1,2}:\d\d", text):
            hour, minute = map(int, text.split(":"))
            found = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
            return found if found > now else found + timedelta(days=1)
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: allowed are now, off, HH:MM and YYYY-MM-DDTHH:MM") from None
    if found.timestamp() <= now.timestamp():
        raise ValueError(f"{text} has passed")
    return found


def show_result(result: "ChangeOutcome", prepared: "Prepared", fmt: str) -> None:
    """What became of a switchover or failover."""
    from twinlog.cluster.cli.common.render import Column, count, json_answer, style, table

    if fmt == "json":
        json_answer(result)
        return
    if fmt == "tsv":
        names = ("epoch", "winner", "start_offset", "pause_ms", "lost_bytes")
        table([Column(name, attrgetter(name)) for name in names], [result], fmt)
        return
    group, winner = prepared.group.name, prepared.group.named([result.winner])
    done = f"{winner} is the master of {group} in epoch {result.epoch}, from byte {count(result.start_offset)} on"
    click.echo(style(done, fg="green"))
    if result.pause_ms is not None:
        click.echo(f"write pause {result.pause_ms:.0f} ms")
    if result.lost_bytes != 0:
        lost = "an unknown number of" if result.lost_bytes is None else count(result.lost_bytes)
        click.echo(style(f"{lost} acknowledged bytes were given up", fg="red"))
    if result.kept:
        holders = prepared.group.named(result.kept)
        click.echo(f"{holders} will keep what was given up in twinlog/divergent once they follow")
    if result.absent:
        follows = (
            "It follows by itself when it comes back" if len(result.absent) == 1 else "They follow when they come back"
        )
        click.echo(f"missing: {prepared.group.named(result.absent)}, unreachable since before this began. {follows}")


def show_repair_plan(plan: "RepairPlan", fmt: str) -> None:
    """What a rewind or reinit would put aside."""
    from twinlog.cluster.cli.common.render import Column, count, json_answer, table

    if fmt == "json":
        json_answer(plan)
    elif fmt == "tsv":
        names = ("verb", "member", "first_offset", "end_offset", "why")
        table([Column(name, attrgetter(name)) for name in names], [plan], fmt)
    elif plan.first_offset is None:
        click.echo(f"nothing of {plan.member}'s log would be put aside: {plan.why}")
    else:
        where = f"bytes {count(plan.first_offset)} to {count(plan.end_offset)} of {plan.member}"
        click.echo(f"{where} would be put aside, in twinlog/divergent of its store: {plan.why}")


def show_repaired(result: "RepairResult", fmt: str) -> None:
    """What became of a rewind or reinit."""
    from twinlog.cluster.cli.common.render import Column, count, json_answer, table

    if fmt == "json":
        json_answer(result)
    elif fmt == "tsv":
        columns = [
            Column("PATH", lambda part: part.path),
            Column("FIRST OFFSET", lambda part: part.first_offset),
            Column("SIZE", lambda part: part.size),
            Column("WHY", lambda part: part.why),
        ]
        table(columns, result.kept, fmt)
    else:
        for part in result.kept:
            click.echo(
                f"{count(part.size)} bytes from {count(part.first_offset)} on are kept in {part.path} ({part.why})"
            )
            click.echo(f"    read it there with: twinlog log dump {part.path} --from {part.first_offset} --body")
        click.echo(f"{result.member} follows its master and holds its log up to byte {count(result.written_offset)}")
