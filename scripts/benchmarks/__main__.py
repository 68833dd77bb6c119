"""scripts/bench: measure, and write the tables.

Each system runs alone, started fresh, and the rounds go through the systems in turn (every second round backwards), so
that what changes on the machine meanwhile hits all of them alike.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import click

from scripts.benchmarks import (
    audit_commands,
    clients_commands,
    cost_commands,
    ha,
    ha_table,
    observe_commands,
    roles,
    roles_table,
    table,
)
from scripts.benchmarks.load import TOPIC, Load, measure
from scripts.benchmarks.report import new_report
from scripts.benchmarks.store import PARTS, SYSTEMS, StoreBench
from scripts.benchmarks.store_directory import BODY_SIZE
from scripts.benchmarks.store_restarts import BURST
from scripts.benchmarks.store_steps import SCALES
from scripts.benchmarks.systems import QUEUES, candidates

KINDS = ("rocketmq", "twinlog", "answer-only")


@click.group()
def main() -> None:
    """Benchmarks of twinlog beside the real RocketMQ."""


@main.command()
@click.option("--rounds", default=3, show_default=True, help="How often each system is measured.")
@click.option("--seconds", default=10, show_default=True, help="Length of one measurement.")
@click.option("--first-warm-up", default=30, show_default=True, help="Seconds of load on a system just started.")
@click.option("--warm-up", default=5, show_default=True, help="Seconds of load before each measurement.")
@click.option("--threads", multiple=True, type=int, default=(64, 1), show_default=True, help="Client threads.")
@click.option("--slaves", default=1, show_default=True, help="Slaves of every master, RocketMQ's and ours.")
@click.option("--only", multiple=True, type=click.Choice(KINDS), help="Measure these systems alone.")
@click.option("--out", type=click.Path(path_type=Path), help="Raw results. Default: docs/benchmarks/produce-DATE.json.")
def produce(
    rounds: int,
    seconds: int,
    first_warm_up: int,
    warm_up: int,
    threads: tuple[int, ...],
    slaves: int,
    only: tuple[str, ...],
    out: Path | None,
) -> None:
    """Measure sync sends of 1 KiB messages: rate, latency and CPU time, at several numbers of client threads."""
    load = Load(threads=threads, first_warm_up_s=first_warm_up, warm_up_s=warm_up, seconds=seconds)
    chosen = [candidate for candidate in candidates(slaves) if candidate.kind in (only or KINDS)]
    setup = {
        "body_bytes": load.body_size,
        "queues": QUEUES,
        "slaves": slaves,
        "seconds": seconds,
        "first_warm_up_s": first_warm_up,
        "warm_up_s": warm_up,
    }
    report = new_report("produce", setup)
    path = out or table.DIRECTORY / f"produce-{report['date'][:10]}.json"
    for number in range(1, rounds + 1):
        for candidate in chosen if number % 2 else reversed(chosen):
            os.sync()  # What the last one left to write is not charged to this one.
            with candidate.running(TOPIC) as system, tempfile.TemporaryDirectory() as client:
                for row in measure(system, load, Path(client)):
                    result = {"round": number, "system": candidate.kind, "role": candidate.role, **row}
                    report["results"].append(result)
                    _show(result)
                    path.write_text(json.dumps(report, indent=1) + "\n")
    click.echo(f"raw results: {path}", err=True)


@main.command()
@click.option("--quick", is_flag=True, help="A small log, to see that it works: the numbers mean nothing.")
@click.option("--repeats", default=3, show_default=True, help="How often restarts and appends are measured.")
@click.option("--only", multiple=True, type=click.Choice(SYSTEMS), help="Measure these systems alone.")
@click.option("--part", multiple=True, type=click.Choice(PARTS), help="Measure the store alone, or brokers' restarts.")
@click.option("--cold/--no-cold", default=None, help="Also with nothing cached: as root. Default: not with --quick.")
@click.option("--out", type=click.Path(path_type=Path), help="Raw results. Default: docs/benchmarks/store-DATE.json.")
def store(
    quick: bool, repeats: int, only: tuple[str, ...], part: tuple[str, ...], cold: bool | None, out: Path | None
) -> None:
    """Measure the store: append, scan, rebuild, restarts, memory. At most 10 minutes; needs 12 GiB in $TMPDIR."""
    name = "quick" if quick else "full"
    bench = StoreBench(
        scale_name=name,
        systems=tuple(system for system in SYSTEMS if system in (only or SYSTEMS)),
        parts=part or PARTS,
        repeats=repeats,
        cold=not quick if cold is None else cold,
        say=lambda text: click.echo(text, err=True),
    )
    report = new_report(
        "store", {"scale": name, "body_bytes": BODY_SIZE, "queues": SCALES[name].queues, "burst": BURST}
    )
    report["setup"]["repeats"] = repeats
    path = out or table.DIRECTORY / f"store-{report['date'][:10]}.json"
    for row in bench.rows():
        report["results"].append(row)
        numbers = {key: round(value, 3) for key, value in row.items() if not isinstance(value, str)}
        click.echo(f"{row['system']:9} {row['measure']:38} {numbers}")
        path.write_text(json.dumps(report, indent=1) + "\n")
    click.echo(f"raw results: {path}", err=True)


@main.command("ha")
@click.option("--mib", default=2048, show_default=True, help="Length of the log that a slave catches up with.")
@click.option("--body", "bodies", multiple=True, type=int, default=(1024, 8192), show_default=True, help="Bytes.")
@click.option("--pair", "chosen", multiple=True, help="MASTER/SLAVE, as twinlog/rocketmq. Default: all four.")
@click.option("--part", multiple=True, type=click.Choice(ha.PARTS), help="Measure these alone.")
@click.option("--rounds", default=1, show_default=True, help="How often each is measured.")
@click.option("--seconds", default=10.0, show_default=True, help="Length of a measurement of lag or throughput.")
@click.option("--rate", default=10_000, show_default=True, help="Messages a second, for the lag.")
@click.option("--out", type=click.Path(path_type=Path), help="Raw results. Default: docs/benchmarks/ha-DATE.json.")
def replication(
    mib: int,
    bodies: tuple[int, ...],
    chosen: tuple[str, ...],
    part: tuple[str, ...],
    rounds: int,
    seconds: float,
    rate: int,
    out: Path | None,
) -> None:
    """Measure slaves: catching up, lag, and what verification costs. Needs 4 times the log in $TMPDIR."""
    pairs = tuple(pair for pair in ha.PAIRS if not chosen or "/".join(pair) in chosen)
    bench = ha.HABench(
        log_bytes=mib << 20,
        body_sizes=bodies,
        pairs=pairs,
        parts=part or ha.PARTS,
        rounds=rounds,
        seconds=seconds,
        messages_per_second=rate,
        say=lambda text: click.echo(text, err=True),
    )
    report = new_report("ha", {"log_mib": mib, "seconds": seconds, "rate": rate, "rounds": rounds})
    path = out or table.DIRECTORY / f"ha-{report['date'][:10]}.json"
    for row in bench.rows():
        report["results"].append(row)
        click.echo(ha_table.line(row))
        path.write_text(json.dumps(report, indent=1) + "\n")
    click.echo(f"raw results: {path}", err=True)


@main.command("roles")
@click.option("--rounds", default=20, show_default=True, help="Switchovers at each rate, and half as many failovers.")
@click.option(
    "--rate", "rates", multiple=True, type=int, default=(1_000, 10_000), show_default=True, help="Messages/s."
)
@click.option("--mib", default=1024, show_default=True, help="Length of the log that is cut, and taken anew.")
@click.option("--part", multiple=True, type=click.Choice(roles.PARTS), help="Measure these alone.")
@click.option("--out", type=click.Path(path_type=Path), help="Raw results. Default: docs/benchmarks/roles-DATE.json.")
def role_changes(rounds: int, rates: tuple[int, ...], mib: int, part: tuple[str, ...], out: Path | None) -> None:
    """Measure role changes: how long producers wait, and rewind and reinit. Needs 6 times the log in $TMPDIR."""
    bench = roles.RolesBench(
        parts=part or roles.PARTS,
        rounds=rounds,
        rates=rates,
        log_bytes=mib << 20,
        say=lambda text: click.echo(text, err=True),
    )
    report = new_report("roles", {"rounds": rounds, "rates": rates, "log_mib": mib})
    path = out or table.DIRECTORY / f"roles-{report['date'][:10]}.json"
    for row in bench.rows():
        report["results"].append(row)
        click.echo(roles_table.line(row))
        path.write_text(json.dumps(report, indent=1) + "\n")
    click.echo(f"raw results: {path}", err=True)


for command in (clients_commands.consume, clients_commands.latency, clients_commands.idle):
    main.add_command(command)
for command in (audit_commands.audit, observe_commands.observe, cost_commands.http, cost_commands.acks):
    main.add_command(command)


@main.command("table")
@click.argument("raw", required=False, type=click.Path(exists=True, path_type=Path))
def write_table(raw: Path | None) -> None:
    """Generate docs/benchmarks/the pages of docs/benchmarks from raw results (default: the newest of each)."""
    for path in [raw] if raw else table.newest():
        click.echo(f"tables: {table.write(path)}", err=True)


def _show(result: dict[str, Any]) -> None:
    name = f"{result['system']} {result['role'] or ''}"
    cpu = " ".join(f"{who} {us:.1f}" for who, us in result["cpu_us_per_message"].items())
    click.echo(
        f"round {result['round']}  {name:23} {result['threads']:3} threads {result['messages_per_s']:9.0f}/s"
        f"  p50 {result['p50_ms']:.3f} p99 {result['p99_ms']:.3f} max {result['max_ms']:.1f} ms"
        f"  CPU us: {cpu}, others {result['other_cpu_percent']:.0f} %  {result['outcomes']}"
    )


if __name__ == "__main__":
    main(prog_name="scripts/bench")
