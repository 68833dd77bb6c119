"""scripts/faults: rows of the fault matrix on real processes, and what the oracles say of them."""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

import click
from attrs import evolve, frozen

from scripts.fault_matrix.checkers.memory import memory_flat
from scripts.fault_matrix.every_point import EVERY_POINT, every_point
from scripts.fault_matrix.judge import judged_again
from scripts.fault_matrix.needs import missing
from scripts.fault_matrix.results import STATES, document, show
from scripts.fault_matrix.rows import ROWS, SECONDS_TO_RECOVER, Row
from scripts.fault_matrix.run import Report, directory_of, run
from scripts.fault_matrix.schedule import Schedule, all_kinds, one_kind
from scripts.fault_matrix.soak import SOAK, Soak
from scripts.fault_matrix.theirs_command import SYSTEM, command


def chosen(numbers: tuple[int, ...]) -> list[Row]:
    unknown = set(numbers) - {row.number for row in ROWS}
    if unknown:
        have = ", ".join(sorted({str(row.number) for row in ROWS}, key=int))
        raise click.UsageError(f"There is no row {min(unknown)}. There are: {have}.")
    return [row for row in ROWS if not numbers or row.number in numbers]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--row", "numbers", type=int, multiple=True, metavar="N", help="Only this row; repeatable.")
@click.option(
    "--minutes", type=float, default=0.0, help="Go on with further seeds for so long.  [default: each row once]"
)
@click.option("--short", is_flag=True, help="One fault a row, chosen by the seed; not of rows that take minutes.")
@click.option("--soak", type=float, metavar="MINUTES", help="Instead of rows one group, with faults of all kinds.")
@click.option(
    "--every-point",
    "is_every_point",
    is_flag=True,
    help="Instead of rows one run in which members die at every named place.",
)
@click.option("--seed", type=int, help="Of the first run of each row.  [default: by chance]")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the results there, as JSON.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep histories and logs below this directory.")
@click.option("--planted", is_flag=True, help="With the fault that is planted for the row: each run has to fail.")
@click.option("--judge", type=click.Path(exists=True, path_type=Path), help="Judge a kept run again, by its history.")
@click.option("--list", "is_list", is_flag=True, help="Show the rows, and end.")
@click.option("--system", type=click.Choice(["twinlog", SYSTEM]), default="twinlog", help="Whom to break.")
def main(
    numbers: tuple[int, ...],
    minutes: float,
    short: bool,
    soak: float | None,
    is_every_point: bool,
    seed: int | None,
    out: Path | None,
    keep: Path | None,
    planted: bool,
    judge: Path | None,
    is_list: bool,
    system: str,
) -> None:
    """Break a running group in every way of the matrix, heal it, and judge what clients saw and what disks hold.

    Exit status 0 when all oracles of all runs hold, else 1. Rows that need more than this machine gives are skipped with a line;
    with CI=true that is a failure.
    """
    if system == SYSTEM:
        sys.exit(command(numbers, seed, out, keep, missing))
    rows = [row for row in chosen(numbers) if not (short and row.is_long)]
    if is_list:
        list_rows(rows)
        return
    if judge is not None:
        sys.exit(judge_again(rows, judge))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Either way out ends all that was started.
    seed = random.SystemRandom().randrange(1, 1_000_000) if seed is None else seed
    orders = Orders(seed, one_kind if short else all_kinds, planted, keep)
    skipped = {row.key: why for row in rows if (why := missing(row))}
    reports: list[Report] = []
    try:
        if soak:
            turns = soaked(orders, soak)
        elif is_every_point:
            turns = iter([evolve(orders, schedule=every_point).run(EVERY_POINT, orders.seed)])
        else:
            turns = runs(rows, skipped, orders, minutes)
        for report in turns:
            reports.append(report)
            show(report)
    finally:
        if out is not None:
            out.write_text(json.dumps(document(reports, skipped), indent=1) + "\n")
    wrong = [each for each in reports if each.holds is planted]
    what = "runs in which the planted fault was not noticed" if planted else "failed"
    acked = sum(each.counts.get("acknowledged", 0) for each in reports)
    click.echo(
        f"\n{len(reports)} runs, {len(wrong)} {what}, {len(skipped)} rows skipped, {acked} messages acknowledged"
    )
    sys.exit(1 if wrong or (skipped and os.environ.get("CI") == "true") else 0)


@frozen
class Orders:
    """How runs go, whatever their row."""

    seed: int
    schedule: Schedule
    is_planted: bool
    keep: Path | None

    def run(self, row: Row, seed: int) -> Report:
        hole = row.planted if self.is_planted else ""
        with directory_of(row, seed, self.keep) as root:
            return run(row, seed, root, hole=hole, schedule=self.schedule)


def runs(rows: list[Row], skipped: Mapping[str, str], orders: Orders, minutes: float) -> Iterator[Report]:
    """Each row once, then again with other seeds until the time is up."""
    deadline = time.monotonic() + minutes * 60
    for key, why in skipped.items():
        click.echo(f"row {key} is skipped: it {why}")
    left = [row for row in rows if row.key not in skipped and (row.planted or not orders.is_planted)]
    for turn in count() if left else ():
        for row in left:
            if turn and time.monotonic() >= deadline:
                return
            yield orders.run(row, orders.seed + turn)


def soaked(orders: Orders, minutes: float) -> Iterator[Report]:
    """One group for so long, judged by its memory, too."""
    soak = Soak(minutes * 60)
    row = evolve(SOAK, seconds_max=SOAK.seconds_max + minutes * 60)
    report = evolve(orders, schedule=soak).run(row, orders.seed)
    verdicts = (*report.verdicts, memory_flat(soak.lives))
    yield evolve(report, verdicts=verdicts, counts={**report.counts, "memory_mib": soak.thinned()})


def judge_again(rows: list[Row], root: Path) -> int:
    """Whatever needs nothing but the history."""
    named = [row for row in (*rows, SOAK) if root.name.startswith(f"{row.key}-")]
    if not named:
        raise click.UsageError(f"{root.name} is no run that --keep has kept: those are called ROW-LEVEL-SEED.")
    verdicts = judged_again(named[0], root)
    for each in verdicts:
        click.echo(f"{each.oracle} {STATES[each.holds]}  {each.facts}")
        for wrong in each.wrong:
            click.echo(f"      {wrong}")
    return 0 if all(each.holds for each in verdicts) else 1


def list_rows(rows: list[Row]) -> None:
    for row in rows:
        click.echo(f"{row.number:>3} {row.level}  {row.oracles:<8} {row.name}")
        within = f"goes on within {SECONDS_TO_RECOVER:g} s of healing" if row.recovers else "may need somebody"
        needs = f"; needs {', '.join(row.needs)}" if row.needs else ""
        click.echo(f"        {within}{needs}{f'; planted: {row.planted}' if row.planted else ''}")


if __name__ == "__main__":
    main()
