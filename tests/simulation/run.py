"""The command behind scripts/simulate: many seeds in several processes, and a failing one so that it can be understood."""

import gc
import itertools
import json
import os
import platform
import selectors
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import click
from attrs import define, field

from tests.simulation import election_holes, etcd_holes, role_holes
from tests.simulation.holes import HOLES
from tests.simulation.role_plan import draw
from tests.simulation.simulate import run_seed

assert role_holes  # Its faults are in HOLES, too, and so are
assert election_holes  # these, and
assert etcd_holes  # these.
ROOT = Path(__file__).resolve().parents[2]
LINES_SHOWN = 70
SILENCE_SECONDS_MAX = 150.0  # A seed gives up before.
_TOTALS = ("events", "messages", "acked", "refused", "elections", "virtual_seconds")


@define
class Job:
    """A seed, and a fault to put into the product for it."""

    seed: int
    hole: str = ""


@define(eq=False)
class Pool:
    """Processes that take jobs, one to a line, and answer each with a line of JSON. Strings hash alike in all of them."""

    workers: list["subprocess.Popen[str]"] = field(factory=list)

    @classmethod
    @contextmanager
    def open(cls, processes: int = 2) -> Iterator["Pool"]:
        """Start the processes, and end them."""
        env = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "tests.simulation.run", "--worker"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        pool = cls([subprocess.Popen(command, cwd=ROOT, env=env, **pipes) for _ in range(processes)])
        try:
            yield pool
        finally:
            for worker in pool.workers:
                worker.kill()
                worker.communicate()

    def run(self, jobs: Iterable[Job]) -> Iterator[dict[str, Any]]:
        """The outcomes, as they come. Who wants no more closes the generator."""
        left, busy = iter(jobs), selectors.DefaultSelector()
        try:
            for worker in self.workers:
                _give(worker, left, busy)
            while busy.get_map():
                ready = busy.select(SILENCE_SECONDS_MAX)
                if not ready:
                    raise RuntimeError(f"no worker has said anything for {SILENCE_SECONDS_MAX:.0f} s")
                for key, _ in ready:
                    yield _take(key.data, busy)
                    _give(key.data, left, busy)  # Now: who has seen enough is not kept waiting for one more.
        except GeneratorExit:  # What is under way would be taken for an answer to the next job.
            for key in list(busy.get_map().values()):
                _take(key.data, busy)
            raise
        finally:
            busy.close()


def _give(worker: "subprocess.Popen[str]", jobs: Iterator[Job], busy: selectors.BaseSelector) -> None:
    job = next(jobs, None)
    if job is not None:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(f"{job.seed} {job.hole}\n")
        worker.stdin.flush()
        busy.register(worker.stdout, selectors.EVENT_READ, worker)


def _take(worker: "subprocess.Popen[str]", busy: selectors.BaseSelector) -> dict[str, Any]:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError(f"a worker ended with {worker.wait()}")
    busy.unregister(worker.stdout)
    return dict(json.loads(line))


def described(outcome: dict[str, Any]) -> str:
    """What a person needs who wants to know why a seed failed."""
    plan = draw(outcome["seed"])
    lines = outcome["lines"][-LINES_SHOWN:]
    hole = f" --hole '{outcome['hole']}'" if outcome["hole"] else ""
    config = " ".join(f"{key}={value}" for key, value in attrs.asdict(plan.config).items())
    return "\n".join(
        [
            f"seed {outcome['seed']} ({plan.config.level}): {outcome['violation']}",
            f"  {config}",
            *(f"  {line}" for line in lines),
            f"  replay: scripts/simulate --seed {outcome['seed']}{hole}",
        ]
    )


def _seeds(text: str) -> range:
    first, _, end = text.partition("..")
    return range(int(first), int(end)) if end else range(int(first), int(first) + 1)


def _work() -> None:
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    for line in sys.stdin:
        seed, _, hole = line.strip().partition(" ")
        outcome = run_seed(int(seed), hole=HOLES[hole]() if hole else None)
        plain = {**attrs.asdict(outcome), "hole": hole, "lines": outcome.lines if outcome.violation else ()}
        print(json.dumps(plain), flush=True)
        gc.collect()  # By itself the oldest generation would wait until there is a gigabyte of it.


@click.command()
@click.option("--seed", type=int, help="One seed, with all that is known of it.")
@click.option("--seeds", default="0..500", show_default=True, help="A range, the second number not included.")
@click.option("--minutes", type=float, help="Go on behind the range until so much time has passed.")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--hole", type=click.Choice(sorted(HOLES)), default=None, help="Put a fault into the product first.")
@click.option("--results", type=click.Path(path_type=Path), help="Add the totals to this JSON file.")
@click.option("--worker", is_flag=True, hidden=True)
def main(
    seed: int | None,
    seeds: str,
    minutes: float | None,
    jobs: int,
    hole: str | None,
    results: Path | None,
    worker: bool,
) -> None:
    """Simulate a group of master, two slaves and producers, once for each seed; says which seeds violate what was promised."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        raise click.ClickException("PYTHONHASHSEED must be 0, as scripts/simulate sets it")
    if worker:
        _work()
        return
    if seed is not None:
        _one(seed, hole or "")
        return
    wanted, began = _seeds(seeds), time.monotonic()
    until = began + minutes * 60 if minutes is not None else float("inf")
    numbers: Iterable[int] = wanted if minutes is None else itertools.count(wanted.start)
    due = itertools.takewhile(lambda _: time.monotonic() < until, numbers)
    totals: dict[str, Any] = {"seeds": 0, "violations": [], **dict.fromkeys(_TOTALS, 0)}
    last = wanted.start
    with Pool.open(jobs) as pool:
        for outcome in pool.run(Job(number, hole or "") for number in due):
            last = max(last, outcome["seed"])
            _count(outcome, totals, time.monotonic() - began)
    totals["virtual_seconds"] = round(totals["virtual_seconds"])
    totals["seconds"] = round(time.monotonic() - began, 1)
    click.echo(f"{totals['seeds']} seeds: " + ", ".join(f"{totals[name]} {name}" for name in _TOTALS))
    if results is not None:
        _add_result(results, f"{wanted.start}..{last + 1}", totals)
    if totals["violations"]:
        raise click.ClickException(f"{len(totals['violations'])} seeds failed: {totals['violations']}")


def _count(outcome: dict[str, Any], totals: dict[str, Any], seconds: float) -> None:
    totals["seeds"] += 1
    for name in _TOTALS:
        totals[name] += outcome[name]
    if outcome["violation"]:
        totals["violations"].append(outcome["seed"])
        click.echo(described(outcome))
    elif totals["seeds"] % 50 == 0:
        click.echo(f"{totals['seeds']} seeds, {seconds:.0f} s")


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
