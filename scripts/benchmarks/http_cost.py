"""scripts/bench http: what the port for HTTP costs a broker, beside the same broker without it, and what a scrape costs.

The broker has a name server and no traffic. Rounds go through the kinds in turn, every second round backwards.
"""

import os
import re
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from attrs import field, frozen

from scripts.benchmarks.store_restarts import StartedTwinlog, cpu_seconds, memory
from tests.support.clients.remoting import create_topic, request
from tests.support.process_group import twinlog
from tests.support.process_group.ports import HOST
from tests.support.process_group.process import answers
from tests.support.waiting import wait_for

PARTS = ("process", "scrape")
KINDS = ("off", "on", "probed")
CASES = ((1, 1), (500, 0), (500, 500))  # Topics, and how many of them have a group that lags.
QUEUES_PER_TOPIC = 4
SEND_MESSAGE, UPDATE_CONSUMER_OFFSET = 10, 15
POLL_SECONDS, READY_SECONDS_MAX, HTTP_PORT_DISTANCE = 0.005, 60.0, 3
SETTINGS = {"mappedFileSizeCommitLog": str(64 << 20), "autoCreateSubscriptionGroup": "true"}
_LOOP_SECONDS = re.compile(r"^twinlog_snapshot_seconds(?:{.*})? (\S+)$", re.MULTILINE)
Row = dict[str, Any]


@frozen(kw_only=True)
class HttpBench:
    """One run. `idle_seconds`: how long a broker without work is watched; `scrapes`: of each case, in each round."""

    rounds: int
    parts: tuple[str, ...] = PARTS
    cases: tuple[tuple[int, int], ...] = CASES
    idle_seconds: float = 15.0
    settle_seconds: float = 5.0
    scrapes: int = 30
    root: Path = field(factory=lambda: Path(tempfile.mkdtemp(prefix="bench-http-")))

    def rows(self) -> Iterator[Row]:
        """Rows come out as they are measured; nothing is left behind."""
        try:
            with twinlog.NameServer(self.root / "namesrv") as namesrv:
                for number in range(1, self.rounds + 1):
                    if "process" in self.parts:
                        for kind in KINDS if number % 2 else reversed(KINDS):
                            yield {"measure": "process", "round": number, "kind": kind, **self._process(namesrv, kind)}
                    if "scrape" in self.parts:
                        for topics, lagging in self.cases:
                            row = self._scrape(namesrv, topics, lagging)
                            yield {"measure": "scrape", "round": number, "topics": topics, "lagging": lagging, **row}
        finally:
            shutil.rmtree(self.root, ignore_errors=True)

    @contextmanager
    def _broker(self, namesrv: twinlog.NameServer, *, http: bool) -> Iterator[StartedTwinlog]:
        """A broker that is not started yet."""
        os.sync()
        directory = Path(tempfile.mkdtemp(dir=self.root))
        settings = {**SETTINGS, "httpEnable": "true" if http else "false"}
        broker = StartedTwinlog(directory, namesrv.address, settings=settings)
        try:
            yield broker
        finally:
            broker.kill()
            shutil.rmtree(directory, ignore_errors=True)

    def _process(self, namesrv: twinlog.NameServer, kind: str) -> Row:
        with self._broker(namesrv, http=kind != "off") as broker:
            ready = _start(broker)
            if kind != "off":
                wait_for(lambda: answers(_http_port(broker)), "the port for HTTP")
            time.sleep(self.settle_seconds)
            settled_cpu = cpu_seconds(broker.pid)
            began = time.monotonic()
            while (left := began + self.idle_seconds - time.monotonic()) > 0:
                if kind == "probed":
                    _get(broker, "/livez")
                time.sleep(min(left, 1.0))
            seconds = time.monotonic() - began
            used = cpu_seconds(broker.pid) - settled_cpu
            return {
                **ready,
                "settled_cpu_seconds": settled_cpu,
                "rss_mib": sum(memory(broker.pid).values()),
                "idle_cpu_percent": round(100 * used / seconds, 3),
            }

    def _scrape(self, namesrv: twinlog.NameServer, topics: int, lagging: int) -> Row:
        with self._broker(namesrv, http=True) as broker:
            _start(broker)
            for number in range(topics):
                create_topic(broker.address, topic := f"bench-{number}", queues=QUEUES_PER_TOPIC)
                _send(broker, topic)
                if number < lagging:
                    _commit(broker, topic, f"group-{number}")
            wait_for(lambda: _get(broker, "/metrics").count("rocketmq_consumer_lag_messages{") >= lagging, "the lags")
            before, loops, waits, sizes = cpu_seconds(broker.pid), [], [], []
            for _ in range(self.scrapes):
                began = time.perf_counter()
                text = _get(broker, "/metrics")
                waits.append(time.perf_counter() - began)
                sizes.append(len(text.encode()))
                loops.append(_loop_seconds(text))
            used = cpu_seconds(broker.pid) - before
            return {
                "loop_ms": 1000 * median(loops),
                "cpu_ms": 1000 * used / self.scrapes,
                "answer_ms": 1000 * median(waits),
                "answer_kib": median(sizes) / 1024,
            }


def _start(broker: StartedTwinlog) -> Row:
    """Seconds, and seconds of CPU, until it says that it is ready."""
    begin = time.perf_counter()
    broker.start()
    while not broker.printed("ready "):
        if not broker.running or time.perf_counter() - begin > READY_SECONDS_MAX:
            raise RuntimeError(f"{broker.name} is not ready\n{broker.tail()}")
        time.sleep(POLL_SECONDS)
    return {"ready_seconds": time.perf_counter() - begin, "ready_cpu_seconds": cpu_seconds(broker.pid)}


def _http_port(broker: StartedTwinlog) -> int:
    return broker.port + HTTP_PORT_DISTANCE


def _get(broker: StartedTwinlog, path: str) -> str:
    with urllib.request.urlopen(f"http://{HOST}:{_http_port(broker)}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def _loop_seconds(metrics: str) -> float:
    found = _LOOP_SECONDS.search(metrics)
    if found is None:
        raise RuntimeError("/metrics does not tell twinlog_snapshot_seconds")
    return float(found[1])


def _send(broker: StartedTwinlog, topic: str) -> None:
    """One message, to the first queue."""
    fields = {
        "producerGroup": "bench",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": str(QUEUES_PER_TOPIC),
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": str(time.time_ns() // 1_000_000),
        "flag": "0",
        "properties": "",
    }
    header, _ = request(broker.address, SEND_MESSAGE, fields, bytes(1024))
    if header["code"] != 0:
        raise RuntimeError(f"{broker.name} did not take a message: {header}")


def _commit(broker: StartedTwinlog, topic: str, group: str) -> None:
    """The group has consumed nothing of that queue."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "0"}
    header, _ = request(broker.address, UPDATE_CONSUMER_OFFSET, fields)
    if header["code"] != 0:
        raise RuntimeError(f"{broker.name} did not take an offset: {header}")
