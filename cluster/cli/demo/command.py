"""`twinlog demo`: a failover under traffic in half a minute, without any setup."""

import shutil
import tempfile
import time
from pathlib import Path

import click
import trio

from twinlog.cluster.cli.common.errors import CliError, explained
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.logging_setup import ERROR, set_up_log
from twinlog.cluster.cli.common.running import until_interrupted
from twinlog.cluster.cli.demo.cluster import FILE_SIZE, SLAVES, plan_demo
from twinlog.cluster.cli.demo.play import Play
from twinlog.cluster.cli.demo.screen import screen
from twinlog.cluster.cli.run.up_plan import UpPlan


@click.command(
    "demo",
    epilog=examples(
        "twinlog demo",
        "twinlog demo --seconds 60 --rate 1000",
        "twinlog demo --keep ./demo        then: twinlog log info ./demo/broker-a-0",
    ),
)
@click.option(
    "--seconds", type=click.FloatRange(8, 600), default=15, show_default=True, help="Duration of the traffic."
)
@click.option("--rate", type=click.FloatRange(10, 5000), default=300, show_default=True, help="Messages per second.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep the data in DIR, which must be new or empty.  [default: kept only after a failure]",
)
@click.option("--port-base", type=int, metavar="N", help="First port, as for `twinlog up`.  [default: free ports]")
def demo(seconds: float, rate: float, keep: Path | None, port_base: int | None) -> None:
    """Show a failover without loss on this machine, in about 30 seconds.

    Starts a master, two slaves and a name server, sends messages, kills the master with kill -9, makes a slave the master,
    brings the old master back, freezes a master until the group has elected another one by itself, and checks every message.
    Nothing else on this machine is changed. Exit status 0 when no acknowledged message is missing and all logs are equal, else
    1.
    """
    directory = _directory(keep)
    is_wanted = keep is not None
    try:
        plan = plan_demo(directory, port_base)
        is_good = _play(plan, seconds, rate)
        is_wanted |= not is_good
        if is_wanted:
            _tell_what_is_kept(plan)
    except CliError:
        is_wanted |= any(directory.iterdir())  # Its log files have the reason.
        raise
    finally:
        if not is_wanted:
            shutil.rmtree(directory, ignore_errors=True)
    if not is_good:
        raise CliError("Messages are missing or logs differ; see above.", f"The data is in {directory}.")


def _directory(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="twinlog-demo-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
        is_empty = not any(keep.iterdir())
    except OSError as error:
        raise CliError(f"The directory {keep} cannot be used.", str(error), "Choose another.") from error
    if not is_empty:
        raise CliError(
            f"{keep} is not empty.", "The demonstration needs an empty directory.", "Choose another with --keep."
        )
    return keep.absolute()


def _play(plan: UpPlan, seconds: float, rate: float) -> bool:
    set_up_log(ERROR)

    began = time.monotonic()
    with explained((plan.namesrv.address,)), screen(lambda: time.monotonic() - began) as shown:

        async def main() -> bool:
            return await until_interrupted(Play(plan, shown, seconds, rate).run())

        return trio.run(main)


def _tell_what_is_kept(plan: UpPlan) -> None:
    up = f"twinlog up --dir {plan.directory} --slaves {SLAVES} --port-base {plan.namesrv.port}"
    click.echo(f"\nThe data is kept. Inspect it:  twinlog log info {plan.directory}/{plan.brokers[0].name}")
    click.echo(f"Run the cluster again:         {up} --set mappedFileSizeCommitLog={FILE_SIZE}")
