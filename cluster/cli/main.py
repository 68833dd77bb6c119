"""The `twinlog` command: the table of its commands, and its exit status."""

import sys
from typing import Any

import click

from twinlog.cluster.cli import common
from twinlog.cluster.cli.common.group import LateGroup, examples, note_arguments


class Main(LateGroup):
    """The top-level group."""

    def invoke(self, context: click.Context) -> Any:
        """Run a command. A closed pipe (`twinlog consume orders | head`) is success, which click would report as a failure.

        For a command that changes something it is a failure: the command may have stopped before its change.
        """
        try:
            result = super().invoke(context)
            sys.stdout.flush()
        except BrokenPipeError as error:
            common.errors.forget_stdout()
            if common.options.may_have_changed(context):
                raise common.errors.CliError(
                    "The output was closed, so what was changed cannot be reported."
                ) from error
            return None
        except (click.ClickException, common.errors.UserError) as error:
            ended_by = common.errors.as_click(error)
            common.errors.answer_failure(context, ended_by)
            raise ended_by from error.__cause__
        return result

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Remember what is requested: a command with wrong arguments also answers in JSON then."""
        note_arguments(context, args)
        return super().parse_args(context, args)


LOG_COMMANDS = {
    "info": ("log.info:info", "Show what a store directory holds."),
    "verify": ("log.verify:verify", "Check every message, queue entry and key."),
    "dump": ("log.dump:dump", "Print the messages of a log."),
    "diff": ("log.diff:diff", "Compare two logs."),
    "rebuild": ("log.rebuild:rebuild", "Rebuild queues and index from the log."),
    "new-member": ("log.new_member:new_member", "Make a new member of a copied directory."),
}


@click.group(
    "log",
    cls=LateGroup,
    late=LOG_COMMANDS,
    epilog=examples(
        "twinlog log info ~/store", "twinlog log verify ~/store", "twinlog log dump ~/store --topic orders"
    ),
)
def log_group() -> None:
    """Inspect a store directory of RocketMQ 4.9 or 5.3 or of twinlog, while its broker runs or is stopped.

    DIR is the store's root (storePathRootDir), which holds commitlog/ and consumequeue/. Nothing in it is changed, except by
    rebuild and new-member.
    """


COMMANDS = {
    # Run something.
    "up": ("run.supervisor:up", "Run a whole cluster on this machine."),
    "demo": ("demo.command:demo", "Show a failover under traffic: no acknowledged message is lost."),
    "namesrv": ("run.namesrv:namesrv", "Run a name server."),
    "broker": ("run.broker:broker", "Run a broker: a master, or a slave that follows one."),
    "standalone": ("run.standalone:standalone", "Run a name server and a broker in one process, for tests."),
    "dashboard": ("run.dashboard:dashboard", "Serve a web page that shows the cluster's status."),
    # Inspect a cluster.
    "list": ("members:list_members", "Show the status of each member."),
    "explain": ("health:explain", "Explain in sentences what a member does and why."),
    "history": ("roles:history", "Show who was the master, and since when."),
    "check": ("health:check", "Report the cluster's health to a monitoring system."),
    "wait": ("health:wait", "Wait until the cluster meets conditions."),
    "doctor": ("health:doctor", "Find problems, and say how to fix each."),
    "crosscheck": ("crosscheck:crosscheck", "Compare what each member reports about the others."),
    # Change roles.
    "switchover": ("roles:switchover", "Make a slave the master without losing messages."),
    "failover": ("roles:failover", "Make a slave the master when the master is down."),
    "pause": ("roles:pause", "Prevent role changes for a while."),
    "resume": ("roles:resume", "Allow role changes again."),
    "auto-failover": ("roles:auto_failover", "Show or change who begins a failover."),
    "rewind": ("roles:rewind", "Cut a diverged slave back to its master's history."),
    "reinit": ("roles:reinit", "Replace a slave's log with a copy of its master's."),
    # Work with data.
    "topic": ("topic:topic_group", "Show, create, change and delete topics."),
    "group": ("group:group_group", "Show, create and change consumer groups, and move their offsets."),
    "lag": ("group:lag", "Show how far consumer groups are behind."),
    "send": ("send:send", "Send messages."),
    "consume": ("messages:consume", "Print a topic's messages."),
    "tail": ("messages:tail", "Print new messages as they arrive."),
    "peek": ("messages:peek", "Show messages, and who has consumed them."),
    # Work with store directories.
    "log": (log_group, "Inspect store directories."),
    "backup": ("backup:backup", "Copy a store while it runs."),
    "restore": ("backup:restore", "Create a store from a backup."),
    "audit": ("audit:audit", "Prove that replicas are equal."),
    # Tools.
    "config": ("config:config_group", "Show, explain, compare and change the configuration of brokers."),
    "context": ("context:context_group", "Name clusters, and choose the one in use."),
    "bundle": ("bundle:bundle", "Collect a support bundle."),
    "completion": ("common.complete:completion", "Set up completion of commands and names in the shell."),
    "mqadmin": ("mqadmin:mqadmin", "Run RocketMQ's most used mqadmin sub-commands."),
}


@click.group(
    cls=Main,
    late=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog=examples(
        "twinlog up                       a name server, a master and a slave on this machine",
        'twinlog send orders "hello"      then: twinlog consume orders',
        "twinlog list                     the status of each member",
    ),
)
@click.version_option(package_name="twinlog", message="%(prog)s %(version)s")
def cli() -> None:
    """Run and operate a RocketMQ-compatible message broker, name server and replica.

    RocketMQ's own clients, brokers and tools work with it.
    """


def main() -> None:
    """Run the command line, and exit with its status."""
    run_alone(cli)


def run_alone(command: click.Command) -> None:
    """Run one command as a program of its own."""
    try:
        status = command(standalone_mode=False)
    except (click.ClickException, common.errors.UserError) as error:
        ended_by = common.errors.as_click(error)
        ended_by.show()
        status = ended_by.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        status = 130
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
