"""scripts/bench consume, latency and idle: what consumers get of a broker, ours and RocketMQ's, one after the other.

Every system has a name server of twinlog and one ASYNC_MASTER without slaves.
"""

import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import field, frozen

from scripts.benchmarks.batches import BATCH, send_batches
from scripts.benchmarks.ha_pairs import make_broker
from scripts.benchmarks.idle import IdleLoad
from scripts.benchmarks.load import CLIENT_HEAP, SILENT, SOURCES, cpu_seconds
from scripts.benchmarks.store_directory import FULL, TOPIC
from scripts.benchmarks.store_restarts import drop_caches
from scripts.benchmarks.store_restarts import make_broker as stopped_broker
from scripts.benchmarks.systems import QUEUES
from tests.support.clients.remoting import create_topic
from tests.support.process_group import jars, twinlog
from tests.support.process_group.member import BrokerProcess

KINDS = ("twinlog", "rocketmq")
BODY_BYTES = 1024
DRAIN_SECONDS_MAX = 180
Row = dict[str, Any]


@frozen(kw_only=True)
class ClientsBench:
    """One run. Rows come out as they are measured; the systems take turns, every second round the other way round."""

    rounds: int
    say: Callable[[str], None]
    kinds: tuple[str, ...] = KINDS
    root: Path = field(factory=lambda: Path(tempfile.mkdtemp(prefix="bench-clients-")))

    def consume(self, log_bytes: int, consumers: Sequence[int]) -> Iterator[Row]:
        """How fast push consumers drain a topic: as it was written, and after a restart from a disk that has to be read."""
        messages = log_bytes // BODY_BYTES // BATCH * BATCH
        for number, kind in self._turns():
            with self._broker(kind) as broker:
                send_batches(broker.port, messages)
                for is_cold in (False, True):
                    if is_cold:
                        broker.stop()
                        broker.start()
                    for count in consumers:
                        if is_cold and not drop_caches():
                            raise PermissionError("only the super-user makes the kernel forget files")
                        row = self._drain(broker, count, messages, f"bench-{is_cold}-{count}")
                        yield {"round": number, "system": kind, "cold": is_cold, "consumers": count, **row}

    def latency(self, rates: Sequence[int], warm_ups: Sequence[int], seconds: int) -> Iterator[Row]:
        """From send to listener, at even rates; measured after each of these seconds of load."""
        for number, kind in self._turns():
            with self._broker(kind) as broker:
                starts = ",".join(map(str, warm_ups))
                arguments = [broker.namesrv, TOPIC, str(BODY_BYTES), starts, str(seconds), *map(str, rates)]
                before: dict[str, float] = {}
                limit_s = 60 + len(rates) * 2 * (max(warm_ups) + seconds + 10)
                for event in self._java("LatencyLoad", arguments, limit_s):
                    now = cpu_seconds({"broker": broker.pid})
                    if event.pop("event") == "start":
                        before = now
                    else:
                        cpu_us = (now["broker"] - before["broker"]) * 1e6 / event["sent"]
                        yield {"round": number, "system": kind, **event, "broker_cpu_us": round(cpu_us, 1)}

    def idle(self, load: IdleLoad) -> Iterator[Row]:
        """What a broker costs that has consumers and no messages, and how quickly it wakes them all."""
        for number, kind in self._turns():
            directory = Path(tempfile.mkdtemp(dir=self.root))
            with twinlog.NameServer(directory / "namesrv") as namesrv:
                broker = stopped_broker(kind, directory / "master", namesrv.address, FULL)
                try:
                    yield {"round": number, "system": kind, **load.measure(broker)}
                finally:
                    broker.kill()

    def remove(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.root, ignore_errors=True)

    def _turns(self) -> Iterator[tuple[int, str]]:
        for number in range(1, self.rounds + 1):
            for kind in self.kinds if number % 2 else reversed(self.kinds):
                os.sync()
                yield number, kind

    @contextmanager
    def _broker(self, kind: str) -> Iterator[BrokerProcess]:
        directory = Path(tempfile.mkdtemp(dir=self.root))
        try:
            with twinlog.NameServer(directory / "namesrv") as namesrv:
                broker = make_broker(kind, directory / "master", namesrv.address, "ASYNC_MASTER", FULL.settings)
                with broker:
                    create_topic(broker.address, TOPIC, queues=QUEUES)
                    yield broker
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _drain(self, broker: BrokerProcess, consumers: int, messages: int, group: str) -> Row:
        before = cpu_seconds({"broker": broker.pid})["broker"]
        arguments = [broker.namesrv, TOPIC, group, str(consumers), str(messages), str(DRAIN_SECONDS_MAX)]
        (row,) = self._java("ConsumeLoad", arguments, DRAIN_SECONDS_MAX + 60)
        if not row.pop("whole"):
            raise RuntimeError(f"{broker.name} gave {row['messages']} of {messages} messages\n{broker.tail()}")
        used = cpu_seconds({"broker": broker.pid})["broker"] - before
        return {
            **row,
            "messages_per_s": round(row["messages"] / row["elapsed_s"]),
            "broker_cpu_us": round(used * 1e6 / row["messages"], 2),
        }

    def _java(self, name: str, arguments: Sequence[str], limit_s: float) -> Iterator[Row]:
        home = self.root / "client"
        home.mkdir(exist_ok=True)
        (home / "logback.xml").write_text(SILENT)
        options = [f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}"]
        options.append(f"-Dlogback.configurationFile={home}/logback.xml")
        class_path = os.pathsep.join(jars.class_path(sources=SOURCES))
        command = ["java", *CLIENT_HEAP, *options, "-cp", class_path, f"twinlog.bench.{name}", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            limit = threading.Timer(limit_s, client.kill)
            limit.start()
            try:
                for line in client.stdout:
                    yield json.loads(line)
            finally:
                limit.cancel()
                client.kill()
        if client.returncode != 0:
            raise RuntimeError(f"{name} ended with {client.returncode}")
