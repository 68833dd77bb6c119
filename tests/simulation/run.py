"""The command behind scripts/simulate: many seeds in several processes, and a failing one so that it can be understood."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import click

from tests.simulation.holes import HOLES
from tests.simulation.plan import draw
from tests.simulation.simulate import Outcome, run_seed

ROOT = Path(__file__).resolve().parents[2]
LINES_SHOWN = 70
_TOTALS = ("events", "messages", "acked", "refused", "virtual_seconds")


def worker_command(seeds: range, part: int, parts: int, hole: str = "") -> list[str]:
    """A process that runs each parts-th seed, and prints one line of JSON for each."""
    command = [sys.executable, "-m", "tests.simulation.run", "--worker", f"{part}/{parts}"]
    return [*command, "--seeds", f"{seeds.start}..{seeds.stop}", *(["--hole", hole] if hole else [])]


def start_worker(command: list[str]) -> "subprocess.Popen[str]":
    """Strings hash alike in all of them."""
    env = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)


def described(outcome: dict[str, Any], hole: str = "") -> str:
    """What a person needs who wants to know why a seed failed."""
    plan = draw(outcome["seed"])
    lines = outcome["lines"][-LINES_SHOWN:]
    config = " ".join(f"{key}={value}" for key, value in attrs.asdict(plan.config).items())
    return "\n".join(
        [
            f"seed {outcome['seed']} ({plan.config.level}): {outcome['violation']}",
            f"  {config}",
            *(f"  {line}" for line in lines),
            f"  replay: scripts/simulate --seed {outcome['seed']}{f' --hole {hole!r}' if hole else ''}",
        ]
    )


def _seeds(text: str) -> range:
    first, _, end = text.partition("..")
    return range(int(first), int(end)) if end else range(int(first), int(first) + 1)


def _work(seeds: range, part: str, hole: str) -> None:
    number, parts = map(int, part.split("/"))
    for seed in seeds[number::parts]:
        outcome = run_seed(seed, hole=HOLES[hole]() if hole else None)
        print(json.dumps(_plain(outcome)), flush=True)


def _plain(outcome: Outcome) -> dict[str, Any]:
    plain = attrs.asdict(outcome)
    if not outcome.violation:
        plain["lines"] = ()
    return plain


def _run(seeds: range, jobs: int, hole: str, until: float) -> Iterator[dict[str, Any]]:
    """The outcomes as they come; none after `until`, monotonic seconds."""
    workers = [start_worker(worker_command(seeds, part, jobs, hole)) for part in range(jobs)]
    try:
        live = list(workers)
        while live and time.monotonic() < until:
            for worker in list(live):
                assert worker.stdout is not None
                line = worker.stdout.readline()
                if line:
                    yield json.loads(line)
                else:
                    live.remove(worker)
                    if worker.wait():
                        raise click.ClickException(f"a worker ended with {worker.returncode}")
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


@click.command()
@click.option("--seed", type=int, help="One seed, with all that is known of it.")
@click.option("--seeds", default="0..500", show_default=True, help="A range, the second number not included.")
@click.option("--minutes", type=float, help="Go on behind the range until so much time has passed.")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--hole", type=click.Choice(sorted(HOLES)), default=None, help="Put a fault into the product first.")
@click.option("--results", type=click.Path(path_type=Path), help="Add the totals to this JSON file.")
@click.option("--worker", hidden=True)
def main(
    seed: int | None,
    seeds: str,
    minutes: float | None,
    jobs: int,
    hole: str | None,
    results: Path | None,
    worker: str | None,
) -> None:
    """Simulate a group of master, two slaves and producers, once for each seed; says which seeds violate what was promised."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        raise click.ClickException("PYTHONHASHSEED must be 0, as scripts/simulate sets it")
    if worker is not None:
        _work(_seeds(seeds), worker, hole or "")
        return
    if seed is not None:
        _one(seed, hole or "")
        return
    wanted, began = _seeds(seeds), time.monotonic()
    until = began + minutes * 60 if minutes is not None else float("inf")
    if minutes is not None:
        wanted = range(wanted.start, wanted.start + 10_000_000)
    totals: dict[str, Any] = {"seeds": 0, "violations": [], **dict.fromkeys(_TOTALS, 0)}
    last = wanted.start
    for outcome in _run(wanted, jobs, hole or "", until):
        totals["seeds"] += 1
        last = max(last, outcome["seed"])
        for name in _TOTALS:
            totals[name] += outcome[name]
        if outcome["violation"]:
            totals["violations"].append(outcome["seed"])
            click.echo(described(outcome, hole or ""))
        elif totals["seeds"] % 50 == 0:
            click.echo(f"{totals['seeds']} seeds, {time.monotonic() - began:.0f} s")
    totals["virtual_seconds"] = round(totals["virtual_seconds"])
    totals["seconds"] = round(time.monotonic() - began, 1)
    click.echo(f"{totals['seeds']} seeds: " + ", ".join(f"{totals[name]} {name}" for name in _TOTALS))
    if results is not None:
        _add_result(results, f"{wanted.start}..{last + 1}", totals)
    if totals["violations"]:
        raise click.ClickException(f"{len(totals['violations'])} seeds failed: {totals['violations']}")


def _one(seed: int, hole: str) -> None:
    plan = draw(seed)
    click.echo(f"seed {seed}: {plan.config}")
    for event in plan.events:
        click.echo(f"  {event}")
    outcome = run_seed(seed, hole=HOLES[hole]() if hole else None)
    for line in outcome.lines:
        click.echo(line)
    click.echo(f"trace {outcome.trace_hash}, {outcome.acked} of {outcome.messages} messages acknowledged")
    if outcome.violation:
        raise click.ClickException(outcome.violation)


def _add_result(path: Path, seeds: str, totals: dict[str, Any]) -> None:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    entry = {
        "range": seeds,
        **totals,
        "commit": git("rev-parse", "HEAD"),
        "changed": bool(git("status", "--porcelain", "--", "store", "ha", "tests/simulation")),
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "command": "scripts/simulate " + " ".join(sys.argv[1:]),
    }
    before = json.loads(path.read_text()) if path.exists() else []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([*before, entry], indent=1) + "\n")


if __name__ == "__main__":
    main()
