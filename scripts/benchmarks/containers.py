"""How soon a whole RocketMQ serves a test, and its memory: our container, the same as a process, RocketMQ's jars.

From the command that starts it, `docker run` for instance, to the first SEND_OK of a client outside. The client is ours, in a
process that is there already and tries again every 10 ms. Memory is the proportional share (PSS) of all processes, so that a
page that two share counts once.
"""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import docker
import psutil
import trio
from attrs import frozen

from scripts.benchmarks.machine import ROOT
from scripts.benchmarks.report import Row, in_turn, scratch
from tests.support.process_group import rocketmq
from tests.support.process_group.jars import VERSION_5
from tests.support.process_group.ports import HOST, free_broker_port, free_port
from tests.support.process_group.process import PROGRAM, Process
from twinlog.client import Client, OutgoingMessage
from twinlog.cluster.remoting.errors import RemotingError

IMAGE, TOPIC = "twinlog:dev", "orders"
SECONDS_MAX, PAUSE_SECONDS, SETTLE_SECONDS = 120.0, 0.01, 5.0
# As distribution/bin/runserver.sh and runbroker.sh have them for a Java above 8, but for the log of collections.
G1 = ("-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25", "-XX:InitiatingHeapOccupancyPercent=30")
COMMON = (*G1, "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow", "-XX:-UseLargePages")
NAMESRV_FLAGS = ("-Xms4g", "-Xmx4g", "-XX:MetaspaceSize=128m", "-XX:MaxMetaspaceSize=320m", *COMMON)
BROKER_FLAGS = (
    "-Xms8g",
    "-Xmx8g",
    *COMMON,
    "-XX:+AlwaysPreTouch",
    "-XX:MaxDirectMemorySize=15g",
)  # And no biased locking: 17 has none.
# What people set in JAVA_OPT_EXT to have it in tests at all; the rest stays as it is.
SMALL_HEAP = ("-Xms256m", "-Xmx512m")


@frozen
class Started:
    """One that runs: the address of its name server, and its processes."""

    namesrv: str
    pids: Callable[[], Sequence[int]]


def container(_: Path, stack: ExitStack) -> Started:
    """Our image, by Docker's SDK: what `docker run -d` does, without the start of that program."""
    daemon = docker.from_env()
    stack.callback(daemon.close)
    namesrv, broker = free_port(), free_port()
    made = daemon.containers.run(
        IMAGE,
        ["standalone", "--address", f"{HOST}:{broker}", "--topic", TOPIC],
        ports={"9876/tcp": (HOST, namesrv), "10911/tcp": (HOST, broker)},
        detach=True,
    )
    stack.callback(made.remove, force=True, v=True)
    return Started(f"{HOST}:{namesrv}", lambda: [int(row[1]) for row in made.top()["Processes"]])


def alone(root: Path, stack: ExitStack) -> Started:
    """The same command as a process of this machine."""
    namesrv, broker = free_port(), free_broker_port()
    settings = [f"--set=listenPort={broker}", f"--set=storePathRootDir={root / 'store'}"]
    command = [PROGRAM, "standalone", "--port", str(namesrv), "--topic", TOPIC, *settings]
    process = stack.enter_context(Process("standalone", command, log=root / "log"))
    return Started(f"{HOST}:{namesrv}", lambda: [process.pid])


def jars(namesrv_flags: Sequence[str], broker_flags: Sequence[str]) -> Callable[[Path, ExitStack], Started]:
    """RocketMQ 5's name server and, once that listens, its broker: one that starts before registers 10 s later only."""

    def start(root: Path, stack: ExitStack) -> Started:
        namesrv = rocketmq.NameServer(root / "namesrv", version=VERSION_5, heap=namesrv_flags)
        broker = rocketmq.Broker(
            root / "broker", namesrv.address, version=VERSION_5, heap=broker_flags, settings={}, port=free_broker_port()
        )
        stack.enter_context(namesrv)
        Process.start(broker)  # Without waiting until it is registered: the client finds that out.
        stack.callback(broker.kill)
        return Started(namesrv.address, lambda: [namesrv.pid, broker.pid])

    return start


SYSTEMS: dict[str, Callable[[Path, ExitStack], Started]] = {
    "container": container,
    "process": alone,
    "rocketmq": jars(NAMESRV_FLAGS, BROKER_FLAGS),
    "rocketmq-small": jars((*NAMESRV_FLAGS, *SMALL_HEAP), (*BROKER_FLAGS, *SMALL_HEAP)),
}


def rows(rounds: int, kinds: Sequence[str]) -> Iterator[Row]:
    """Each system in each round. Raises CalledProcessError when the image cannot be built."""
    if "container" in kinds:
        subprocess.run([ROOT / "scripts" / "image"], check=True, stdout=subprocess.DEVNULL)
    for number, kind in in_turn(rounds, kinds):
        with scratch(f"bench-{kind}-") as root, ExitStack() as stack:
            yield {"round": number, "system": kind, **measure(SYSTEMS[kind], root, stack)}


def measure(start: Callable[[Path, ExitStack], Started], root: Path, stack: ExitStack) -> Row:
    """Start it, and send."""
    began = time.monotonic()
    started = start(root, stack)
    seconds = trio.run(first_acknowledged, started.namesrv) - began
    time.sleep(SETTLE_SECONDS)
    pids = started.pids()
    return {
        "seconds": round(seconds, 3),
        "pss_mib": round(sum(psutil.Process(pid).memory_full_info().pss for pid in pids) / (1 << 20), 1),
        "processes": len(pids),
    }


async def first_acknowledged(namesrv: str) -> float:
    """The time at which a client has its first SEND_OK."""
    host, port = namesrv.split(":")
    with trio.fail_after(SECONDS_MAX):
        while not _answers(host, int(port)):
            await trio.sleep(PAUSE_SECONDS)
        while True:
            try:
                async with Client(namesrv) as client:
                    result = await client.producer("bench").send(OutgoingMessage(topic=TOPIC, body=b"hello"))
                if result.status.name == "SEND_OK":
                    return time.monotonic()
            except RemotingError:
                pass  # Nobody there yet, or no route.
            await trio.sleep(PAUSE_SECONDS)


def _answers(host: str, port: int) -> bool:
    """True once somebody listens. Docker's proxy does before the name server, which the client notices."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0
