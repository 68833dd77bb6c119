"""`twinlog config`: shows, compares, explains and changes the configuration of running brokers."""

import os
from pathlib import Path

import click
from attrs import evolve

from twinlog.cluster.admin.config import ConfigChange, ConfigDiff, ConfigReport
from twinlog.cluster.admin.options import NoOptionError, OptionExplained, default_text, explain_option
from twinlog.cluster.cli.common import complete
from twinlog.cluster.cli.common.errors import FAILED, REFUSED, USAGE, CliError, sentence
from twinlog.cluster.cli.common.group import InOrder, examples
from twinlog.cluster.cli.common.options import change_options, confirm, document_option, namesrv_option, need_yes
from twinlog.cluster.cli.common.pages import Block, Page, preview, show
from twinlog.cluster.cli.common.render import Column, print_answer, style, table
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.config.redaction import shown


@click.group(
    "config",
    cls=InOrder,
    epilog=examples(
        "twinlog config get broker-a-0",
        "twinlog config explain flushDiskType",
        "twinlog config diff broker-a-0 broker-a-1",
    ),
)
def config_group() -> None:
    """Show, compare, explain and change the configuration of running brokers."""


@config_group.command(
    "get",
    short_help="Show the effective configuration of a broker.",
    epilog=examples(
        "twinlog config get broker-a-0",
        "twinlog config get broker-a-0 flushDiskType brokerRole",
        "twinlog config get broker-a-0 --set-only -o tsv",
    ),
)
@click.argument("member", shell_complete=complete.members)
@click.argument("keys", nargs=-1, metavar="[KEY]...", shell_complete=complete.options)
@namesrv_option
@click.option("--set-only", is_flag=True, help="Leave out options with their default value.")
@document_option(ConfigReport)
def get(member: str, keys: tuple[str, ...], namesrv: str, set_only: bool, fmt: str) -> None:
    """Show the effective options of MEMBER, a name as in `twinlog list` or an address. Secrets are hidden.

    SOURCE is `default`, or `set`: by its file, its command line, or while it ran. -o wide adds defaults and meanings.
    """
    found: ConfigReport = run_admin(namesrv, lambda admin: admin.config.get(member))
    known = {option.key for option in found.options}
    if missing := [key for key in keys if key not in known]:
        _explain(missing[0])  # Raises, with suggestions for a misspelt key.
        raise CliError(f"{found.member} has no option {missing[0]}.", exit_code=USAGE)
    options = [option for option in found.options if not keys or option.key in keys]
    options = [option for option in options if not set_only or option.source != "default"]
    show(evolve(found, options=tuple(options)), fmt, _report_page)


def _report_page(found: ConfigReport) -> Page:
    columns = [
        Column("KEY", lambda o: o.key),
        Column("VALUE", lambda o: o.value),
        Column("SOURCE", lambda o: o.source),
        Column("DEFAULT", lambda o: o.default, wide=True),
        Column("MEANING", lambda o: o.meaning, wide=True),
    ]
    return Page((Block(None, columns, found.options, "All options have their default value."),))


@config_group.command(
    "set",
    short_help="Change options of running brokers.",
    epilog=examples(
        "twinlog config set broker-a-0 fileReservedTime=72 --dry-run",
        "twinlog config set broker-a-0 maxMessageSize=1048576 traceOn=false --yes",
        "twinlog config set --all-masters deleteWhen=03 --yes",
    ),
)
@click.argument("arguments", nargs=-1, metavar="[MEMBER]... KEY=VALUE...", shell_complete=complete.members)
@namesrv_option
@click.option("--all-masters", is_flag=True, help="Change the master of each group.")
@change_options
@document_option(ConfigChange)
def set_options(
    arguments: tuple[str, ...], namesrv: str, all_masters: bool, dry_run: bool, yes: bool, fmt: str
) -> None:
    """Change options of running brokers, which also save them in their configuration file.

    A broker accepts all of the changes or none. `twinlog config explain KEY` says whether an option can change at run time;
    paths, hosts and commands never can. Each member has a configuration of its own, so name master and slaves to change both.
    """
    members = tuple(each for each in arguments if "=" not in each)
    pairs = [each.partition("=") for each in arguments if "=" in each]
    if not pairs or any(not key for key, _, _ in pairs):
        raise click.UsageError("nothing to change: add KEY=VALUE")
    if bool(members) == all_masters:
        raise click.UsageError("no broker to change: name a MEMBER, or add --all-masters")
    need_yes(yes or dry_run, "changes running brokers")
    changes = {key: value for key, _, value in pairs}
    planned: ConfigChange = run_admin(namesrv, lambda admin: admin.config.prepare_set(members, changes))
    if dry_run:
        show(planned, fmt, _change_page)
        _refuse(planned)
        return
    _refuse(planned)
    preview(planned, fmt, _change_page, yes=yes)
    name = members[0] if members else "all"
    confirm(name, "member" if members else "word", "These brokers will be changed", yes)
    show(run_admin(namesrv, lambda admin: admin.config.apply(planned)), fmt, _change_page)


def _refuse(planned: ConfigChange) -> None:
    for each in planned.changes:
        if each.refusal is not None:
            raise CliError(
                f"{each.member} refuses {each.key}={each.after}, so nothing was changed.",
                f"{each.refusal[:1].upper()}{each.refusal[1:]}.",
                f"Change its configuration file and restart it, or see: twinlog config explain {each.key}",
                exit_code=REFUSED,
            )


def _change_page(change: ConfigChange) -> Page:
    columns = [
        Column("MEMBER", lambda c: c.member),
        Column("KEY", lambda c: c.key),
        Column("BEFORE", lambda c: c.before),
        Column("AFTER", lambda c: c.after),
        Column("REFUSED", lambda c: c.refusal),
    ]
    shown = columns if any(each.refusal for each in change.changes) else columns[:-1]
    return Page((Block(None, shown, change.changes),), nothing_changed=not change.done)


@config_group.command(
    "diff",
    short_help="Compare two configurations.",
    epilog=examples(
        "twinlog config diff broker-a-0 broker-a-1",
        "twinlog config diff broker.conf broker-a-0",
        "twinlog config diff broker-a-0 broker-b-0 -o json | jq .differences",
    ),
)
@click.argument("left", shell_complete=complete.members)
@click.argument("right", shell_complete=complete.members)
@namesrv_option
@click.option("--own", "with_own", is_flag=True, help="Include options that differ by nature: addresses, role, paths.")
@document_option(ConfigDiff)
def diff(left: str, right: str, namesrv: str, with_own: bool, fmt: str) -> None:
    """Compare two brokers, or a configuration file with a running broker. Exit status 0: equal, 1: different.

    An option that a file does not set has its default value.
    """
    files = {name: Path(name).read_bytes().decode(errors="replace") for name in (left, right) if Path(name).is_file()}
    found: ConfigDiff = run_admin(namesrv, lambda admin: admin.config.diff(left, right, files=files, with_own=with_own))
    show(found, fmt, _diff_page)
    if found.differences:
        click.get_current_context().exit(FAILED)


def _diff_page(found: ConfigDiff) -> Page:
    columns = [
        Column("KEY", lambda d: d.key),
        Column(found.left, lambda d: d.left),
        Column(found.right, lambda d: d.right),
    ]
    empty = f"{found.left} and {found.right} have the same configuration."
    return Page((Block(None, columns, found.differences, empty),))


@config_group.command(
    "explain",
    short_help="Explain an option.",
    epilog=examples("twinlog config explain flushDiskType", "twinlog config explain haSendHeartbeatInterval -o json"),
)
@click.argument("key", shell_complete=complete.options)
@document_option(OptionExplained)
def explain(key: str, fmt: str) -> None:
    """Explain KEY: meaning, type, default, allowed values, and whether it can change while a broker runs."""
    print_answer(_explain(key), fmt, _show_option)


def _show_option(found: OptionExplained, fmt: str) -> None:
    lines = [
        ("is", f"{found.meaning}"),
        ("type", found.type + (f", in {found.unit}" if found.unit else "")),
        ("default", default_text(found)),
        ("allowed", found.allowed),
        ("of", {"both": "brokers and name servers"}.get(found.of, f"{found.of}s")),
        ("variable", _variable(found)),
        ("change", f"while it runs: {found.change}" if found.change else "in its file; it is read only at the start"),
    ]
    if fmt == "tsv":
        table([Column("NAME", lambda each: each[0]), Column("TEXT", lambda each: each[1])], lines, fmt)
        return
    click.echo(style(found.key, bold=True))
    for name, text in lines:
        if text:
            click.echo(f"  {name:<8} {text}")
    if found.change:
        click.echo(f"  {'':<8} twinlog config set MEMBER {found.key}=VALUE")


def _variable(found: OptionExplained) -> str:
    """Return the name of the variable, and its value if it is set here."""
    value = os.environ.get(found.variable, "")
    return f"{found.variable}={shown(found.key, value)}, set here" if value else found.variable


def _explain(key: str) -> OptionExplained:
    try:
        return explain_option(key)
    except NoOptionError as error:
        near = f"Did you mean {', '.join(error.near)}?" if error.near and not error.is_rocketmqs else ""
        raise CliError(sentence(error), near, exit_code=USAGE) from error
