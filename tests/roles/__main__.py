"""scripts/role-rounds: many rounds of tests/roles/rounds.py, and the result as JSON."""

import datetime
import json
import statistics
import tempfile
from functools import partial
from pathlib import Path

import click
import trio

from scripts.benchmarks.machine import facts
from tests.roles.rounds import run_rounds


@click.command()
@click.option("--rounds", default=50, show_default=True)
@click.option("--seed", default=20261122, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the result there.")
def main(rounds: int, seed: int, out: Path | None) -> None:
    """Kill the master in traffic, fail over, let it return, rewind it; so many times."""
    with tempfile.TemporaryDirectory(prefix="twinlog-rounds-") as directory:
        told = trio.run(partial(run_rounds, Path(directory), rounds, seed))
    seconds = [each["kill_to_first_ack_seconds"] for each in told["rounds"]]
    document = {
        "date": datetime.date.today().isoformat(),
        "machine": facts(),
        "kill_to_first_ack_median_seconds": statistics.median(seconds),
        "kill_to_first_ack_max_seconds": max(seconds),
        **told,
    }
    text = json.dumps(document, indent=1)
    if out is not None:
        out.write_text(text + "\n")
    click.echo(text)


if __name__ == "__main__":
    main()
