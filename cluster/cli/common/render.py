"""Output of rows as tables, JSON, YAML or TSV: drawn by rich on a terminal, plain text in columns in a pipe.

An unknown value is "-" in tables and TSV, null in JSON. JSON and TSV have plain numbers: bytes, seconds, ms since 1970.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, TypeVar

import click
import orjson
from attrs import frozen

from twinlog.cluster import text
from twinlog.cluster.admin.documents import document, dumps
from twinlog.cluster.cli import common

T = TypeVar("T")

UNKNOWN = "-"


@frozen
class Column:
    """One column: `read` takes the value from a row, `show` formats a known value for people."""

    title: str
    read: Callable[[Any], Any]
    show: Callable[[Any], str] = str
    right: bool = False
    wide: bool = False  # Only with -o wide, and in TSV.
    spare: int = 0  # Above 0: dropped when the table is too wide for the terminal, the highest first.


def table(columns: Sequence[Column], rows: Iterable[Any], fmt: str) -> None:
    """Print the rows as a table (pretty, wide), or as TSV with the titles in the first line."""
    if fmt == "tsv":
        click.echo("\t".join(column.title.lower().replace(" ", "_") for column in columns))
        for row in rows:
            click.echo("\t".join(_tsv(column.read(row)) for column in columns))
        return
    shown = _shown(columns, fmt)
    cells = cells_of(shown, rows)
    if sys.stdout.isatty():
        _rich(shown, cells, keep_all=fmt == "wide")
    else:
        click.echo(plain(shown, cells))


def print_tsv(names: Sequence[str], rows: Iterable[Any]) -> None:
    """Print attributes of the rows as TSV."""
    table([Column(name, attrgetter(name)) for name in names], rows, "tsv")


def cells_of(columns: Sequence[Column], rows: Iterable[Any]) -> list[list[str]]:
    """Return the formatted cells of the table."""
    return [[_cell(column, row) for column in columns] for row in rows]


def plain(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> str:
    """Format columns two spaces apart, without lines or colour."""
    lines = [[column.title for column in columns], *cells]
    widths = _widths(columns, cells)
    return "\n".join(
        "  ".join(
            text.rjust(width) if column.right else text.ljust(width)
            for column, text, width in zip(columns, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def fitting(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the columns to show on a terminal of that width: dropping columns is better than cutting every cell."""
    widths = _widths(columns, cells)
    kept = list(range(len(columns)))
    while sum(widths[i] + 2 for i in kept) - 2 > width:
        least = max(kept, key=lambda i: columns[i].spare)
        if not columns[least].spare:
            break
        kept.remove(least)
    return kept


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(column.title), *(len(line[i]) for line in cells), 0) for i, column in enumerate(columns)]


def drawn_table(columns: Sequence[Column], rows: Iterable[Any], fmt: str, width: int) -> Any:
    """Return a rich table of the columns that fit; with wide of all."""
    columns = _shown(columns, fmt)
    cells = cells_of(columns, rows)
    kept = range(len(columns)) if fmt == "wide" else fitting(columns, cells, width)
    return _rich_table([columns[i] for i in kept], [[line[i] for i in kept] for line in cells])


def _shown(columns: Sequence[Column], fmt: str) -> list[Column]:
    return [column for column in columns if fmt == "wide" or not column.wide]


def _rich_table(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> Any:
    """Return a rich table in which states are coloured."""
    drawn = common.drawing.Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(column.title, justify="right" if column.right else "left", no_wrap=True)
    for line in cells:
        drawn.add_row(*(common.drawing.Text(text, style=STATE_STYLES.get(text, "")) for text in line))
    return drawn


_STATES = {  # Of members, groups and queues.
    "green": ("serving", "streaming", "consuming", "level"),
    "yellow": ("catching up", "connecting", "starting", "holding", "waiting", "paused", "behind", "no consumer"),
    "bold red": ("fenced", "failed", "unreachable", "failing", "refusing", "ahead", "diverged", "lost"),
}
STATE_STYLES = {state: colour for colour, states in _STATES.items() for state in states}


def _rich(columns: Sequence[Column], cells: Sequence[Sequence[str]], *, keep_all: bool) -> None:
    console = common.drawing.Console()
    kept = list(range(len(columns))) if keep_all else fitting(columns, cells, console.width)
    cells = [[line[i] for i in kept] for line in cells]
    shown = [columns[i] for i in kept]
    # The terminal wraps what is still wider: nothing is cut.
    console.width = max(sum(width + 2 for width in _widths(shown, cells)), console.width)
    console.print(_rich_table(shown, cells))
    if len(shown) < len(columns):
        left_out = ", ".join(column.title for i, column in enumerate(columns) if i not in kept)
        console.print(f"not shown for lack of space: {left_out}; -o wide shows all", style="dim")


def print_answer(found: T, fmt: str, show: Callable[[T, str], None]) -> None:
    """Print a result as JSON, or with `show` in another format."""
    if fmt == "json":
        json_answer(found)
    else:
        show(found, fmt)


def json_answer(answer: Any) -> None:
    """Print an attrs object as one JSON document with its schema number, or as YAML if requested."""
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[ANSWERED] = True
    value = document(answer)
    click.echo(_yaml(value).rstrip() if _wants_yaml() else dumps(value, indent=sys.stdout.isatty()))


def json_line(part: Any) -> None:
    """Print one JSON object on one line, or one document of a stream of YAML."""
    value = document(part)
    click.echo(f"---\n{_yaml(value).rstrip()}" if _wants_yaml() else dumps(value))


YAML = "twinlog.yaml"  # In click's meta: print JSON documents as YAML.
ANSWERED = "twinlog.answered"  # In click's meta: a document was printed, so a later failure prints none.


def _wants_yaml() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(YAML))


def _yaml(value: Any) -> str:
    import yaml

    text: str = yaml.safe_dump(orjson.loads(dumps(value)), sort_keys=False, allow_unicode=True)
    return text


def _cell(column: Column, row: Any) -> str:
    value = column.read(row)
    return UNKNOWN if value is None or value == "" else column.show(value)


def _tsv(value: Any) -> str:
    if value is None or value == "":
        return UNKNOWN
    text = str(value.value if isinstance(value, Enum) else value)
    return text.translate({9: "\\t", 10: "\\n", 13: "\\r"})


# ---- Formats


def yes_no(value: bool) -> str:
    """A truth value for people."""
    return "yes" if value else "no"


def count(value: int) -> str:
    """41203882 -> 41 203 882 on a terminal, without spaces in a pipe."""
    return text.count(value, " ") if sys.stdout.isatty() else str(value)


def style(text: str, **how: Any) -> str:
    """Colour on a terminal, unless NO_COLOR says otherwise."""
    return click.style(text, **how) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def printable(text: str) -> str:
    """Escape the control characters that a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
