"""scripts/bench http: what the port for HTTP costs a broker, beside the same broker without it, and what a scrape costs.

The broker has a name server and no traffic. Rounds go through the kinds in turn, every second round backwards.
"""

import os
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from attrs import frozen

from scripts.benchmarks.machine import cpu_seconds, memory
from scripts.benchmarks.report import Row, scratch
from scripts.benchmarks.store_restarts import StartedTwinlog, timed_start
from tests.support.clients.remoting import create_topic, message_fields, request
from tests.support.process_group import twinlog
from tests.support.process_group.ports import HOST
from tests.support.process_group.process import answers
from tests.support.process_group.status import commit_offset
from tests.support.waiting import wait_for

PARTS = ("process", "scrape")
KINDS = ("off", "on", "probed")
QUEUES_PER_TOPIC = 4
SEND_MESSAGE, HTTP_PORT_DISTANCE = 10, 3
SETTINGS = {"mappedFileSizeCommitLog": str(64 << 20), "autoCreateSubscriptionGroup": "true"}
_LOOP_SECONDS = re.compile(r"^twinlog_snapshot_seconds(?:{.*})? (\S+)$", re.MULTILINE)


@frozen(kw_only=True)
class HttpBench:
    """One run. `cases`: topics, and how many of them have a group that lags."""

    rounds: int
    parts: tuple[str, ...]
    cases: tuple[tuple[int, int], ...]
    idle_seconds: float  # How long a broker without work is watched.
    settle_seconds: float
    scrapes: int  # Of each case, in each round.

    def rows(self) -> Iterator[Row]:
        """Rows come out as they are measured; nothing is left behind."""
        with scratch("bench-http-") as root, twinlog.NameServer(root / "namesrv") as namesrv:
            for number in range(1, self.rounds + 1):
                if "process" in self.parts:
                    for kind in KINDS if number % 2 else reversed(KINDS):
                        yield {"measure": "process", "round": number, "kind": kind, **self._process(namesrv, kind)}
                if "scrape" in self.parts:
                    for topics, lagging in self.cases:
                        row = self._scrape(namesrv, topics, lagging)
                        yield {"measure": "scrape", "round": number, "topics": topics, "lagging": lagging, **row}

    def _process(self, namesrv: twinlog.NameServer, kind: str) -> Row:
        with _broker(namesrv, http=kind != "off") as broker:
            ready = _start(broker)
            if kind != "off":
                wait_for(lambda: answers(broker.port + HTTP_PORT_DISTANCE), "the port for HTTP")
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
        with _broker(namesrv, http=True) as broker:
            _start(broker)
            for number in range(topics):
                create_topic(broker.address, topic := f"bench-{number}", queues=QUEUES_PER_TOPIC)
                fields = message_fields(topic, queues=QUEUES_PER_TOPIC)
                header, _ = request(broker.address, SEND_MESSAGE, fields, bytes(1024))
                assert header["code"] == 0, header
                if number < lagging:
                    commit_offset(broker, f"group-{number}", topic, 0)
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


@contextmanager
def _broker(namesrv: twinlog.NameServer, *, http: bool) -> Iterator[StartedTwinlog]:
    """A broker that is not started yet."""
    os.sync()
    settings = {**SETTINGS, "httpEnable": "true" if http else "false"}
    with scratch("bench-http-") as directory:
        broker = StartedTwinlog(directory, namesrv.address, settings=settings)
        try:
            yield broker
        finally:
            broker.kill()


def _start(broker: StartedTwinlog) -> Row:
    """Seconds, and seconds of CPU, until it says that it is ready."""
    found = timed_start(broker, lambda: broker.printed("ready "))
    return {f"ready_{name}": value for name, value in found.items()}


def _get(broker: StartedTwinlog, path: str) -> str:
    url = f"http://{HOST}:{broker.port + HTTP_PORT_DISTANCE}{path}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def _loop_seconds(metrics: str) -> float:
    found = _LOOP_SECONDS.search(metrics)
    if found is None:
        raise RuntimeError("/metrics does not tell twinlog_snapshot_seconds")
    return float(found[1])
