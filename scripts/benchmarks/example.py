"""RocketMQ's own benchmark program, org.apache.rocketmq.example.benchmark.Producer, as another client of `scripts/bench produce`.

It is not among RocketMQ's jars at Maven Central: `--example` names rocketmq-example-4.9.7.jar, from lib/ of RocketMQ's release.
It runs until it is ended, and prints a line every 10 s, with the rate of the last 9; a latency is a mean. Any answer without an
exception counts as sent there, whatever its status. Each number of threads is a JVM of its own, with the heap of its script.
"""

import math
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from scripts.benchmarks.load import MACHINE, TOPIC, Load, busy_seconds, jvm_options, row
from scripts.benchmarks.machine import cpu_seconds
from scripts.benchmarks.report import Row
from scripts.benchmarks.systems import System
from tests.support.process_group import jars

PROGRAM = "org.apache.rocketmq.example.benchmark.Producer"
HEAP = ("-Xms1g", "-Xmx1g", "-Xmn256m")  # As in distribution/benchmark/runclass.sh.
LINE_SECONDS = 10
_LINE = re.compile(
    r"Send TPS: (?P<rate>\d+) Max RT\(ms\): (?P<max>\d+) Average RT\(ms\): +(?P<mean>[\d.]+) "
    r"Send Failed: (?P<unsent>\d+) Response Failed: (?P<refused>\d+)"
)


@frozen
class Line:
    """A line that it prints: messages a second, and since it began the largest latency, and failures."""

    rate: int
    max_ms: int
    mean_ms: float
    failed: int


def parse(text: str) -> Line | None:
    """A line of its statistics; None for others."""
    if "Current Time" not in text or (found := _LINE.search(text)) is None:
        return None
    failed = int(found["unsent"]) + int(found["refused"])
    return Line(int(found["rate"]), int(found["max"]), float(found["mean"]), failed)


def measure_example(system: System, load: Load, home: Path, jar: Path) -> Iterator[Row]:
    """Run it against a system; one row for each number of threads."""
    warm_up = max(1, math.ceil(load.first_warm_up_s / LINE_SECONDS))
    count = max(1, round(load.seconds / LINE_SECONDS))
    for threads in load.threads:
        with _running(system, load, home, jar, threads) as (client, lines):
            before: dict[str, float] = {}
            found: list[Line] = []
            for number, line in enumerate(lines, start=1):
                found.append(line)
                if number == warm_up:
                    before = _used(system, client)
                elif number == warm_up + count:
                    break
            after = _used(system, client)
        yield result(threads, found[-count - 1 :], {name: after[name] - before[name] for name in after})


def result(threads: int, lines: Sequence[Line], cpu_s: dict[str, float]) -> Row:
    """One row of results, from the line at which the measurement began and those that followed."""
    begin, *measured = lines
    elapsed = LINE_SECONDS * len(measured)
    sent = round(sum(line.rate for line in measured) * LINE_SECONDS)
    outcomes = {"SEND_OK": sent}
    if failed := measured[-1].failed - begin.failed:
        outcomes["failed"] = failed
    event = {
        "threads": threads,
        "elapsed_s": float(elapsed),
        "answered": sent,
        "mean_ms": sum(line.mean_ms for line in measured) / len(measured),
        "max_ms": float(measured[-1].max_ms),
        "outcomes": outcomes,
    }
    return row(event, cpu_s)


def _used(system: System, client: int) -> dict[str, float]:
    used = {name: cpu_seconds(pid) for name, pid in {**system.pids, "client": client}.items()}
    return used | {MACHINE: busy_seconds()}


@contextmanager
def _running(system: System, load: Load, home: Path, jar: Path, threads: int) -> Iterator[tuple[int, Iterator[Line]]]:
    """The program, and its lines as they come. Raises RuntimeError with what it printed when it ends by itself."""
    class_path = os.pathsep.join([str(jar), *jars.class_path()])
    # It would run for ever, when nobody is left to end it.
    command = ["setpriv", "--pdeathsig", "KILL", "java", *jvm_options(home), *HEAP, "-cp", class_path, PROGRAM]
    command += ["-n", system.namesrv, "-t", TOPIC, "-w", str(threads), "-s", str(load.body_size)]
    limit_s = 60 + load.first_warm_up_s + 2 * LINE_SECONDS + load.seconds
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as program:
        limit = threading.Timer(limit_s, program.kill)
        limit.start()
        try:
            yield program.pid, _lines(program)
        finally:
            limit.cancel()
            program.kill()


def _lines(program: "subprocess.Popen[str]") -> Iterator[Line]:
    assert program.stdout is not None
    said: list[str] = []
    for text in program.stdout:
        said = [*said[-20:], text]
        if (line := parse(text)) is not None:
            yield line
    raise RuntimeError(f"{PROGRAM} ended, or took too long:\n{''.join(said)}")
