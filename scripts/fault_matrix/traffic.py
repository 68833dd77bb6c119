"""The clients of a run: a process of its own, whose history says how far it is."""

import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from scripts.fault_matrix.group import PYTHON, Group
from scripts.fault_matrix.rows import Row

LIMIT_S = 45.0  # Of one wait.


class NotRecoveredError(Exception):
    """Nothing was acknowledged any more."""


class Traffic:
    """Clients, as a process of their own."""

    def __init__(self, group: Group, row: Row, seed: int) -> None:
        self.path = group.client_lines
        command = [*group.client.prefix, PYTHON, "-m", "scripts.fault_matrix.workload", "run"]
        command += ["--namesrv", group.namesrv, "--out", str(self.path), "--level", row.level, "--seed", str(seed)]
        command += [
            "--seconds",
            str(row.seconds_max),
            "--producers",
            str(row.producers),
            "--consumers",
            str(row.consumers),
        ]
        command += ["--pace", str(row.pace_s)]
        self.said = (group.root / "clients.log").open("wb")
        self.process = subprocess.Popen(command, stdout=self.said, stderr=self.said, stdin=subprocess.DEVNULL)
        self._read, self.count = 0, 0

    def __enter__(self) -> "Traffic":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.said.close()

    def acked(self) -> int:
        """How many acknowledgements there are so far."""
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read += len(whole)
            self.count += sum(b'"kind":"ok"' in line and b'"op":"append"' in line for line in whole.splitlines())
        return self.count

    def more(self, count: int) -> None:
        """Wait for so many more."""
        before, deadline = self.acked(), time.monotonic() + LIMIT_S
        while self.acked() < before + count:
            if self.process.poll() is not None:
                raise RuntimeError(f"the clients ended: {Path(self.said.name).read_text()[-2000:]}")
            if time.monotonic() > deadline:
                raise NotRecoveredError(f"{self.acked() - before} of {count} acknowledgements within {LIMIT_S:g} s")
            time.sleep(0.05)

    def stop(self) -> None:
        """An operation that is under way stays without an end."""
        self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
