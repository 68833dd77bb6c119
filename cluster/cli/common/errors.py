"""What a person is told when something fails: one sentence what, one why, one next step; never a traceback.

Exit status: 0 done, 1 failed or differences found, 2 usage or configuration, 3 not reachable, 4 refused because it could lose
data or break a rule, 5 not within the time, 6 done in part.
"""

from collections.abc import Sequence
from typing import IO, Any

import click

from twinlog.cluster.admin.errors import (
    FAILED,
    PARTIAL,
    REFUSED,
    TIMED_OUT,
    UNREACHABLE,
    USAGE,
    Told,
    innermost,
    sentence,
)

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
    """Ends the command. Words go to stderr, `exit_code` to the shell, and `told` to stdout where JSON was asked for."""

    def __init__(self, what: str, why: str = "", next_step: str = "", *, exit_code: int = FAILED) -> None:
        self._take(Told(what, why, next_step, exit_code))

    @classmethod
    def of(cls, told: Told) -> "CliError":
        """What is told already."""
        error = cls(told.what)
        error._take(told)
        return error

    def _take(self, told: Told) -> None:
        super().__init__(told.what)
        self.told = told
        self.lines = told.lines
        self.exit_code = told.kind  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the three lines."""
        first, *rest = self.lines
        click.echo(f"Error: {first}", err=True)
        for line in rest:
            click.echo(f"  {line}", err=True)


def explain(error: BaseException, namesrv: Sequence[str]) -> CliError | None:
    """Words for an error that is not ours to fix; None for one that is (a bug, which shows its traceback)."""
    from twinlog.cluster.admin import errors as told

    found = told.explain(error, namesrv)
    return CliError.of(found) if found is not None else None


def told_of(error: click.ClickException) -> Told:
    """Words for whatever ends a command, wrong usage included."""
    if isinstance(error, CliError):
        return error.told
    return Told(error.format_message(), kind=error.exit_code)
