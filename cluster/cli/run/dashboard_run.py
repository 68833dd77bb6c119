"""The dashboard as the whole of a process: its log, its signals, its ready line."""

import trio

from twinlog.cluster.cli.common.logging_setup import set_up_log
from twinlog.cluster.cli.run.service import SayReady, run_service
from twinlog.cluster.cli.run.up_plan import Port
from twinlog.cluster.dashboard.app import DashboardConfig, run_dashboard


def serve_dashboard(config: DashboardConfig, *, until_stdin_closes: bool = False) -> None:
    """Serve until stopped. Raises CliError when the port cannot be had."""
    set_up_log(for_good=True)

    async def serve(say_ready: SayReady) -> None:
        async with trio.open_nursery() as nursery:
            port = await nursery.start(run_dashboard, config)
            say_ready(f"dashboard=http://{_shown(config.host)}:{port}")

    ports = (Port(config.port, "the dashboard"),)
    run_service(serve, config.host, ports, until_stdin_closes=until_stdin_closes)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
