"""Cost of a message as everything grows: queues, connections, the log, slaves, masters, the message itself.

Each point is a cluster of its own, started fresh: a name server of ours, a master and its slaves. One client sends, as in
`produce`. One thing grows at a time; the others are the least: 8 queues, one connection, an empty log, no slave, 1 KiB.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
from attrs import evolve, frozen

from scripts.benchmarks.backlog import digest
from scripts.benchmarks.ha_pairs import make_broker
from scripts.benchmarks.load import TOPIC, Load, measure
from scripts.benchmarks.machine import ROOT, memory
from scripts.benchmarks.report import Row, in_turn, say, scratch
from scripts.benchmarks.store_directory import TOPIC as IDLE_TOPIC
from scripts.benchmarks.systems import QUEUES, System
from tests.support.clients.remoting import create_topic
from tests.support.process_group import twinlog
from tests.support.process_group.member import BrokerProcess
from tests.support.process_group.ports import HOST
from tests.support.process_group.process import Process
from twinlog.store.config import StoreConfig
from twinlog.store.record.message import MAGIC_BLANK, SIZE_AND_MAGIC

KINDS = ("twinlog", "rocketmq")
GIB = 1 << 30
# What grows, and how far.
PARTS: dict[str, tuple[int, ...]] = {
    "queues": (1, 100, 10_000),
    "connections": (1, 100, 2_000),
    "log": (1, 10, 100),  # GiB.
    "slaves": (0, 1, 2, 4, 8),
    "masters": (1, 2, 4),  # Each on one core, as many as there are.
    "size": (10, 100, 1_000, 10_000, 100_000, 1 << 20),  # Bytes of a body.
}
THREADS, THREADS_OF_SIZE = 64, 8  # 64 bodies of 1 MiB at once are more than the client's heap likes.
IDLE_PERCENT, IDLE_SECONDS_MAX = 5, 300  # Of a core.
SETTINGS = {"diskMaxUsedSpaceRatio": "95"}


@frozen
class Point:
    """One length of one thing."""

    part: str
    value: int

    def of(self, part: str, least: int) -> int:
        """The length of a thing here."""
        return self.value if self.part == part else least


@frozen(kw_only=True)
class GrowthBench:
    """All points of all systems in turn. `load` has the seconds; threads and size are the point's."""

    rounds: int
    kinds: Sequence[str]
    points: Sequence[Point]
    load: Load

    def rows(self) -> Iterator[Row]:
        """Measure."""
        for number, (point, kind) in in_turn(
            self.rounds, [(point, kind) for point in self.points for kind in self.kinds]
        ):
            with running(kind, point) as system, scratch() as client:
                for row in measure(system, load_of(point, self.load), client):
                    own = {name: round(memory(pid)["anon_mib"], 1) for name, pid in system.pids.items()}
                    told = {"round": number, "part": point.part, "value": point.value, "system": kind}
                    yield told | row | {"anon_mib": own}


def points(parts: Sequence[str], up_to: int | None = None) -> list[Point]:
    """The points of these parts; `up_to`: no larger ones."""
    return [Point(part, value) for part in parts for value in PARTS[part] if up_to is None or value <= up_to]


def load_of(point: Point, load: Load) -> Load:
    """The client's load at a point."""
    threads = THREADS_OF_SIZE if point.part == "size" else THREADS
    return evolve(load, threads=(threads,), body_size=point.of("size", load.body_size))


@contextmanager
def running(kind: str, point: Point) -> Iterator[System]:
    """The cluster of a point, with idle connections where it has some."""
    with ExitStack() as stack:
        root = stack.enter_context(scratch(f"bench-growth-{kind}-"))
        namesrv = stack.enter_context(twinlog.NameServer(root / "namesrv")).address
        master = make_broker(kind, root / "master", namesrv, "ASYNC_MASTER", SETTINGS)
        if point.part == "log":
            make_log(master.store, point.value)
        masters = {"master": master}
        for number in range(2, point.of("masters", 1) + 1):
            name = f"master-{number}"
            masters[name] = make_broker(kind, root / name, namesrv, "ASYNC_MASTER", SETTINGS, broker_name=name)
        for each in masters.values():
            stack.enter_context(each)
            create_topic(each.address, TOPIC, queues=point.of("queues", QUEUES))
        if point.part == "log":
            _wait_until_idle(master.pid)
        pids = {name: each.pid for name, each in masters.items()}
        if point.part == "masters":
            _pin(pids.values())
        following = SETTINGS | {"haMasterAddress": f"{HOST}:{master.ha_port}"}
        for number in range(1, point.of("slaves", 0) + 1):
            slave = make_broker(kind, root / f"slave-{number}", namesrv, "SLAVE", following, broker_id=number)
            stack.enter_context(slave)
            pids[f"slave-{number}"] = slave.pid
        if (connections := point.of("connections", 1)) > 1:
            _idle_beside(master, connections - 1, root, stack)
        yield System(name=kind, namesrv=namesrv, master=master.address, pids=pids)


def _wait_until_idle(pid: int) -> None:
    """Until it is done with what the start left to it: the index looks through a log that it does not know."""
    process = psutil.Process(pid)
    process.cpu_percent()
    for _ in range(IDLE_SECONDS_MAX // 2):
        if process.cpu_percent(2) < IDLE_PERCENT:
            return
    raise RuntimeError(f"process {pid} is busy for {IDLE_SECONDS_MAX} s, and nobody asks it anything")


def _pin(pids: Iterable[int]) -> None:
    """Each process, with its threads, on a core of its own as long as there are some."""
    cores = sorted(os.sched_getaffinity(0))
    for number, pid in enumerate(pids):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), [cores[number % len(cores)]])


def _idle_beside(master: BrokerProcess, connections: int, root: Path, stack: ExitStack) -> None:
    """So many connections in a process of their own: half are consumers in long polling, half producers that send nothing."""
    create_topic(master.address, IDLE_TOPIC, queues=QUEUES)
    consumers = (connections + 1) // 2
    command = [
        sys.executable,
        "-m",
        "scripts.benchmarks.idle",
        master.address,
        str(consumers),
        str(connections - consumers),
    ]
    process = Process("idle connections", command, log=root / "idle.log", environment={"PYTHONPATH": str(ROOT)})
    stack.enter_context(process)
    process.wait_ready()


def make_log(store: Path, gib: int) -> None:
    """A log of so many GiB that holds no message: each of its files is a blank to its end, and a hole. Digested, and closed."""
    directory = store / "commitlog"
    directory.mkdir(parents=True)
    for number in range(gib):
        with (directory / f"{number * GIB:020d}").open("wb") as file:
            file.write(SIZE_AND_MAGIC.pack(GIB, MAGIC_BLANK))
            file.truncate(GIB)
    say(f"a log of {gib} GiB ...")
    digest(StoreConfig(root=store, scrub_bytes_per_second=4 * GIB))


def line(row: Row) -> str:
    """A row for the terminal."""
    cpu = " ".join(f"{who} {us:.1f}" for who, us in row["cpu_us_per_message"].items())
    return (
        f"round {row['round']}  {row['system']:8}  {row['part']} {row['value']:,}  {row['messages_per_s']:9,.0f}/s  "
        f"p99 {row['p99_ms']:.2f} ms  CPU us: {cpu}  master {row['anon_mib']['master']} MiB  {row['outcomes']}"
    )
