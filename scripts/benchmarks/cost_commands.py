"""scripts/bench http and acks: the command lines."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from scripts.benchmarks import http_table, table
from scripts.benchmarks.ack_levels import AckBench
from scripts.benchmarks.http_cost import CASES, PARTS, QUEUES_PER_TOPIC, HttpBench
from scripts.benchmarks.report import new_report

Row = dict[str, Any]


@click.command()
@click.option("--rounds", default=8, show_default=True, help="How often each is measured.")
@click.option("--seconds", default=15.0, show_default=True, help="How long the idle broker is watched.")
@click.option("--settle", default=5.0, show_default=True, help="Seconds between ready and that.")
@click.option("--scrapes", default=30, show_default=True, help="Scrapes of each case, in each round.")
@click.option("--topics", default=500, show_default=True, help="Topics of the large cases.")
@click.option("--part", multiple=True, type=click.Choice(PARTS), help="Measure these alone.")
@click.option("--out", type=click.Path(path_type=Path), help="Raw results. Default: docs/benchmarks/http-DATE.json.")
def http(
    rounds: int, seconds: float, settle: float, scrapes: int, topics: int, part: tuple[str, ...], out: Path | None
) -> None:
    """Measure what HTTP costs a broker: start, memory, idle CPU, and a scrape of /metrics."""
    cases = tuple((topics, topics if lagging else 0) if count > 1 else (count, lagging) for count, lagging in CASES)
    bench = HttpBench(
        rounds=rounds,
        parts=part or PARTS,
        cases=cases,
        idle_seconds=seconds,
        settle_seconds=settle,
        scrapes=scrapes,
    )
    setup = {
        "rounds": rounds,
        "idle_seconds": seconds,
        "settle_seconds": settle,
        "scrapes": scrapes,
        "queues": QUEUES_PER_TOPIC,
    }
    _measure("http", setup, bench.rows(), out)


@click.command()
@click.option("--rounds", default=5, show_default=True, help="How often each level is measured.")
@click.option("--messages", default=500, show_default=True, help="Messages of one measurement.")
@click.option("--warm-up", default=200, show_default=True, help="Messages before it.")
@click.option("--out", type=click.Path(path_type=Path), help="Raw results. Default: docs/benchmarks/acks-DATE.json.")
def acks(rounds: int, messages: int, warm_up: int, out: Path | None) -> None:
    """Measure how long a lone producer waits at each level of acknowledgement."""
    bench = AckBench(rounds=rounds, messages=messages, warm_up=warm_up)
    _measure("acks", {"rounds": rounds, "messages": messages, "warm_up": warm_up}, bench.rows(), out)


def _measure(name: str, setup: dict[str, Any], rows: Iterator[Row], out: Path | None) -> None:
    report = new_report(name, setup)
    path = out or table.DIRECTORY / f"{name}-{report['date'][:10]}.json"
    for row in rows:
        report["results"].append(row)
        click.echo(http_table.line(row))
        path.write_text(json.dumps(report, indent=1) + "\n")
    click.echo(f"raw results: {path}", err=True)
