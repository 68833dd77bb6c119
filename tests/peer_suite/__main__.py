"""scripts/peer-suite: RocketMQ's own integration tests against two twinlog masters."""

import datetime
import sys
import tempfile
from functools import partial
from pathlib import Path

import click
import trio

from scripts.benchmarks.machine import facts
from tests.peer_suite import artifacts, masters, page
from tests.peer_suite.runner import Run, Suite, chosen


@click.command()
@click.argument("parts", nargs=-1, metavar="[CLASS-SUBSTRING...]")
@click.option("--jobs", default=2, show_default=True, help="JVMs at a time.")
@click.option("--namesrv", help="Run against the cluster behind this name server instead of two masters of our own.")
@click.option("--keep", type=click.Path(path_type=Path), help="Leave stores and logs in this new directory.")
def main(parts: tuple[str, ...], jobs: int, namesrv: str | None, keep: Path | None) -> None:
    """Run all classes and write docs/reference/peer-suite.*; or those whose names contain one of the words."""
    names = chosen(artifacts.test_classes(), parts)
    if not names:
        raise click.UsageError(f"no class has a name with {' or '.join(parts)}")
    machine = facts()  # Before it is busy with this.
    with tempfile.TemporaryDirectory() as scratch:
        root = keep or Path(scratch)
        if namesrv is not None:
            results = _run(namesrv, root, names, jobs)
        else:
            with masters.running(root) as own:
                results = _run(own, root, names, jobs)
            for line in masters.complaints(root):
                click.echo(f"a server said: {line}")
    passed = [name for name, runs in results.items() if runs[-1].passed]
    click.echo(
        f"{len(passed)} of {len(names)} classes passed, {sum(len(runs) > 1 for runs in results.values())} run twice"
    )
    if not parts and namesrv is None:
        classes = {name: [run.plain() for run in runs] for name, runs in results.items()}
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        page.write({"date": date, "machine": machine, "jobs": jobs, "classes": classes})
        click.echo(f"written: {page.RESULTS} and {page.PAGE.name}", err=True)
    sys.exit(0 if len(passed) == len(names) else 1)


def _run(namesrv: str, root: Path, names: list[str], jobs: int) -> dict[str, list[Run]]:
    suite = Suite(namesrv, root, tell=_show)
    return trio.run(partial(suite.run, names, jobs=jobs))


def _show(name: str, run: Run) -> None:
    verdict = "ok" if run.passed else f"{len(run.failures)} FAILED"
    click.echo(f"{name:64} {run.tests:3} tests  {verdict:9} {run.seconds:6.1f} s")
    for failure in run.failures:
        click.echo(f"    {failure['test']}: {page.first_line(failure['trace'])}")


if __name__ == "__main__":
    main()
