"""Raw results, and how the pages show them: what each says besides its results, and how numbers read."""

import datetime
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import click

from scripts.benchmarks.machine import ROOT, facts

DIRECTORY = ROOT / "docs" / "benchmarks"
Row = dict[str, Any]
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
T = TypeVar("T")


def new_report(benchmark: str, setup: dict[str, Any]) -> dict[str, Any]:
    """A raw result without results."""
    return {
        "benchmark": benchmark,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": f"scripts/bench {' '.join(sys.argv[1:])}",
        "machine": facts(),
        "setup": setup,
        "results": [],
    }


def rounds_option(default: int, what: str = "How often each is measured.") -> Decorator:
    """--rounds."""
    return click.option("--rounds", default=default, show_default=True, help=what)


def out_option(benchmark: str) -> Decorator:
    """--out, where `record` writes."""
    text = f"Raw results. Default: docs/benchmarks/{benchmark}-DATE.json."
    return click.option("--out", type=click.Path(path_type=Path), help=text)


def read_begun(path: Path, benchmark: str) -> dict[str, Any]:
    """A report whose measurement was interrupted. Raises UsageError when it was of something else, or of other code."""
    report: dict[str, Any] = json.loads(path.read_text())
    if report["benchmark"] != benchmark:
        raise click.UsageError(f"{path} holds results of {report['benchmark']}, not of {benchmark}")
    now = facts()["commit"]
    if report["machine"]["commit"] != now:
        raise click.UsageError(f"{path} was measured at commit {report['machine']['commit']}; this is {now}")
    return report


def say(text: str) -> None:
    """Tell how far it is."""
    click.echo(text, err=True)


def record(
    benchmark: str,
    setup: dict[str, Any],
    rows: Iterable[Row],
    line: Callable[[Row], str],
    out: Path | None,
    begun: dict[str, Any] | None = None,
) -> list[Row]:
    """Show each row as it is measured, and write all of them until now; returns them. `begun`: a report that goes on:
    its list of results grows."""
    report = new_report(benchmark, setup) if begun is None else begun | {"setup": setup}
    path = out or DIRECTORY / f"{benchmark}-{report['date'][:10]}.json"
    for row in rows:
        report["results"].append(row)
        click.echo(line(row))
        path.write_text(json.dumps(report, indent=1) + "\n")
    say(f"raw results: {path}")
    results: list[Row] = report["results"]
    return results


@contextmanager
def scratch(prefix: str = "", within: Path | None = None) -> Iterator[Path]:
    """A directory that is removed in the end, whatever is in it."""
    with tempfile.TemporaryDirectory(prefix=prefix, dir=within, ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def in_turn(rounds: int, kinds: Sequence[T]) -> Iterator[tuple[int, T]]:
    """Each of these in each round, every second round backwards, so that what changes on the machine hits all of them alike."""
    for number in range(1, rounds + 1):
        for kind in kinds if number % 2 else reversed(kinds):
            os.sync()  # What the last one left to write is not charged to this one.
            yield number, kind


# Pages


def head(introduction: str, report: dict[str, Any], raw: str, **more: Any) -> str:
    """The head of a page, with what the report says of the run and of the machine."""
    machine = report["machine"]
    known = {
        **machine,
        **report["setup"],
        "commit": machine["commit"][:12],
        "changed": f" with {machine['changed_files']} changed files" if machine["changed_files"] else "",
        "raw": raw,
        "date": report["date"][:10],
        "command": report["command"],
    }
    return introduction.format(**{**known, **more})


def others_of(rows: Iterable[Row]) -> str:
    """The share of CPU time that other work took while these rows were measured: the median, and the most."""
    percents = [max(0.0, row["other_cpu_percent"]) for row in rows] or [0.0]  # The kernel counts its ticks there.
    return f"{median(percents):.0f} % (at most {max(percents):.0f} %)"


def spread(values: Iterable[float], form: str) -> str:
    """The median, with the lowest and highest where they read differently."""
    values = list(values)
    middle, low, high = (format(number, form) for number in (median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def table_line(cells: Iterable[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def all_of(row: Row) -> str:
    """A whole row, for the terminal."""
    return "  ".join(f"{key} {round(value, 3) if isinstance(value, float) else value}" for key, value in row.items())


def numbers_of(row: Row) -> Row:
    """The numbers of a row, rounded, for the terminal."""
    return {key: round(value, 3) for key, value in row.items() if isinstance(value, int | float)}
