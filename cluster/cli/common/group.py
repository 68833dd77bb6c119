"""Click groups that list commands in order and load them when they are used; examples for the end of a help text."""

import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

import click
from click.shell_completion import CompletionItem

from twinlog.cluster.cli.common.kept_classes import kept_classes

# Name of a command -> "module:attribute" or the command, and its line in the group's help.
LateTable = Mapping[str, tuple[str | click.Command, str]]


class InOrder(click.Group):
    """A group that lists its commands in the order in which they were added, not by name."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(self.commands)


class LateGroup(InOrder):
    """A group that imports a command's module when the command is used, so that modules can import everything at their top.

    Loading all of them would take half a second. The help of the group and completion need only names and lines.
    """

    def __init__(self, *args: Any, late: LateTable, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.commands = _LateCommands(late)  # type: ignore[assignment]  # Nobody adds to it.
        self._lines = {name: line for name, (_, line) in late.items()}

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the names with their lines, without loading the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._lines.items()))

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of commands, then the options of the group."""
        names = [CompletionItem(name, help=line) for name, line in self._lines.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, context, incomplete)]


class _LateCommands(Mapping[str, click.Command]):
    """A mapping of names to commands, each imported at its first use."""

    def __init__(self, late: LateTable) -> None:
        self._late = late
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            place, line = self._late[name]
            command = _load(place) if isinstance(place, str) else place
            command.short_help = line
            self._loaded[name] = command
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._late)

    def __len__(self) -> int:
        return len(self._late)


def _load(place: str) -> click.Command:
    """Import `module:attribute`, without rich: structlog would import it for its tracebacks, a third of a command's start."""
    path, _, attribute = place.partition(":")
    hides_rich = "rich" not in sys.modules
    if hides_rich:
        sys.modules["rich"] = None  # type: ignore[assignment]  # Makes `import rich` an ImportError.
    gc.disable()  # Imports leave little garbage: looking for it takes a fifth of a broker's start.
    try:
        with kept_classes():
            command: click.Command = getattr(import_module(f"twinlog.cluster.cli.{path}"), attribute)
    finally:
        gc.freeze()  # Else the first collection, soon after, visits all that was imported.
        gc.enable()
        if hides_rich:
            del sys.modules["rich"]
    return command


ARGUMENTS, FORMAT = "twinlog.arguments", "twinlog.format"  # In click's meta: the whole command line, and json or yaml.
_FLAGS = ("-o", "--output")
_DOCUMENTS = ("json", "yaml")


def note_arguments(context: click.Context, args: Sequence[str]) -> None:
    """Remember the command line, and the output format that it requests, even if its other arguments are wrong."""
    context.meta[ARGUMENTS] = tuple(args)
    given = [value for flag, value in pairwise(args) if flag in _FLAGS]
    given += [arg.removeprefix(f"{flag}{glue}") for arg in args for flag, glue in zip(_FLAGS, ("", "="), strict=True)]
    context.meta[FORMAT] = next((each for each in given if each in _DOCUMENTS), None)


def examples(*lines: str) -> str:
    """Format the examples at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
