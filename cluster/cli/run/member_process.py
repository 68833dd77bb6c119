"""One member of `twinlog up` as a child process. Only processes started here are signalled.

A child stops at the end of its stdin: when the supervisor ends, for whatever reason, the pipe closes. (PR_SET_PDEATHSIG watches
the thread that started the child, not the process: it is for programs of others, which do not read their stdin.)
"""

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from attrs import define, field

from twinlog.cluster.cli.run.pinning import bound
from twinlog.cluster.config.environment import without_options

LAST_LINES = 8
_OUTPUT = {"PYTHONUNBUFFERED": "1"}  # The log files are for people, who see their last lines when a member dies.


@define(eq=False)
class MemberProcess:
    """A child process and its log file."""

    name: str
    command: Sequence[str]
    log: Path
    pass_fds: tuple[int, ...] = ()
    core: int | None = None  # It runs on this one only.
    popen: subprocess.Popen[bytes] = field(init=False)
    _log_start: int = field(default=0, init=False)

    def start(self) -> None:
        """Start it in a process group of its own: Ctrl-C reaches only the supervisor, which stops the members in order."""
        with self.log.open("ab") as log, bound(self.core):
            self._log_start = log.tell()
            self.popen = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                process_group=0,
                pass_fds=self.pass_fds,
                env={**without_options(os.environ), **_OUTPUT, "TWINLOG_LOG": os.environ.get("TWINLOG_LOG", "console")},
            )

    @property
    def is_running(self) -> bool:
        """True from start() to its end."""
        return hasattr(self, "popen") and self.popen.poll() is None

    async def wait(self) -> int:
        """Wait for its end; return its exit status, or minus the signal that ended it. Cancellation leaves it running."""
        import trio

        if self.popen.poll() is None:
            handle = os.pidfd_open(self.popen.pid)
            try:
                await trio.lowlevel.wait_readable(handle)
            finally:
                os.close(handle)
        status = self.popen.wait()
        if self.popen.stdin is not None:
            self.popen.stdin.close()
        return status

    def terminate(self) -> None:
        """Ask it to stop cleanly; no effect after its end."""
        self.popen.terminate()

    def freeze(self) -> None:
        """Let it stand still: it keeps its connections, and does nothing."""
        self.popen.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on; no effect on one that runs, or has ended."""
        self.popen.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it now; no effect after its end."""
        self.popen.kill()

    def last_lines(self) -> list[str]:
        """Return the last lines of its log since its latest start."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - 65_536))
                return list(deque(log.read().decode("utf-8", "replace").splitlines(), LAST_LINES))
        except OSError:
            return []


def exit_text(status: int) -> str:
    """Describe how a child ended."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with exit status {status}"


def program(*arguments: str) -> list[str]:
    """Return the command line of a `twinlog` child. -P: nothing is imported from the working directory."""
    return [sys.executable, "-P", "-m", "twinlog.cluster.cli.program", *arguments, "--until-stdin-closes"]


def tied(*command: str) -> list[str]:
    """Return the command line of a program of others, which ends with this process: see tied.py."""
    script = Path(__file__).with_name("tied.py")
    return [sys.executable, "-I", "-S", str(script), str(os.getpid()), *command]
