"""Who has no business there: forged acknowledgements, half requests, slow ones, too large ones, probes."""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix import history as histories
from scripts.fault_matrix.fault import Fault, fail_over
from scripts.fault_matrix.group import PYTHON, Member
from scripts.fault_matrix.places import Place
from scripts.fault_matrix.strangers import DRIPS, LARGE, PROBES
from tests.support.process_group.process import Process

GROWTH_MAX = 48 << 20  # Bytes of resident memory, of each process.
SERVED_MIN = 50  # Messages that are acknowledged while somebody is in the way.
MEMBER_PORTS, HTTP_PORT = (0, -2, 1), 3  # From its listenPort.
# What a member keeps for others is bounded to less than what these send.
SETTINGS = {
    "halfFrameMaxSeconds": "3",
    "serverBytesMax": str(24 << 20),
    "httpEnable": "true",
    "httpBindAddress": "0.0.0.0",
}


@define(eq=False)
class Strangers(Fault):
    """What a stranger does, and what came of it."""

    needs: ClassVar[Sequence[str]] = ("root",)
    master: Member = field(init=False)

    def prepare(self) -> None:
        self.master = self.group.master()
        self.hold_s = 0.1

    def stranger(self, what: str, *words: str, place: Place | None = None) -> dict[str, int]:
        """Runs it to its end."""
        command = [*(place or self.group.client).prefix, PYTHON, "-m", "scripts.fault_matrix.strangers", what, *words]
        done = subprocess.run(command, check=True, timeout=120, stdout=subprocess.PIPE, text=True)
        self.group.write("note", text=f"{what}: {done.stdout.strip()}")
        found: dict[str, int] = json.loads(done.stdout)
        return found

    def everywhere(self) -> list[str]:
        """All ports of all members and name servers."""
        members = [
            f"{each.place.address}:{each.port + offset}" for each in self.group.members for offset in MEMBER_PORTS
        ]
        if self.master.settings["httpEnable"] == "true":
            members += [f"{each.place.address}:{each.port + HTTP_PORT}" for each in self.group.members]
        return members + [each.address for each in self.group.namesrvs]

    def beside_traffic(self, what: str, *words: str) -> dict[str, int]:
        """The same; meanwhile producers are served, and afterwards no process is much larger than before."""
        before, acknowledged = self._resident(), self._acknowledged()
        found = self.stranger(what, *words)
        after, served = self._resident(), self._acknowledged() - acknowledged
        grown = {name: size - before[name] for name, size in after.items()}
        self.group.write("note", text=f"resident bytes before {before}, after {after}; {served} acknowledged meanwhile")
        if large := {name: size for name, size in grown.items() if size > GROWTH_MAX}:
            self.group.complain("M", f"{what}: resident memory grew by {large} bytes, {GROWTH_MAX} are allowed")
        if served < SERVED_MIN:
            self.group.complain("F", f"{what}: {served} acknowledged meanwhile, {SERVED_MIN} are asked for")
        return found

    def _resident(self) -> dict[str, int]:
        processes: list[Process] = [*self.group.members, *self.group.namesrvs]
        return {each.name: _resident(each.pid) for each in processes}

    def _acknowledged(self) -> int:
        if not self.group.client_lines.exists():
            return 0
        events = histories.from_position(self.group.client_lines, 0)
        return sum(event.kind == "ok" and event.op == "append" for event in events)

    def heal(self) -> None:
        """They have left."""


@define(eq=False)
class ForgedAcks(Strangers):
    """Slaves are silent, and somebody else acknowledges whatever there is. Then the master's machine burns.

    Whatever was answered with SEND_OK on a forged word is on no other member.
    """

    # A member tells of a stranger once; producers are told each time that nobody else has their messages.
    trace: ClassVar[str] = r"slave refused|FLUSH_SLAVE_TIMEOUT|SLAVE_NOT_AVAILABLE|no lease"
    silent: list[Member] = field(init=False)

    def prepare(self) -> None:
        Strangers.prepare(self)
        self.silent = self.group.slaves()

    @property
    def killed(self) -> Sequence[Process]:
        return [self.master]

    @property
    def text(self) -> str:
        return f"slaves stand still, a stranger acknowledges for them, then {self.master.label} is gone and a slave takes over"

    def forger(self) -> Place:
        """Where the words come from."""
        return self.group.client

    def inject(self) -> None:
        for slave in self.silent:
            slave.send_signal(signal.SIGSTOP)
        self.stranger("forge", self.master.place.address, str(self.master.port + 1), place=self.forger())
        self.master.kill()
        self.wake()
        fail_over(self.group, self.silent, self.rng)

    def wake(self) -> None:
        """Slaves go on, with what has come meanwhile and that they have not read yet."""
        for slave in self.silent:
            slave.send_signal(signal.SIGCONT)

    def heal(self) -> None:
        Process.start(self.master)


class ForgedAcksAndKill(ForgedAcks):
    """Slaves are killed, too: what a master had sent them, and they had not read yet, is nowhere."""

    @property
    def killed(self) -> Sequence[Process]:
        return [self.master, *self.silent]

    @property
    def text(self) -> str:
        return (
            f"slaves stand still, a stranger acknowledges for them, then all are killed; {self.master.label} comes last"
        )

    def wake(self) -> None:
        for slave in self.silent:
            slave.kill()
        for slave in self.silent:
            slave.start()


class ForgedAcksFromSlaves(ForgedAcks):
    """The same by a program on a slave's own machine, which may follow: what was never sent to it, it cannot have."""

    trace: ClassVar[str] = r"bad_ack|bad_request|over_max"

    @property
    def text(self) -> str:
        what = "slaves stand still, a program on a slave's machine acknowledges what it never got"
        return f"{what}, then {self.master.label} is gone and a slave takes over"

    def forger(self) -> Place:
        return self.rng.choice(self.silent).place


class Probes(Strangers):
    """Connections that say nothing, half of something, or nonsense, one after the other; the group goes on beside them."""

    trace: ClassVar[str] = r"slave refused|does not speak the remoting protocol"

    @property
    def text(self) -> str:
        return f"{PROBES} probes of the ports of all members and name servers, half requests and nonsense"

    def inject(self) -> None:
        self.beside_traffic("probe", *self.everywhere())


class Drips(Strangers):
    """Slow-loris: each connection says just enough to be there still. None may stay for that."""

    trace: ClassVar[str] = r"arrives too slowly"

    @property
    def text(self) -> str:
        return f"{DRIPS} connections to each port of the master and its name servers, each with a byte now and then"

    def inject(self) -> None:
        mine = [each for each in self.everywhere() if each.rpartition(":")[0] == self.master.place.address]
        found = self.beside_traffic("drip", *mine, *(each.address for each in self.group.namesrvs))
        if found["left"] or not found["opened"]:
            left = f"{found['left']} of {found['opened']}"
            self.group.complain("M", f"{left} connections are there still that only drip")


class Oversize(Strangers):
    """Frames that cannot be, and large ones that never end: together they are more than a member keeps."""

    trace: ClassVar[str] = r"does not speak the remoting protocol|use too much memory"

    @property
    def text(self) -> str:
        return f"impossible frames to the master and its name servers, {LARGE} large ones to each port that never end"

    def inject(self) -> None:
        address = self.master.place.address
        ports = [f"{address}:{self.master.port + offset}" for offset in (0, -2)]
        found = self.beside_traffic("oversize", *ports, *(each.address for each in self.group.namesrvs))
        if found["kept"]:
            self.group.complain("M", f"{found['kept']} connections outlived a frame that cannot be")


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
