"""A group whose record etcd keeps, and where members and etcd are: networks that part, machines without power."""

import time
from collections.abc import Sequence
from typing import ClassVar

from scripts.fault_matrix.disks import mount, unmount
from scripts.fault_matrix.fault_kept import OUTAGE_S, SHRINKS, SIGN_S, Kept
from scripts.fault_matrix.fault_net import Cuts, both_ways
from scripts.fault_matrix.fault_unattended import SILENCE_S, SILENT_S
from scripts.fault_matrix.group import Member
from scripts.fault_matrix.places import Place
from tests.support.disk.faults import Disk

# Networks


class CutOff(Kept):
    """Packets are dropped until it heals."""

    needs: ClassVar[Sequence[str]] = ("root",)

    def cuts(self) -> Cuts:
        """Each source, and the sink that nothing of it arrives at."""
        raise NotImplementedError

    @property
    def of_etcd(self) -> list[Place]:
        return [*self.cluster.places]

    @property
    def of_slaves(self) -> list[Place]:
        return [each.place for each in self.slaves]

    def others(self, member: Member) -> list[Place]:
        """Everything but that machine."""
        return [place for place in self.group.net.places if place is not member.place]

    def breaks(self) -> None:
        for source, sink in self.cuts():
            self.group.net.cut(source, sink)

    def heal(self) -> None:
        self.group.net.mend()
        Kept.heal(self)


class Shrinks(CutOff):
    """The master tells etcd that it lives, and goes on alone; the slave sees that there, and stays."""

    trace = SHRINKS

    def breaks(self) -> None:
        CutOff.breaks(self)
        self.goes_on_alone()
        time.sleep(SILENCE_S)


class FromEachOther(Shrinks):
    what = "the members of a pair are cut off from each other only"

    def cuts(self) -> Cuts:
        return both_ways([self.master.place], self.of_slaves)


class AcksLost(Shrinks):
    what = "nothing that the slave sends reaches the master"

    def cuts(self) -> Cuts:
        return [(self.slave.place, self.master.place)]


class DataLost(Shrinks):
    what = "nothing that the master sends reaches the slave"

    def cuts(self) -> Cuts:
        return [(self.master.place, self.slave.place)]


class SlaveFromAll(Shrinks):
    what = "the slave is cut off from everybody, etcd with them"

    def cuts(self) -> Cuts:
        return both_ways([self.slave.place], self.others(self.slave))


class MasterFromAll(CutOff):
    another_s = SIGN_S
    elections = 1
    what = "the master is cut off from everybody, etcd with them"

    def cuts(self) -> Cuts:
        return both_ways([self.master.place], self.others(self.master))


class MasterFromSlaveAndEtcd(CutOff):
    """Clients reach both: the old master has no lease."""

    another_s = SIGN_S
    elections = 1
    what = "the master is cut off from the slave and from etcd, and not from clients"

    def cuts(self) -> Cuts:
        return both_ways([self.master.place], [*self.of_slaves, *self.of_etcd])


class NoPause(CutOff):
    """The group is as it was, and nobody may be elected."""

    trace = r"etcd is not to be relied on now"

    def breaks(self) -> None:
        CutOff.breaks(self)
        self.outage()
        with self.never_paused():
            time.sleep(OUTAGE_S / 2)


class MasterFromEtcd(NoPause):
    what = "the master is cut off from etcd only"

    def cuts(self) -> Cuts:
        return both_ways([self.master.place], self.of_etcd)


class SlaveFromEtcd(NoPause):
    what = "the slave is cut off from etcd only"

    def cuts(self) -> Cuts:
        return both_ways([self.slave.place], self.of_etcd)


class MasterFromEtcdAndSlaveKilled(CutOff):
    """It may not go on alone, as it cannot write that down: it waits until it sees etcd, or the slave is back."""

    trace = r"etcd is not to be relied on now"
    what = "the master is cut off from etcd, and the slave is killed"

    def cuts(self) -> Cuts:
        return both_ways([self.master.place], self.of_etcd)

    def breaks(self) -> None:
        CutOff.breaks(self)
        self.outage()
        self.kill(self.slave)
        time.sleep(self.leaves_s + 4.0)


class SwapUnanswered(CutOff):
    """Answers of etcd are lost about when the master writes that the slave left: it may be written, and nobody knows."""

    elections = 1
    trace = r"etcd is not to be relied on now"
    what = "kill -9 of the slave; etcd's answers to the master are lost as the set shrinks; the master dies; the slave is first"

    def cuts(self) -> Cuts:
        return [(place, self.master.place) for place in self.of_etcd]

    def breaks(self) -> None:
        self.kill(self.slave)
        time.sleep(self.rng.uniform(self.leaves_s - 0.5, self.leaves_s + 0.7))
        CutOff.breaks(self)
        time.sleep(SILENCE_S + 1.0)
        self.kill(self.master)
        self.start(self.slave)
        time.sleep(SILENCE_S + 2.0)


# Three members


class OfThreeFromSlaves(CutOff):
    """All see etcd. The side with two copies goes on: a slave is elected before the old master could go on alone."""

    another_s = SILENT_S
    elections = 1
    what = "of three the master is cut off from both slaves; all see etcd"

    def cuts(self) -> Cuts:
        return both_ways([self.master.place], self.of_slaves)


class OfThreeFromSlavesAndEtcd(OfThreeFromSlaves):
    what = "of three the master is cut off from both slaves and from etcd"

    def cuts(self) -> Cuts:
        return both_ways([self.master.place], [*self.of_slaves, *self.of_etcd])


class OfThreeOneSlave(CutOff):
    """The other one has what is acknowledged meanwhile."""

    trace = SHRINKS
    what = "of three one slave is cut off from the other members; all see etcd"

    def cuts(self) -> Cuts:
        return both_ways([self.slave.place], [each.place for each in self.group.members if each is not self.slave])

    def breaks(self) -> None:
        CutOff.breaks(self)
        self.outage()
        self.wait_in_sync(*(each for each in self.group.members if each is not self.slave))


# Machines without power


class NoPower(Kept):
    """Nobody says that a connection is refused: nobody says anything."""

    needs: ClassVar[Sequence[str]] = ("root",)

    def cut_power(self, victim: Member) -> None:
        """Of its machine, disk and network with it."""
        for source, sink in both_ways(
            [victim.place], [place for place in self.group.net.places if place is not victim.place]
        ):
            self.group.net.cut(source, sink)
        self.kill(victim)
        Disk(victim.home).cut_power()
        unmount(victim.home)

    def power(self, *victims: Member) -> None:
        """They boot; their processes are not started yet."""
        for each in victims:
            mount(self.group.disks[each.label], each.home)
            each.note_boot()

    def heal(self) -> None:
        self.power(*self.dead)
        self.group.net.mend()
        Kept.heal(self)


class MasterWithoutPower(NoPower):
    another_s = SIGN_S
    elections = 1
    what = "the master's machine has no power"

    def breaks(self) -> None:
        self.cut_power(self.master)


class SlaveWithoutPower(NoPower):
    trace = SHRINKS
    what = "the slave's machine has no power"

    def breaks(self) -> None:
        self.cut_power(self.slave)
        self.goes_on_alone()


class LastOneWithoutPower(NoPower):
    """What it acknowledged alone was on its disk, and on no other one: it is back with all of that."""

    elections = 1
    trace = r"store recovered"
    what = "kill -9 of the slave; the master goes on alone, and its machine has no power; it is back first"

    def breaks(self) -> None:
        self.kill(self.slave)
        self.goes_on_alone()
        time.sleep(self.rng.uniform(0.5, 1.5))
        self.cut_power(self.master)
        time.sleep(self.rng.uniform(0.5, 1.5))
        self.power(self.master)
        self.group.net.mend()
        self.start(self.master)
        self.somebody_acknowledges(SILENT_S)

    def heal(self) -> None:
        Kept.heal(self)
