"""One run of a row: traffic, faults, heal, quiet, and what the oracles say of it."""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from attrs import frozen

from tests.faults.harness import Shim
from tests.faults.matrix import history as histories
from tests.faults.matrix.checkers.append_log import one_log_per_queue
from tests.faults.matrix.checkers.masters import one_acking_master
from tests.faults.matrix.checkers.members import members_equal
from tests.faults.matrix.checkers.recovery import nothing_silent, recovered_in_time, recoveries
from tests.faults.matrix.checkers.sets import compare_sets, nothing_invented, nothing_lost, only_a_tail_lost
from tests.faults.matrix.checkers.verdict import Verdict, verdict
from tests.faults.matrix.fault import fail_over
from tests.faults.matrix.group import PYTHON, Group, running
from tests.faults.matrix.history import History
from tests.faults.matrix.places import loopback, namespaces
from tests.faults.matrix.rows import SECONDS_TO_RECOVER, Row

WARM, BETWEEN = 60, 40  # Acknowledgements before the first fault, and between two.
LIMIT_S = 45.0  # Of one wait.
PRODUCERS = 4
HELP_AFTER_S = 5.0


class NotRecoveredError(Exception):
    """Nothing was acknowledged any more."""


@frozen
class Report:
    """What came of one run."""

    row: Row
    seed: int
    seconds: float
    verdicts: tuple[Verdict, ...]
    counts: dict[str, Any]
    error: str = ""

    @property
    def holds(self) -> bool:
        return not self.error and bool(self.verdicts) and all(each.holds for each in self.verdicts)


def run(row: Row, seed: int, root: Path, *, hole: str = "") -> Report:
    """Do it; what goes wrong on the way is part of the report. Histories stay in `root`."""
    began = time.monotonic()
    root.mkdir(parents=True, exist_ok=True)
    try:
        verdicts, counts = _run(row, seed, root, hole)
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return Report(row, seed, time.monotonic() - began, (), {}, f"{type(error).__name__}: {error}")
    return Report(row, seed, time.monotonic() - began, tuple(verdicts), counts)


def _run(row: Row, seed: int, root: Path, hole: str) -> tuple[list[Verdict], dict[str, Any]]:
    rng = random.Random(f"{row.key} {seed}")
    stuck = ""
    with ExitStack() as stack:
        net = stack.enter_context((namespaces if row.net == "namespaces" else loopback)(row.members + row.namesrvs + 1))
        shim = Shim.build(root) if row.shim else None
        group = stack.enter_context(
            running(
                root,
                net,
                members=row.members,
                namesrvs=row.namesrvs,
                level=row.level,
                settings=row.settings,
                namesrv_settings=row.namesrv_settings,
                disks=row.disks,
                hole=hole,
                proxied=row.proxied,
                seed=seed,
                environment=shim.env if shim else None,
            )
        )
        group.own_lines.touch()
        traffic = stack.enter_context(_Traffic(group, row, seed))
        try:
            _rounds(row, group, traffic, rng)
            _settle(group)
        except NotRecoveredError as error:
            stuck = str(error)
        traffic.stop()
        if not stuck:
            _read_all(group)
            told = _stopped(group)
            return _judge(row, told, group), _counts(told)
        told = histories.load(group.own_lines, group.client_lines)
        tails = "\n".join(member.tail(5) for member in group.members)
        return [verdict("F", [stuck, tails], "")], _counts(told)


def _rounds(row: Row, group: Group, traffic: "_Traffic", rng: random.Random) -> None:
    """Each kind of fault at least once, in random order."""
    traffic.more(WARM)
    kinds = list(row.faults)
    rng.shuffle(kinds)
    for number in range(max(row.rounds, len(kinds))):
        fault = kinds[number % len(kinds)](group, rng)
        at = group.fault_begins(fault.text)
        fault.inject()
        with ThreadPoolExecutor(1) as beside:  # `twinlog check` waits for silent members, the fault not for it.
            ends = time.monotonic() + fault.hold_s
            looked = beside.submit(_look, group, at, fault.trace, ends)
            time.sleep(fault.hold_s)
            group.write("heal", at, fault.text)
            fault.heal()
            if not row.recovers:
                _help(group, rng)
            traffic.more(BETWEEN)
            looked.result()
        _settle(group)
        if at not in group.seen:
            group.traces(at, fault.trace)


def _help(group: Group, rng: random.Random) -> None:
    """What a person does who finds the group without a master: chooses one that may be chosen."""
    for member in group.members:
        member.wait_until(lambda member=member: member.printed("ready "), "its ready line")
    deadline = time.monotonic() + HELP_AFTER_S
    while time.monotonic() < deadline:
        with suppress(LookupError):
            group.master()
            return
    fail_over(group, list(group.members), rng)


def _look(group: Group, at: int, pattern: str, ends: float) -> None:
    """For a trace, again and again until the fault ends."""
    while True:
        time.sleep(0.2)
        if group.traces(at, pattern) or time.monotonic() > ends:
            return
        time.sleep(0.5)


def _settle(group: Group) -> None:
    """All are back before the next fault: each row says what one fault does, row 18 what many do."""
    try:
        group.wait_healthy(LIMIT_S)
    except AssertionError as error:
        raise NotRecoveredError(f"the group was not healthy again within {LIMIT_S:g} s: {error}") from error


class _Traffic:
    """Clients, as a process of their own."""

    def __init__(self, group: Group, row: Row, seed: int) -> None:
        self.path = group.client_lines
        command = [*group.client.prefix, PYTHON, "-m", "tests.faults.matrix.workload", "run"]
        command += ["--namesrv", group.namesrv, "--out", str(self.path), "--level", row.level, "--seed", str(seed)]
        command += ["--producers", str(PRODUCERS), "--consumers", str(row.consumers)]
        self.said = (group.root / "clients.log").open("wb")
        self.process = subprocess.Popen(command, stdout=self.said, stderr=self.said, stdin=subprocess.DEVNULL)
        self._read, self._acked = 0, 0

    def __enter__(self) -> "_Traffic":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.said.close()

    def acked(self) -> int:
        """How many acknowledgements there are so far."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read += len(whole)
            self._acked += sum(b'"kind":"ok"' in line and b'"op":"append"' in line for line in whole.splitlines())
        return self._acked

    def more(self, count: int) -> None:
        """Wait for so many more."""
        before, deadline = self.acked(), time.monotonic() + LIMIT_S
        while self.acked() < before + count:
            if self.process.poll() is not None:
                raise RuntimeError(f"the clients ended: {Path(self.said.name).read_text()[-2000:]}")
            if time.monotonic() > deadline:
                raise NotRecoveredError(f"{self.acked() - before} of {count} acknowledgements within {LIMIT_S:g} s")
            time.sleep(0.05)

    def stop(self) -> None:
        """An operation that is under way stays without an end."""
        self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)


def _read_all(group: Group) -> None:
    command = [*group.client.prefix, PYTHON, "-m", "tests.faults.matrix.workload", "final"]
    command += ["--namesrv", group.namesrv, "--out", str(group.final_lines)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise AssertionError(f"not everything can be read: {done.stderr[-2000:]}")


def _stopped(group: Group) -> History:
    """All members are stopped, cleanly; their stores are level."""
    group.twinlog("wait", "level", "--timeout", "30")
    for member in group.members:
        member.stop()
    return histories.load(group.own_lines, group.client_lines, group.final_lines)


def _judge(row: Row, told: History, group: Group) -> list[Verdict]:
    """By the oracles of the row, in their order."""
    judges = _of_history(row, told) | {
        "B": lambda: members_equal({member.label: member.store for member in group.members}),
        "E": lambda: one_acking_master(told, group.epochs()),
    }
    return [judges[oracle]() for oracle in row.oracles]


def _of_history(row: Row, told: History) -> dict[str, Callable[[], Verdict]]:
    """The oracles that need nothing else."""
    return {
        "A": lambda: only_a_tail_lost(told) if row.only_tail else nothing_lost(told),
        "C": lambda: nothing_invented(told),
        "D": lambda: one_log_per_queue(told),
        "F": lambda: recovered_in_time(told, SECONDS_TO_RECOVER),
        "G": lambda: nothing_silent(told),
    }


def _counts(told: History) -> dict[str, Any]:
    outcomes = [append.outcome for append in told.appends]
    return {
        "operations": len(outcomes) + len(told.reads),
        "acknowledged": outcomes.count("ok"),
        "refused": outcomes.count("fail"),
        "unknown": outcomes.count("unknown"),
        "read": len(told.reads),
        "lost": len(compare_sets(told).lost) if told.final else None,
        "faults": [event.text for event in told.of_kind("fault")],
        "recovery_seconds": [round(each.seconds, 2) if each.seconds is not None else None for each in recoveries(told)],
    }


def judged_again(row: Row, root: Path) -> list[Verdict]:
    """A stored history, by those oracles of the row that need nothing else."""
    judges = _of_history(row, histories.load(*sorted(root.glob("history.*"))))
    return [judges[oracle]() for oracle in row.oracles if oracle in judges]


def tidy(root: Path) -> None:
    """Stores and images go, the history and logs stay for a failed run."""
    for path in (*root.glob("m*/home"), *root.glob("*.img")):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else os.unlink(path)
