"""Partitions, both ways and one way, between network namespaces."""

from collections.abc import Sequence
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix.fault import LEASE_S, Fault, fail_over
from scripts.fault_matrix.places import Place

Cuts = list[tuple[Place, Place]]  # Each source, and the sink that nothing of it arrives at.


@define(eq=False)
class Partition(Fault):
    """Packets between two sides are dropped."""

    needs: ClassVar[Sequence[str]] = ("root",)
    trace: ClassVar[str] = (
        r"no lease|does not answer|not in sync|silent|no answer|connection|unreachable|timed? out|name server"
    )
    seconds: ClassVar[tuple[float, float]] = (LEASE_S + 1, LEASE_S + 4)
    cuts: Cuts = field(init=False)
    what: str = field(init=False)

    def prepare(self) -> None:
        self.hold_s = self.rng.uniform(*self.seconds)
        self.what, self.cuts = self.sides()

    def sides(self) -> tuple[str, Cuts]:
        """What it does, and each (source, sink) between which nothing arrives."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        return f"{self.what} for {self.hold_s:.1f} s"

    def inject(self) -> None:
        for source, sink in self.cuts:
            self.group.net.cut(source, sink)

    def heal(self) -> None:
        self.group.net.mend()


def both_ways(one: Sequence[Place], other: Sequence[Place]) -> Cuts:
    return [pair for a in one for b in other for pair in ((a, b), (b, a))]


class MasterFromSlaves(Partition):
    def sides(self) -> tuple[str, Cuts]:
        slaves = [each.place for each in self.group.slaves()]
        return "master and slaves are cut off from each other", both_ways([self.group.master().place], slaves)


class MasterFromAll(Partition):
    def sides(self) -> tuple[str, Cuts]:
        master = self.group.master().place
        others = [place for place in self.group.net.places if place is not master]
        return "the master is cut off from everybody", both_ways([master], others)


class MasterFromClients(Partition):
    """Nobody in the group notices, and nothing is wrong there: the clients do."""

    trace: ClassVar[str] = r"unreachable"

    def sides(self) -> tuple[str, Cuts]:
        return "master and clients are cut off from each other", both_ways(
            [self.group.master().place], [self.group.client]
        )


class OneSlaveOff(Partition):
    """Another one acknowledges, so nobody waits for it; both ends give the connection up after haHousekeepingInterval, 20 s.
    They miss each other earlier: within a lease, and a third of it between two questions.
    """

    trace: ClassVar[str] = r"voter does not answer|master not heard|slave not heard"
    seconds: ClassVar[tuple[float, float]] = (LEASE_S + 2, LEASE_S + 5)

    def sides(self) -> tuple[str, Cuts]:
        slave = self.rng.choice(self.group.slaves())
        others = [each.place for each in self.group.members if each is not slave]
        return f"{slave.label} is cut off from the other members", both_ways([slave.place], others)


class AcksLost(Partition):
    """Slaves get all, and are not heard."""

    def sides(self) -> tuple[str, Cuts]:
        master = self.group.master().place
        return "what slaves send does not reach the master", [(each.place, master) for each in self.group.slaves()]


class DataLost(Partition):
    """The other way round."""

    def sides(self) -> tuple[str, Cuts]:
        master = self.group.master().place
        return "what the master sends does not reach its slaves", [(master, each.place) for each in self.group.slaves()]


class FailsOver(Partition):
    """The others get a new master meanwhile; the old one still runs."""

    who: ClassVar[str] = "one of them"

    def inject(self) -> None:
        others = self.group.slaves()
        Partition.inject(self)
        fail_over(self.group, others, self.rng)

    @property
    def text(self) -> str:
        return f"{self.what} for {self.hold_s:.1f} s, and {self.who} becomes master"


class MasterFromAllAndFailOver(FailsOver, MasterFromAll):
    """Nobody can tell the old master so."""

    who: ClassVar[str] = "another one"
    seconds: ClassVar[tuple[float, float]] = (LEASE_S, LEASE_S + 3)


class MasterFromSlavesAndFailOver(FailsOver, MasterFromSlaves):
    """Clients reach the old master and the new one."""


class AcksLostAndFailOver(FailsOver, AcksLost):
    """Likewise."""


@define(eq=False)
class NameServersDisagree(Partition):
    """One of two hears no broker any more, and says so to whoever asks it."""

    trace: ClassVar[str] = r"name server"
    seconds: ClassVar[tuple[float, float]] = (14.0, 18.0)

    def sides(self) -> tuple[str, Cuts]:
        server = self.rng.choice(self.group.namesrvs)
        members = [each.place for each in self.group.members]
        return f"the name server {server.address} and all brokers are cut off from each other", both_ways(
            [server.place], members
        )
