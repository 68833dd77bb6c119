"""The supervisor of `twinlog up`: starts the members of the plan, restarts them, stops them in order.

Children start before trio is imported here, so that their start and ours overlap. The name server stops last, because brokers
unregister from it. A lock file allows one supervisor for each directory.
"""

import fcntl
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import FrameType
from typing import IO, TYPE_CHECKING

from twinlog.cluster.cli.common.errors import USAGE, CliError, innermost
from twinlog.cluster.cli.common.logging_setup import WARNING, set_up_log
from twinlog.cluster.cli.run.member_process import MemberProcess, exit_text, program
from twinlog.cluster.cli.run.ports import busy_ports, in_use
from twinlog.cluster.cli.run.up_dashboard import DashboardKeeper, prepare_dashboard
from twinlog.cluster.cli.run.up_plan import BrokerPlan, NamesrvPlan, UpPlan, conf_text

if TYPE_CHECKING:
    import trio

RESTART_SECONDS, RESTART_SECONDS_MAX = 0.5, 30.0
STEADY_SECONDS = 60.0  # After a child ran this long, its earlier deaths do not delay its restart.
SLOW_STOP_SECONDS = 5.0


def supervise(plan: UpPlan, overrides: Mapping[str, str], *, with_dashboard: bool = True) -> None:
    """Run the plan until Ctrl-C or SIGTERM. Raises CliError when it cannot run."""
    with ExitStack() as stack:
        stack.enter_context(_lock(plan))
        check_ports(plan)
        supervisor = Supervisor(plan, overrides, with_dashboard=with_dashboard)
        try:
            supervisor.start()
            supervisor.run()
        finally:
            supervisor.kill()  # Nothing is left running, whatever ended this.


def _lock(plan: UpPlan) -> IO[str]:
    path = plan.directory / "up.lock"
    try:
        plan.directory.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise CliError(
            f"The directory {plan.directory} cannot be used.", str(error), "Choose another with --dir."
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        who = file.read().strip() or "of unknown id"
        file.close()
        raise CliError(
            f"Another `twinlog up` runs on {plan.directory}.",
            f"Process {who} holds {path}.",
            "See it with: twinlog list. For a second cluster use --dir and --port-base.",
        ) from error
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def check_ports(plan: UpPlan) -> None:
    """Raise CliError, with the process that has it, for a port in use."""
    busy = busy_ports(port for member in plan.members for port in member.listens)
    if busy:
        raise CliError(*in_use(busy), "Stop it, or move all ports with --port-base N.")


class Supervisor:
    """The members as processes. `start`, then `run`."""

    def __init__(self, plan: UpPlan, overrides: Mapping[str, str], *, with_dashboard: bool = True) -> None:
        self.plan = plan
        self._write_files(overrides)
        self.processes = {member.name: self._process(member) for member in plan.members}
        self.dashboard = prepare_dashboard(plan, say) if with_dashboard else None
        if self.dashboard is not None:
            self.processes[self.dashboard.process.name] = self.dashboard.process
        self._stopping = False
        self._stop: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    def _write_files(self, overrides: Mapping[str, str]) -> None:
        for name in ("conf", "logs"):
            (self.plan.directory / name).mkdir(exist_ok=True)
        for member in self.plan.members:
            of_broker = overrides if isinstance(member, BrokerPlan) else {}
            self.plan.conf_path(member).write_text(conf_text(member, of_broker))

    def _process(self, member: NamesrvPlan | BrokerPlan) -> MemberProcess:
        kind = "broker" if isinstance(member, BrokerPlan) else "namesrv"
        command = program(kind, "-c", str(self.plan.conf_path(member)))
        return MemberProcess(member.name, command, self.plan.log_path(member))

    # ---- Called by the command

    def start(self) -> None:
        """Start all members at once; from here on signals stop them. The dashboard starts when they are ready."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        for member in self.plan.members:
            self.processes[member.name].start()

    def run(self) -> None:
        """Watch the members until a signal arrives and all have stopped."""
        import trio

        async def main() -> None:
            self._stop, self._token = trio.Event(), trio.lowlevel.current_trio_token()
            if self._stopping:
                self._stop.set()
            try:
                async with trio.open_nursery() as nursery:
                    for member in self.plan.members:
                        nursery.start_soon(self._keep, self.processes[member.name])
                    nursery.start_soon(self._watch, nursery)
                    await self._stop.wait()
                    nursery.cancel_scope.cancel()
            finally:
                self._stopping = True  # The next signal ends all at once.
                with trio.CancelScope(shield=True):
                    await self._stop_all()

        try:
            trio.run(main)
        except* CliError as group:
            raise innermost(group) from None

    def kill(self) -> None:
        """End all that still run."""
        for process in self.processes.values():
            if process.is_running:
                process.kill()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._stopping:
            self.kill()
            os._exit(128 + number)
        self._stopping = True
        if self._token is not None and self._stop is not None:
            self._token.run_sync_soon(self._stop.set)

    # ---- Tasks

    async def _keep(self, process: MemberProcess) -> None:
        """Restart it whenever it ends."""
        import trio

        pause = RESTART_SECONDS
        started = trio.current_time()
        while True:
            status = await process.wait()
            if trio.current_time() - started > STEADY_SECONDS:
                pause = RESTART_SECONDS
            self._report_death(process, status, pause)
            await trio.sleep(pause)
            pause = min(pause * 2, RESTART_SECONDS_MAX)
            process.start()
            started = trio.current_time()
            say(f"{process.name} was restarted (process {process.popen.pid})")

    def _report_death(self, process: MemberProcess, status: int, pause: float) -> None:
        lines = process.last_lines()
        if status == USAGE:  # It would end like this every time.
            raise CliError(f"{process.name} rejects its configuration.", "\n  ".join(lines), exit_code=USAGE)
        say(f"{process.name} {exit_text(status)}; it restarts in {pause:g} s. Its last lines, from {process.log}:")
        for line in lines or ["(none)"]:
            say(f"  | {line}")

    async def _watch(self, nursery: "trio.Nursery") -> None:
        set_up_log(WARNING)
        from twinlog.cluster.cli.run.up_view import watch

        def start_dashboard() -> None:
            if self.dashboard is not None:
                nursery.start_soon(DashboardKeeper(self.dashboard, say).run)

        await watch(self.plan, say, dashboard=self.dashboard, on_ready=start_dashboard)

    async def _stop_all(self) -> None:
        say("stopping; Ctrl-C again ends at once")
        await self.stop_some([each for each in self.processes.values() if each.name != self.plan.namesrv.name])
        await self.stop_some([self.processes[self.plan.namesrv.name]])
        say("stopped")

    async def stop_some(self, processes: Sequence[MemberProcess]) -> None:
        """Ask processes to end, and wait for them."""
        import trio

        running = [process for process in processes if process.is_running]
        for process in running:
            process.terminate()

        async def tell_who_is_slow() -> None:
            while True:
                await trio.sleep(SLOW_STOP_SECONDS)
                say(f"waiting for {', '.join(p.name for p in running if p.popen.returncode is None)}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell_who_is_slow)
            for process in running:
                await process.wait()
            nursery.cancel_scope.cancel()


def say(words: str) -> None:
    """Print one line with the time on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)
