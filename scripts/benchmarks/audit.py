"""scripts/bench audit: what Spark makes of store directories, beside a loop of Python and the bare reading of the same bytes.

All of it lies in the page cache: what a disk gives is a matter of the disk.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import define, field

from scripts.benchmarks.audit_steps import TASKS
from scripts.benchmarks.machine import ROOT
from scripts.benchmarks.report import Row, say, scratch
from scripts.benchmarks.store_directory import copy_store

PARTS = ("digests", "records", "growth", "start-up")
BASE, REPLICA, GROWN, SMALL = "base", "replica", "grown", "small"
STEP_SECONDS_MAX = 900
MIB = 1 << 20


@define
class AuditBench:
    """One run. Everything lies below a temporary directory; rows come out as they are measured.

    `growth`: so many files of the log, each time.
    """

    log_bytes: int
    log_file_bytes: int
    growth: tuple[int, ...]
    rounds: int
    parts: tuple[str, ...]
    root: Path = field(init=False)

    def rows(self) -> Iterator[Row]:
        """Measure."""
        with scratch("bench-audit-") as self.root:
            yield from self._fill()
            if "start-up" in self.parts:
                for _ in range(self.rounds):
                    yield from self._step("start-up", "start-up", root=self._path(SMALL))
            if "digests" in self.parts:
                yield from self._digests()
            if "records" in self.parts:
                yield from self._records()
            if "growth" in self.parts:
                yield from self._growth()

    def _fill(self) -> Iterator[Row]:
        """Two replicas with all that belongs to a store, on files of their own; and a small one to warm up on."""
        sizes = {"log_file_bytes": self.log_file_bytes}
        yield from self._step("fill", "fill", root=self._path(BASE), log_bytes=self.log_bytes, with_index=True, **sizes)
        # Bytes of its own, which take memory of their own; holes stay holes.
        copy = ["cp", "--archive", "--reflink=never", "--sparse=always", self._path(BASE), self._path(REPLICA)]
        subprocess.run(copy, check=True)
        small = {
            "log_bytes": 128 * MIB,
            "log_file_bytes": 64 * MIB,
            "with_index": True,
        }  # More than one split for each task.
        list(self._step("fill", "fill", root=self._path(SMALL), **small))

    def _digests(self) -> Iterator[Row]:
        roots = [self._path(BASE), self._path(REPLICA)]
        for processes in (1, TASKS):
            yield from self._step("page cache", "page-cache", roots=roots, processes=processes, rounds=self.rounds)
        yield from self._step("plain digests", "plain-digests", roots=roots, rounds=self.rounds)
        warm = {"rounds": self.rounds, "warm_up": self._path(SMALL)}
        yield from self._step("digests", "scan", source="rocketmq_blocks", roots=roots, **warm)
        for name, options in (
            ("audit of logs", {"with_tables": False}),
            ("audit", {}),
            ("audit, each log alone", {"each_alone": True}),
        ):
            for tasks in (1, TASKS):
                yield from self._step(name, "audit", roots=roots, tasks=tasks, **options, **warm)

    def _records(self) -> Iterator[Row]:
        root = self._path(BASE)
        yield from self._step("plain records", "plain-records", root=root, rounds=self.rounds)
        warm = {"rounds": self.rounds, "warm_up": self._path(SMALL)}
        for name, options in (("records", {}), ("records with bodies", {"body": "true"})):
            scan = {"source": "rocketmq_records", "roots": [root], "options": options}
            yield from self._step(name, "scan", **scan, **warm)

    def _growth(self) -> Iterator[Row]:
        grown = self.root / GROWN
        copy_store(self.root / BASE, grown)
        most = max(self.growth) * self.log_file_bytes
        list(self._step("fill", "fill", root=str(grown), log_bytes=most, log_file_bytes=self.log_file_bytes))
        for files in self.growth:
            view = self._view(grown, files)
            for name, source in (("digests", "rocketmq_blocks"), ("records", "rocketmq_records")):
                scan = {"source": source, "roots": [str(view)], "rounds": 1, "warm_up": self._path(SMALL)}
                yield from self._step(f"growth of {name}", "scan", **scan)

    def _view(self, grown: Path, files: int) -> Path:
        """A store that consists of the first files of a log."""
        view = self.root / f"first-{files}"
        (view / "commitlog").mkdir(parents=True)
        for file in sorted((grown / "commitlog").iterdir())[:files]:
            os.link(file, view / "commitlog" / file.name)
        return view

    def _path(self, name: str) -> str:
        return str(self.root / name)

    def _step(self, measure: str, step: str, **options: Any) -> Iterator[Row]:
        """Run one step of audit_steps.py in a process of its own; its results."""
        say(f"{measure} ...")
        command = [sys.executable, "-m", "scripts.benchmarks.audit_steps", step, json.dumps(options)]
        ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=STEP_SECONDS_MAX)
        if ran.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {ran.returncode}")
        for row in ran.stdout.splitlines():
            yield {"measure": measure, **json.loads(row)}
