"""`twinlog` as its users run it: real processes, real signals, files small enough for a test."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.support.process_group.ports import BROKER_OFFSETS, free_port
from tests.support.process_group.process import PROGRAM
from tests.support.waiting import SECONDS_MAX, wait_for

# Small files, and nothing that depends on how full this machine's disk is.
SMALL = (
    *("--set", "mappedFileSizeCommitLog=1048576"),
    *("--set", "diskSpaceWarningLevelRatio=100", "--set", "cleanFileForciblyEnable=false"),
)


READY_S = 90.0  # Of a start beside other work; several minutes of a test would tell no more.


def free_port_base(brokers: int = 2) -> int:
    """A base with all ports of a cluster free. Below the range that the kernel gives to outgoing connections."""
    return free_port((0, 1, 2, 3, 4, *(11 + 10 * k + d for k in range(brokers) for d in BROKER_OFFSETS)))


def modules_of_an_application(directory: Path, text: str) -> Path:
    """A directory with modules that are named like folders of ours and like a library that we use."""
    (directory / "ha").mkdir(parents=True)
    for name in ("store.py", "cluster.py", "click.py", "ha/__init__.py"):
        (directory / name).write_text(text)
    return directory


POISON = "raise SystemExit('imported from the working directory')\n"


class Up:
    """`twinlog up` under test."""

    def __init__(
        self, directory: Path, *arguments: str, port_base: int | None = None, with_dashboard: bool = False
    ) -> None:
        self.directory = directory
        self.port_base = port_base or free_port_base()
        self.namesrv = f"127.0.0.1:{self.port_base}"
        self.said = directory.with_suffix(".stderr")
        command = [PROGRAM, "up", "--dir", str(directory), "--port-base", str(self.port_base), *SMALL, *arguments]
        command += [] if with_dashboard else ["--no-dashboard"]
        self.dashboard = f"http://127.0.0.1:{self.port_base + 1}"
        self._ready = f"ready namesrv={self.namesrv}{f' dashboard={self.dashboard}' if with_dashboard else ''}\n"
        self.began = time.monotonic()
        with self.said.open("wb") as stderr:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)

    def wait_ready(self) -> float:
        """Seconds until the ready line. TimeoutError tells what it and its members said."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], READY_S)[0]:
            logs = (f"-- {log.name}\n{log.read_text()}" for log in sorted((self.directory / "logs").glob("*.log")))
            raise TimeoutError("\n".join([f"not ready within {READY_S:.0f} s", self.stderr, *logs]))
        line = self.process.stdout.readline()
        assert line == self._ready, self.stderr
        return time.monotonic() - self.began

    @property
    def stderr(self) -> str:
        return self.said.read_text()

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def member(self, name: str) -> psutil.Process:
        (found,) = [child for child in self.children() if any(name in part for part in child.cmdline())]
        return found

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(SECONDS_MAX)

    def twinlog(self, *arguments: str) -> str:
        return twinlog(*arguments, namesrv=self.namesrv)

    def members(self) -> list[dict]:
        return json.loads(self.twinlog("list", "-o", "json"))["members"]


def twinlog(*arguments: str, namesrv: str) -> str:
    done = run(*arguments, namesrv=namesrv)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(
    *arguments: str,
    namesrv: str = "",
    env: Mapping[str, str] | None = None,
    seconds: float = SECONDS_MAX,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    merged = {**os.environ, **({"NAMESRV_ADDR": namesrv} if namesrv else {}), **(env or {})}
    command = [PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=merged, **options)


def gone(processes: Sequence[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


@contextmanager
def running(directory: Path, *arguments: str, **options) -> Iterator[Up]:
    up = Up(directory, *arguments, **options)
    children = []
    try:
        yield up
        children = up.children() if up.process.poll() is None else []
    finally:
        if up.process.poll() is None:
            up.stop(signal.SIGTERM)
        assert up.process.stdout is not None
        up.process.stdout.close()
    wait_for(lambda: gone(children), "the end of all children")
