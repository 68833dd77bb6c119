"""What a command that fails prints on stdout with -o json or yaml: one document, where it has not answered already."""

from collections.abc import Sequence
from itertools import pairwise

import click

from twinlog.cluster.cli.common.errors import told_of

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
    from twinlog.cluster.cli.common.render import ANSWERED, YAML, json_answer

    if context.meta.get(ANSWERED):
        return
    context.meta[YAML] = context.meta[_FORMAT] == "yaml"
    json_answer(told_of(error).failure)
