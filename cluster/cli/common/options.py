"""Options that several commands share, confirmation of dangerous changes, and `-o schema`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from twinlog.cluster.admin.documents import schema_of
from twinlog.cluster.cli.common.errors import REFUSED, CliError
from twinlog.cluster.cli.common.group import ARGUMENTS
from twinlog.cluster.cli.common.render import YAML
from twinlog.cluster.cli.common.which_cluster import (
    DEFAULT_NAMESRV,
    cluster_text,
    complete_contexts,
    name_servers_of,
    remember_context,
    remember_secret_file,
)
from twinlog.cluster.user_errors import Failure

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("pretty", "wide", "json", "yaml", "tsv")


def together(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Make one decorator of several options, which help lists in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


# As RocketMQ's own tools have it.
namesrv_option = together(
    click.option(
        "-n",
        "--namesrv",
        metavar="HOST:PORT",
        envvar="NAMESRV_ADDR",
        callback=name_servers_of,
        show_default=f"of the context in use, else {DEFAULT_NAMESRV}",
        show_envvar=True,
        help="Name servers, separated by ;",
    ),
    click.option(
        "--context",
        "context_name",
        metavar="NAME",
        envvar="TWINLOG_CONTEXT",
        show_envvar=True,
        expose_value=False,
        is_eager=True,
        callback=remember_context,
        shell_complete=complete_contexts,
        help="A cluster defined with `twinlog context`.",
    ),
)

# Of commands that change roles. Its variable is read by whoever makes the client: other commands need no readable file.
secret_file_option = click.option(
    "--secret-file",
    type=click.Path(dir_okay=False, path_type=Path),
    expose_value=False,
    callback=remember_secret_file,
    help="File of the group secret, needed on machines without a member.  "
    "[default: of the context, else TWINLOG_HA_SECRET_FILE]",
)


watch_option = click.option(
    "-w",
    "--watch",
    "watch_seconds",
    metavar="[SECS]",
    type=click.FloatRange(min=0.1),
    is_flag=False,
    flag_value=2.0,
    help="Refresh every SECS seconds (2) until Ctrl-C.",
)


def document_option(
    document: type, *, instead: Mapping[str, type] | None = None, formats: Sequence[str] = FORMATS
) -> Callable[[F], F]:
    """-o/--output of a command whose JSON is described by the attrs class `document`; `schema` prints its schema.

    `instead`: flags, and the class that describes the JSON with them, wherever on the line they stand. The first of `formats` is
    the default.
    """

    def show_schema(context: click.Context, _parameter: click.Parameter, fmt: str) -> str:
        if fmt == "schema":
            given = context.meta.get(ARGUMENTS, ())
            _print_schema(next((other for flag, other in (instead or {}).items() if flag in given), document))
            context.exit()
        context.meta[YAML] = fmt == "yaml"
        return "json" if fmt == "yaml" else fmt  # Commands see only JSON.

    return click.option(
        "-o",
        "--output",
        "fmt",
        type=click.Choice((*formats, "schema")),
        default=formats[0],
        show_default=True,
        is_eager=True,  # The schema needs no other argument.
        callback=show_schema,
        help="Output format; schema prints the JSON Schema of json.",
    )


yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
_CHANGES = "twinlog.changes"


def _note_changes(context: click.Context, _parameter: click.Parameter, dry_run: bool) -> bool:
    context.meta[_CHANGES] = not dry_run
    return dry_run


dry_run_option = click.option(
    "--dry-run", is_flag=True, callback=_note_changes, help="Show what would be done without changing anything."
)
change_options = together(dry_run_option, yes_option)


def may_have_changed(context: click.Context) -> bool:
    """Return whether the command changes something: it has --dry-run, and was called without it."""
    return bool(context.meta.get(_CHANGES))


def need_yes(is_given: bool, what: str) -> None:
    """Raise a usage error when confirmation is needed and there is no terminal."""
    if not is_given and not sys.stdin.isatty():
        raise click.UsageError(f"this {what}, and there is no terminal for the confirmation: add --yes, or --dry-run")


def confirm(name: str, kind: str, what: str, yes: bool) -> None:
    """Ask the user to type the name of what will be changed, unless `yes`; the prompt names the cluster. Raises CliError."""
    if yes:
        return
    question = f"{what}{cluster_text()}. To continue, type the {kind}'s name ({name})"
    typed = click.prompt(question, err=True, default="", show_default=False)
    if typed.strip() != name:
        raise CliError("Nothing was changed.", f"{typed!r} is not the {kind}'s name.", exit_code=REFUSED)


def _print_schema(document: type) -> None:
    """Print the JSON Schema of an attrs class; `$defs` has Failure, which is printed instead when the command fails."""
    schema, failure = schema_of(document), schema_of(Failure)
    of_failure = {
        key: failure[key] for key in ("type", "description", "properties", "required", "additionalProperties")
    }
    schema["$defs"] |= {**failure["$defs"], Failure.__name__: of_failure}
    click.echo(orjson.dumps(schema, option=orjson.OPT_INDENT_2))
