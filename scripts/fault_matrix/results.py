"""Runs as lines for people and as JSON."""

import datetime
import re
import sys
from collections.abc import Sequence
from typing import Any

import click

from scripts.benchmarks.machine import facts
from scripts.fault_matrix.checkers.verdict import ORACLES
from scripts.fault_matrix.run import Report

STATES = {True: "holds", False: "FAILS"}


def placeless(text: str) -> str:
    """Without the directory that a run had, which says nothing to anybody: m0:x is what lay on the first member's disk."""
    return re.sub(r'[^\s"\\]*/(m\d+)/(?:home/)?', r"\1:", text)


def told(report: Report) -> dict[str, Any]:
    """As JSON has it."""
    row = report.row
    return {
        "row": row.number,
        "level": row.level,
        "name": row.name,
        "seed": report.seed,
        "seconds": round(report.seconds, 1),
        "holds": report.holds,
        "oracles": {
            each.oracle: {"holds": each.holds, "facts": each.facts, "wrong": [placeless(wrong) for wrong in each.wrong]}
            for each in report.verdicts
        },
        **report.counts,
        **({"error": placeless(report.error)} if report.error else {}),
    }


def line(report: Report) -> str:
    """One for a table: row, level, seed, each oracle, numbers."""
    row, counts = report.row, report.counts
    judged = {each.oracle: each.holds for each in report.verdicts}
    marks = " ".join(each if judged.get(each) else f"{each}!" if each in judged else "-" for each in ORACLES)
    slowest = max((each for each in counts.get("recovery_seconds", []) if each is not None), default=None)
    numbers = f"{counts.get('acknowledged', 0):>6} acked  {counts.get('lost') if counts.get('lost') is not None else '?':>3} lost"
    took = f"  back in {slowest:5.2f} s" if slowest is not None else ""
    state = STATES[report.holds]
    return f"{row.number:>3} {row.level}  seed {report.seed:<10} {state}  {marks:<17} {numbers}{took}  {row.name}"


def show(report: Report) -> None:
    """The line, red or green where somebody looks, and what is wrong below it."""
    click.secho(line(report), fg="green" if report.holds else "red")  # click leaves colours out of a pipe.
    for verdict in report.verdicts:
        for wrong in verdict.wrong:
            click.echo(f"      {verdict.oracle} ({ORACLES[verdict.oracle]}): {wrong}")
    if report.error:
        click.echo(f"      {report.error}")


def command(arguments: Sequence[str]) -> str:
    """What was run, without the places where results and logs of it went."""
    left = iter(arguments)
    said = []
    for each in left:
        option, has_value, _ = each.partition("=")
        if option not in ("--out", "--keep"):
            said.append(each)
        elif not has_value:
            next(left, None)
    return " ".join(["scripts/faults", *said])


def document(reports: list[Report], skipped: dict[str, str]) -> dict[str, Any]:
    """What is kept of it."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command(sys.argv[1:]),
        "machine": facts(),
        "acknowledged": sum(each.counts.get("acknowledged", 0) for each in reports),
        "operations": sum(each.counts.get("operations", 0) for each in reports),
        "failed": sum(not each.holds for each in reports),
        "skipped": skipped,
        "runs": [told(each) for each in reports],
    }
