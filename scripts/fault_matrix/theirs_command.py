"""scripts/faults --system rocketmq: rows against the real RocketMQ. What they show is data; only the harness can fail here."""

import json
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import click
from attrs import evolve

from scripts.fault_matrix.results import document, show
from scripts.fault_matrix.rows import Row
from scripts.fault_matrix.run import Report, directory_of
from scripts.fault_matrix.theirs import LEFT_OUT, expected_of, their_rows
from scripts.fault_matrix.theirs_run import run_theirs
from tests.support.process_group import jars

SYSTEM = "rocketmq"
GROUP = "one master, one slave, one name server; SYNC_FLUSH, and SYNC_MASTER but at L1"


def command(
    numbers: tuple[int, ...], seed: int | None, out: Path | None, keep: Path | None, missing: Callable[[Row], str]
) -> int:
    """The exit status: 1 where a run could not be made. `missing`: the right or tool that a row lacks."""
    try:
        rows = their_rows(numbers)
    except LookupError as error:
        raise click.UsageError(str(error)) from error
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Either way out ends all that was started.
    seed = random.SystemRandom().randrange(1, 1_000_000) if seed is None else seed
    lacks = "" if shutil.which("java") and shutil.which("mvn") else "needs java and mvn"
    skipped = {row.key: why for row in rows if (why := lacks or missing(row))}
    for key, why in skipped.items():
        click.echo(f"row {key} is skipped: it {why}")
    reports: list[Report] = []
    try:
        for row in rows:
            if row.key not in skipped:
                reports.append(_one(row, seed, keep))
                show(reports[-1])
    finally:
        if out is not None:
            told = {"system": SYSTEM, "version": jars.VERSION, "group": GROUP, **document(reports, skipped)}
            left_out = {str(number): why for number, why in LEFT_OUT.items()}
            out.write_text(json.dumps({**told, "left_out": left_out}, indent=1) + "\n")
    errors = [each for each in reports if each.error]
    click.echo(f"\n{len(reports)} runs, {sum(each.holds for each in reports)} hold, {len(errors)} could not be made")
    return 1 if errors else 0


def _one(row: Row, seed: int, keep: Path | None) -> Report:
    with directory_of(row, seed, keep) as root:
        report = run_theirs(row, seed, root)
    return evolve(report, counts={"system": SYSTEM, "expected": expected_of(row), **report.counts})
