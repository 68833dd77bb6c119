"""Disks: without power, stuck, full, broken."""

import errno
import time
from collections.abc import Sequence
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix.disks import mount, unmount
from scripts.fault_matrix.fault import Fault
from scripts.fault_matrix.group import Group, Member
from tests.support.disk.faults import Disk, Shim
from tests.support.process_group.process import Process
from twinlog.cluster.broker.watchdog import STALL_SECONDS


@define(eq=False)
class PowerCut(Fault):
    """Processes die, and so does what was not on the disk.

    They are killed first: what is answered while the power goes proves nothing, as a kernel that goes on running may still say
    yes to a sync whose transaction has just been thrown away.
    """

    needs: ClassVar[Sequence[str]] = ("root",)
    trace: ClassVar[str] = r"store recovered"
    victims: list[Member] = field(init=False)

    def prepare(self) -> None:
        self.victims = self.pick()

    def pick(self) -> list[Member]:
        raise NotImplementedError

    @property
    def killed(self) -> Sequence[Process]:
        return self.victims

    @property
    def text(self) -> str:
        return f"power cut of {', '.join(each.label for each in self.victims)}"

    def inject(self) -> None:
        for victim in self.victims:
            victim.kill()
        for victim in self.victims:
            Disk(victim.home).cut_power()
        for victim in self.victims:
            unmount(victim.home)

    def heal(self) -> None:
        for victim in self.victims:
            mount(self.group.disks[victim.label], victim.home)
            victim.note_boot()
            Process.start(victim)


class PowerCutMaster(PowerCut):
    def pick(self) -> list[Member]:
        return [self.group.master()]


class PowerCutSlave(PowerCut):
    def pick(self) -> list[Member]:
        return [self.rng.choice(self.group.slaves())]


class PowerCutAll(PowerCut):
    def pick(self) -> list[Member]:
        return list(self.group.members)


@define(eq=False)
class LastOneStanding(PowerCut):
    """All slaves are away, and then the master loses its power; it is back first."""

    away: list[Member] = field(init=False)

    def pick(self) -> list[Member]:
        self.away = self.group.slaves()
        return [self.group.master()]

    @property
    def killed(self) -> Sequence[Process]:
        return [*self.victims, *self.away]

    @property
    def text(self) -> str:
        return f"all slaves are stopped, traffic goes on, then power cut of {self.victims[0].label}"

    def inject(self) -> None:
        for each in self.away:
            each.kill()
        time.sleep(self.rng.uniform(0.5, 1.5))
        PowerCut.inject(self)

    def heal(self) -> None:
        PowerCut.heal(self)
        for each in self.away:
            Process.start(each)


@define(eq=False)
class StuckDisk(Fault):
    """fsfreeze: whoever writes hangs until the thaw."""

    needs: ClassVar[Sequence[str]] = ("root",)
    trace: ClassVar[str] = r"the event loop stalls|a sync of the disk hangs|does not answer|no lease"
    victim: Member = field(init=False)

    def prepare(self) -> None:
        self.victim = self.pick()
        self.hold_s = self.rng.uniform(STALL_SECONDS + 1.0, 8.0)  # Less is no hang to anybody, and is not told.

    def pick(self) -> Member:
        raise NotImplementedError

    @property
    def text(self) -> str:
        return f"the disk of {self.victim.label} takes nothing for {self.hold_s:.1f} s"

    def inject(self) -> None:
        Disk(self.victim.home).freeze()

    def heal(self) -> None:
        Disk(self.victim.home).thaw()


class StuckDiskOfMaster(StuckDisk):
    def pick(self) -> Member:
        return self.group.master()


class StuckDiskOfSlave(StuckDisk):
    def pick(self) -> Member:
        return self.rng.choice(self.group.slaves())


def shim_of(group: Group) -> Shim:
    return Shim(group.root / "shim.so", group.root / "faults")


@define(eq=False)
class ShimFault(Fault):
    """Calls of a member on some of its files fail."""

    needs: ClassVar[Sequence[str]] = ("cc",)
    victim: Member = field(init=False)

    def prepare(self) -> None:
        self.victim = self.rng.choice(self.group.members)

    @property
    def part(self) -> str:
        """What the paths of all files of the victim have in common: a disk fails as a whole."""
        return f"/{self.victim.label}/"


@define(eq=False)
class SyncFails(ShimFault):
    """Once is for ever: the pages may be gone although the next sync would succeed. It takes a restart."""

    trace: ClassVar[str] = r"Input/output error"

    def prepare(self) -> None:
        ShimFault.prepare(self)
        self.hold_s = self.rng.uniform(1.5, 3.0)  # Long enough for a sync, on a busy machine, too.

    @property
    def killed(self) -> Sequence[Process]:
        return [self.victim]

    @property
    def text(self) -> str:
        return f"fdatasync of {self.victim.label} says EIO, until it is started anew"

    def inject(self) -> None:
        shim_of(self.group).arm("fdatasync", errno.EIO, self.part)

    def heal(self) -> None:
        shim_of(self.group).disarm()
        self.victim.stop()
        Process.start(self.victim)


@define(eq=False)
class DiskFull(ShimFault):
    """Writes stop half way, and go on once there is room."""

    trace: ClassVar[str] = r"No space left|disk full"

    def prepare(self) -> None:
        ShimFault.prepare(self)
        self.hold_s = self.rng.uniform(0.5, 3.0)

    @property
    def text(self) -> str:
        return f"no room for any file of {self.victim.label} for {self.hold_s:.1f} s"

    def inject(self) -> None:
        shim_of(self.group).arm("pwrite", errno.ENOSPC, self.part)

    def heal(self) -> None:
        shim_of(self.group).disarm()
