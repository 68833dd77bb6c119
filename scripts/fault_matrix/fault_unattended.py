"""A group that elects by itself (autoFailover=members): what breaks, and what is promised then while nobody does anything.

What a fault promises goes into the history, where checkers/unattended.py finds it: how many elections there may be, and in how
many seconds another member acknowledges although nothing has been put right.
"""

import signal
import time
from collections.abc import Sequence
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix import history as histories
from scripts.fault_matrix.checkers.unattended import (
    ANYBODY,
    ELECTIONS,
    ELECTIONS_BEFORE,
    GOES_ON,
    elected,
    too_soon,
)
from scripts.fault_matrix.fault import Fault
from scripts.fault_matrix.group import Member
from tests.support.process_group.process import Process

SETTINGS = {"autoFailover": "members"}
SILENCE_S = 5.0  # autoFailoverAfterMs
# From the fault on, to the answer of a client that had to find out by time-outs of 4 s: a process that is gone is passed at once.
GONE_S, SILENT_S = 10.0, 15.0
ELECTS = r"automatic failover begins"


@define(eq=False)
class Unattended(Fault):
    """`another_s`: another member acknowledges within so many seconds of `breaks`; None: that is not promised.

    `elections`: so many there may be, from here to the next fault.
    """

    another_s: ClassVar[float | None] = None
    elections: ClassVar[int] = 0
    trace: ClassVar[str] = ELECTS
    master: Member = field(init=False)
    slaves: list[Member] = field(init=False)

    def prepare(self) -> None:
        self.master = self.group.master()
        self.slaves = self.rng.sample(others := self.group.slaves(), len(others))
        self.hold_s = self.rng.uniform(0.5, 2.0)

    @property
    def text(self) -> str:
        return f"{self.what}; the master is {self.master.label}"

    @property
    def what(self) -> str:
        """In a sentence, without who the master is."""
        raise NotImplementedError

    def breaks(self) -> None:
        raise NotImplementedError

    def inject(self) -> None:
        number = self.group.faults - 1
        self.group.write("note", number, f"{ELECTIONS_BEFORE} {self.group.elections()}")
        self.group.write("note", number, f"{ELECTIONS} {self.elections}")
        self.breaks()
        if self.another_s is not None:
            self.another_acknowledges(self.master.address, self.another_s)

    def another_acknowledges(self, old: str, seconds: float) -> None:
        """Promise it, from now on, and wait for it. `old`: whose answers do not count."""
        position = self.group.client_lines.stat().st_size
        began = time.monotonic_ns()
        self.group.write("note", self.group.faults - 1, f"{GOES_ON} {seconds:g}", old)
        deadline = time.monotonic() + seconds + 1.0
        while time.monotonic() < deadline:
            if any(
                event.kind == "ok" and event.op == "append" and event.node != old and event.ns > began
                for event in histories.from_position(self.group.client_lines, position)
            ):
                return
            time.sleep(0.1)


# Deaths


@define(eq=False)
class Deaths(Unattended):
    """`dead`: who is started again when it heals, in this order."""

    dead: list[Member] = field(factory=list, init=False)

    @property
    def killed(self) -> Sequence[Process]:
        return self.dead

    def kill(self, *members: Member) -> None:
        for each in members:
            each.kill()
            self.dead.append(each)

    def start(self, *members: Member) -> None:
        """And wait until they are there: how long a process takes for that is the machine's business."""
        for each in members:
            self.dead.remove(each)
            Process.start(each)
            time.sleep(self.rng.uniform(0.0, 0.7))
        for each in members:
            each.wait_ready()

    def heal(self) -> None:
        for each in self.dead:
            Process.start(each)


class MasterKilled(Deaths):
    another_s = GONE_S
    elections = 1
    what = "kill -9 of the master, which nobody starts again for a while"

    def breaks(self) -> None:
        self.kill(self.master)


class SlaveThenMaster(Deaths):
    """The slave lacks what was written since, so the other one has to be chosen, or it has caught up.

    A member that has only just started waits for its master's first word as long as for any other.
    """

    another_s = SILENT_S
    elections = 1
    what = "kill -9 of a slave, which is started again, and then of the master"

    def breaks(self) -> None:
        self.kill(self.slaves[0])
        time.sleep(self.rng.uniform(0.5, 2.0))
        self.start(self.slaves[0])
        time.sleep(self.rng.uniform(0.0, 1.0))
        self.kill(self.master)


@define(eq=False)
class TwoOfThree(Deaths):
    """The one that is left may not go on alone, and says so."""

    elections: ClassVar[int] = 1
    trace: ClassVar[str] = r"no automatic failover yet.*enough votes"
    alone_s: float = field(init=False)

    def prepare(self) -> None:
        Deaths.prepare(self)
        self.alone_s = self.rng.uniform(3.0, 6.0)

    def breaks(self) -> None:
        self.kill(self.master, self.slaves[0])
        time.sleep(self.alone_s)


class SlaveBackFirst(TwoOfThree):
    what = "kill -9 of the master and of a slave; the slave is back first"

    def breaks(self) -> None:
        TwoOfThree.breaks(self)
        self.start(self.slaves[0])
        self.another_acknowledges(self.master.address, SILENT_S)


class MasterBackFirst(TwoOfThree):
    what = "kill -9 of the master and of a slave; the master is back first"

    def breaks(self) -> None:
        TwoOfThree.breaks(self)
        self.start(self.master)
        self.another_acknowledges(ANYBODY, SILENT_S)


class AllKilled(Deaths):
    """Back one after the other. Who was master need not be it any more."""

    elections = 1
    trace = r"store recovered"
    what = "kill -9 of all members, which come back in some order"

    def breaks(self) -> None:
        self.kill(*self.group.members)
        self.start(*self.rng.sample(self.dead, len(self.dead)))
        self.another_acknowledges(ANYBODY, SILENT_S)


# Processes that stand still


@define(eq=False)
class StandStill(Unattended):
    """SIGSTOP, for so long, or until it heals."""

    away_s: ClassVar[float | None] = None

    @property
    def victims(self) -> Sequence[Member]:
        raise NotImplementedError

    def breaks(self) -> None:
        self.signal(signal.SIGSTOP)
        if self.away_s is not None:
            time.sleep(self.away_s)
            self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        for each in self.victims:
            each.send_signal(number)

    def heal(self) -> None:
        self.signal(signal.SIGCONT)


class MasterHangs(StandStill):
    another_s = SILENT_S
    elections = 1
    what = "SIGSTOP of the master until another one acknowledges"

    @property
    def victims(self) -> Sequence[Member]:
        return [self.master]


@define(eq=False)
class Away(StandStill):
    """A CPU that is taken away: nobody is dead, and nobody may be elected, then or just after."""

    away_s: ClassVar[float | None] = SILENCE_S
    trace: ClassVar[str] = r"stood still|did not run|stalls|has no CPU|goes on|not heard|no lease|does not answer"

    def prepare(self) -> None:
        StandStill.prepare(self)
        self.hold_s = self.rng.uniform(1.5, 2.5)


class GroupAway(Away):
    what = f"no member has a CPU for {SILENCE_S:g} s"

    @property
    def victims(self) -> Sequence[Member]:
        return self.rng.sample(self.group.members, len(self.group.members))


class SlavesAway(Away):
    what = f"no slave has a CPU for {SILENCE_S:g} s"

    @property
    def victims(self) -> Sequence[Member]:
        return self.slaves


class MasterAway(Away):
    """For longer, it is one that hangs, and nobody can tell these apart."""

    away_s = SILENCE_S - 1.0
    what = f"the master has no CPU for {SILENCE_S - 1.0:g} s"

    @property
    def victims(self) -> Sequence[Member]:
        return [self.master]


# Who comes and goes


class ComesAndGoes(Deaths):
    """The master at first. Once it is a slave, the others need not mind it."""

    another_s = GONE_S
    elections = 1
    turns, period_s = 3, 10.0
    what = f"a member is killed, and is back {period_s:g} s later, {turns} times, {period_s:g} s apart; first it is the master"

    def inject(self) -> None:
        Deaths.inject(self)
        for _ in range(self.turns - 1):
            time.sleep(self.period_s)
            self.start(self.master)
            time.sleep(self.period_s)
            self.kill(self.master)
        time.sleep(self.period_s)

    def breaks(self) -> None:
        self.kill(self.master)


class MastersHangInTurn(Unattended):
    """Whoever is master hangs until another one acknowledges. After some elections members hold off, longer and longer.

    The next one hangs once the others follow: healthy they are only when they do not hold off any more.
    """

    turns = 5
    elections = turns
    what = f"{turns} masters hang, one after the other"
    seconds_max: ClassVar[float] = SILENT_S + 20.0  # So long they hold off after five elections.

    def breaks(self) -> None:
        for _ in range(self.turns):
            master = self.group.master()
            master.send_signal(signal.SIGSTOP)
            try:
                self.another_acknowledges(master.address, self.seconds_max)
            finally:
                master.send_signal(signal.SIGCONT)
            self.wait_streaming()

    def wait_streaming(self) -> None:
        master = self.group.master()
        states = [f"{each.label}=streaming" for each in self.group.members if each is not master]
        self.group.twinlog("wait", *states, "--timeout", "40")

    def heal(self) -> None:
        """Nobody hangs any more. None was elected sooner after many others than may be."""
        for wrong in too_soon(elected(self.group.entries())):
            self.group.complain("J", wrong)
