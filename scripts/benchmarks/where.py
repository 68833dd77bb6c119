"""The way of one message through master and slave: CPU time, wake-ups, system calls, and the share of each step.

A system is loaded by one client, with each number of threads once for each meter: counters of /proc, which
cost nothing; perf, which counts system calls in the kernel; and a sampler of CPU time within Python processes. Each meter has a
measurement of its own, and the sampler processes of its own, so that none shows in another's figures.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol
from unittest.mock import patch

import click
from attrs import define, evolve, field, frozen

from scripts.benchmarks.load import MACHINE, TOPIC, Load, busy_seconds, client_process, java_client
from scripts.benchmarks.report import Row, in_turn, say, scratch
from scripts.benchmarks.systems import Candidate, candidates
from scripts.benchmarks.where_steps import seconds
from tests.support.process_group import jars
from tests.support.process_group.ports import free_port
from tests.support.process_group.process import Process

LIMIT_SOURCE = Path(__file__).with_name("c") / "limit.c"
FRAME_BYTES = 1280  # A request with a body of 1 KiB.
SAMPLER, STACKS = Path(__file__).with_name("sampled"), "stacks"
TRACING = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
ALL_CALLS = "raw_syscalls:sys_enter"
# System calls that are shown by name, as the kernel names them. The others are counted, too, as "other".
CALLS = (
    "epoll_wait",
    "epoll_pwait",
    "epoll_ctl",
    "recvfrom",
    "recvmsg",
    "sendto",
    "sendmsg",
    "sendfile64",
    "read",
    "write",
    "readv",
    "writev",
    "pwrite64",
    "pread64",
    "futex",
    "ioctl",
    "poll",
    "fdatasync",
    "fsync",
    "msync",
    "mmap",
    "munmap",
    "madvise",
    "fadvise64",
    "mincore",
    "fcntl",
    "openat",
    "close",
    "newfstat",
    "sched_yield",
    "sched_getaffinity",
)
PYTHON_KINDS = ("twinlog", "answer-only")
C_KINDS = ("c-answer", "c-pass-on")
KINDS = ("twinlog", "rocketmq", "answer-only", *C_KINDS)
LATE_MAX = 0.02  # Of the time. A meter that began late, on a busy machine, has not seen all messages.
METERS = ("cpu", "calls", "steps")
Events = tuple[int, Iterator[Row]]  # The client's pid, and the lines that it prints.
Numbers = dict[str, float]


@frozen(kw_only=True)
class Subject:
    """A system that is measured, or one of the limits below it. `running`: its processes, and how its client is started."""

    kind: str
    role: str | None
    running: Callable[[], AbstractContextManager["Running"]]


@frozen(kw_only=True)
class Running:
    """Processes by name, and their client."""

    pids: Mapping[str, int]
    client: Callable[[Load, Path], AbstractContextManager[Events]]


@frozen(kw_only=True)
class WhereBench:
    """All subjects in turn, each with all meters."""

    subjects: Sequence[Subject]
    meters: Sequence[str]
    rounds: int
    load: Load

    def rows(self) -> Iterator[Row]:
        """Measure."""
        for number, subject in in_turn(self.rounds, self.subjects):
            told = {"round": number, "system": subject.kind, "role": subject.role}
            if together := [meter for meter in self.meters if meter != "steps"]:
                with subject.running() as running, scratch() as home:
                    yield from (told | row for row in measured(running, together, self.load, home))
            if "steps" in self.meters and subject.kind in PYTHON_KINDS:
                with scratch() as home, sampled(home), subject.running() as running:
                    yield from (told | row for row in measured(running, ["steps"], self.load, home))


def subjects(kinds: Sequence[str]) -> list[Subject]:
    """The subjects of these kinds, in the order of the page."""
    systems = [_system(each) for each in candidates(1) if (each.kind, each.role) != ("rocketmq", "ASYNC_MASTER")]
    found = [*systems, *(Subject(kind=kind, role=None, running=_limits(kind)) for kind in C_KINDS)]
    return sorted((each for each in found if each.kind in kinds), key=lambda each: KINDS.index(each.kind))


def check_tools(meters: Sequence[str], kinds: Sequence[str]) -> None:
    """Raises UsageError for a tool that is missing, with what to install."""
    needed = {
        "perf counts system calls; on Debian: apt install linux-perf": "calls" not in meters or shutil.which("perf"),
        "perf counts them for the super-user alone: run this as root": "calls" not in meters or tracepoints(),
        "the limits are in C; on Debian: apt install gcc libc6-dev": not set(kinds) & set(C_KINDS)
        or shutil.which("cc"),
    }
    if missing := [what for what, is_there in needed.items() if not is_there]:
        raise click.UsageError("; ".join(missing))


# ---- Subjects


def _system(candidate: Candidate) -> Subject:
    @contextmanager
    def running() -> Iterator[Running]:
        with candidate.running(TOPIC) as system:

            def client(load: Load, home: Path) -> AbstractContextManager[Events]:
                return java_client("ProduceLoad", load.arguments(system.namesrv, TOPIC), home, load.time_limit_s)

            yield Running(pids=system.pids, client=client)

    return Subject(kind=candidate.kind, role=candidate.role, running=running)


def _limits(kind: str) -> Callable[[], AbstractContextManager[Running]]:
    @contextmanager
    def running() -> Iterator[Running]:
        with ExitStack() as stack:
            root = stack.enter_context(scratch(f"bench-{kind}-"))
            program, port = str(limit_program()), free_port()

            def server(name: str, *arguments: str) -> int:
                process = stack.enter_context(Process(name, [program, *arguments], log=root / f"{name}.log"))
                process.wait_ready()
                return process.pid

            if kind == "c-answer":
                pids = {"master": server("master", "answer", str(port))}
            else:
                below = str(free_port())
                slave = server("slave-1", "slave", below, str(root / "slave.bytes"))
                pids = {"master": server("master", "master", str(port), str(root / "bytes"), below), "slave-1": slave}

            def client(load: Load, home: Path) -> AbstractContextManager[Events]:
                numbers = (port, FRAME_BYTES, load.first_warm_up_s, load.warm_up_s, load.seconds, *load.threads)
                return client_process("limit load", [program, "load", *map(str, numbers)], load.time_limit_s)

            yield Running(pids=pids, client=client)

    return running


def limit_program() -> Path:
    """c/limit.c as a program, compiled once for each machine."""

    def compiled(folder: Path) -> None:
        jars.run(["cc", "-O2", "-o", str(folder / "limit"), str(LIMIT_SOURCE)], timeout_s=60)

    return jars.made_once(jars.cache_dir() / "limit" / jars.digest([LIMIT_SOURCE]), compiled) / "limit"


# ---- Meters


class Meter(Protocol):
    """Watches processes while a client measures."""

    def prepare(self) -> None:
        """Attach, during the warm-up."""

    def begin(self) -> None:
        """Count from here."""

    def end(self) -> None:
        """Count no more."""

    def found(self) -> dict[str, Numbers]:
        """The counts of each process; may have to wait for a tool to end."""


def measured(running: Running, meters: Sequence[str], load: Load, home: Path) -> Iterator[Row]:
    """One row for each meter and each number of threads, from one run of the client. They come when it has ended: to detach
    perf takes seconds, in which the next measurement may begin.
    """
    plan = [(name, threads) for name in meters for threads in load.threads]
    waiting = [(name, METERS_OF[name](dict(running.pids), home / f"{name}-{threads}")) for name, threads in plan]
    ended: list[tuple[str, Meter, Row, Numbers]] = []
    with running.client(evolve(load, threads=[threads for _, threads in plan]), home) as (client, events):
        watched, before, began = {**running.pids, "client": client}, Numbers(), 0.0
        name, meter = waiting.pop(0)
        meter.prepare()
        for event in events:
            if event.pop("event") == "start":
                meter.begin()
                before, began = _cpu(watched), time.monotonic()
                continue
            elapsed, after = time.monotonic() - began, _cpu(watched)
            meter.end()
            if abs(elapsed - event["elapsed_s"]) <= LATE_MAX * event["elapsed_s"]:
                ended.append((name, meter, event, {who: after[who] - before[who] for who in after}))
            else:
                took = f"watched for {elapsed:.2f} of {event['elapsed_s']:.2f} s"
                say(f"left out: {name}, {event['threads']} threads: {took}; a longer --warm-up may help")
            if waiting:
                name, meter = waiting.pop(0)
                meter.prepare()
        for name, meter, event, cpu_s in ended:
            yield row(name, event, meter.found(), cpu_s)


def row(meter: str, event: Row, members: Mapping[str, Numbers], cpu_s: Mapping[str, float]) -> Row:
    """One row. Counts become counts for each message; seconds of steps stay what they are."""
    messages = sum(event["outcomes"].values())
    if meter != "steps":
        members = {name: each_message(numbers, messages) for name, numbers in members.items()}
    own = sum(seconds for name, seconds in cpu_s.items() if name != MACHINE)
    return {
        "meter": meter,
        "threads": event["threads"],
        "messages": messages,
        "messages_per_s": round(messages / event["elapsed_s"], 1),
        "outcomes": event["outcomes"],
        "members": members,
        "other_cpu_percent": round(100 * (cpu_s[MACHINE] - own) / (event["elapsed_s"] * (os.cpu_count() or 1)), 1),
    }


def each_message(numbers: Numbers, messages: int) -> Numbers:
    """These counts for each message; seconds become microseconds."""
    return {
        name.removesuffix("_s") + "_us" if name.endswith("_s") else name: round(
            number * (1e6 if name.endswith("_s") else 1) / messages, 4
        )
        for name, number in numbers.items()
    }


def _cpu(pids: Mapping[str, int]) -> Numbers:
    """CPU seconds so far, of processes and of the whole machine."""
    used = {name: counters(pid) for name, pid in pids.items()}
    return {**{name: each["user_s"] + each["system_s"] for name, each in used.items()}, MACHINE: busy_seconds()}


def counters(pid: int) -> Numbers:
    """User and system time of a process, and how often its threads gave up the processor (slept) or lost it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    found = {"user_s": int(fields[11]) / tick, "system_s": int(fields[12]) / tick, "slept": 0.0, "preempted": 0.0}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            lines = (task / "status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):  # The thread has ended.
            continue
        status = dict(line.split(":", 1) for line in lines)
        found["slept"] += int(status["voluntary_ctxt_switches"])
        found["preempted"] += int(status["nonvoluntary_ctxt_switches"])
    return found


@define(eq=False)
class CpuMeter:
    """Counters of /proc before and after."""

    pids: Mapping[str, int]
    home: Path
    _before: dict[str, Numbers] = field(factory=dict, init=False)
    _after: dict[str, Numbers] = field(factory=dict, init=False)

    def prepare(self) -> None:
        """Nothing is attached."""

    def begin(self) -> None:
        """Read the counters."""
        self._before = self._now()

    def end(self) -> None:
        """Read them again."""
        self._after = self._now()

    def found(self) -> dict[str, Numbers]:
        """The differences."""
        return {
            name: {key: number - self._before[name][key] for key, number in numbers.items()}
            for name, numbers in self._after.items()
        }

    def _now(self) -> dict[str, Numbers]:
        return {name: counters(pid) for name, pid in self.pids.items()}


@define(eq=False)
class CallMeter:
    """Perf, which counts system calls in the kernel. It attaches early, and counts when it is told to."""

    pids: Mapping[str, int]
    home: Path
    _perfs: "dict[str, Perf]" = field(factory=dict, init=False)

    def prepare(self) -> None:
        """Start perf on each process, not counting yet."""
        self.home.mkdir()
        self._perfs = {name: Perf(pid, self.home / f"{name}.csv") for name, pid in self.pids.items()}

    def begin(self) -> None:
        """Count."""
        for perf in self._perfs.values():
            perf.tell("enable")

    def end(self) -> None:
        """Stop counting."""
        for perf in self._perfs.values():
            perf.tell("disable")
        for perf in self._perfs.values():
            perf.process.send_signal(signal.SIGINT)

    def found(self) -> dict[str, Numbers]:
        """System calls by name. Raises RuntimeError with what perf says when it cannot count."""
        return {name: calls(perf.written()) for name, perf in self._perfs.items()}


class Perf:
    """`perf stat` on a process: it does what a pipe tells it to, and answers on another one."""

    def __init__(self, pid: int, out: Path) -> None:
        self.out = out
        events = ",".join([ALL_CALLS, *(f"syscalls:sys_enter_{name}" for name in tracepoints())])
        reading, self._telling = os.pipe()
        self._answers, answering = os.pipe()
        command = ["perf", "stat", "-x", ",", "-o", str(out), "-e", events, "-p", str(pid)]
        command += ["-D", "-1", "--control", f"fd:{reading},{answering}"]
        self.process = subprocess.Popen(
            command, pass_fds=[reading, answering], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        os.close(reading)
        os.close(answering)

    def tell(self, what: str) -> None:
        """Tell it, and wait until it has done that, or has ended."""
        with suppress(BrokenPipeError):
            os.write(self._telling, f"{what}\n".encode())
        os.read(self._answers, 64)

    def written(self) -> str:
        """Its counts, once it has ended. Raises RuntimeError."""
        _, said = self.process.communicate(timeout=60)
        os.close(self._telling)
        os.close(self._answers)
        if not self.out.exists():
            raise RuntimeError(f"perf counted nothing: {said.decode(errors='replace')}")
        return self.out.read_text()


def tracepoints() -> list[str]:
    """The system calls by name that this kernel counts; none where it does not let us."""
    for tracing in TRACING:
        events = tracing / "events" / "syscalls"
        if os.access(events, os.R_OK | os.X_OK) and events.is_dir():
            return [name for name in CALLS if (events / f"sys_enter_{name}").is_dir()]
    return []


def calls(text: str) -> Numbers:
    """System calls by name, from `perf stat -x ,`: all of them, those that have a name here, and the others."""
    counts: Numbers = {}
    for line in text.splitlines():
        number, _, event, *_ = [*line.split(","), "", ""]
        if number.isdigit() and event:
            counts[event] = float(number)
    every = counts.pop(ALL_CALLS, 0.0)
    named = {event.removeprefix("syscalls:sys_enter_"): number for event, number in counts.items() if number}
    return {"all": every, **named, "other": max(every - sum(named.values()), 0.0)}


@define(eq=False)
class StepMeter:
    """The stacks that sampled/sitecustomize.py writes within the processes, as long as they run: those of a while."""

    pids: Mapping[str, int]
    home: Path
    _from: dict[str, int] = field(factory=dict, init=False)
    _to: dict[str, int] = field(factory=dict, init=False)

    def prepare(self) -> None:
        """The sampler has been there since the start."""

    def begin(self) -> None:
        """Note how much is written."""
        self._from = self._sizes()

    def end(self) -> None:
        """Note it again."""
        self._to = self._sizes()

    def found(self) -> dict[str, Numbers]:
        """The CPU seconds of each step in what was written between."""
        return {name: seconds(self._read(name)) for name in self.pids}

    def _sizes(self) -> dict[str, int]:
        return {name: self._stacks(name).stat().st_size for name in self.pids}

    def _stacks(self, name: str) -> Path:
        return self.home.parent / STACKS / str(self.pids[name])

    def _read(self, name: str) -> str:
        with self._stacks(name).open("rb") as file:
            file.seek(self._from[name])
            return file.read(self._to[name] - self._from[name]).decode(errors="replace")


@contextmanager
def sampled(home: Path) -> Iterator[None]:
    """Python processes that are started within write their stacks into `home`."""
    folder = home / STACKS
    folder.mkdir()
    with patch.dict(os.environ, {"PYTHONPATH": str(SAMPLER), "BENCH_STACKS": str(folder)}):
        yield


METERS_OF: dict[str, Callable[[Mapping[str, int], Path], Meter]] = {
    "cpu": CpuMeter,
    "calls": CallMeter,
    "steps": StepMeter,
}
