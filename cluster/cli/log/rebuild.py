"""`twinlog log rebuild`: rebuilds queues and index from the log."""

from pathlib import Path
from typing import Any

import click
from attrs import evolve

from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option, need_yes, yes_option
from twinlog.cluster.cli.common.progress import progress
from twinlog.cluster.cli.common.render import count, print_answer
from twinlog.cluster.cli.log.directory import (
    directory_argument,
    directory_options,
    opened,
    options_of,
    say,
    user_errors,
)
from twinlog.cluster.text import size
from twinlog.store.offline.copy.rebuild import RebuildReport, plan_rebuild
from twinlog.store.offline.copy.rebuild import rebuild as make


@click.command(
    "rebuild",
    epilog=examples(
        "twinlog log rebuild ~/store --consumequeue --index",
        "twinlog log rebuild ~/store --index --dry-run",
    ),
)
@directory_argument
@click.option("--consumequeue", "queues", is_flag=True, help="Rebuild consumequeue/.")
@click.option("--index", is_flag=True, help="Rebuild index/.")
@click.option("--dry-run", is_flag=True, help="Show what would be done without changing anything.")
@yes_option
@directory_options
@document_option(RebuildReport)
def rebuild(directory: Path, queues: bool, index: bool, dry_run: bool, yes: bool, fmt: str, **options: Any) -> None:
    """Rebuild consume queues and index from the log of a stopped store.

    The old files stay in place until the new ones are complete and on the disk. If interrupted, run it again. A queue whose
    messages are all deleted from the log keeps its offsets. The log is only read.
    """
    if not (queues or index):
        raise click.UsageError("nothing to rebuild: add --consumequeue, --index, or both")
    with opened(directory, **options) as store:
        report = plan_rebuild(store, queues=queues, index=index)
    if not dry_run:
        if not yes and report.process_id is None:
            parts = f"{' and '.join(report.parts)} in {report.root}"
            need_yes(yes, f"replaces {parts}")
            click.confirm(f"Replace {parts}?", abort=True, err=True)
        with user_errors(), progress("rebuild") as show:
            done = make(directory, options_of(**options), queues=queues, index=index, progress=show)
        report = evolve(report, done=done)
    print_answer(report, fmt, _show_rebuild)


def _show_rebuild(report: RebuildReport, fmt: str) -> None:
    done = report.done
    if done is None:
        say(f"would read  {size(report.log_bytes)} of log in {report.log_files} files", fmt)
        say(f"would make  {' and '.join(report.parts)} in {report.root}", fmt)
        if report.process_id is not None:
            say(f"but first   stop the broker, process {report.process_id}", fmt)
        return
    say(f"read       {count(done.records)} messages, bytes {count(done.min_offset)} to {count(done.end_offset)}", fmt)
    if done.queues is not None:
        kept = f", of which {done.kept_queues} only keep their offsets" if done.kept_queues else ""
        say(f"queues     {done.queues} with {count(done.queue_messages or 0)} messages{kept}", fmt)
    if done.index_files is not None:
        say(f"index      {count(done.index_keys or 0)} keys in {done.index_files} files", fmt)
    for start, end in done.damaged_ranges:
        click.echo(f"damaged: bytes {start} to {end} of the log have no message", err=True)
