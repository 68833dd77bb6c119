"""The dashboard of `twinlog up`: a child like the members, but an optional one.

The supervisor opens its socket before anything runs and passes it on: a busy port is reported at once, an early browser waits
instead of being refused, and a restarted dashboard has the same address.
"""

import os
import secrets
import socket
from collections.abc import Callable

from attrs import define, frozen

from twinlog.cluster.cli.common.errors import USAGE
from twinlog.cluster.cli.run.member_process import MemberProcess, exit_text, program
from twinlog.cluster.cli.run.ports import in_use
from twinlog.cluster.cli.run.up_plan import LOOPBACK, Port, UpPlan

RESTART_SECONDS, RESTART_SECONDS_MAX = 1.0, 60.0
NAME = "dashboard"


@frozen
class UpDashboard:
    """Its process, not started yet, its socket and its URL."""

    process: MemberProcess
    listener: socket.socket
    url: str
    token_file: str


def prepare_dashboard(plan: UpPlan, say: Callable[[str], None]) -> UpDashboard | None:
    """Return the dashboard, or None after one line with the reason."""
    port = plan.namesrv.dashboard_port
    try:
        listener = socket.create_server((LOOPBACK, port))  # Closed on exec, except in the child that it is passed to.
    except OSError:
        say(f"no dashboard: {in_use([Port(port, 'dashboard')])[0]} To use another port: twinlog dashboard --listen")
        return None
    try:
        token_file = _token_file(plan)
    except OSError as error:
        say(f"the dashboard is read-only: {error}")
        token_file = ""
    arguments = ["-n", plan.namesrv.address, "--listen", f"{LOOPBACK}:{port}", "--listen-fd", str(listener.fileno())]
    arguments += ["--token-file", token_file] if token_file else []
    arguments += ["--audit", str(plan.directory / "audit")]
    log = plan.directory / "logs" / f"{NAME}.log"
    process = MemberProcess(NAME, program("dashboard", *arguments), log, pass_fds=(listener.fileno(),))
    return UpDashboard(process, listener, f"http://{LOOPBACK}:{port}", token_file)


def _token_file(plan: UpPlan) -> str:
    """Create the token at the first start, readable by its owner only."""
    path = plan.directory / "dashboard.token"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return str(path)
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_hex(16) + "\n")
    return str(path)


@define
class DashboardKeeper:
    """Starts and restarts the dashboard; its failure never ends the cluster."""

    dashboard: UpDashboard
    say: Callable[[str], None]

    async def run(self) -> None:
        """Run until cancelled, or until the dashboard rejects its configuration."""
        import trio

        pause = RESTART_SECONDS
        while True:
            started = trio.current_time()
            self.dashboard.process.start()
            status = await self.dashboard.process.wait()
            if status == USAGE:
                lines = self.dashboard.process.last_lines()
                self.say(f"no dashboard: {lines[-1] if lines else 'it rejects its configuration'}")
                return
            if trio.current_time() - started > RESTART_SECONDS_MAX:
                pause = RESTART_SECONDS
            self.say(f"the dashboard {exit_text(status)}; it restarts in {pause:g} s. See {self.dashboard.process.log}")
            await trio.sleep(pause)
            pause = min(pause * 2, RESTART_SECONDS_MAX)
