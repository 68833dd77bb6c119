"""Members that die at named places of their own program (failpoints.py), and again while they recover from it.

Which places a run takes follows from its seed, so that runs of consecutive seeds take all of them.
"""

import random
import time
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix.failpoints import Point, Stage, of_stage
from scripts.fault_matrix.fault import Fault, fail_over
from scripts.fault_matrix.group import Group, Member
from tests.support.process_group.process import Process

REACHED_S = 25.0
STEP = 7919  # From seed to seed; with no factor in common with the length of a list all of it is gone through.
# Queue and index files are small, and checkpoints frequent, so that all that is rare happens within seconds.
SETTINGS = {
    "mappedFileSizeConsumeQueue": "2000",
    "maxIndexNum": "400",
    "flushConsumeQueueThoroughInterval": "1000",
    "flushCommitLogThoroughInterval": "1000",
}


def peek(group: Group, stage: Stage) -> Point:
    """The next one for this group: a list in an order that never changes is gone through, from run to run, all around."""
    points = of_stage(stage)
    random.Random("fail-points").shuffle(points)
    first = group.seed * STEP
    return points[(first + group.points_taken.get(stage, 0)) % len(points)]


def next_point(group: Group, stage: Stage) -> Point:
    """As peek(), and the one behind it is next."""
    point = peek(group, stage)
    group.points_taken[stage] = group.points_taken.get(stage, 0) + 1
    return point


@define(eq=False)
class AtPoints(Fault):
    """`points`: where the victim dies, each in the start that follows the death before."""

    trace: ClassVar[str] = r"store recovered|no master|unreachable|replication interrupted"
    points: list[Point] = field(init=False)
    passes: list[int] = field(init=False)
    victim: Member = field(init=False)

    def take(self, *points: Point) -> None:
        self.points = list(points)
        self.passes = [self.rng.randint(1, each.passes) if each.stage != "start" else 1 for each in points]

    @property
    def when(self) -> str:
        """The end of the sentence."""
        return ""

    @property
    def text(self) -> str:
        places = ", then ".join(f"{each.name} ({each.stage})" for each in self.points)
        return f"{self.victim.label} kills itself {places}{self.when}"

    def arm(self) -> None:
        lines = (f"{n} {each.stage}: {each.name}\n" for n, each in zip(self.passes, self.points, strict=True))
        self.victim.points.with_suffix(".reached").write_text("")
        self.victim.points.write_text("".join(lines))

    def dies(self) -> None:
        """Wait for the next death. A point that is not reached is a failure: of the list, or of what should lead there."""
        deadline = time.monotonic() + REACHED_S
        while self.victim.running:
            if time.monotonic() > deadline:
                left = self.victim.points.read_text().splitlines()
                raise AssertionError(f"{self.victim.label} did not get to {left} within {REACHED_S:g} s")
            time.sleep(0.01)

    def die_in_starts(self) -> None:
        """Start it so often that only the last start is left; say that all places were reached."""
        for _ in self.points[1:]:
            Process.start(self.victim)
            self.dies()
        reached = self.victim.points.with_suffix(".reached").read_text().splitlines()
        wanted = [f"{each.stage}: {each.name}" for each in self.points]
        if reached != wanted:
            raise AssertionError(f"{self.victim.label} died, but reached {reached} of {wanted}\n{self.victim.tail(15)}")
        for each in reached:
            self.group.write("note", text=f"fail-point reached: {each}", node=self.victim.label)

    def heal(self) -> None:
        Process.start(self.victim)


class KillAtPoint(AtPoints):
    """While messages are written, twice while it recovers from that, and then while messages are written again."""

    def prepare(self) -> None:
        AtPoints.prepare(self)
        points = [next_point(self.group, "traffic"), *(next_point(self.group, "start") for _ in range(2))]
        who = points[0].who or self.rng.choice(["master", "master", "slave"])
        if peek(self.group, "traffic").who in ("", who):
            points.append(next_point(self.group, "traffic"))
        self.take(*points)
        self.victim = self.group.master() if who == "master" else self.rng.choice(self.group.slaves())

    def inject(self) -> None:
        self.arm()
        self.dies()
        self.die_in_starts()


@define(eq=False)
class KillInCut(AtPoints):
    """A master writes what no slave gets, dies, and another one is chosen: its log is cut when it is back, and there it dies."""

    slaves: list[Member] = field(init=False)

    def prepare(self) -> None:
        AtPoints.prepare(self)
        self.take(next_point(self.group, "cut"), next_point(self.group, "start"))
        self.victim, self.slaves = self.group.master(), self.group.slaves()

    @property
    def when(self) -> str:
        return ", as a former master whose log is cut"

    def inject(self) -> None:
        for each in self.slaves:  # Stopped ones would find what was sent in their sockets.
            each.kill()
        time.sleep(0.7)  # Long enough for writes that nobody gets.
        self.victim.kill()
        for each in self.slaves:
            Process.start(each)
        for each in self.slaves:
            each.wait_ready()
        fail_over(self.group, self.slaves, self.rng)
        self.arm()
        Process.start(self.victim)
        self.dies()
        self.die_in_starts()


@define(eq=False)
class KillInRoleChange(AtPoints):
    """A switchover, and one of those that it needs dies in it. Then a person chooses another master, unless there is one."""

    candidate: Member = field(init=False)

    def prepare(self) -> None:
        AtPoints.prepare(self)
        point = next_point(self.group, "change")
        self.take(point, next_point(self.group, "start"))
        master, slaves = self.group.master(), self.group.slaves()
        self.candidate = self.rng.choice(slaves)
        others = [each for each in slaves if each is not self.candidate]
        self.victim = {
            "candidate": self.candidate,
            "master": master,
            "slave": self.rng.choice(others),
            "": self.rng.choice([self.candidate, master]),
        }[point.who]

    @property
    def when(self) -> str:
        return f", in a switchover to {self.candidate.label}"

    def inject(self) -> None:
        self.arm()
        done = self.group.twinlog(
            "switchover", "--candidate", self.candidate.label, "--yes", "--reason", "fail-points", status=None
        )
        self.group.write("note", text=f"switchover: exit status {done.returncode}")
        self.dies()
        try:
            self.group.master()
        except LookupError:
            others = [each for each in self.group.members if each is not self.victim]
            fail_over(self.group, others, self.rng)
        self.die_in_starts()
