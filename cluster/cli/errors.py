"""What a person is told when something fails: one sentence what, one why, one next step; never a traceback.

Exit status: 0 done, 1 failed or differences found, 2 usage or configuration, 3 not reachable, 4 refused because it could lose
data or break a rule, 5 not within the time, 6 done in part.
"""

from collections.abc import Sequence
from typing import IO, Any

import click

from cluster.told import FAILED, PARTIAL, REFUSED, TIMED_OUT, UNREACHABLE, USAGE, innermost, sentence

__all__ = [
    "FAILED",
    "PARTIAL",
    "REFUSED",
    "TIMED_OUT",
    "UNREACHABLE",
    "USAGE",
    "CliError",
    "explain",
    "innermost",
    "sentence",
]


class CliError(click.ClickException):
    """Ends the command. Words go to stderr, `exit_code` to the shell."""

    def __init__(self, what: str, why: str = "", next_step: str = "", *, exit_code: int = FAILED) -> None:
        super().__init__(what)
        self.lines = [line for line in (what, why, next_step) if line]
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the three lines."""
        first, *rest = self.lines
        click.echo(f"Error: {first}", err=True)
        for line in rest:
            click.echo(f"  {line}", err=True)


def explain(error: BaseException, namesrv: Sequence[str]) -> CliError | None:
    """Words for an error that is not ours to fix; None for one that is (a bug, which shows its traceback)."""
    from cluster import told

    found = told.explain(error, namesrv)
    if found is None:
        return None
    words = CliError(found.what, exit_code=found.kind)
    words.lines = found.lines
    return words
