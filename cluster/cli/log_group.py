"""Commands that look into a store directory of RocketMQ or twinlog, running or stopped."""

from pathlib import Path
from typing import Any

import click

from cluster.cli.offline import directory_argument, directory_options, opened
from cluster.cli.options import document_option, examples


@click.group(
    "log",
    epilog=examples(
        "twinlog log info ~/store", "twinlog log verify ~/store", "twinlog log dump ~/store --topic orders"
    ),
)
def log_group() -> None:
    """Look into a store directory: RocketMQ's 4.9 or 5.3, or twinlog's, while its broker runs or not.

    DIR is the store's root (storePathRootDir), which holds commitlog/ and consumequeue/. Nothing in it is changed, except by
    rebuild.
    """


@log_group.command(
    "info",
    short_help="Show what a store directory is.",
    epilog=examples(
        "twinlog log info ~/store",
        "twinlog log info ~/store -o wide",
        "twinlog log info ~/store -o json | jq .log.end_offset",
    ),
)
@directory_argument
@directory_options
@document_option("store.offline.info:StoreInfo")
def info(directory: Path, fmt: str, **options: Any) -> None:
    """Show what a store directory is: who wrote it, how far its log goes, what is in its queues.

    FIRST and NEXT are queue offsets, EVER is how many messages a topic ever had. Only cheap facts: no checksum is looked at.
    """
    with opened(directory, **options) as store:
        from store.offline.info import look

        found = look(store)
    if fmt == "json":
        from cluster.cli.render import json_answer

        json_answer(found)
        return
    from cluster.cli.log_info import show_info

    show_info(found, fmt)
