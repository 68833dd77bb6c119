"""`twinlog context`: clusters by name."""

from pathlib import Path
from typing import Any

import click
from attrs import evolve

from twinlog.cluster.cli.common.errors import USAGE, CliError
from twinlog.cluster.cli.common.group import InOrder, examples
from twinlog.cluster.cli.common.options import document_option
from twinlog.cluster.cli.common.pages import Block, Page, show
from twinlog.cluster.cli.common.render import Column
from twinlog.cluster.cli.common.which_cluster import complete_contexts, context_error, load
from twinlog.cluster.client.api import name_servers
from twinlog.cluster.config.contexts import (
    Context,
    ContextError,
    ContextList,
    Contexts,
    contexts_path,
    listed,
    save_contexts,
)

_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path, resolve_path=True)
context_argument = click.argument("name", shell_complete=complete_contexts)


@click.group(
    "context",
    cls=InOrder,
    epilog=examples(
        'twinlog context add test -n "10.0.0.1:9876;10.0.0.2:9876"',
        "twinlog context use test",
        "twinlog list --context test",
    ),
)
def context_group() -> None:
    """Give clusters names: their name servers, and whose credentials to use.

    They are kept in twinlog/config.toml in $XDG_CONFIG_HOME, else ~/.config. What counts is the first of: -n, --context or
    TWINLOG_CONTEXT, NAMESRV_ADDR, the context in use, 127.0.0.1:9876.
    """


@context_group.command(
    "list",
    short_help="Show the clusters with names.",
    epilog=examples("twinlog context list", "twinlog context list -o json"),
)
@document_option(ContextList)
def list_contexts(fmt: str) -> None:
    """Show each context, a star at the one in use."""
    _show(load(), fmt)


def _show(contexts: Contexts, fmt: str) -> None:
    show(listed(contexts), fmt, _page)


def _page(found: Any) -> Page:
    columns = [
        Column("CONTEXT", lambda c: c.name),
        Column("IN USE", lambda c: "*" if c.in_use else None),
        Column("NAME SERVERS", lambda c: ";".join(c.name_servers)),
        Column("CREDENTIALS", lambda c: c.credentials),
        Column("TLS", lambda c: "yes" if c.tls else "no"),
    ]
    return Page((Block(None, columns, found.contexts, "No contexts. Make one: twinlog context add NAME -n HOST:PORT"),))


@context_group.command(
    "add",
    short_help="Give a cluster a name.",
    epilog=examples(
        'twinlog context add test -n "10.0.0.1:9876;10.0.0.2:9876"',
        "twinlog context add prod -n 10.0.1.1:9876 --credentials ~/prod.yml --tls --trust ~/ca.pem",
    ),
)
@click.argument("name")
@click.option("-n", "--namesrv", required=True, metavar="HOST:PORT", help="Name servers, joined by ;")
@click.option("--credentials", type=_FILE, help="A file with accessKey and secretKey, as RocketMQ's tools.yml.")
@click.option("--tls", is_flag=True, help="Connect with TLS.")
@click.option("--trust", type=_FILE, help="With --tls: certificates that servers' ones are checked with.")
@click.option("--replace", is_flag=True, help="Although there is one of that name.")
@document_option(ContextList)
def add(
    name: str, namesrv: str, credentials: Path | None, tls: bool, trust: Path | None, replace: bool, fmt: str
) -> None:
    """Call a cluster NAME. The first one is used from then on; `twinlog context use` chooses another."""
    if trust is not None and not tls:
        raise click.UsageError("--trust needs --tls.")
    contexts = load()
    if name in contexts.contexts and not replace:
        raise CliError(
            f"There is a context {name} already.", next_step="Add --replace, or choose another name", exit_code=USAGE
        )
    context = Context(name=name, name_servers=name_servers(namesrv), credentials=credentials, tls=tls, trust=trust)
    _save(lambda: contexts.with_context(context), fmt)


@context_group.command(
    "use", short_help="Choose the cluster that counts.", epilog=examples("twinlog context use prod", "twinlog list")
)
@context_argument
@document_option(ContextList)
def use(name: str, fmt: str) -> None:
    """Let commands be about the cluster NAME, unless they are told otherwise."""
    contexts = load()
    _save(lambda: evolve(contexts, current=contexts.find(name).name), fmt)


@context_group.command("remove", short_help="Forget a cluster's name.", epilog=examples("twinlog context remove test"))
@context_argument
@document_option(ContextList)
def remove(name: str, fmt: str) -> None:
    """Forget the name NAME; nothing happens to the cluster."""
    contexts = load()
    _save(lambda: contexts.without(name), fmt)


def _save(changed: Any, fmt: str) -> None:
    try:
        contexts = changed()
        save_contexts(contexts_path(), contexts)
    except ContextError as error:
        raise context_error(error) from error
    _show(contexts, fmt)
