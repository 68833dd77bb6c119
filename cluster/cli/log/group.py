"""The commands that look into a store directory of RocketMQ or twinlog, running or stopped."""

import click

from twinlog.cluster.cli.common.options import InOrder, examples
from twinlog.cluster.cli.log.check import info, verify
from twinlog.cluster.cli.log.messages import diff, dump
from twinlog.cluster.cli.log.rebuild import rebuild


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
