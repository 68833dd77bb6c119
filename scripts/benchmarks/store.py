"""scripts/bench store: what the store costs, alone and below its broker, beside RocketMQ's on copies of the same directory."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import define, field

from scripts.benchmarks.load import SILENT, SOURCES
from scripts.benchmarks.machine import ROOT
from scripts.benchmarks.report import Row, say, scratch
from scripts.benchmarks.store_directory import BODY_SIZE, copy_store
from scripts.benchmarks.store_restarts import measures
from scripts.benchmarks.store_steps import SCALES
from scripts.benchmarks.systems import BROKER_HEAP
from tests.support.process_group import jars, twinlog

SYSTEMS = ("twinlog", "rocketmq")
PARTS = ("broker", "alone")  # In this order: should time run out, the last of the second is missing.
BATCHES = (1, 64)
BASE_STEPS = ("fill", "build-index")  # Which make the directory that the others get copies of.
OFFLINE_STEPS = ("scan", "verify", "rebuild-queues", "build-index")
STEP_SECONDS_MAX = 240
BUDGET_SECONDS = 870  # Nothing is begun after that.


class OutOfTimeError(Exception):
    """The budget is used up: what was measured until now stands."""


@define
class StoreBench:
    """One run. Everything lies below a temporary directory; rows come out as they are measured."""

    scale_name: str
    systems: tuple[str, ...]
    parts: tuple[str, ...]
    repeats: int
    cold: bool
    root: Path = field(init=False)
    _started: float = field(factory=time.monotonic, init=False)

    def rows(self) -> Iterator[Row]:
        """Measure. Ends early, with a word, when the time is over."""
        with scratch("bench-store-") as self.root:
            try:
                say(f"filling a store below {self.root}")
                for step in BASE_STEPS:
                    yield from self._step(step, self.root / "base", kept=True)
                if "broker" in self.parts:
                    yield from self._restarts()
                if "alone" in self.parts:
                    yield from self._alone()
            except OutOfTimeError as late:
                say(f"out of time before {late}: the rest is left out")

    def _alone(self) -> Iterator[Row]:
        if "twinlog" in self.systems:
            for batch in BATCHES:
                for _ in range(self.repeats):
                    yield from self._step("append", self._fresh("append"), batch=batch)
        if "rocketmq" in self.systems:
            for batch in BATCHES:
                yield from self._rocketmq_append(batch)
        if "twinlog" in self.systems:
            for _ in range(self.repeats):
                for step in OFFLINE_STEPS:
                    yield from self._step(step, self._copy(step))

    def _restarts(self) -> Iterator[Row]:
        with twinlog.NameServer(self.root / "namesrv") as namesrv:
            for system in self.systems:
                self._check_time(f"the restarts of {system}")
                root = self._copy(system, "store").parent
                rows = measures(
                    system,
                    root,
                    namesrv.address,
                    SCALES[self.scale_name],
                    repeats=self.repeats,
                    cold=self.cold,
                    may_go_on=self._has_time,
                )
                for row in rows:
                    yield {"system": system, **row}
                shutil.rmtree(root)

    def _step(self, name: str, root: Path, *, kept: bool = False, **options: Any) -> Iterator[Row]:
        """Run one step of store_steps.py in a process of its own; its directory is removed afterwards, unless it is `kept`."""
        self._check_time(name)
        command = [sys.executable, "-m", "scripts.benchmarks.store_steps", name, self.scale_name, str(root)]
        result = self._run([*command, json.dumps(options)], ROOT)
        if not kept:
            shutil.rmtree(root)
        yield {"system": "twinlog", "measure": name, **options, **result}

    def _rocketmq_append(self, batch: int) -> Iterator[Row]:
        self._check_time("RocketMQ's append")
        root = self._fresh("append")
        root.mkdir()
        logback = root / "logback.xml"
        logback.write_text(SILENT)
        seconds = max(1, round(SCALES[self.scale_name].append_seconds))
        options = [*BROKER_HEAP, *jars.OPEN_MODULES, f"-Duser.home={root}", f"-Dlogback.configurationFile={logback}"]
        class_path = os.pathsep.join(jars.class_path(sources=SOURCES))
        command = ["java", *options, "-cp", class_path, "twinlog.bench.StoreLoad", str(root / "store")]
        for _ in range(self.repeats):
            result = self._run([*command, *map(str, (BODY_SIZE, batch, seconds, seconds))], root)
            shutil.rmtree(root / "store")
            yield {"system": "rocketmq", "measure": "append", "batch": batch, **result}
        shutil.rmtree(root)

    def _run(self, command: list[str], directory: Path) -> Row:
        """Run a child until it ends; what it prints is the result."""
        ran = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, text=True, timeout=STEP_SECONDS_MAX)
        if ran.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {ran.returncode}")
        result: Row = json.loads(ran.stdout)
        return result

    def _fresh(self, name: str) -> Path:
        return self.root / name

    def _copy(self, *name: str) -> Path:
        target = self.root.joinpath(*name)
        copy_store(self.root / "base", target)
        return target

    def _has_time(self) -> bool:
        return time.monotonic() - self._started < BUDGET_SECONDS

    def _check_time(self, before: str) -> None:
        if not self._has_time():
            raise OutOfTimeError(before)
