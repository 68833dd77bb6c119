"""Partitions in which everybody sees a majority, and not everybody the same one."""

import time
from collections.abc import Sequence
from itertools import combinations
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix.fault import fail_over
from scripts.fault_matrix.fault_net import Cuts, Partition, both_ways
from scripts.fault_matrix.group import Member


def between(one: Sequence[Member], other: Sequence[Member]) -> Cuts:
    """Nothing arrives, either way."""
    return both_ways([each.place for each in one], [each.place for each in other])


@define(eq=False)
class Majorities(Partition):
    """The master keeps as many members as it needs, and those that do not see it see as many."""

    master: Member = field(init=False)
    far: list[Member] = field(init=False)  # Who does not see the master.

    def prepare(self) -> None:
        self.master = self.group.master()
        Partition.prepare(self)


@define(eq=False)
class Ring(Majorities):
    """Each sees itself and its two neighbours: five majorities, all different."""

    def sides(self) -> tuple[str, Cuts]:
        ring = self.rng.sample(self.group.members, len(self.group.members))
        apart = [pair for pair in combinations(ring, 2) if not _beside(ring, *pair)]
        self.far = [each for each in ring if each is not self.master and not _beside(ring, each, self.master)]
        cuts = [cut for one, other in apart for cut in between([one], [other])]
        return f"each sees its neighbours only in the ring {' '.join(each.label for each in ring)}", cuts


def _beside(ring: Sequence[Member], one: Member, other: Member) -> bool:
    return (ring.index(one) - ring.index(other)) % len(ring) in (1, len(ring) - 1)


@define(eq=False)
class Bridge(Majorities):
    """Two halves, and one member that sees both of them; the master is in a half."""

    def sides(self) -> tuple[str, Cuts]:
        slaves = [each for each in self.group.members if each is not self.master]
        self.rng.shuffle(slaves)
        half = len(slaves) // 2
        near, bridge, self.far = [self.master, *slaves[: half - 1]], slaves[half - 1], slaves[half:]
        one, other = (" and ".join(each.label for each in side) for side in (near, self.far))
        return f"only {bridge.label} sees both {one}, and {other}", between(near, self.far)


@define(eq=False)
class Rival(Majorities):
    """Somebody asks one to be master that does not see the one that there is, and then one that does; clients reach everybody."""

    trace: ClassVar[str] = r"role|epoch|master changed"
    seconds: ClassVar[tuple[float, float]] = (0.5, 2.0)

    @property
    def text(self) -> str:
        return f"{self.what} for {self.hold_s:.1f} s, and another one is asked to be master"

    def inject(self) -> None:
        Partition.inject(self)
        time.sleep(self.rng.uniform(0.0, 1.0))  # What is acknowledged now, the far ones do not have.
        try:
            fail_over(self.group, [self.rng.choice(self.far)], self.rng)
        except AssertionError as error:
            self.group.write("note", text=f"who does not see the master is refused: {error}")
            self.switch()

    def switch(self) -> None:
        """The master is there for these."""
        near = [each for each in self.group.members if each is not self.master and each not in self.far]
        candidate = self.rng.choice(near)
        arguments = ("switchover", "--candidate", candidate.label, "--yes", "--reason", "fault matrix")
        done = self.group.twinlog(*arguments, status=None, place=candidate.place)
        self.group.write("note", text=f"switchover to {candidate.label}: exit status {done.returncode} {done.stderr}")


@define(eq=False)
class RingAndFailOver(Rival, Ring):
    """Both."""


@define(eq=False)
class BridgeAndFailOver(Rival, Bridge):
    """Both."""
