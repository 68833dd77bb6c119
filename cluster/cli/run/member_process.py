"""One member of `twinlog up` as a child process: started, watched, ended. Only processes started here are signalled.

A child reads its stdin to the end of the one who started it: when the supervisor goes, however it goes, the pipe closes
and the child stops. (PR_SET_PDEATHSIG would watch the thread that started the child, not the process.)
"""

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from attrs import define, field, frozen

from twinlog.cluster.config.environment import without_options

LAST_LINES = 8
_OUTPUT = {"PYTHONUNBUFFERED": "1"}  # TWINLOG_LOG: a person reads these files, and their last lines when a member died.


@frozen
class Exit:
    """How a child ended: its exit status, or minus the signal that ended it."""

    status: int

    @property
    def words(self) -> str:
        if self.status < 0:
            return f"was ended by {signal.Signals(-self.status).name}"
        return f"ended with exit status {self.status}"


@define(eq=False)
class MemberProcess:
    """A child process and its log file."""

    name: str
    command: Sequence[str]
    log: Path
    pass_fds: tuple[int, ...] = ()
    popen: subprocess.Popen[bytes] = field(init=False)
    _log_start: int = field(default=0, init=False)

    def start(self) -> None:
        """Start it. Its own process group, so that Ctrl-C reaches the supervisor only, which knows the right order."""
        with self.log.open("ab") as log:
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
        """Whether it was started, and has not ended."""
        return hasattr(self, "popen") and self.popen.poll() is None

    async def wait(self) -> Exit:
        """Until it has ended. Cancellation leaves it running."""
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
        return Exit(status)

    def terminate(self) -> None:
        """Ask it to stop cleanly; no effect on one that has ended."""
        self.popen.terminate()

    def kill(self) -> None:
        """End it now; no effect on one that has ended."""
        self.popen.kill()

    def last_lines(self) -> list[str]:
        """The end of what it said since its latest start."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - 65_536))
                return list(deque(log.read().decode("utf-8", "replace").splitlines(), LAST_LINES))
        except OSError:
            return []


def program(*arguments: str) -> list[str]:
    """The command line of a `twinlog` child, run by the Python that runs us. -P: nothing is imported from its directory."""
    return [sys.executable, "-P", "-m", "twinlog.cluster.cli.main", *arguments, "--until-stdin-closes"]
