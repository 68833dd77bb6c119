"""The cluster of `twinlog demo`: the members that `twinlog up` would run, started and killed one by one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from attrs import define

from twinlog.cluster.cli.common.errors import CliError
from twinlog.cluster.cli.run.ports import busy_ports
from twinlog.cluster.cli.run.supervisor import Supervisor, check_ports
from twinlog.cluster.cli.run.up_plan import BrokerPlan, Port, UpPlan, plan_up
from twinlog.store.truncation.divergent import Divergent, DivergentDirectory

SLAVES = 2
FILE_SIZE = 16 << 20
# A person begins the first failovers.
OVERRIDES = {"mappedFileSizeCommitLog": str(FILE_SIZE), "autoFailover": "off"}
STOP_SECONDS_MAX = 20.0
BASES = range(24876, 32000, 100)  # Outside of the ports of `up` and of the ephemeral ports.


def plan_demo(directory: Path, port_base: int | None) -> UpPlan:
    """Plan a master and two slaves, at the base or at the first free one. Raises CliError for ports in use, PlanError."""
    if port_base is not None:
        plan = plan_up(directory, slaves=SLAVES, port_base=port_base)
        check_ports(plan)
        return plan
    for base in BASES:
        plan = plan_up(directory, slaves=SLAVES, port_base=base)
        ports = [port for member in plan.members for port in member.listens]
        if not busy_ports([*ports, Port(plan.namesrv.dashboard_port, "dashboard")]):
            return plan
    raise CliError("No ports are free.", f"All bases from {BASES.start} on are in use.", "Choose one with --port-base.")


@define(eq=False)
class DemoCluster:
    """The processes. `supervisor` only makes them: it starts and restarts none."""

    supervisor: Supervisor

    def start_dashboard(self) -> str | None:
        """Start it and return its URL; None without a dashboard."""
        dashboard = self.supervisor.dashboard
        if dashboard is None:
            return None
        dashboard.process.start()
        return dashboard.url

    async def kill(self, broker: BrokerPlan) -> int:
        """Kill a broker with kill -9; return its process id."""
        process = self.supervisor.processes[broker.name]
        process.kill()
        await process.wait()
        return process.popen.pid

    def freeze(self, broker: BrokerPlan) -> int:
        """Stop a broker with SIGSTOP; return its process id."""
        process = self.supervisor.processes[broker.name]
        process.freeze()
        return process.popen.pid

    def thaw(self, broker: BrokerPlan) -> None:
        """Let a frozen broker go on."""
        self.supervisor.processes[broker.name].thaw()

    def start(self, broker: BrokerPlan) -> None:
        """Start a broker again."""
        self.supervisor.processes[broker.name].start()

    def kept(self, broker: BrokerPlan) -> tuple[Divergent, ...]:
        """Return what was cut from a broker's log."""
        return DivergentDirectory(broker.store_root / "twinlog" / "divergent").list()


@asynccontextmanager
async def running(plan: UpPlan) -> AsyncIterator[DemoCluster]:
    """Run all members; stop them at the end in any case, the name server last."""
    supervisor = Supervisor(plan, OVERRIDES)
    processes = supervisor.processes
    try:
        for member in plan.members:
            processes[member.name].start()
        yield DemoCluster(supervisor)
    finally:
        try:
            with trio.CancelScope(shield=True), trio.move_on_after(STOP_SECONDS_MAX):
                last = processes[plan.namesrv.name]
                for process in processes.values():
                    if process.is_running:
                        process.thaw()  # One that stands still would not hear that it is to stop.
                await supervisor.stop_some([each for each in processes.values() if each is not last])
                await supervisor.stop_some([last])
        finally:
            supervisor.kill()
