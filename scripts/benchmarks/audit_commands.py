"""scripts/bench audit: the command line."""

import json
from importlib.metadata import version
from pathlib import Path

import click

from scripts.benchmarks import audit_table, table
from scripts.benchmarks.audit import PARTS, AuditBench
from scripts.benchmarks.audit_steps import MASTER, TASKS
from scripts.benchmarks.report import new_report
from scripts.benchmarks.store_directory import BODY_SIZE

GIB, MIB = 1 << 30, 1 << 20


@click.command()
@click.option("--gib", default=4, show_default=True, help="Length of each replica's log.")
@click.option(
    "--growth", multiple=True, type=int, default=(1, 2, 4, 8), show_default=True, help="Lengths of a log, in GiB."
)
@click.option("--rounds", default=3, show_default=True, help="How often each is measured, but for the growth: once.")
@click.option("--part", multiple=True, type=click.Choice(PARTS), help="Measure these alone.")
@click.option(
    "--quick", is_flag=True, help="64 MiB instead of each GiB, to see that it works: the numbers mean little."
)
@click.option("--out", type=click.Path(path_type=Path), help="Raw results. Default: docs/benchmarks/audit-DATE.json.")
def audit(gib: int, growth: tuple[int, ...], rounds: int, part: tuple[str, ...], quick: bool, out: Path | None) -> None:
    """Measure `twinlog audit` and its tables on Spark. Needs 13 GiB in $TMPDIR, and as much memory for them to stay in."""
    unit = 64 * MIB if quick else GIB
    bench = AuditBench(
        log_bytes=gib * unit,
        log_file_bytes=unit,
        growth=tuple(sorted(set(growth))),
        rounds=rounds,
        parts=part or PARTS,
        say=lambda text: click.echo(text, err=True),
    )
    setup = {"log_bytes": bench.log_bytes, "log_file_bytes": unit, "rounds": rounds, "body_bytes": BODY_SIZE}
    report = new_report("audit", {**setup, "spark": version("pyspark"), "master": MASTER, "tasks": TASKS})
    path = out or table.DIRECTORY / f"audit-{report['date'][:10]}.json"
    for row in bench.rows():
        report["results"].append(row)
        click.echo(audit_table.line(row))
        path.write_text(json.dumps(report, indent=1) + "\n")
    click.echo(f"raw results: {path}", err=True)
