"""Progress of long commands on stderr: a bar on a terminal, else a line every 30 s."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from twinlog.cluster.cli import common
from twinlog.cluster.text import size

Report = Callable[[int, int], None]  # Bytes done, bytes in total.
_SECONDS_BETWEEN_LINES = 30.0


@contextmanager
def progress(what: str) -> Iterator[Report]:
    """Yield a function to call with the bytes done and the total, as often as needed."""
    if sys.stderr.isatty():
        with _bar(what) as report:
            yield report
    else:
        yield _lines(what, time.monotonic)


@contextmanager
def _bar(what: str) -> Iterator[Report]:
    with common.drawing.Progress(
        common.drawing.TextColumn("{task.description}"),
        common.drawing.BarColumn(),
        common.drawing.TaskProgressColumn(),
        common.drawing.DownloadColumn(),
        common.drawing.TransferSpeedColumn(),
        common.drawing.TimeRemainingColumn(),
        console=common.drawing.Console(stderr=True),
        transient=True,
        refresh_per_second=5,
    ) as drawn:
        task = drawn.add_task(what, total=None)
        yield lambda done, total: drawn.update(task, completed=done, total=total)


def _lines(what: str, clock: Callable[[], float]) -> Report:
    last = clock()

    def report(done: int, total: int) -> None:
        nonlocal last
        now = clock()
        if now - last >= _SECONDS_BETWEEN_LINES and total:
            last = now
            click.echo(f"{what}: {100 * done // total}% of {size(total)}", err=True)

    return report
