"""One run of a row: traffic, faults, heal, quiet, and what the oracles say of it."""

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from attrs import frozen

from scripts.fault_matrix import history as histories
from scripts.fault_matrix.checkers.verdict import Verdict, verdict
from scripts.fault_matrix.etcd import size_of
from scripts.fault_matrix.fault_clock import environment as clocks
from scripts.fault_matrix.group import Group, running
from scripts.fault_matrix.history import History
from scripts.fault_matrix.judge import counts_of, judged
from scripts.fault_matrix.peers import running_mixed
from scripts.fault_matrix.places import loopback, namespaces
from scripts.fault_matrix.rows import Row
from scripts.fault_matrix.schedule import Schedule, all_kinds, settle
from scripts.fault_matrix.traffic import NotRecoveredError, Traffic
from tests.support.disk.faults import Shim


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


def run(row: Row, seed: int, root: Path, *, hole: str = "", schedule: Schedule = all_kinds) -> Report:
    """One run of ours."""
    return reported(row, seed, root, lambda: _run(row, seed, root, hole, schedule))


def reported(row: Row, seed: int, root: Path, do: Callable[[], tuple[list[Verdict], dict[str, Any]]]) -> Report:
    """Do it; what goes wrong on the way is part of the report. Histories stay in `root`."""
    began = time.monotonic()
    root.mkdir(parents=True, exist_ok=True)
    try:
        verdicts, counts = do()
    except Exception as error:
        return Report(row, seed, time.monotonic() - began, (), {}, f"{type(error).__name__}: {error}")
    return Report(row, seed, time.monotonic() - began, tuple(verdicts), counts)


def _run(row: Row, seed: int, root: Path, hole: str, schedule: Schedule) -> tuple[list[Verdict], dict[str, Any]]:
    rng = random.Random(f"{row.key} {seed}")
    stuck = ""
    with ExitStack() as stack:
        places = row.members + row.namesrvs + size_of(row.etcds, seed) + 1
        net = stack.enter_context((namespaces if row.net == "namespaces" else loopback)(places))
        environment = Shim.build(root).env if row.shim else clocks() if "faketime" in row.needs else None
        group = stack.enter_context(
            running_mixed(root, net, row, seed, hole=hole)
            if row.mixed
            else running(root, net, row, seed, hole=hole, environment=environment)
        )
        group.own_lines.touch()
        traffic = stack.enter_context(Traffic(group, row, seed))
        try:
            schedule(row, group, traffic, rng)
            settle(group)
        except NotRecoveredError as error:
            stuck = str(error)
        traffic.stop()
        if not stuck:
            done = group.read_all(group.final_lines)
            if done.returncode:
                raise AssertionError(f"not everything can be read: {done.stderr[-2000:]}")
            told = _stopped(group)
            return judged(row, told, group), counts_of(told)
        told = histories.load(group.own_lines, group.client_lines)
        tails = "\n".join(member.tail(5) for member in group.members)
        return [verdict("F", [stuck, tails], "")], counts_of(told)


def _stopped(group: Group) -> History:
    """All members are stopped, cleanly; their stores are level. The master is the last: nobody is left to take its place."""
    group.twinlog("wait", "level", "--timeout", "30")
    with suppress(LookupError):
        for member in group.slaves():
            member.stop()
    for member in group.members:
        member.stop()
    return histories.load(group.own_lines, group.client_lines, group.final_lines)


@contextmanager
def directory_of(row: Row, seed: int, keep: Path | None) -> Iterator[Path]:
    """One that goes away; below `keep` one of which stores and images go, and the history and logs stay."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="twinlog-faults-") as directory:
            yield Path(directory)
        return
    root = keep / f"{row.key}-{seed}"
    yield root
    for path in (*root.glob("m*/home"), *root.glob("*.img")):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else os.unlink(path)
