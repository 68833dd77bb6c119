"""scripts/bench observe: the command line."""

import json
from pathlib import Path
from statistics import median

import click

from scripts.benchmarks import observe_table, table
from scripts.benchmarks.load import Load
from scripts.benchmarks.observe import ObserveBench
from scripts.benchmarks.report import new_report


@click.command()
@click.option("--rounds", default=10, show_default=True, help="Pairs of measurements.")
@click.option("--seconds", default=20, show_default=True, help="Length of one measurement.")
@click.option("--warm-up", default=10, show_default=True, help="Seconds of load before each measurement.")
@click.option("--threads", multiple=True, type=int, default=(64,), show_default=True, help="Client threads.")
@click.option("--scrape", default=5, show_default=True, help="Seconds between two scrapes.")
@click.option("--topics", default=1, show_default=True, help="Topics that metrics tell of.")
@click.option("--out", type=click.Path(path_type=Path), help="Raw results. Default: docs/benchmarks/observe-DATE.json.")
def observe(
    rounds: int, seconds: int, warm_up: int, threads: tuple[int, ...], scrape: int, topics: int, out: Path | None
) -> None:
    """Measure what metrics, scraping and the dashboard cost a broker. Needs Debian's prometheus."""
    load = Load(threads=threads, first_warm_up_s=warm_up, warm_up_s=0, seconds=seconds)
    setup = {
        "rounds": rounds,
        "seconds": seconds,
        "first_warm_up_s": warm_up,
        "scrape_seconds": scrape,
        "topics": topics,
        "body_bytes": load.body_size,
    }
    report = new_report("observe", setup)
    path = out or table.DIRECTORY / f"observe-{report['date'][:10]}.json"
    for row in ObserveBench(rounds=rounds, load=load, scrape_seconds=scrape, topics=topics).rows():
        report["results"].append(row)
        click.echo(observe_table.line(row))
        path.write_text(json.dumps(report, indent=1) + "\n")
    for number in threads:
        rows = [row for row in report["results"] if row["threads"] == number]
        found = observe_table.differences(rows, "master")
        click.echo(f"{number} threads: observed, the master takes {median(found) * 100:+.2f} % CPU a message", err=True)
    click.echo(f"raw results: {path}", err=True)
