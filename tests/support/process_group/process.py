"""A server as a child process: started, waited for, stopped or killed, and always ended by its own pid."""

import atexit
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import psutil

from tests.support.process_group.ports import HOST

PROGRAM = str(Path(sys.executable).with_name("twinlog"))
_started: "weakref.WeakSet[Process]" = weakref.WeakSet()


class ProcessFailedError(Exception):
    """A server ended by itself or did not become ready. The message holds its last log lines."""


class Process:
    """One child process whose output goes to a file. Leaving the `with` block ends it, whatever happened inside."""

    slow_to_stop: ClassVar[bool] = False  # A real broker takes 8 s to stop cleanly; at a block's end nobody needs that.

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._environment = dict(environment or {})
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_start = 0  # Where the lines of this start begin: the log goes on after a restart.
        self._family: list[psutil.Process] = []  # Children seen while it ran: a killed parent leaves them behind.

    def __enter__(self) -> Self:
        if self._popen is None:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.slow_to_stop and self.running:
            self.kill()
        else:
            self.stop()

    @property
    def pid(self) -> int:
        assert self._popen is not None, f"{self.name} was not started"
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    def start(self) -> None:
        """Start it, appending to its log; returns at once. It may be started again after stop() or kill()."""
        assert not self.running, f"{self.name} runs already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._popen = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | self._environment,
            )
        _started.add(self)

    def stop(self, *, timeout_s: float = 30) -> None:
        """End it as an operator would (SIGTERM); kill it when that takes too long."""
        if self._popen is None:
            return
        self._look_for_children()
        if self.running:
            self._popen.terminate()
            try:
                self._popen.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._popen.kill()
        self._popen.wait()
        self._end_children()

    def kill(self) -> None:
        """End it as a power cut would (SIGKILL)."""
        assert self._popen is not None
        self._look_for_children()
        self._popen.kill()
        self._popen.wait()
        self._end_children()

    def send_signal(self, number: signal.Signals) -> None:
        assert self._popen is not None
        self._popen.send_signal(number)

    def wait_until(self, ready: Callable[[], bool], what: str, *, timeout_s: float = 40) -> None:
        """Poll until ready() holds. Raises ProcessFailedError when the process ends first, or the time does."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.running:
                status = self._popen.returncode if self._popen else None
                raise ProcessFailedError(f"{self.name} ended with {status} before {what}\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ProcessFailedError(f"{self.name}: {what} did not come true in {timeout_s:.0f} s\n{self.tail()}")
            time.sleep(0.05)

    def wait_ready(self) -> None:
        """Until it says so."""
        self.wait_until(lambda: self.printed("ready "), "its ready line")

    def printed(self, start_of_line: str) -> bool:
        """Say whether it wrote such a line since it was started last."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return any(line.startswith(start_of_line.encode()) for line in log)

    def tail(self, lines: int = 40) -> str:
        """Return the last lines that it wrote."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join([f"--- last lines of {self.log}", *text.splitlines()[-lines:]])

    def _look_for_children(self) -> None:
        if self.running:
            self._family = psutil.Process(self.pid).children(recursive=True)

    def _end_children(self) -> None:
        for child in self._family:
            if child.is_running():  # psutil compares the start time too, so a reused pid is never hit.
                child.kill()
        psutil.wait_procs(self._family, timeout=10)
        self._family = []


def answers(port: int) -> bool:
    """Say whether something accepts connections on this port of loopback."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


@atexit.register
def _end_all() -> None:
    """The net under the `with` blocks: a test run that is interrupted leaves no JVM behind."""
    for process in list(_started):
        process.stop(timeout_s=5)
