"""`twinlog` on a terminal: its own process, with a pseudo terminal for what it asks and shows, and a pipe for its data."""

import os
import pty
import sys
import termios

import trio
from attrs import define, field


@define(eq=False)
class Terminal:
    """Use it in a with statement."""

    shown: str = ""
    status: int | None = None
    stdout: str = ""
    _ours: int = field(default=-1, init=False)
    _theirs: int = field(default=-1, init=False)

    def __enter__(self) -> "Terminal":
        self._ours, self._theirs = pty.openpty()
        termios.tcsetwinsize(self._theirs, (40, 200))
        os.set_blocking(self._ours, False)
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self._ours)
        os.close(self._theirs)

    async def run(self, namesrv: str, *arguments: str) -> None:
        """Until the command ends."""
        env = {**os.environ, "NAMESRV_ADDR": namesrv, "TERM": "xterm"}
        command = [sys.executable, "-m", "twinlog.cluster.cli.main", *arguments]
        with trio.fail_after(50):
            done = await trio.run_process(
                command, stdin=self._theirs, stderr=self._theirs, capture_stdout=True, check=False, env=env
            )
        self._read()
        self.status, self.stdout = done.returncode, done.stdout.decode()

    async def shows(self, *words: str) -> None:
        """Wait until all of these were shown."""
        with trio.fail_after(30):
            while not all(word in self.shown for word in words):
                await trio.sleep(0.02)
                self._read()

    def type(self, text: str) -> None:
        """As a person does."""
        os.write(self._ours, text.encode())

    def _read(self) -> None:
        try:
            while data := os.read(self._ours, 65_536):
                self.shown += data.decode(errors="replace")
        except BlockingIOError:
            pass
