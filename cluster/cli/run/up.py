"""`twinlog up`: a whole cluster on this machine."""

import os
from pathlib import Path

import click

from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.run.supervisor import supervise
from twinlog.cluster.cli.run.up_plan import default_directory, plan_up
from twinlog.cluster.config.config_file import setting_of
from twinlog.cluster.config.environment import without_options


@click.command(
    "up",
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
    help="Data directory.  [default: twinlog in $XDG_DATA_HOME, else ~/.local/share/twinlog]",
)
@click.option(
    "--masters",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Number of masters, each with a broker group of its own.",
)
@click.option(
    "--slaves", type=click.IntRange(0, 100), default=1, show_default=True, help="Number of slaves of each master."
)
@click.option("--async", "is_async", is_flag=True, help="Acknowledge messages before a slave has them.")
@click.option(
    "--port-base",
    type=int,
    metavar="N",
    help="Use port N for the name server, N+11+10k for broker k.  [default: 9876, brokers from 10911]",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a configuration key of every broker; repeatable.",
)
@click.option("--no-dashboard", is_flag=True, help="Do not start the web page.")
def up(
    directory: Path | None,
    masters: int,
    slaves: int,
    is_async: bool,
    port_base: int | None,
    overrides: tuple[str, ...],
    no_dashboard: bool,
) -> None:
    """Run a name server, masters, slaves and a dashboard on this machine, each as a process of its own.

    Prints one line `ready namesrv=HOST:PORT dashboard=http://HOST:PORT` when all are registered and the slaves follow. Ctrl-C
    stops them cleanly, a second one at once; the data is kept. A member that dies is restarted.
    """
    if overrides:
        from twinlog.cluster.cli.run.settings import load_broker

        load_broker(None, overrides, namesrv=None, environment={})  # Report an error once, before anything runs.
    _note_variables()
    directory = (directory or default_directory()).absolute()
    plan = plan_up(directory, masters=masters, slaves=slaves, is_async=is_async, port_base=port_base)
    settings = {each.key: each.value for each in map(setting_of, overrides)}
    supervise(plan, settings, with_dashboard=not no_dashboard)


def _note_variables() -> None:
    if ignored := sorted(os.environ.keys() - without_options(os.environ).keys()):
        click.echo(f"note: `up` ignores {', '.join(ignored)}; use --set KEY=VALUE instead", err=True)
