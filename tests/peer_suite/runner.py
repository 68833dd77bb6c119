"""Runs classes of the suite in JVMs that take one class after the other.

A class that takes too long ends with its JVM; the next one gets a new JVM. A class that fails is run once more, alone, in a JVM
of its own, when all others are through: then nothing else loads the machine.
"""

import json
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import trio
from attrs import define, field, frozen

from tests.peer_suite import artifacts

CLASS_SECONDS_MAX = 300
ALONE = ("delay.",)  # They measure times.


@frozen
class Run:
    """One class, run once. A failure is a test's name and what was thrown."""

    tests: int
    failures: tuple[dict[str, str], ...]
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.failures

    def plain(self) -> dict[str, Any]:
        """As in the report."""
        return {"tests": self.tests, "failures": list(self.failures), "seconds": self.seconds}


@define
class Suite:
    """`tell` hears of each run that has ended."""

    namesrv: str
    root: Path
    tell: Callable[[str, Run], None] = lambda _name, _run: None
    command: Callable[[str, Path], list[str]] = artifacts.command  # From name server and a directory of its own.
    class_seconds_max: float = CLASS_SECONDS_MAX
    results: dict[str, list[Run]] = field(factory=dict, init=False)
    _machines: int = field(default=0, init=False)

    async def run(self, names: Sequence[str], *, jobs: int = 2, again: bool = True) -> dict[str, list[Run]]:
        """The runs of each class, in the order of `names`."""
        self.results = {name: [] for name in names}
        waiting = deque(name for name in names if not name.startswith(ALONE))
        async with trio.open_nursery() as nursery:
            for _ in range(min(jobs, len(waiting))):
                nursery.start_soon(self._work_off, waiting)
        await self._work_off(deque(name for name in names if name.startswith(ALONE)))
        if again:
            for name in [name for name, runs in self.results.items() if not runs[0].passed]:
                await self._work_off(deque([name]))
        return self.results

    async def _work_off(self, waiting: deque[str]) -> None:
        while waiting:
            self._machines += 1
            home = self.root / f"jvm-{self._machines}"
            home.mkdir(parents=True)
            await self._one_machine(waiting, home)

    async def _one_machine(self, waiting: deque[str], home: Path) -> None:
        """Until nothing waits, or a class took too long."""
        command = self.command(self.namesrv, home)
        with (home / "tests.log").open("wb") as log:
            machine = await trio.lowlevel.open_process(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=home
            )
        try:
            assert machine.stdin is not None
            assert machine.stdout is not None
            lines = _Lines(machine.stdout)
            while waiting:
                name = waiting.popleft()
                await machine.stdin.send_all(f"{artifacts.PACKAGE}{name}\n".encode())
                run = await _outcome(lines, self.class_seconds_max)
                self.results[name].append(run)
                self.tell(name, run)
                if run.tests < 0:
                    return
        finally:
            machine.kill()
            with trio.CancelScope(shield=True):
                await machine.wait()


NO_RESULT = -1  # As the number of tests.


async def _outcome(lines: "_Lines", seconds_max: float) -> Run:
    start = trio.current_time()
    line = None
    with trio.move_on_after(seconds_max):
        line = await lines.next()
    if not line:
        why = "the JVM ended" if line is not None else f"no result within {seconds_max:g} s"
        return Run(NO_RESULT, ({"test": "the class", "trace": why},), round(trio.current_time() - start, 1))
    report = json.loads(line)
    return Run(report["tests"], tuple(report["failures"]), report["seconds"])


@define
class _Lines:
    stream: trio.abc.ReceiveStream
    _buffer: bytearray = field(factory=bytearray, init=False)

    async def next(self) -> bytes:
        """The next line; empty at the end."""
        while b"\n" not in self._buffer:
            data = await self.stream.receive_some(65536)
            if not data:
                return b""
            self._buffer += data
        line, _, rest = self._buffer.partition(b"\n")
        self._buffer = rest
        return bytes(line)


def chosen(names: Iterable[str], parts: Sequence[str]) -> list[str]:
    """Those that contain one of the parts; all without any."""
    return [name for name in names if not parts or any(part in name for part in parts)]
