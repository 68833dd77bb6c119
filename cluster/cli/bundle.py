"""`twinlog bundle`: a support bundle."""

import time
from pathlib import Path

import click

from twinlog.cluster.admin import bundle as made
from twinlog.cluster.admin.bundle import BundleReport
from twinlog.cluster.cli.common.errors import CliError
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option, dry_run_option, namesrv_option
from twinlog.cluster.cli.common.pages import Block, Page, show
from twinlog.cluster.cli.common.render import Column
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.cli.run.up_plan import default_directory
from twinlog.cluster.text import size


@click.command(
    "bundle",
    epilog=examples(
        "twinlog bundle --dry-run", "twinlog bundle", "twinlog bundle --out case-17.tar.gz --logs ./data/logs"
    ),
)
@namesrv_option
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Output file.  [default: twinlog-bundle-DATE-TIME.tar.gz here]",
)
@click.option(
    "--logs",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="DIR",
    help="Include the ends of the .log files there.  [default: those of `twinlog up`, if any]",
)
@dry_run_option
@document_option(BundleReport)
def bundle(namesrv: str, out: Path | None, logs: Path | None, dry_run: bool, fmt: str) -> None:
    """Write a .tar.gz with versions, members, findings, role histories, configurations and the ends of log files.

    Its contents are listed before it is written. Secrets are hidden, and messages are not included: of topics and groups it has
    only names and counts.
    """
    out = out or Path(time.strftime("twinlog-bundle-%Y%m%d-%H%M%S.tar.gz"))
    if logs is None and (default_directory() / "logs").is_dir():
        logs = default_directory() / "logs"
    if out.exists():
        raise CliError(f"{out} exists already.", next_step="Choose another file with --out")
    parts = run_admin(namesrv, lambda admin: admin.bundle(logs))
    report = made.report_of(None if dry_run else out, parts)
    show(report, fmt, _page)
    if dry_run:
        return
    try:
        made.write(out, parts)
    except OSError as error:
        raise CliError(f"{out} could not be written.", str(error), "Choose another place with --out") from error
    click.echo(f"written: {out}, {out.stat().st_size} bytes. List it with: tar tzf {out}", err=True)


def _page(found: BundleReport) -> Page:
    columns = [
        Column("FILE", lambda p: p[0]),
        Column("SIZE", lambda p: p[1], size, right=True),
        Column("WHAT", lambda p: p[2]),
    ]
    notes = () if found.path is not None else ("nothing was written",)
    return Page((Block(None, columns, found.parts),), notes)
