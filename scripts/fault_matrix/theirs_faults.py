"""Faults for the real RocketMQ, where those for ours do not fit, and the traces that its logs have of each."""

import errno
import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix import fault, fault_disk, fault_link, fault_stranger
from scripts.fault_matrix.damage import damage
from scripts.fault_matrix.fault import Fault, fail_over
from scripts.fault_matrix.fault_disk import PowerCutAll, shim_of
from scripts.fault_matrix.group import Member
from scripts.fault_matrix.member_reader import read_member
from scripts.fault_matrix.theirs_member import TheirMember
from tests.support.process_group.process import Process, ProcessFailedError

SYNCS = "msync fsync fdatasync"  # RocketMQ's files are mapped.
COMPLAINTS = r" (WARN|ERROR) "
# "magic code 0x0" is the end of every log.
OF_DAMAGE = r"(?i)crc|checksum|illegal magic code 0x[1-9a-f]|corrupt|damage|master pushed|not match"
# Any complaint of a member's passes for a trace, but where complaints are as common without the fault.
TRACES: dict[type[Fault], str] = {
    fault.Kill: r"abort file|recover|connection|HAClient|HAService",
    fault_disk.PowerCut: r"abort file|recover",
    fault_link.Flip: OF_DAMAGE,
    fault_stranger.ForgedAcks: r"(?i)refus|stranger|unknown slave|not registered",
}


def trace_of(what: Fault) -> str:
    """What to look for; "" where nobody has to notice."""
    if not what.trace:
        return ""
    if isinstance(what, LogAtRest):
        return what.trace
    return next((pattern for kind, pattern in TRACES.items() if isinstance(what, kind)), COMPLAINTS)


LATER = (0.5, 5.0)  # A JVM takes seconds to come to its recovery, so it dies again seconds later.


class KillMaster(fault.KillMaster):
    delay_s = LATER


class KillSlave(fault.KillSlave):
    delay_s = LATER


class KillNameServer(fault.KillNameServer):
    delay_s = LATER


@define(eq=False)
class SyncFails(fault_disk.SyncFails):
    """By the call that flushes a mapped file, too."""

    @property
    def text(self) -> str:
        role = "master" if self.victim is self.group.master() else "slave"
        return f"every sync of the {role} {self.victim.label} says EIO, until it is started anew"

    def inject(self) -> None:
        shim_of(self.group).arm(SYNCS, errno.EIO, self.part)


@define(eq=False)
class SyncsFailThenPowerCut(PowerCutAll):
    """What is acknowledged after a sync has failed is on no disk."""

    needs: ClassVar[Sequence[str]] = ("root", "cc")

    def prepare(self) -> None:
        PowerCutAll.prepare(self)
        self.hold_s = self.rng.uniform(1.0, 2.0)

    @property
    def text(self) -> str:
        return f"every sync of all members says EIO for {self.hold_s:.1f} s, then power cut of all"

    def inject(self) -> None:
        shim_of(self.group).arm(SYNCS, errno.EIO, "/broker-a-")

    def heal(self) -> None:
        PowerCutAll.inject(self)
        shim_of(self.group).disarm()
        PowerCutAll.heal(self)


@define(eq=False)
class LogAtRest(Fault):
    """A bit, or a page, of a stopped member's log is wrong when it starts."""

    victim: Member = field(init=False)
    how: str = field(init=False)
    refusal: str = field(init=False, default="")
    trace: ClassVar[str] = OF_DAMAGE

    def prepare(self) -> None:
        self.victim = self.rng.choice(self.group.members)
        self.how = self.rng.choice(["bit", "zeroed"])
        self.hold_s = 0.1

    @property
    def text(self) -> str:
        role = "master" if self.victim is self.group.master() else "slave"
        return f"{self.how} in a log file of the {role} {self.victim.label}, while it is stopped"

    def inject(self) -> None:
        self.victim.stop()
        said = damage(self._file(), self.how, self.rng)
        self.group.write("note", text=said, node=self.victim.label)
        try:
            self.victim.start()
        except ProcessFailedError as error:
            self.refusal = str(error)[:300]
            self.group.write("note", text=f"it does not start: {self.refusal}", node=self.victim.label)
            return
        found = read_member(self.group.namesrv, self.victim.address, self.group.own_lines, f"look-{id(self)}")
        self.group.write("note", text=f"it serves {found} messages", node=self.victim.label)

    def _file(self) -> Path:
        """One that has something in it."""
        files = sorted(path for path in self.victim.commit_log.iterdir() if re.fullmatch(r"\d+", path.name))
        return self.rng.choice([path for path in files if path.read_bytes().strip(b"\0")])

    def heal(self) -> None:
        """Whoever starts is left alone: nothing told that something is wrong with it."""
        if not self.refusal:
            return
        if self.victim is self.group.master():
            fail_over(self.group, self.group.slaves(), self.rng)
        assert isinstance(self.victim, TheirMember)
        self.victim.empty()
        Process.start(self.victim)
