"""The commands that look into a store directory of RocketMQ or twinlog, running or stopped."""

import click

from twinlog.cluster.cli.log_check import info, verify
from twinlog.cluster.cli.log_messages import diff, dump
from twinlog.cluster.cli.log_rebuild import rebuild
from twinlog.cluster.cli.options import InOrder, examples


@click.group(
    "log",
    cls=InOrder,
    epilog=examples(
        "twinlog log info ~/store", "twinlog log verify ~/store", "twinlog log dump ~/store --topic orders"
    ),
)
def log_group() -> None:
    """Look into a store directory: RocketMQ's 4.9 or 5.3, or twinlog's, while its broker runs or not.

    DIR is the store's root (storePathRootDir), which holds commitlog/ and consumequeue/. Nothing in it is changed, except by
    rebuild.
    """


for command in (info, verify, dump, diff, rebuild):
    log_group.add_command(command)
