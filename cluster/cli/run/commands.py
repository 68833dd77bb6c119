"""Commands that run something: one name server, one broker, or a whole cluster on this machine."""

import os
from pathlib import Path
from typing import Any

import click

from twinlog.cluster.cli.common.errors import USAGE, CliError
from twinlog.cluster.cli.common.options import examples

_CONFIG_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


def _member_options(function: Any) -> Any:
    """What a name server and a broker have in common."""
    options = (
        click.option("-c", "--config", type=_CONFIG_FILE, help="RocketMQ's configuration file, KEY=VALUE lines."),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="As a last line of the file."),
        click.option("-p", "--print", "print_only", is_flag=True, help="Print the configuration in force, and end."),
        click.option("--until-stdin-closes", is_flag=True, hidden=True, help="Stop when whoever started this ends."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command("namesrv", epilog=examples("twinlog namesrv", "twinlog namesrv -c namesrv.conf --port 9876"))
@_member_options
@click.option("--port", type=click.IntRange(0, 65535), help="Listen there; above what the file says.")
def namesrv(
    config: Path | None, overrides: tuple[str, ...], print_only: bool, until_stdin_closes: bool, port: int | None
) -> None:
    """Run a name server.

    Prints one line `ready namesrv=HOST:PORT` when it serves. SIGTERM and Ctrl-C end it cleanly, a second one at once.
    """
    from twinlog.cluster.cli.run.settings import load_namesrv

    configuration = load_namesrv(config, overrides, port=port)
    if print_only:
        _print_configuration(configuration)
        return
    from twinlog.cluster.cli.run.service import run_namesrv

    run_namesrv(configuration, config_file=config, until_stdin_closes=until_stdin_closes)


@click.command(
    "broker", epilog=examples("twinlog broker -c broker.conf -n 127.0.0.1:9876", "twinlog broker -c broker.conf -p")
)
@_member_options
@click.option("-n", "--namesrv", metavar="HOST:PORT", help="Name servers, joined by ; (above the file's namesrvAddr).")
def broker(
    config: Path | None, overrides: tuple[str, ...], print_only: bool, until_stdin_closes: bool, namesrv: str | None
) -> None:
    """Run a broker: a master, or a slave that follows one.

    Takes RocketMQ's broker.conf as it is; a variable such as TWINLOG_BROKER_NAME is above it, an option above both. Prints
    one line `ready broker=NAME address=HOST:PORT` when it serves and is registered. SIGTERM and Ctrl-C end it cleanly, a
    second one at once.
    """
    from twinlog.cluster.cli.run.settings import load_broker

    configuration = load_broker(config, overrides, namesrv=namesrv)
    if print_only:
        _print_configuration(configuration)
        return
    from twinlog.cluster.cli.run.service import run_broker

    run_broker(configuration, config_file=config, until_stdin_closes=until_stdin_closes)


def _print_configuration(configuration: Any) -> None:
    from twinlog.cluster.cli.common.render import Column, table
    from twinlog.cluster.config.redaction import shown

    columns = [
        Column("KEY", lambda e: e.key),
        Column("VALUE", lambda e: shown(e.key, e.text)),
        Column("SOURCE", lambda e: e.source),
        Column("MEANING", lambda e: e.doc, wide=True),
    ]
    table(columns, configuration.effective, "pretty")


@click.command(
    "up",
    short_help="Run a whole cluster on this machine.",
    epilog=examples(
        "twinlog up",
        "twinlog up --masters 2 --slaves 2 --port-base 20000 --dir ./data",
        "twinlog up --set flushDiskType=SYNC_FLUSH",
    ),
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the data lies.  [default: twinlog in $XDG_DATA_HOME, else ~/.local/share/twinlog]",
)
@click.option("--masters", type=click.IntRange(1, 1000), default=1, show_default=True, help="Broker groups.")
@click.option("--slaves", type=click.IntRange(0, 100), default=1, show_default=True, help="Slaves of each master.")
@click.option("--async", "is_async", is_flag=True, help="Answer producers before a slave has the message.")
@click.option("--port-base", type=int, metavar="N", help="Name server at N, broker k at N+11+10k.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="For the configuration of every broker.")
@click.option("--no-dashboard", is_flag=True, help="Leave the page for browsers out.")
def up(
    directory: Path | None,
    masters: int,
    slaves: int,
    is_async: bool,
    port_base: int | None,
    overrides: tuple[str, ...],
    no_dashboard: bool,
) -> None:
    """Run a name server, masters and slaves on this machine, each a process of its own, and a dashboard.

    Prints one line `ready namesrv=HOST:PORT dashboard=http://HOST:PORT` when all are registered and the slaves follow. Ctrl-C
    stops them cleanly, a second one at once; the data stays. A member that dies is started again.
    """
    from twinlog.cluster.cli.run.up_plan import PlanError, plan_up
    from twinlog.cluster.config.config_file import setting_of

    if overrides:
        from twinlog.cluster.cli.run.settings import load_broker

        load_broker(None, overrides, namesrv=None, environment={})  # What is wrong is told once, and first.
    _note_variables()
    settings = [setting_of(each) for each in overrides]
    directory = (directory or default_directory()).absolute()
    try:
        plan = plan_up(directory, masters=masters, slaves=slaves, is_async=is_async, port_base=port_base)
    except PlanError as error:
        raise CliError(str(error), exit_code=USAGE) from error
    from twinlog.cluster.cli.run.supervisor import supervise

    supervise(plan, [(each.key, each.value) for each in settings], with_dashboard=not no_dashboard)


def _note_variables() -> None:
    from twinlog.cluster.config.environment import without_options

    if ignored := sorted(os.environ.keys() - without_options(os.environ).keys()):
        click.echo(f"note: `up` does not read {', '.join(ignored)}; say it with --set KEY=VALUE", err=True)


def default_directory() -> Path:
    """The user's data directory, by the XDG rules."""
    base = os.environ.get("XDG_DATA_HOME") or ""
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "share") / "twinlog"
