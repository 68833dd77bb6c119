"""The load: java/ProduceLoad.java in a JVM of its own, and the brokers' CPU time while it measures."""

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from attrs import frozen

from scripts.benchmarks.machine import cpu_seconds
from scripts.benchmarks.report import Row
from scripts.benchmarks.systems import System
from tests.support.process_group import jars

SOURCES = Path(__file__).with_name("java")
SILENT = '<configuration><root level="OFF"/></configuration>'
CLIENT_HEAP = ("-Xms512m", "-Xmx512m")
TOPIC = "bench"
MACHINE = "machine"


@frozen(kw_only=True)
class Load:
    """What one client does to one system: for each number of threads a warm-up, then a measurement."""

    threads: Sequence[int]
    first_warm_up_s: int  # Of the whole system, with the first number of threads: a JVM compiles for a while.
    warm_up_s: int
    seconds: int
    body_size: int = 1024
    batch: int = 1  # Messages of one send.

    def arguments(self, namesrv: str, topic: str) -> list[str]:
        """Those of java/ProduceLoad.java."""
        numbers = (self.body_size, self.batch, self.first_warm_up_s, self.warm_up_s, self.seconds, *self.threads)
        return [namesrv, topic, *map(str, numbers)]

    @property
    def time_limit_s(self) -> float:
        return 60 + self.first_warm_up_s + 2 * len(self.threads) * (self.warm_up_s + self.seconds)


@contextmanager
def java_client(
    name: str, arguments: Sequence[str], home: Path, limit_s: float, options: Sequence[str] = ()
) -> Iterator[tuple[int, Iterator[Row]]]:
    """One of java/ in a JVM of its own, with its home in `home`: its pid, and what it prints. Raises RuntimeError if it fails."""
    class_path = os.pathsep.join(jars.class_path(sources=SOURCES))
    command = ["java", *jvm_options(home), *options, "-cp", class_path, f"twinlog.bench.{name}", *arguments]
    with client_process(name, command, limit_s) as client:
        yield client


def jvm_options(home: Path) -> list[str]:
    """Options of a JVM with RocketMQ's client: its heap, and no logs."""
    logback = home / "logback.xml"
    logback.write_text(SILENT)
    options = [f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}", f"-Dlogback.configurationFile={logback}"]
    return [*CLIENT_HEAP, *options]


@contextmanager
def client_process(
    name: str,
    command: Sequence[str],
    limit_s: float,
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[int, Iterator[Row]]]:
    """A program that prints lines of JSON: its pid, and these. Raises RuntimeError if it fails; it is killed at the limit."""
    own = None if environment is None else os.environ | environment
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=cwd, env=own) as client:
        assert client.stdout is not None
        limit = threading.Timer(limit_s, client.kill)
        limit.start()
        try:
            yield client.pid, map(json.loads, client.stdout)
        finally:
            limit.cancel()
            client.kill()
    if client.returncode != 0:
        raise RuntimeError(f"{name} ended with {client.returncode}")


def measure(
    system: System,
    load: Load,
    root: Path,
    *,
    topic: str = TOPIC,
    started: Callable[[], None] = lambda: None,
    options: Sequence[str] = (),
) -> Iterator[Row]:
    """Run the client against a system; yield one row of results for each number of threads. `started`: called when the
    measurement of one begins, behind its warm-up. `options`: of the JVM.
    """
    arguments = load.arguments(system.namesrv, topic)
    before: dict[str, float] = {}
    with java_client("ProduceLoad", arguments, root, load.time_limit_s, options) as (client, events):
        for event in events:
            used = {name: cpu_seconds(pid) for name, pid in {**system.pids, "client": client}.items()}
            now = used | {MACHINE: busy_seconds()}
            if event.pop("event") == "start":
                before = now
                started()
            else:
                yield row(event, {name: seconds - before[name] for name, seconds in now.items()})


def row(event: Row, cpu_s: dict[str, float]) -> Row:
    """Turn what the client printed and the CPU seconds of the interval into one row."""
    messages = sum(event["outcomes"].values())
    others_s = cpu_s.pop(MACHINE) - sum(cpu_s.values())
    return {
        **event,
        "messages_per_s": round(event["answered"] / event["elapsed_s"], 1),
        "cpu_us_per_message": {name: round(seconds * 1e6 / messages, 2) for name, seconds in cpu_s.items()},
        # Who else was busy: other programs, and the kernel where it works for nobody in particular.
        "other_cpu_percent": round(100 * others_s / (event["elapsed_s"] * (os.cpu_count() or 1)), 1),
    }


def busy_seconds() -> float:
    """Return what all processors together have worked so far."""
    times = psutil.cpu_times()
    # guest time is part of user time already; steal is work of another virtual machine, and no less in our way.
    return times.user + times.nice + times.system + times.irq + times.softirq + times.steal
