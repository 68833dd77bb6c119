"""Errors of the command line: one sentence for what failed, one for why, one for the next step; never a traceback.

Exit status: 0 done, 1 failed or differences found, 2 usage or configuration, 3 not reachable, 4 refused because it could lose
data or break a rule, 5 not within the time, 6 done in part.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import click

from twinlog.cluster.cli.common.group import FORMAT
from twinlog.cluster.cli.common.render import ANSWERED, YAML, json_answer
from twinlog.cluster.user_errors import (
    FAILED,
    PARTIAL,
    REFUSED,
    TIMED_OUT,
    UNREACHABLE,
    USAGE,
    ErrorReport,
    UserError,
    innermost,
    sentence,
)

__all__ = ["FAILED", "PARTIAL", "REFUSED", "TIMED_OUT", "UNREACHABLE", "USAGE", "UserError", "innermost", "sentence"]


class CliError(click.ClickException):
    """Ends the command. The sentences go to stderr, `exit_code` to the shell, and `report` to stdout where JSON was asked for."""

    def __init__(
        self,
        what: str,
        why: str = "",
        next_step: str = "",
        *,
        exit_code: int = FAILED,
        report: ErrorReport | None = None,
    ) -> None:
        super().__init__(what)
        self.report = report or ErrorReport(what, why, next_step, exit_code)
        self.exit_code = self.report.exit_status  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the three lines."""
        first, *rest = self.report.lines
        click.echo(f"Error: {first}", err=True)
        for line in rest:
            click.echo(f"  {line}", err=True)


@contextmanager
def explained(namesrv: Sequence[str]) -> Iterator[None]:
    """Convert errors that the user can solve to CliError; the rest, Ctrl-C and a closed pipe are for main.py."""
    try:
        yield
    except BaseException as error:
        inner = innermost(error)
        if isinstance(inner, (KeyboardInterrupt, BrokenPipeError, CliError)):
            raise inner from None
        from twinlog.cluster.admin import errors as admin_errors  # Late: a command that succeeds does not need it.

        report = admin_errors.explain(inner, namesrv)
        if report is None:
            raise
        raise CliError(report.what, report=report) from error


def as_click(error: click.ClickException | UserError) -> click.ClickException:
    """The error that ends a command."""
    return CliError(str(error), report=error.report()) if isinstance(error, UserError) else error


def answer_failure(context: click.Context, error: click.ClickException) -> None:
    """Print the failure as a document, if JSON or YAML was requested and nothing was printed yet."""
    if context.meta.get(FORMAT) is None or context.meta.get(ANSWERED):
        return
    context.meta[YAML] = context.meta[FORMAT] == "yaml"
    wrong_usage = ErrorReport(error.format_message(), exit_status=error.exit_code)
    json_answer((error.report if isinstance(error, CliError) else wrong_usage).failure)


def forget_stdout() -> None:
    """Redirect stdout to /dev/null after its reader has closed it, so that later output does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
