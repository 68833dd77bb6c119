"""Output of one or more tables: printed once, or refreshed on the screen with -w.

A command gives a function from its result to a Page; JSON is made of the result itself.
"""

import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import click
from attrs import evolve, frozen

from twinlog.cluster import admin as operations
from twinlog.cluster.admin.admin import Admin
from twinlog.cluster.cli import common
from twinlog.cluster.cli.common.render import Column, drawn_table, json_answer, json_line, style, table
from twinlog.cluster.cli.common.running import run_admin

T = TypeVar("T")


@frozen
class Block:
    """One table under a title; `empty` is printed in its place when it has no rows."""

    title: str | None
    columns: Sequence[Column]
    rows: Sequence[Any]
    empty: str = ""


@frozen
class Page:
    """Tables, of which -o tsv prints the first, and notes and issues below them."""

    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = ()
    issues: tuple[str, ...] = ()
    has_lines_in_tsv: bool = False  # On stderr.
    nothing_changed: bool = False  # A note of its own, which a preview leaves out.


def silent_notes(silent: tuple[str, ...]) -> tuple[str, ...]:
    """One note for each broker that did not answer every request."""
    return tuple(f"{name} did not answer every request; see twinlog list" for name in silent)


def answer(
    namesrv: str,
    fmt: str,
    ask: Callable[[Admin], Awaitable[T]],
    page: Callable[[T], Page],
    *,
    watch_seconds: float | None = None,
    fold: Callable[[T | None, T], T] = lambda _before, now: now,
) -> None:
    """Ask, and print the result in the format `fmt`; with `watch_seconds` repeatedly.

    `fold` combines a result with the one before it, for trends.
    """
    if watch_seconds is None:
        show(run_admin(namesrv, ask), fmt, page)
        return
    before: T | None = None
    with screen(fmt, page) as put:

        def put_folded(found: T | str) -> None:
            nonlocal before
            if not isinstance(found, str):
                found = before = fold(before, found)
            put(found)

        with suppress(KeyboardInterrupt):  # Ctrl-C is how it ends.
            run_admin(namesrv, lambda admin: operations.waiting.watch(partial(ask, admin), watch_seconds, put_folded))


def show(found: Any, fmt: str, page: Callable[[Any], Page]) -> None:
    """Print one result."""
    if fmt == "json":
        json_answer(found)
    else:
        print_page(page(found), fmt)


def preview(planned: Any, fmt: str, page: Callable[[Any], Page], *, yes: bool) -> None:
    """Print what would be done, before the confirmation; nothing if there is none because of `yes`."""
    if not yes and fmt in ("pretty", "wide"):
        print_page(evolve(page(planned), nothing_changed=False), fmt)


def print_page(page: Page, fmt: str) -> None:
    """Print all tables, or with TSV the first one."""
    if fmt == "tsv":
        table(page.blocks[0].columns, page.blocks[0].rows, fmt)
        if page.has_lines_in_tsv:
            _print_lines(page, err=True)
        return
    for i, block in enumerate(page.blocks):
        if block.title is not None:
            click.echo(("\n" if i else "") + style(block.title, bold=True))
        if block.rows or not block.empty:
            table(block.columns, block.rows, fmt)
        else:
            click.echo(block.empty)
    _print_lines(page)


def _print_lines(page: Page, *, err: bool = False) -> None:
    for line, _ in _lines(page):
        click.echo(line, err=err)


def _lines(page: Page) -> list[tuple[str, str]]:
    """Return the lines below the tables, each with its colour."""
    changed = ("nothing was changed",) if page.nothing_changed else ()
    notes = [(f"note: {note}", "cyan") for note in (*page.notes, *changed)]
    return notes + [(f"issue: {issue}", "yellow") for issue in page.issues]


@contextmanager
def screen(fmt: str, page: Callable[[Any], Page]) -> Iterator[Callable[[Any], None]]:
    """Refresh the page in place on a terminal; elsewhere print one after the other, JSON as one line each."""

    def line(found: Any) -> None:
        if isinstance(found, str):
            click.echo(f"no answer: {found}", err=True)
        elif fmt == "json":
            json_line(found)
        else:
            print_page(page(found), fmt)
        sys.stdout.flush()

    if fmt in ("json", "tsv") or not sys.stdout.isatty():
        yield line
    else:
        with _live(fmt, page) as put:
            yield put


@contextmanager
def _live(fmt: str, page: Callable[[Any], Page]) -> Iterator[Callable[[Any], None]]:
    console = common.drawing.Console()
    last: list[Any] = [common.drawing.Text("no answer yet")]
    with common.drawing.Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:

        def put(found: Any) -> None:
            at = common.drawing.Text(f"{datetime.now():%H:%M:%S}  Ctrl-C ends", style="dim")
            if isinstance(found, str):
                at = common.drawing.Text(f"{datetime.now():%H:%M:%S}  no answer: {found}", style="bold red")
            else:
                last[:] = drawn(page(found), fmt, console.width)
            live.update(common.drawing.Group(*last, at), refresh=True)

        yield put


def drawn(page: Page, fmt: str, width: int) -> list[Any]:
    """Return the page as what rich draws."""
    parts: list[Any] = []
    for i, block in enumerate(page.blocks):
        if block.title is not None:
            parts.append(common.drawing.Text(("\n" if i else "") + block.title, style="bold"))
        if not block.rows and block.empty:
            parts.append(common.drawing.Text(block.empty))
            continue
        parts.append(drawn_table(block.columns, block.rows, fmt, width))
    return parts + [common.drawing.Text(line, style=colour) for line, colour in _lines(page)]
