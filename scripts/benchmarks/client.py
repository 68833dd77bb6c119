"""scripts/bench client: twinlog.client on asyncio, uvloop and trio, beside Java's client and Python clients of others.

All clients of a round use the same broker, one after the other, each part of the load in a process of its own.
"""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import inf
from pathlib import Path

from attrs import frozen

from scripts.benchmarks.batches import BATCH, send_batches
from scripts.benchmarks.ha_pairs import make_broker
from scripts.benchmarks.load import client_process, java_client, jvm_options
from scripts.benchmarks.machine import ROOT, cpu_seconds, memory
from scripts.benchmarks.report import Row, in_turn, say, scratch
from scripts.benchmarks.store_directory import FULL, TOPIC
from scripts.benchmarks.systems import QUEUES
from tests.support.clients.remoting import create_topic
from tests.support.process_group import jars, twinlog
from tests.support.process_group.member import BrokerProcess

LOOPS = ("asyncio", "uvloop", "trio")
CLIENTS = (*LOOPS, "java", "pyrocketmq", "librocketmq")
BROKERS = ("twinlog", "rocketmq")
BODY_BYTES = 1024
SEND_TOPIC = "bench-client"
SAMPLE_SECONDS = 0.02


@frozen
class Part:
    """A kind of load: its name for the programs, and their NUMBER."""

    name: str
    load: str
    number: int


PARTS = {
    part.name: part
    for part in (
        Part("send-1", "send", 1),  # Tasks or threads, each with one send under way.
        Part("send-64", "send", 64),
        Part("send-all", "send-all", 256),  # Sends under way of one task or thread.
        Part("batch", "batch", BATCH),  # Messages of a batch; one batch under way.
        Part("consume-1", "consume", 1),  # Messages of one call of a push consumer's handler, at most.
        Part("consume-32", "consume", 32),
    )
}

# What pip adds, each in a folder of its own: no client needs what another one brings, and none is a dependency of twinlog.
PACKAGES = {
    "uvloop": ("uvloop==0.22.1",),
    "pyrocketmq": ("pyrocketmq==0.3.4", "JPype1==1.7.1", "packaging==25.0"),
    "librocketmq": ("rocketmq==0.4.4",),
}


def packages(client: str) -> Path:
    """A folder for PYTHONPATH with what a client needs besides, by pip the first time. Raises RuntimeError with pip's words."""

    def install(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
        jars.run([*pip, "--target", str(folder), *PACKAGES[client]], timeout_s=300)

    return jars.made_once(jars.cache_dir() / "bench" / "-".join(PACKAGES[client]), install)


@frozen(kw_only=True)
class ClientBench:
    """One run. `messages`: of the topic that is consumed. A client that fails gives rows with the reason."""

    rounds: int
    clients: Sequence[str] = CLIENTS
    parts: Sequence[str] = tuple(PARTS)
    brokers: Sequence[str] = ("twinlog",)
    warm_up_s: float
    seconds: float
    messages: int

    def rows(self) -> Iterator[Row]:
        """Rows come out as they are measured; clients take turns, every second round the other way round."""
        for number, kind in in_turn(self.rounds, self.brokers):
            with self._broker(kind) as broker:
                if any(PARTS[part].load == "consume" for part in self.parts):
                    send_batches(broker.port, self.messages)
                for client in self.clients if number % 2 else tuple(reversed(self.clients)):
                    for part in self.parts:
                        row = {"round": number, "broker": kind, "client": client, "part": part}
                        yield row | self._measured(client, PARTS[part], broker)

    @contextmanager
    def _broker(self, kind: str) -> Iterator[BrokerProcess]:
        with (
            scratch("bench-client-") as directory,
            twinlog.NameServer(directory / "namesrv") as namesrv,
            make_broker(kind, directory / "master", namesrv.address, "ASYNC_MASTER", FULL.settings) as broker,
        ):
            for topic in (TOPIC, SEND_TOPIC):
                create_topic(broker.address, topic, queues=QUEUES)
            yield broker

    def _measured(self, client: str, part: Part, broker: BrokerProcess) -> Row:
        before = cpu_seconds(broker.pid)
        try:
            measured = self._run(client, part, broker)
        except RuntimeError as error:
            measured = {"failed": str(error)}
        if "failed" in measured:
            say(f"{client} {part.name}: {measured['failed']}")
            return {"failed": measured["failed"]}
        return {
            **measured,
            "messages_per_s": round(measured["messages"] / measured["elapsed_s"]),
            "client_cpu_us": round(measured["client_cpu_s"] * 1e6 / measured["messages"], 2),
            "broker_cpu_s": round(cpu_seconds(broker.pid) - before, 2),  # With the warm-up.
        }

    def _run(self, client: str, part: Part, broker: BrokerProcess) -> Row:
        is_consuming = part.load == "consume"
        topic, messages = (TOPIC, self.messages) if is_consuming else (SEND_TOPIC, inf)
        numbers = (BODY_BYTES, self.warm_up_s, self.seconds, part.number, messages)
        arguments = [part.load, broker.namesrv, topic, *map(str, numbers)]
        limit_s = self.warm_up_s + self.seconds + 180
        with scratch("bench-client-") as home, ExitStack() as stack:
            if client == "java":
                pid, rows = stack.enter_context(java_client("ClientLoad", arguments, home, limit_s))
            else:
                module = "client_load" if client in LOOPS else "client_rivals"
                command = [sys.executable, "-m", f"scripts.benchmarks.{module}", client, *arguments]
                if client == "pyrocketmq":
                    command += [*jvm_options(home), f"-Djava.class.path={os.pathsep.join(jars.class_path())}"]
                added = str(packages(client)) if client in PACKAGES else ""
                environment = {"PYTHONPATH": added, "HOME": str(home)}
                pid, rows = stack.enter_context(
                    client_process(client, command, limit_s, cwd=ROOT, environment=environment)
                )
            with _peak(pid) as peak:
                found = list(rows)
        if len(found) != 1:
            raise RuntimeError(f"{client} printed {len(found)} results")
        return {**found[0], "peak_anon_mib": round(max(peak), 1)}


@contextmanager
def _peak(pid: int) -> Iterator[list[float]]:
    """Samples of a process's own (anonymous) memory, MiB, while the block runs."""
    samples, over = [0.0], threading.Event()

    def sample() -> None:
        while not over.wait(SAMPLE_SECONDS):
            try:
                samples.append(memory(pid)["anon_mib"])
            except (OSError, KeyError, ValueError):  # It has just ended.
                return

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
