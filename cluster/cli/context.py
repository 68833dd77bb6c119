"""`twinlog context`: named clusters."""

from pathlib import Path
from typing import Any

import click
from attrs import evolve

from twinlog.cluster.cli.common.errors import USAGE, CliError
from twinlog.cluster.cli.common.group import InOrder, examples
from twinlog.cluster.cli.common.options import document_option
from twinlog.cluster.cli.common.pages import Block, Page, show
from twinlog.cluster.cli.common.render import Column
from twinlog.cluster.cli.common.which_cluster import complete_contexts
from twinlog.cluster.client.api import name_servers
from twinlog.cluster.config.contexts import (
    Context,
    ContextList,
    Contexts,
    contexts_path,
    listed,
    load_contexts,
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
    """Name clusters: their name servers, credentials, TLS settings and group secrets.

    Contexts are kept in twinlog/config.toml in $XDG_CONFIG_HOME, else ~/.config. A command uses the first of: -n, --context or
    TWINLOG_CONTEXT, NAMESRV_ADDR, the context in use, 127.0.0.1:9876.
    """


@context_group.command(
    "list",
    short_help="List the contexts.",
    epilog=examples("twinlog context list", "twinlog context list -o json"),
)
@document_option(ContextList)
def list_contexts(fmt: str) -> None:
    """List the contexts; a star marks the one in use."""
    _show(load_contexts(contexts_path()), fmt)


def _show(contexts: Contexts, fmt: str) -> None:
    show(listed(contexts), fmt, _page)


def _page(found: Any) -> Page:
    columns = [
        Column("CONTEXT", lambda c: c.name),
        Column("IN USE", lambda c: "*" if c.in_use else None),
        Column("NAME SERVERS", lambda c: ";".join(c.name_servers)),
        Column("CREDENTIALS", lambda c: c.credentials),
        Column("TLS", lambda c: "yes" if c.tls else "no"),
        Column("SECRET FILE", lambda c: c.secret_file, wide=True),
    ]
    return Page((Block(None, columns, found.contexts, "No contexts. Add one: twinlog context add NAME -n HOST:PORT"),))


@context_group.command(
    "add",
    short_help="Add a context.",
    epilog=examples(
        'twinlog context add test -n "10.0.0.1:9876;10.0.0.2:9876"',
        "twinlog context add prod -n 10.0.1.1:9876 --credentials ~/prod.yml --tls --trust ~/ca.pem",
        "twinlog context add prod -n 10.0.1.1:9876 --secret-file ~/group-secret",
    ),
)
@click.argument("name")
@click.option("-n", "--namesrv", required=True, metavar="HOST:PORT", help="Name servers, separated by ;")
@click.option("--credentials", type=_FILE, help="A file with accessKey and secretKey, like RocketMQ's tools.yml.")
@click.option("--tls", is_flag=True, help="Connect with TLS.")
@click.option("--trust", type=_FILE, help="With --tls: trusted certificates, to verify the servers.")
@click.option(
    "--secret-file", type=_FILE, help="The file of the group secret, to change roles from a machine without a member."
)
@click.option("--replace", is_flag=True, help="Replace a context of that name.")
@document_option(ContextList)
def add(
    name: str,
    namesrv: str,
    credentials: Path | None,
    tls: bool,
    trust: Path | None,
    secret_file: Path | None,
    replace: bool,
    fmt: str,
) -> None:
    """Add the context NAME for a cluster. The first context becomes the one in use; `twinlog context use` changes that."""
    if trust is not None and not tls:
        raise click.UsageError("--trust needs --tls.")
    contexts = load_contexts(contexts_path())
    if name in contexts.contexts and not replace:
        raise CliError(
            f"There is already a context {name}.", next_step="Add --replace, or choose another name", exit_code=USAGE
        )
    context = Context(
        name=name,
        name_servers=name_servers(namesrv),
        credentials=credentials,
        tls=tls,
        trust=trust,
        secret_file=secret_file,
    )
    _save(contexts.with_context(context), fmt)


@context_group.command(
    "use", short_help="Choose the context in use.", epilog=examples("twinlog context use prod", "twinlog list")
)
@context_argument
@document_option(ContextList)
def use(name: str, fmt: str) -> None:
    """Make NAME the context in use, for commands without -n or --context."""
    contexts = load_contexts(contexts_path())
    _save(evolve(contexts, current=contexts.find(name).name), fmt)


@context_group.command("remove", short_help="Remove a context.", epilog=examples("twinlog context remove test"))
@context_argument
@document_option(ContextList)
def remove(name: str, fmt: str) -> None:
    """Remove the context NAME. The cluster itself is not changed."""
    contexts = load_contexts(contexts_path())
    _save(contexts.without(name), fmt)


def _save(contexts: Contexts, fmt: str) -> None:
    save_contexts(contexts_path(), contexts)
    _show(contexts, fmt)
