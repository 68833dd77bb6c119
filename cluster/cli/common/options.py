"""What several commands share: options, the help with examples at its end, and running an operation of `Admin`."""

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from twinlog.cluster.cli.common.errors import explain, innermost
from twinlog.cluster.cli.common.logging_setup import ERROR, set_up_log

if TYPE_CHECKING:
    from twinlog.cluster.admin.admin import Admin

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("pretty", "wide", "json", "yaml", "tsv")


class InOrder(click.Group):
    """Lists its commands in the order in which they were added: what one needs first comes first."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(self.commands)


def namesrv_option(function: F) -> F:
    """-n/--namesrv, as RocketMQ's own tools have it, and --context."""
    from twinlog.cluster.cli.common.which_cluster import (
        DEFAULT_NAMESRV,
        complete_contexts,
        name_servers_of,
        remember_context,
    )

    function = click.option(
        "--context",
        "context_name",
        metavar="NAME",
        envvar="TWINLOG_CONTEXT",
        show_envvar=True,
        expose_value=False,
        is_eager=True,
        callback=remember_context,
        shell_complete=complete_contexts,
        help="A cluster that `twinlog context` knows.",
    )(function)
    return click.option(
        "-n",
        "--namesrv",
        metavar="HOST:PORT",
        envvar="NAMESRV_ADDR",
        callback=name_servers_of,
        show_default=f"of the context in use, else {DEFAULT_NAMESRV}",
        show_envvar=True,
        help="Name servers, joined by ;",
    )(function)


def _as_json(context: click.Context, _parameter: click.Parameter, fmt: str) -> str:
    """YAML is what JSON would be, printed otherwise: no command knows."""
    if fmt == "yaml":
        from twinlog.cluster.cli.common.render import YAML

        context.meta[YAML] = True
        return "json"
    return fmt


def format_option(function: F) -> F:
    """-o/--output."""
    return click.option(
        "-o",
        "--output",
        "fmt",
        type=click.Choice(FORMATS),
        default="pretty",
        show_default=True,
        callback=_as_json,
        help="Form of the answer.",
    )(function)


def watch_option(function: F) -> F:
    """-w/--watch."""
    return click.option(
        "-w",
        "--watch",
        "watch_seconds",
        metavar="[SECS]",
        type=click.FloatRange(min=0.1),
        is_flag=False,
        flag_value=2.0,
        help="Show it anew every SECS seconds (2), until Ctrl-C.",
    )(function)


class WithAlternative(click.Command):
    """A command that answers with another document when a flag is given, wherever that stands."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Note what was given before `-o schema` looks."""
        context.meta[_ARGUMENTS] = tuple(args)
        return super().parse_args(context, args)


_ARGUMENTS = "twinlog.arguments"


def document_option(document: str, *, instead: Mapping[str, str] | None = None) -> Callable[[F], F]:
    """-o/--output of a command whose JSON is described by the attrs class `module:name`; `schema` prints that.

    `instead`: flags of a command WithAlternative, and what its JSON is described by with them.
    """

    def show_schema(context: click.Context, _parameter: click.Parameter, fmt: str) -> str:
        if fmt == "schema":
            from twinlog.cluster.cli.common.schema import print_schema

            given = context.meta.get(_ARGUMENTS, ())
            print_schema(next((other for flag, other in (instead or {}).items() if flag in given), document))
            context.exit()
        return _as_json(context, _parameter, fmt)

    return click.option(
        "-o",
        "--output",
        "fmt",
        type=click.Choice((*FORMATS, "schema")),
        default="pretty",
        show_default=True,
        is_eager=True,  # The schema needs no other argument.
        callback=show_schema,
        help="Form of the answer; schema: the JSON Schema of the json one.",
    )


def examples(*lines: str) -> str:
    """The end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def forget_stdout() -> None:
    """Nobody reads it any more: what is still printed goes nowhere, instead of failing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


async def until_interrupted(work: "Awaitable[T]") -> T:
    """Carry out `work`; at Ctrl-C cancel it and raise KeyboardInterrupt.

    Python's own way raises it wherever the program just is, which can be between two steps that belong together.
    """
    import threading

    import trio

    if threading.current_thread() is not threading.main_thread():  # Only the main thread hears of signals.
        return await work
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def cancel_at_signal() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(cancel_at_signal)
            result = await work
            nursery.cancel_scope.cancel()
            return result
    raise KeyboardInterrupt


def run_admin(namesrv: str, operation: "Callable[[Admin], Awaitable[T]]") -> T:
    """Run one operation to its end, with a client of its own. Raises CliError for what a person can mend."""
    set_up_log(ERROR)  # What goes wrong is told as the command's own error.

    import trio

    from twinlog.cluster.admin.admin import open_admin
    from twinlog.cluster.cli.common.which_cluster import chosen_context
    from twinlog.cluster.client.api.api import name_servers
    from twinlog.cluster.remoting.names import split_address

    addresses = name_servers(namesrv)
    if not addresses:
        raise click.UsageError("--namesrv is empty: allowed is HOST:PORT, or several joined by ;")
    for address in addresses:
        try:
            split_address(address)
        except ValueError:
            raise click.UsageError(f"--namesrv {address}: allowed is HOST:PORT, or several joined by ;") from None
    chosen = chosen_context()

    async def main() -> T:
        async with open_admin(addresses, context=chosen) as admin:
            return await until_interrupted(operation(admin))

    try:
        return trio.run(main)
    except BaseException as error:
        inner = innermost(error)
        if isinstance(inner, (KeyboardInterrupt, BrokenPipeError)):  # Not about the cluster: for main.py.
            raise inner from None
        told = explain(inner, addresses)
        if told is None:
            raise
        raise told from error
