"""scripts/spark-rounds: many faults in a random order on one stream, and the result as JSON."""

import datetime
import json
import random
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import trio

from scripts.benchmarks.machine import facts
from tests.spark_cluster.following import Following, readable
from tests.support.process_group import roles
from tests.support.process_group.roles import Traffic, in_thread
from tests.support.spark_cluster.output import check_same, files_that_count, rows
from tests.support.spark_cluster.standalone import ROOT, build_archive, running, unpack

FAULTS = ("kill_executor", "kill_worker", "kill_driver", "be_slow", "kill_master", "switch_over")


@click.command()
@click.option("--rounds", default=30, show_default=True, type=click.IntRange(1, 1000))
@click.option("--seed", default=20261126, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the result there.")
def main(rounds: int, seed: int, out: Path | None) -> None:
    """Follow a topic on a standalone Spark cluster of two workers, and kill what takes part in it, so many times."""
    with tempfile.TemporaryDirectory(prefix="twinlog-spark-rounds-") as directory:
        told = trio.run(partial(run_rounds, Path(directory), rounds, seed))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    document = {"date": datetime.date.today().isoformat(), "commit": commit.strip(), "machine": facts(), **told}
    text = json.dumps(document, indent=1)
    if out is not None:
        out.write_text(text + "\n")
    click.echo(text)


async def run_rounds(directory: Path, count: int, seed: int) -> dict[str, Any]:
    """The faults in order with their seconds, and what was compared in the end. AssertionError: a row is missing, or twice."""
    dice, played = random.Random(seed), []
    archive = build_archive(directory)
    with (
        running(directory / "spark", archive, unpack(archive, directory / "unpacked")) as cluster,
        roles.running(directory / "brokers") as group,
    ):
        stream = Following(cluster, group, directory / "out")
        traffic = Traffic(group.namesrv.address, pause_seconds=0.05)
        async with traffic.flowing(2):
            await traffic.more(20)
            await in_thread(stream.start)
            for _ in range(count):
                name, began = dice.choice(FAULTS), time.monotonic()
                await in_thread(getattr(stream, name))
                played.append({"fault": name, "seconds": round(time.monotonic() - began, 1)})
                click.echo(f"{len(played)} {played[-1]}", err=True)
            await traffic.more(20)
            await in_thread(stream.driver.kill)
        await in_thread(stream.to_the_end)
        expected, found = await readable(group.namesrv.address), rows(stream.out / "rows")
        check_same(found, expected)
        assert traffic.acknowledged.keys() <= {row["value"] for row in found}
        counting = files_that_count(stream.out / "rows")
        return {
            "seed": seed,
            "rounds": played,
            "batches": stream.batches,
            "messages": len(found),
            "acknowledged": len(traffic.acknowledged),
            "missing": 0,
            "twice": 0,
            "files": len(counting),
            "files_of_tasks_that_died": len(set((stream.out / "rows").glob("*.parquet")) - set(counting)),
        }


if __name__ == "__main__":
    main()
