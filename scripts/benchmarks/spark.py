"""scripts/bench spark: Spark as a client of a running broker, beside a loop of Python and Java's client; and what a broker's
producers notice of Spark that reads a cold backlog, from the master or from a slave.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any, Self

import psutil
from attrs import define, field, frozen

from scripts.benchmarks.backlog import Backlog, forget
from scripts.benchmarks.clients import printed
from scripts.benchmarks.ha_pairs import make_broker
from scripts.benchmarks.load import Load, measure
from scripts.benchmarks.machine import ROOT, cpu_seconds
from scripts.benchmarks.report import Row, in_turn, scratch
from scripts.benchmarks.spark_steps import LOOP_BATCH_BYTES
from scripts.benchmarks.systems import QUEUES, System
from tests.support.clients.remoting import create_topic, runtime_info
from tests.support.process_group import twinlog
from tests.support.process_group.member import BrokerProcess
from tests.support.process_group.ports import HOST
from tests.support.waiting import wait_for

CLIENT_PARTS = ("start-up", "source", "sink")
PARTS = (*CLIENT_PARTS, "backlog")
KINDS = ("spark", "python", "java")
SYSTEMS = ("twinlog", "rocketmq")
READ_FROM = ("master", "slave")
TOPIC, WARM_UP, PRODUCED, TINY = "bench", "warm-up", "produced", "tiny"
MASTER = "local[1,4]"
MASTER_OF_BACKLOG = "local[2,4]"
WARM_UP_MESSAGES = 20_000
MESSAGES_MAX = 1_000_000  # A log of small messages is shorter.
TINY_BYTES = 200_000  # So large that each message is a batch, and goes to another queue.
LOG_FILE_BYTES = 64 << 20
STEP_SECONDS_MAX, JOIN_SECONDS_MAX = 600.0, 180.0
JOBS = 3
TWINLOG_ONLY = {"scrubBytesPerSecond": "0"}  # Else our broker reads its log by itself, too.


@frozen(kw_only=True)
class ColdReading:
    """The part `backlog`. `directory` keeps what was made for another run; None: it is removed in the end."""

    messages: int
    body_bytes: int
    directory: Path | None
    systems: tuple[str, ...]
    load: Load
    log_file_bytes: int = 1 << 30

    @property
    def log(self) -> Backlog:
        """What the directory holds."""
        return Backlog(
            topic=TOPIC, messages=self.messages, body_bytes=self.body_bytes, log_file_bytes=self.log_file_bytes
        )


@define
class SparkBench:
    """One run. Rows come out as they are measured, but for those that are among `done`."""

    rounds: int
    mib: int  # Of log, for each size of bodies, but no more than MESSAGES_MAX messages.
    bodies: tuple[int, ...]
    parts: tuple[str, ...]
    kinds: tuple[str, ...]
    cold: ColdReading
    done: Sequence[Row] = ()
    _known: set[tuple[Any, ...]] = field(init=False, factory=set)

    def __attrs_post_init__(self) -> None:
        self._known = {_name(row) for row in self.done if row.get("spark") != "idle"}  # Those belong to another row.

    def rows(self) -> Iterator[Row]:
        """Measure."""
        parts = {"start-up": self._start_up, "source": self._source, "sink": self._sink, "backlog": self._backlog}
        for part in self.parts:
            yield from parts[part]()

    def _open(self, **name: Any) -> bool:
        return _name(name) not in self._known

    # ---- Start-up

    def _start_up(self) -> Iterator[Row]:
        """A session, and the first and second reading of a small topic by it."""
        rounds = [number for number in range(1, self.rounds + 1) if self._open(measure="start-up", round=number)]
        if not rounds:
            return
        with scratch("bench-spark-") as directory, _served(directory, []) as broker:
            for number in rounds:
                with Spark(MASTER) as spark:
                    seconds = {"session": spark.seconds} | {
                        name: spark.ask("read", options=_options(broker, WARM_UP))["seconds"]
                        for name in ("first", "second")
                    }
                yield {"measure": "start-up", "round": number, **{f"{k}_seconds": v for k, v in seconds.items()}}

    # ---- Source and sink

    def _session(self) -> AbstractContextManager["Spark | None"]:
        """None where others are measured alone."""
        return Spark(MASTER) if "spark" in self.kinds else nullcontext()

    def _source(self) -> Iterator[Row]:
        for body in self.bodies:
            names = [
                {"measure": "source", "body": body, "cold": cold, "kind": kind, "round": number}
                for cold in (False, True)
                for number, kind in in_turn(self.rounds, self.kinds)
            ]
            if names := [name for name in names if self._open(**name)]:
                yield from self._sources(body, names)

    def _sources(self, body: int, names: list[Row]) -> Iterator[Row]:
        log = Backlog(topic=TOPIC, messages=1, body_bytes=body, log_file_bytes=LOG_FILE_BYTES)
        messages = min(MESSAGES_MAX, (self.mib << 20) // log.record_bytes)
        log = Backlog(topic=TOPIC, messages=messages, body_bytes=body, log_file_bytes=LOG_FILE_BYTES)
        with scratch("bench-spark-") as directory, _served(directory, [log]) as broker, self._session() as spark:
            if spark is not None:
                spark.ask("read", options=_options(broker, WARM_UP))
            _touch(broker.store)
            for name in names:
                if name["cold"]:
                    broker.stop()
                    forget(broker.store)
                    broker.start()
                job = _job(name, spark, "read", options=_options(broker, TINY))
                with Watch(broker) as watch:
                    row = self._read(name, broker, spark, messages)
                if row["messages"] != messages:
                    raise RuntimeError(f"{name} read {row['messages']} of {messages} messages")
                yield {**name, **row, **watch.result(), **job}

    def _read(self, name: Row, broker: BrokerProcess, spark: "Spark | None", messages: int) -> Row:
        if spark is not None and name["kind"] == "spark":
            read = spark.ask("read", options=_options(broker, TOPIC))
            return {**read, "bytes": read["messages"] * name["body"]}
        if name["kind"] == "python":
            options = {"name_server": broker.namesrv, "topic": TOPIC, "messages": messages}
            return _loop("read", {**options, "limit_s": STEP_SECONDS_MAX})
        group = f"bench-{name['cold']}-{name['round']}"
        arguments = [broker.namesrv, TOPIC, group, "1", str(messages), str(round(STEP_SECONDS_MAX))]
        (row,) = printed("ConsumeLoad", arguments, STEP_SECONDS_MAX + 60)
        return _of_java(row, name["body"])

    def _sink(self) -> Iterator[Row]:
        for body in self.bodies:
            names = [
                {"measure": "sink", "body": body, "kind": kind, "round": number}
                for number, kind in in_turn(self.rounds, self.kinds)
            ]
            if names := [name for name in names if self._open(**name)]:
                yield from self._sinks(body, names)

    def _sinks(self, body: int, names: list[Row]) -> Iterator[Row]:
        messages = min(MESSAGES_MAX, (self.mib << 20) // (body + 150)) // 2  # Half, as each writes anew.
        with scratch("bench-spark-") as directory, _served(directory, []) as broker, self._session() as spark:
            create_topic(broker.address, TOPIC, queues=QUEUES)
            options = _options(broker, TOPIC)
            if spark is not None:
                spark.ask("write", messages=WARM_UP_MESSAGES, body_bytes=body, tasks=1, options=options)
            for name in names:
                job = _job(name, spark, "write", messages=1, body_bytes=body, tasks=1, options=options)
                with Watch(broker) as watch:
                    row = self._write(name, broker, spark, messages, options)
                yield {**name, **row, **watch.result(), **job}

    def _write(
        self, name: Row, broker: BrokerProcess, spark: "Spark | None", messages: int, options: dict[str, str]
    ) -> Row:
        body = name["body"]
        if spark is not None and name["kind"] == "spark":
            return spark.ask("write", messages=messages, body_bytes=body, tasks=1, options=options)
        if name["kind"] == "python":
            what = {"name_server": broker.namesrv, "topic": TOPIC, "messages": messages, "body_bytes": body}
            return _loop("write", {**what, "limit_s": STEP_SECONDS_MAX})
        numbers = map(str, (body, messages, LOOP_BATCH_BYTES, WARM_UP_MESSAGES))
        (row,) = printed("BatchLoad", [broker.namesrv, TOPIC, *numbers], STEP_SECONDS_MAX)
        return _of_java(row, body)

    # ---- A cold backlog

    def _backlog(self) -> Iterator[Row]:
        cases = [(system, place) for system in self.cold.systems for place in READ_FROM]
        for number, (system, place) in in_turn(self.rounds, cases):
            name = {"measure": "backlog", "system": system, "read_from": place, "round": number}
            if self._open(**name):
                yield from ({**name, **row} for row in self._cold_round(system, place))

    def _cold_round(self, system: str, place: str) -> Iterator[Row]:
        """Two rows: producers alone, and while Spark reads."""
        cold, log = self.cold, self.cold.log
        within = cold.directory.parent if cold.directory else None  # Links need one file system.
        with ExitStack() as stack:
            base = cold.directory or stack.enter_context(_kept(log))
            log.make(base)
            directory = stack.enter_context(scratch("bench-spark-", within))
            namesrv = stack.enter_context(twinlog.NameServer(directory / "namesrv")).address
            settings = log.settings | {"slaveReadEnable": str(place == "slave").lower()}
            settings |= TWINLOG_ONLY if system == "twinlog" else {}
            first, second = _halves()
            master = make_broker(system, directory / "master", namesrv, "ASYNC_MASTER", settings)
            address = {"haMasterAddress": f"{HOST}:{master.ha_port}"}
            slave = make_broker(system, directory / "slave", namesrv, "SLAVE", settings | address)
            for member, cores in ((master, first), (slave, second)):
                log.link(base, member.store)
                with _on(cores):
                    stack.enter_context(member)
            for topic in (TOPIC, PRODUCED):
                create_topic(master.address, topic, queues=QUEUES)
            _fill(master, WARM_UP, WARM_UP_MESSAGES, 100)
            _wait_level(master, slave)
            with _on(second):
                spark = stack.enter_context(Spark(MASTER_OF_BACKLOG))
            spark.ask("read", options=_options(master, WARM_UP))
            forget(base)
            pids = {"master": master.pid, "slave": slave.pid}
            yield from self._produce(spark, System(name=system, namesrv=namesrv, pids=pids), master, slave, first)

    def _produce(
        self, spark: "Spark", system: System, master: BrokerProcess, slave: BrokerProcess, cores: Sequence[int]
    ) -> Iterator[Row]:
        with scratch("bench-client-") as home, _on(cores):
            begun: list[Reading] = []
            for row in measure(
                system, self.cold.load, home, topic=PRODUCED, started=lambda: _look(begun, master, slave)
            ):
                found = begun.pop().until_now()
                still = spark.busy
                yield {"spark": "reads" if still else "idle", **row, **found}
                if not still:
                    spark.begin("read", options=_options(master, TOPIC))


class Reading:
    """What both members gave to consumers, and read from the disk, since this was made."""

    def __init__(self, master: BrokerProcess, slave: BrokerProcess) -> None:
        self._members = {"master": master, "slave": slave}
        self._before = self._now()

    def _now(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, member in self._members.items():
            found[f"{name}_messages_out"] = int(runtime_info(member.address)["msgGetTotalTodayNow"])
            found[f"{name}_disk_bytes"] = _disk_bytes(member.pid)
        return found

    def until_now(self) -> Row:
        return {name: value - self._before[name] for name, value in self._now().items()}


def _look(begun: list[Reading], master: BrokerProcess, slave: BrokerProcess) -> None:
    begun.append(Reading(master, slave))


class Watch:
    """CPU time of a broker, and bytes that it read from the disk."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._pid = broker.pid

    def __enter__(self) -> Self:
        self._cpu, self._read = cpu_seconds(self._pid), _disk_bytes(self._pid)
        return self

    def __exit__(self, *_: object) -> None:
        self._cpu, self._read = cpu_seconds(self._pid) - self._cpu, _disk_bytes(self._pid) - self._read

    def result(self) -> Row:
        return {"broker_cpu_seconds": self._cpu, "disk_bytes": self._read}


class Spark:
    """spark_steps.py with a session."""

    def __init__(self, master: str) -> None:
        command = [sys.executable, "-m", "scripts.benchmarks.spark_steps", "spark", master]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        self._asked = 1
        self._answers: list[Row] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        self.seconds = self._wait()["seconds"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever it is doing."""
        family = psutil.Process(self._process.pid).children(recursive=True) if self._process.poll() is None else []
        self._process.kill()
        self._process.wait()
        for child in family:
            if child.is_running():
                child.kill()
        psutil.wait_procs(family, timeout=10)

    @property
    def busy(self) -> bool:
        """It has not answered yet. Raises RuntimeError when it has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"Spark ended with {self._process.returncode}")
        return len(self._answers) < self._asked

    def begin(self, what: str, **options: Any) -> None:
        """Ask, and do not wait."""
        assert self._process.stdin is not None
        self._asked += 1
        self._process.stdin.write(json.dumps({"do": what, **options}) + "\n")
        self._process.stdin.flush()

    def ask(self, what: str, **options: Any) -> Row:
        """Ask, and wait for the answer."""
        self.begin(what, **options)
        return self._wait()

    def _wait(self) -> Row:
        deadline = time.monotonic() + STEP_SECONDS_MAX
        while self.busy:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no answer from Spark in {STEP_SECONDS_MAX:.0f} s")
            time.sleep(0.01)
        return self._answers[-1]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.append(json.loads(line))


def _name(row: Row) -> tuple[Any, ...]:
    """What is measured by a row."""
    return tuple(row.get(key) for key in ("measure", "body", "cold", "kind", "system", "read_from", "round"))


@contextmanager
def _served(root: Path, logs: Sequence[Backlog]) -> Iterator[BrokerProcess]:
    """A broker of ours that has these logs, one at most, a small topic to warm up on, and one with a message in each queue."""
    with twinlog.NameServer(root / "namesrv") as namesrv:
        settings = (logs[0] if logs else Backlog(topic=TOPIC, messages=1, body_bytes=1)).settings | TWINLOG_ONLY
        broker = make_broker("twinlog", root / "broker", namesrv.address, "ASYNC_MASTER", settings)
        for log in logs:
            log.make(broker.store)
        with broker:
            for log in logs:
                create_topic(broker.address, log.topic, queues=QUEUES)
            _fill(broker, WARM_UP, WARM_UP_MESSAGES, 100)
            _fill(broker, TINY, QUEUES, TINY_BYTES)
            yield broker


def _fill(broker: BrokerProcess, topic: str, messages: int, body_bytes: int) -> None:
    create_topic(broker.address, topic, queues=QUEUES)
    what = {"name_server": broker.namesrv, "topic": topic, "messages": messages, "body_bytes": body_bytes}
    _loop("write", {**what, "limit_s": STEP_SECONDS_MAX})


def _job(name: Row, spark: "Spark | None", do: str, **command: Any) -> Row:
    """Time of a job with hardly a message: planning, and the start of its tasks. Nothing where another client is measured."""
    if spark is None or name["kind"] != "spark":
        return {}
    rows = [spark.ask(do, **command) for _ in range(JOBS)]
    return {f"job_{key}": median(row[key] for row in rows) for key in ("seconds", "cpu_seconds")}


@contextmanager
def _kept(log: Backlog) -> Iterator[Path]:
    """A directory for the backlog, which is removed in the end."""
    with scratch("bench-backlog-") as directory:
        yield directory / log.topic


def _options(broker: BrokerProcess, topic: str) -> dict[str, str]:
    """Of source or sink."""
    return {"nameServer": broker.namesrv, "subscribe": topic, "topic": topic}


def _loop(what: str, options: Row) -> Row:
    command = [sys.executable, "-m", "scripts.benchmarks.spark_steps", what, json.dumps(options)]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=STEP_SECONDS_MAX + 60)
    if ran.returncode != 0:
        raise RuntimeError(f"the loop of Python ended with {ran.returncode}")
    row: Row = json.loads(ran.stdout)
    return row


def _of_java(row: Row, body: int) -> Row:
    seconds = {"seconds": row["elapsed_s"], "cpu_seconds": row["client_cpu_s"]}
    return {**seconds, "messages": row["messages"], "bytes": row["messages"] * body}


def _touch(root: Path) -> None:
    """Read all files of a log, so that they lie in memory."""
    for path in (root / "commitlog").iterdir():
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def _disk_bytes(pid: int) -> int:
    """What a process caused to be read from disks so far."""
    return int(psutil.Process(pid).io_counters().read_bytes)


def _wait_level(master: BrokerProcess, slave: BrokerProcess) -> None:
    def is_level() -> bool:
        try:
            ends = [runtime_info(member.address)["commitLogMaxOffset"] for member in (master, slave)]
        except ValueError:  # RocketMQ's do not say it right after their start.
            return False
        return ends[0] == ends[1]

    wait_for(is_level, "the slave holds what its master holds", timeout_s=JOIN_SECONDS_MAX)


def _halves() -> tuple[list[int], list[int]]:
    """The cores of master and producer, and those of slave and Spark; with a single core, the same."""
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    return (cores[:half], cores[half:]) if half else (cores, cores)


@contextmanager
def _on(cores: Sequence[int]) -> Iterator[None]:
    """Processes that are started in this block run on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
