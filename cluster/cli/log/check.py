"""`twinlog log info` and `log verify`: what a store directory is, and whether it is sound."""

from pathlib import Path
from typing import Any

import click

from twinlog.cluster.cli.common.errors import FAILED
from twinlog.cluster.cli.common.options import document_option, examples
from twinlog.cluster.cli.log.directory import directory_argument, directory_options, opened


@click.command(
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
@document_option("twinlog.store.offline.info:StoreInfo")
def info(directory: Path, fmt: str, **options: Any) -> None:
    """Show what a store directory is: who wrote it, how far its log goes, what is in its queues.

    FIRST and NEXT are queue offsets, EVER is how many messages a topic ever had. Only cheap facts: no checksum is looked at.
    """
    with opened(directory, **options) as store:
        from twinlog.store.offline.info import look

        found = look(store)
    if fmt == "json":
        from twinlog.cluster.cli.common.render import json_answer

        json_answer(found)
        return
    from twinlog.cluster.cli.log.info import show_info

    show_info(found, fmt)


@click.command(
    "verify",
    short_help="Check every message, queue entry and key.",
    epilog=examples(
        "twinlog log verify ~/store",
        "twinlog log verify ~/store --max-findings 20 -o wide",
        "twinlog log verify ~/store -o json | jq .verdict",
    ),
)
@directory_argument
@click.option("--max-findings", type=click.IntRange(0), metavar="N", help="List so many at most; all are counted.")
@click.option(
    "--processes", type=click.IntRange(1), metavar="N", help="Check with so many processes.  [default: by size]"
)
@directory_options
@document_option("twinlog.store.offline.verify.verify:VerifyReport")
def verify(directory: Path, fmt: str, max_findings: int | None, processes: int | None, **options: Any) -> None:
    """Check every message of a store, every entry of its queues and index, and its other files.

    Nothing is changed, and a running broker shares no more than the disk. An error is a message that is lost, damaged or cannot
    be found; a warning harms none. The exit status is 0 when there is neither, else 1.
    """
    with opened(directory, **options) as store:
        from twinlog.cluster.cli.common.progress import progress
        from twinlog.cluster.cli.log.verify import shortened, show_verify
        from twinlog.store.offline.verify.verify import Verdict
        from twinlog.store.offline.verify.verify import verify as check

        with progress("verify") as show:
            report = shortened(check(store, progress=show, processes=processes), max_findings)
    if fmt == "json":
        from twinlog.cluster.cli.common.render import json_answer

        json_answer(report)
    else:
        show_verify(report, fmt)
    if report.verdict is not Verdict.SOUND:
        click.get_current_context().exit(FAILED)
