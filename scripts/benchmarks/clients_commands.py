"""scripts/bench consume, latency and idle: the command lines."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from scripts.benchmarks import clients_table, table
from scripts.benchmarks.clients import KINDS, ClientsBench, Row
from scripts.benchmarks.idle import IdleLoad
from scripts.benchmarks.report import new_report

rounds_option = click.option("--rounds", default=3, show_default=True, help="How often each system is measured.")
only_option = click.option("--only", multiple=True, type=click.Choice(KINDS), help="Measure these systems alone.")
out_option = click.option(
    "--out", type=click.Path(path_type=Path), help="Raw results. Default: docs/benchmarks/NAME-DATE.json."
)


@click.command()
@rounds_option
@only_option
@click.option("--mib", default=1024, show_default=True, help="Length of the log.")
@click.option("--consumers", multiple=True, type=int, default=(1, 8), show_default=True, help="Push consumers.")
@out_option
def consume(rounds: int, only: tuple[str, ...], mib: int, consumers: tuple[int, ...], out: Path | None) -> None:
    """Measure how fast push consumers drain a topic, from memory and from the disk. Needs the super-user."""
    setup = {"rounds": rounds, "log_mib": mib, "consumers": consumers}
    _measure("consume", setup, only, out, lambda bench: bench.consume(mib << 20, consumers))


@click.command()
@rounds_option
@only_option
@click.option(
    "--rate", "rates", multiple=True, type=int, default=(1_000, 10_000), show_default=True, help="Messages a second."
)
@click.option(
    "--warm-up",
    "warm_ups",
    multiple=True,
    type=int,
    default=(10, 40),
    show_default=True,
    help="Seconds at a rate before it is measured; of several, it is measured after each.",
)
@click.option("--seconds", default=10, show_default=True, help="Length of one measurement.")
@out_option
def latency(
    rounds: int,
    only: tuple[str, ...],
    rates: tuple[int, ...],
    warm_ups: tuple[int, ...],
    seconds: int,
    out: Path | None,
) -> None:
    """Measure how long messages take from send to a push consumer's listener."""
    starts = sorted(set(warm_ups))
    if any(after - before < seconds for before, after in pairwise(starts)):
        raise click.UsageError(f"a measurement takes {seconds} s; warm-ups {starts} leave no room for it")
    setup = {"rounds": rounds, "rates": rates, "warm_ups": starts, "seconds": seconds}
    _measure("latency", setup, only, out, lambda bench: bench.latency(rates, starts, seconds))


@click.command()
@rounds_option
@only_option
@click.option("--consumers", default=1000, show_default=True, help="Connections.")
@click.option("--pulls", default=2000, show_default=True, help="Held pulls, of all consumers together.")
@click.option("--seconds", default=20.0, show_default=True, help="How long the idle broker is watched.")
@out_option
def idle(rounds: int, only: tuple[str, ...], consumers: int, pulls: int, seconds: float, out: Path | None) -> None:
    """Measure start, memory, idle CPU and the waking of many consumers that wait."""
    load = IdleLoad(consumers=consumers, pulls=pulls, seconds=seconds)
    setup = {"rounds": rounds, "consumers": consumers, "pulls": pulls, "seconds": seconds}
    _measure("idle", setup, only, out, lambda bench: bench.idle(load))


def _measure(
    name: str,
    setup: dict[str, Any],
    only: tuple[str, ...],
    out: Path | None,
    rows_of: Callable[[ClientsBench], Iterator[Row]],
) -> None:
    kinds = tuple(kind for kind in KINDS if kind in (only or KINDS))
    bench = ClientsBench(rounds=setup["rounds"], kinds=kinds, say=lambda text: click.echo(text, err=True))
    report = new_report(name, setup)
    path = out or table.DIRECTORY / f"{name}-{report['date'][:10]}.json"
    try:
        for row in rows_of(bench):
            report["results"].append(row)
            click.echo(clients_table.line(row))
            path.write_text(json.dumps(report, indent=1) + "\n")
    finally:
        bench.remove()
    click.echo(f"raw results: {path}", err=True)
