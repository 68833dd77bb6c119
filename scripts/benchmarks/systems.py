"""The systems that are measured side by side, each started fresh in a directory of its own and removed afterwards."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import frozen

from scripts.benchmarks.report import scratch
from tests.support.clients.remoting import create_topic
from tests.support.process_group import rocketmq, twinlog
from tests.support.process_group.ports import HOST, free_port
from tests.support.process_group.process import Process

BROKER_HEAP = ("-Xms1g", "-Xmx1g")
QUEUES = 8


@frozen(kw_only=True)
class System:
    """A cluster that takes messages: where its name server is, and which processes to charge for the work."""

    name: str
    namesrv: str
    pids: dict[str, int]  # master, slave-1, ...
    master: str | None = None  # Its address; None: there is nothing to create a topic in.


@frozen(kw_only=True)
class Candidate:
    """A system that can be started. `kind` is its name on the command line, `role` the brokerRole of its master."""

    kind: str
    role: str | None
    start: Callable[[Path, ExitStack], System]

    @property
    def name(self) -> str:
        return f"{self.kind} {self.role}" if self.role else self.kind

    @contextmanager
    def running(self, topic: str) -> Iterator[System]:
        """Start it, create the topic, and end and remove everything at the end of the block."""
        with ExitStack() as stack:
            system = self.start(stack.enter_context(scratch(f"bench-{self.kind}-")), stack)
            if system.master:
                create_topic(system.master, topic, queues=QUEUES)
            yield system


def candidates(slaves: int) -> list[Candidate]:
    """Return every system, in the order of the tables; all clusters get the same number of slaves."""
    return [
        *(_rocketmq(role, slaves) for role in ("SYNC_MASTER", "ASYNC_MASTER")),
        *(_twinlog(role, slaves) for role in ("SYNC_MASTER", "ASYNC_MASTER")),
        Candidate(kind="answer-only", role=None, start=_start_answer_only),
    ]


def _rocketmq(role: str, slaves: int) -> Candidate:
    def start(root: Path, stack: ExitStack) -> System:
        namesrv = stack.enter_context(rocketmq.NameServer(root / "namesrv")).address

        def broker(directory: str, broker_role: str, broker_id: int) -> rocketmq.Broker:
            return stack.enter_context(
                rocketmq.Broker(
                    root / directory, namesrv, role=broker_role, broker_id=broker_id, settings={}, heap=BROKER_HEAP
                )
            )

        master = broker("master", role, 0)
        followers = {f"slave-{i}": broker(f"slave-{i}", "SLAVE", i).pid for i in range(1, slaves + 1)}
        return System(
            name=f"rocketmq {role}", namesrv=namesrv, master=master.address, pids={"master": master.pid, **followers}
        )

    return Candidate(kind="rocketmq", role=role, start=start)


def _twinlog(role: str, slaves: int) -> Candidate:
    def start(root: Path, stack: ExitStack) -> System:
        up = stack.enter_context(twinlog.Up(root / "up", slaves=slaves, sync=role == "SYNC_MASTER"))
        followers = {f"slave-{i}": up.member_pid(i) for i in range(1, slaves + 1)}
        return System(
            name=f"twinlog {role}",
            namesrv=up.namesrv,
            master=up.address(0),
            pids={"master": up.member_pid(0), **followers},
        )

    return Candidate(kind="twinlog", role=role, start=start)


def _start_answer_only(root: Path, stack: ExitStack) -> System:
    port = free_port()
    command = [sys.executable, "-m", "scripts.benchmarks.answer_only", str(port)]
    server = stack.enter_context(Process("answer-only", command, log=root / "answer-only.log"))
    server.wait_ready()
    return System(name="answer-only", namesrv=f"{HOST}:{port}", pids={"master": server.pid})
