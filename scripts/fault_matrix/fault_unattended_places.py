"""A group that elects by itself, and where its members are: networks, disks and clocks. fault_unattended.py has the promises."""

import errno
import time
from collections.abc import Sequence
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix.disks import mount, unmount
from scripts.fault_matrix.fault_clock import HOUR, set_clock
from scripts.fault_matrix.fault_disk import shim_of
from scripts.fault_matrix.fault_net import Cuts, both_ways
from scripts.fault_matrix.fault_unattended import ELECTS, GONE_S, SILENCE_S, SILENT_S, Unattended
from scripts.fault_matrix.places import Place
from tests.support.disk.faults import Disk
from tests.support.process_group.process import Process

# Networks


@define(eq=False)
class CutOff(Unattended):
    """Packets are dropped until it heals."""

    needs: ClassVar[Sequence[str]] = ("root",)

    def cuts(self) -> Cuts:
        """Each source, and the sink that nothing of it arrives at."""
        raise NotImplementedError

    @property
    def of_slaves(self) -> list[Place]:
        return [each.place for each in self.slaves]

    def breaks(self) -> None:
        for source, sink in self.cuts():
            self.group.net.cut(source, sink)

    def heal(self) -> None:
        self.group.net.mend()


class FromSlaves(CutOff):
    """Clients reach the old master and the new one; the old one has no lease."""

    another_s = SILENT_S
    elections = 1
    what = "the master is cut off from its slaves only"

    def cuts(self) -> Cuts:
        return both_ways([self.master.place], self.of_slaves)


class FromAll(CutOff):
    another_s = SILENT_S
    elections = 1
    what = "the master is cut off from everybody"

    def cuts(self) -> Cuts:
        return both_ways(
            [self.master.place], [place for place in self.group.net.places if place is not self.master.place]
        )


class AcksLost(CutOff):
    """What it still sends arrives, until TCP waits for an acknowledgement."""

    another_s = SILENT_S
    elections = 1
    what = "nothing that slaves send reaches the master"

    def cuts(self) -> Cuts:
        return [(slave, self.master.place) for slave in self.of_slaves]


class DataLost(CutOff):
    another_s = SILENT_S
    elections = 1
    what = "nothing that the master sends reaches its slaves"

    def cuts(self) -> Cuts:
        return [(self.master.place, slave) for slave in self.of_slaves]


@define(eq=False)
class HeardAllTheSame(CutOff):
    """The group is as it was: nobody may be elected. It lasts longer than a master may be silent."""

    def prepare(self) -> None:
        CutOff.prepare(self)
        self.hold_s = self.rng.uniform(SILENCE_S + 2.0, SILENCE_S + 4.0)


class FromClients(HeardAllTheSame):
    trace = r"unreachable"
    what = "the master is cut off from clients only"

    def cuts(self) -> Cuts:
        return both_ways([self.master.place], [self.group.client])


class FromNameServers(HeardAllTheSame):
    trace = r"name server|registered slaves could not be requested"
    what = "the master is cut off from the name servers only"

    def prepare(self) -> None:
        HeardAllTheSame.prepare(self)
        self.hold_s = self.rng.uniform(SILENCE_S + 4.0, SILENCE_S + 6.0)  # Asked every 5 s, and waited for.

    def cuts(self) -> Cuts:
        return both_ways([self.master.place], [each.place for each in self.group.namesrvs])


class OneSlaveFromMaster(HeardAllTheSame):
    """It suspects the master, and the other slave hears it."""

    trace = r"no automatic failover yet.*hears a master"
    what = "one slave and the master are cut off from each other"

    def cuts(self) -> Cuts:
        return both_ways([self.master.place], self.of_slaves[:1])


# Disks


class DiskFrozen(Unattended):
    needs = ("root",)
    another_s = SILENT_S
    elections = 1
    what = "the master's disk takes nothing"

    def breaks(self) -> None:
        Disk(self.master.home).freeze()

    def heal(self) -> None:
        Disk(self.master.home).thaw()


@define(eq=False)
class DiskRefuses(Unattended):
    """A call of the master on any of its files fails."""

    needs: ClassVar[Sequence[str]] = ("cc",)
    another_s: ClassVar[float | None] = SILENT_S
    elections: ClassVar[int] = 1
    call: ClassVar[str] = ""
    error: ClassVar[int] = 0

    def breaks(self) -> None:
        shim_of(self.group).arm(self.call, self.error, f"/{self.master.label}/")

    def heal(self) -> None:
        shim_of(self.group).disarm()


class DiskFull(DiskRefuses):
    call, error = "pwrite", errno.ENOSPC
    what = "the master's disk is full"


class DiskFails(DiskRefuses):
    """It takes a restart: pages may be gone although the next sync would succeed."""

    call, error = "fdatasync", errno.EIO
    what = "the master's disk says EIO"

    @property
    def killed(self) -> Sequence[Process]:
        return [self.master]

    def heal(self) -> None:
        DiskRefuses.heal(self)
        self.master.stop()
        Process.start(self.master)


class PowerLost(Unattended):
    """Nobody says that a connection is refused: nobody says anything."""

    needs = ("root",)
    another_s = SILENT_S
    elections = 1
    what = "the master's machine has no power"

    @property
    def killed(self) -> Sequence[Process]:
        return [self.master]

    def breaks(self) -> None:
        others = [place for place in self.group.net.places if place is not self.master.place]
        for source, sink in both_ways([self.master.place], others):
            self.group.net.cut(source, sink)
        self.master.kill()
        Disk(self.master.home).cut_power()
        unmount(self.master.home)

    def heal(self) -> None:
        mount(self.group.disks[self.master.label], self.master.home)
        self.master.note_boot()
        self.group.net.mend()
        Process.start(self.master)


# Clocks


@define(eq=False)
class ClocksJump(Unattended):
    """By an hour, each member's, in turn: no time that anybody waits is of a wall clock."""

    needs: ClassVar[Sequence[str]] = ("faketime",)
    trace: ClassVar[str] = r"clocks differ"
    leaps: dict[str, float] = field(init=False)

    def prepare(self) -> None:
        Unattended.prepare(self)
        self.hold_s = self.rng.uniform(SILENCE_S + 0.5, SILENCE_S + 2.0)
        odd = self.rng.choice(self.group.members)  # Clocks that jump together would not differ.
        by = self.rng.choice((-HOUR, HOUR))
        self.leaps = {each.label: by if each is odd else -by for each in self.group.members}

    @property
    def what(self) -> str:
        """Who, and by how much."""
        return "clocks jump: " + ", ".join(f"{label}'s by {by / HOUR:+g} h" for label, by in self.leaps.items())

    def breaks(self) -> None:
        for member in self.group.members:
            set_clock(member, self.leaps[member.label])
            time.sleep(self.rng.uniform(0.5, 1.5))

    def heal(self) -> None:
        for member in self.group.members:
            set_clock(member, 0.0)


class ClocksJumpAndMasterKilled(ClocksJump):
    another_s = GONE_S
    elections = 1
    trace = ELECTS

    @property
    def killed(self) -> Sequence[Process]:
        return [self.master]

    @property
    def what(self) -> str:
        return f"{ClocksJump.what.fget(self)}; kill -9 of the master"  # type: ignore[attr-defined]

    def breaks(self) -> None:
        ClocksJump.breaks(self)
        self.master.kill()

    def heal(self) -> None:
        Process.start(self.master)
        self.master.wait_ready()
        ClocksJump.heal(self)
