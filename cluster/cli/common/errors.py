"""What a person is told when something fails: one sentence what, one why, one next step; never a traceback.

Exit status: 0 done, 1 failed or differences found, 2 usage or configuration, 3 not reachable, 4 refused because it could lose
data or break a rule, 5 not within the time, 6 done in part.
"""

import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import IO, Any

import click

from twinlog.cluster.admin import errors as told
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
from twinlog.cluster.cli.common.render import ANSWERED, YAML, json_answer

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
    found = told.explain(error, namesrv)
    return CliError.of(found) if found is not None else None


def told_of(error: click.ClickException) -> Told:
    """Words for whatever ends a command, wrong usage included."""
    if isinstance(error, CliError):
        return error.told
    return Told(error.format_message(), kind=error.exit_code)


_FORMAT = "twinlog.format"
_FLAGS = ("-o", "--output")
_DOCUMENTS = ("json", "yaml")


def note_format(context: click.Context, args: Sequence[str]) -> None:
    """Remember the form of the answer that a command line asks for, whether or not the rest of it is right."""
    given = [value for flag, value in pairwise(args) if flag in _FLAGS]
    given += [arg.removeprefix(f"{flag}{glue}") for arg in args for flag, glue in zip(_FLAGS, ("", "="), strict=True)]
    context.meta[_FORMAT] = next((each for each in given if each in _DOCUMENTS), None)


def answer_failure(context: click.Context, error: click.ClickException) -> None:
    """Print the failure as a document, if one was asked for and none was printed."""
    if context.meta.get(_FORMAT) is None:
        return

    if context.meta.get(ANSWERED):
        return
    context.meta[YAML] = context.meta[_FORMAT] == "yaml"
    json_answer(told_of(error).failure)


def forget_stdout() -> None:
    """Nobody reads it any more: what is still printed goes nowhere, instead of failing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
