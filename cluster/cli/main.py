"""The `twinlog` command. Modules of commands import what they need when they run, so that each starts quickly."""

import sys
from typing import Any

import click

from twinlog.cluster.cli.audit import audit
from twinlog.cluster.cli.backup import backup, restore
from twinlog.cluster.cli.bundle import bundle
from twinlog.cluster.cli.common.completion import completion
from twinlog.cluster.cli.common.confirm import may_have_changed
from twinlog.cluster.cli.common.errors import CliError
from twinlog.cluster.cli.common.failure import answer_failure, note_format
from twinlog.cluster.cli.common.options import InOrder, examples, forget_stdout
from twinlog.cluster.cli.config import config_group
from twinlog.cluster.cli.consume import consume, tail
from twinlog.cluster.cli.context import context_group
from twinlog.cluster.cli.crosscheck import crosscheck
from twinlog.cluster.cli.demo.command import demo
from twinlog.cluster.cli.group import group_group
from twinlog.cluster.cli.health import check, doctor, explain, wait
from twinlog.cluster.cli.lag import lag
from twinlog.cluster.cli.log.group import log_group
from twinlog.cluster.cli.members import list_members
from twinlog.cluster.cli.mqadmin import mqadmin
from twinlog.cluster.cli.peek import peek
from twinlog.cluster.cli.role_repairs import reinit, rewind
from twinlog.cluster.cli.roles import failover, history, pause, resume, switchover
from twinlog.cluster.cli.run.commands import broker, namesrv, up
from twinlog.cluster.cli.run.dashboard import dashboard
from twinlog.cluster.cli.send import send
from twinlog.cluster.cli.topic import topic_group


class Main(InOrder):
    """All commands."""

    def invoke(self, context: click.Context) -> Any:
        """A reader that has seen enough (`twinlog consume orders | head`) is no failure; click would make it one.

        For a command that changes something it is one: it may have stopped before that.
        """
        try:
            result = super().invoke(context)
            sys.stdout.flush()
        except BrokenPipeError as error:
            forget_stdout()
            if may_have_changed(context):
                raise CliError("Nobody reads the output any more, so it is not told what was changed.") from error
            return None
        except click.ClickException as error:
            answer_failure(context, error)
            raise
        return result

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Note whether JSON is asked for: also a command whose other arguments are wrong answers so."""
        note_format(context, args)
        return super().parse_args(context, args)


@click.group(
    cls=Main,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog=examples(
        "twinlog up                       a name server, a master and a slave on this machine",
        'twinlog send orders "hello"      then: twinlog consume orders',
        "twinlog list                     how everybody is",
    ),
)
@click.version_option(package_name="twinlog", message="%(prog)s %(version)s")
def cli() -> None:
    """A message broker, name server and replica that RocketMQ's clients, brokers and tools know how to talk to."""


RUN = (up, demo, namesrv, broker, dashboard)
LOOK = (list_members, explain, history, check, wait, doctor, crosscheck)
ACT = (switchover, failover, pause, resume, rewind, reinit)
DATA = (topic_group, group_group, lag, send, consume, tail, peek)
FILES = (log_group, backup, restore, audit)
TOOLS = (config_group, context_group, bundle, completion, mqadmin)
for command in (*RUN, *LOOK, *ACT, *DATA, *FILES, *TOOLS):
    cli.add_command(command)


def main() -> None:
    """Run the command line; leaves with its exit status."""
    run_alone(cli)


def run_alone(command: click.Command) -> None:
    """Run one command of it."""
    try:
        status = command(standalone_mode=False)
    except click.exceptions.Abort:
        status = 130
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except KeyboardInterrupt:
        status = 130
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
