"""Who has no business there: forged acknowledgements, half requests, probes."""

import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from typing import ClassVar

from attrs import define, field

from tests.faults.matrix.fault import Fault, fail_over
from tests.faults.matrix.group import PYTHON, Member
from tests.interop.process import Process

PROBES = 2000


@define(eq=False)
class ForgedAcks(Fault):
    """Slaves are silent, and somebody else acknowledges whatever there is. Then the master's machine burns.

    Whatever was answered with SEND_OK on a forged word is on no other member.
    """

    needs: ClassVar[Sequence[str]] = ("root",)
    trace: ClassVar[str] = r"refus|stranger|not admitted|no slave of|admit|unknown slave|not registered"
    master: Member = field(init=False)
    silent: list[Member] = field(init=False)

    def prepare(self) -> None:
        self.master, self.silent = self.group.master(), self.group.slaves()
        self.hold_s = 0.1

    @property
    def text(self) -> str:
        return f"slaves stand still, a stranger acknowledges for them, then {self.master.label} is gone and a slave takes over"

    def inject(self) -> None:
        for slave in self.silent:
            slave.send_signal(signal.SIGSTOP)
        address = (self.master.place.address, self.master.port)
        command = [
            *self.group.client.prefix,
            PYTHON,
            "-m",
            "tests.faults.matrix.fault_stranger",
            address[0],
            str(address[1]),
        ]
        subprocess.run(command, check=True, timeout=60)
        self.master.kill()
        for slave in self.silent:
            slave.send_signal(signal.SIGCONT)
        fail_over(self.group, self.silent, self.rng)

    def heal(self) -> None:
        Process.start(self.master)


@define(eq=False)
class Probes(Fault):
    """Connections that say nothing, half of something, or nonsense, one after the other; the group goes on beside them."""

    trace: ClassVar[str] = r"refus|connection|frame|probe|closed|stranger"
    master: Member = field(init=False)
    before: int = field(init=False)

    def prepare(self) -> None:
        self.master = self.group.master()
        self.hold_s = 0.2

    @property
    def text(self) -> str:
        return f"{PROBES} probes of the ports of {self.master.label}, half requests and nonsense"

    def inject(self) -> None:
        self.before = _resident(self.master.pid)
        command = [*self.group.client.prefix, PYTHON, "-m", "tests.faults.matrix.fault_stranger"]
        command += [self.master.place.address, str(self.master.port), "probe"]
        subprocess.run(command, check=True, timeout=120)
        after = _resident(self.master.pid)
        self.group.write("note", text=f"resident memory of the master: {self.before} before, {after} after the probes")
        if after > self.before + (48 << 20):
            raise AssertionError(f"the master grew from {self.before} to {after} bytes by {PROBES} probes")

    def heal(self) -> None:
        """They have left."""


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def forge(host: str, ha_port: int, seconds: float) -> None:
    """Acknowledge everything: huge, negative, falling, one after the other, over several connections."""
    ends = time.monotonic() + seconds
    words = (1 << 62, 0, -5, 1 << 40, 1, (1 << 63) - 1, 100)
    while time.monotonic() < ends:
        for word in words:
            try:
                with socket.create_connection((host, ha_port), timeout=1) as link:
                    link.sendall(struct.pack(">q", word))
                    time.sleep(0.05)
                    link.sendall(struct.pack(">q", 1 << 62) * 3)
                    time.sleep(0.1)
            except OSError:
                time.sleep(0.05)


def probe(host: str, port: int) -> None:
    """So many connections to the remoting and the HA port."""
    words = (
        b"",
        b"\x00",
        b"\x00\x00\x00\x10\x00",
        b"\x7f\xff\xff\xff\x00\x00\x00\x10",
        b"GET / HTTP/1.0\r\n\r\n",
        os.urandom(64),
    )
    held = []
    for number in range(PROBES):
        try:
            link = socket.create_connection((host, port + number % 2), timeout=2)
            link.sendall(words[number % len(words)])
        except OSError:
            continue
        held.append(link)
        if len(held) > 50:
            held.pop(0).close()
    for link in held:
        link.close()


if __name__ == "__main__":
    import sys

    if len(sys.argv) > 3:
        probe(sys.argv[1], int(sys.argv[2]))
    else:
        forge(sys.argv[1], int(sys.argv[2]) + 1, 4.0)
