"""One server as a child process of a test run.

A child stops at the end of its stdin: when the test run ends, for whatever reason, the pipe closes. A child that is frozen then
is ended by the kernel, as its process group has no parent any more. (PR_SET_PDEATHSIG watches the thread that started the child,
not the process.)
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from attrs import define, field

from twinlog.cluster.config.environment import without_options

READY_SECONDS_MAX = 60.0  # On a machine that is busy with other things.
STOP_SECONDS_MAX = 30.0
LAST_LINES = 25
REPORT_LINES_MAX = 100
_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "TWINLOG_LOG": "console"}


class StartError(Exception):
    """A server for tests did not start. The message says why, and has the end of its log."""


class GoneError(Exception):
    """A call needs a member that does not run, or a master that there is not."""


@define(eq=False)
class ServerProcess:
    """A child process, its ready line and its log file."""

    name: str
    command: Sequence[str]
    log: Path
    popen: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _log_start: int = field(default=0, init=False)  # Of its latest start.
    _reported: int = field(default=0, init=False)  # Up to here the log belongs to earlier tests.

    @property
    def is_running(self) -> bool:
        """True from start() to its end, also while it is frozen."""
        return self.popen is not None and self.popen.poll() is None

    @property
    def pid(self) -> int:
        """Its process id. Raises GoneError."""
        if self.popen is None or not self.is_running:
            raise GoneError(f"{self.name} does not run")
        return self.popen.pid

    def start(self) -> None:
        """Start it, in a process group of its own, so that Ctrl-C ends the test run first. Raises StartError."""
        if missing := [name for name in ("click", "psutil", "trio") if find_spec(name) is None]:
            raise StartError(
                f"Servers need {missing[0]}, which is not installed here. Next: pip install 'twinlog[pytest]'"
            )
        try:
            with self.log.open("ab") as log:
                self._log_start = log.tell()
                self.popen = subprocess.Popen(
                    self.command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    process_group=0,
                    bufsize=0,
                    env={**without_options(os.environ), **_ENVIRONMENT},
                )
        except OSError as error:
            raise StartError(f"{self.name} cannot be started: {error}") from error
        _started.append(self)

    def wait_ready(self) -> None:
        """Wait until it says that it serves. Raises StartError when it ends before that, or takes too long; then it is ended."""
        assert self.popen is not None
        assert self.popen.stdout is not None
        deadline = time.monotonic() + READY_SECONDS_MAX
        said = b""
        while not said.endswith(b"\n"):
            if not select.select([self.popen.stdout], [], [], max(deadline - time.monotonic(), 0))[0]:
                self.kill()
                raise StartError(f"{self.name} was not ready within {READY_SECONDS_MAX:.0f} s.\n{self.end_of_log()}")
            data = os.read(self.popen.stdout.fileno(), 4096)
            if not data:
                status = self.popen.wait()
                self.close()
                raise StartError(f"{self.name} {ended(status)} before it was ready.\n{self.end_of_log()}")
            said += data

    def stop(self) -> None:
        """Let it stop cleanly, and wait for that. No effect on one that does not run."""
        if self.popen is not None and self.is_running:
            self.popen.terminate()
            self.thaw()
            try:
                self.popen.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        self.close()

    def kill(self) -> None:
        """End it now (SIGKILL). No effect on one that does not run."""
        if self.popen is not None:
            self.popen.kill()
        self.close()

    def freeze(self) -> None:
        """Let it stand still (SIGSTOP): it keeps its connections, and answers nothing. Raises GoneError."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on. Raises GoneError."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Wait for its end, which has been brought about."""
        if self.popen is not None:
            self.popen.wait()
            for pipe in (self.popen.stdin, self.popen.stdout):
                if pipe is not None:
                    pipe.close()

    # ---- Its log

    def end_of_log(self) -> str:
        """The last lines since its latest start."""
        lines = self._lines(self._log_start)[-LAST_LINES:] or ["(nothing)"]
        return "\n".join([f"The end of its log, {self.log}:", *(f"  | {line}" for line in lines)])

    def begin_report(self) -> None:
        """Let what is in the log now belong to earlier tests."""
        self._reported = self.log.stat().st_size if self.log.exists() else 0

    def report(self) -> str:
        """The last lines that it logged since begin_report()."""
        lines = self._lines(self._reported)
        left_out = (
            [f"({len(lines) - REPORT_LINES_MAX} more lines before these)"] if len(lines) > REPORT_LINES_MAX else []
        )
        return "\n".join([*left_out, *lines[-REPORT_LINES_MAX:]])

    def _lines(self, start: int) -> list[str]:
        try:
            with self.log.open("rb") as log:
                return _text_from(log, start).splitlines()
        except OSError:
            return []


_started: list[ServerProcess] = []  # Those whose logs belong into reports, oldest first.


def _text_from(log: IO[bytes], start: int) -> str:
    log.seek(max(start, log.seek(0, os.SEEK_END) - 1_000_000))
    return log.read().decode("utf-8", "replace")


def processes() -> list[ServerProcess]:
    """All that were started, and not forgotten."""
    return list(dict.fromkeys(_started))


def forget(process: ServerProcess) -> None:
    """End it. It is in no report of later tests."""
    process.kill()
    _started[:] = [each for each in _started if each is not process]


def program(*arguments: str) -> list[str]:
    """The command line of a server. -P: nothing is imported from the working directory."""
    return [sys.executable, "-P", "-m", "twinlog.cluster.cli.program", *arguments]


def ended(status: int) -> str:
    """Describe how a child ended."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with exit status {status}"
