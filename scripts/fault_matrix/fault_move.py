"""Members that come back with another address, in the middle of a role change, or while somebody catches up.

A member that returns is at another port, at another IP of 127.0.0.0/8, or both; its store is the same.
"""

import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix.fault import Fault, fail_over
from scripts.fault_matrix.group import Member
from tests.support.process_group.process import Process

KNOWN_S, CHOSEN_S = 15.0, 5.0
FOLLOWS = "is master of epoch"  # Why a slave follows.
PAUSE_S, HOLDS = 10.0, '"state": "holding"'


@define(eq=False)
class Moves(Fault):
    """`victim` leaves, and returns with another address. `trace`: the group's record has it there, where a master tells so."""

    trace: ClassVar[str] = r"member moved"
    master: Member = field(init=False)
    slaves: list[Member] = field(init=False)
    victim: Member = field(init=False)
    is_killed: bool = field(init=False)
    was: str = field(init=False)
    host: str = field(init=False)
    port: int = field(init=False)
    delay_s: float = field(init=False)  # Of whatever happens second.
    log_sizes: dict[Member, int] = field(init=False)  # When it began.

    def prepare(self) -> None:
        self.master = self.group.master()
        self.slaves = [each for each in self.group.members if each is not self.master]
        self.rng.shuffle(self.slaves)
        self.victim = self.pick()
        self.is_killed = self.rng.random() < 0.5
        self.was, (self.host, port) = self.victim.address, self.victim.address.split(":")
        other_port, other_ip = self.rng.choice([(True, False), (False, True), (True, True)])
        if other_ip:
            self.host = f"127.0.0.{self.rng.choice([n for n in range(2, 255) if f'127.0.0.{n}' != self.host])}"
        self.port = self.victim.place.port() if other_port else int(port)
        self.delay_s = self.rng.uniform(0.0, 1.2)
        self.hold_s = 0.1
        self.log_sizes = {each: each.log_size for each in self.group.members}

    def pick(self) -> Member:
        raise NotImplementedError

    @property
    def when(self) -> str:
        """The end of the sentence."""
        raise NotImplementedError

    @property
    def killed(self) -> Sequence[Process]:
        return [self.victim]

    @property
    def text(self) -> str:
        role = "master" if self.victim is self.master else "slave"
        leaves = "is killed" if self.is_killed else "is stopped"
        return (
            f"the {role} {self.victim.label} {leaves} at {self.was} and returns at {self.host}:{self.port}{self.when}"
        )

    def leave(self) -> None:
        self.victim.kill() if self.is_killed else self.victim.stop()

    def come_back(self) -> None:
        """And wait until it says that its address changed."""
        self.victim.move(self.host, self.port)
        before = self.victim.log_size
        Process.start(self.victim)
        self.victim.wait_until(
            lambda: any("address changed" in line for line in self.victim.lines_from(before)), "its news of its address"
        )

    def switch_over(self, candidate: Member, delay_s: float = 0.0) -> None:
        time.sleep(delay_s)
        arguments = ("switchover", "--candidate", candidate.label, "--yes", "--reason", "fault matrix")
        done = self.group.twinlog(*arguments, status=None)
        self.group.write("note", text=f"switchover to {candidate.label}: exit status {done.returncode} {done.stderr}")

    def choose(self, candidates: Sequence[Member], delay_s: float = 0.0) -> None:
        """Choose one. If none is accepted, there may be a master, or one may come back."""
        time.sleep(delay_s)
        try:
            fail_over(self.group, list(candidates), self.rng)
        except AssertionError as error:
            self.group.write("note", text=f"{error}")

    def choose_unless_there_is_one(self) -> None:
        """Do what a person does who finds the group without a master for some seconds."""
        deadline = time.monotonic() + CHOSEN_S
        while time.monotonic() < deadline:
            with suppress(LookupError):
                self.group.master()
                return
        self.choose(self.group.members)

    def heal(self) -> None:
        """Wait until what it is looked for by is there: its next move is not to hide this one."""
        self.victim.wait_ready()
        deadline = time.monotonic() + KNOWN_S
        while time.monotonic() < deadline and not self._is_traced():
            time.sleep(0.1)

    def _is_traced(self) -> bool:
        told = (line for each, size in self.log_sizes.items() for line in each.lines_from(size))
        return any(re.search(self.trace, line) for line in told)


# In the middle of a switchover


@define(eq=False)
class OtherMovesInSwitchover(Moves):
    """Neither the master nor the one that becomes it: it returns while roles change."""

    def pick(self) -> Member:
        return self.slaves[0]

    @property
    def when(self) -> str:
        return f", {self.delay_s:.2f} s before a switchover to {self.slaves[1].label}"

    def inject(self) -> None:
        self.leave()
        with ThreadPoolExecutor(1) as beside:
            ordered = beside.submit(self.switch_over, self.slaves[1], self.delay_s)
            self.come_back()
            ordered.result()
        self.choose_unless_there_is_one()


@define(eq=False)
class MasterMovesInSwitchover(Moves):
    """It leaves while it resigns, or just after that. It may be the master of its epoch when it is back."""

    trace: ClassVar[str] = r"address changed"

    def prepare(self) -> None:
        Moves.prepare(self)
        self.delay_s = 0.25 * self.rng.random() ** 3  # The old master resigns within milliseconds.

    def pick(self) -> Member:
        return self.master

    @property
    def when(self) -> str:
        return f", {self.delay_s:.3f} s after the write pause of a switchover to {self.slaves[0].label} began"

    def pause_begins(self) -> None:
        """Wait for that, or for a switchover that is refused before it gets there."""
        deadline = time.monotonic() + PAUSE_S
        while time.monotonic() < deadline:
            if any(HOLDS in line for line in self.master.lines_from(self.log_sizes[self.master])):
                return
            time.sleep(0.005)

    def inject(self) -> None:
        with ThreadPoolExecutor(1) as beside:
            ordered = beside.submit(self.switch_over, self.slaves[0])
            self.pause_begins()
            time.sleep(self.delay_s)
            self.leave()
            self.come_back()
            ordered.result()
        self.choose_unless_there_is_one()


class CandidateMovesInSwitchover(MasterMovesInSwitchover):
    """The one that becomes master."""

    def pick(self) -> Member:
        return self.slaves[0]


# In the middle of a failover


@define(eq=False)
class MasterMovesInFailover(Moves):
    """The dead master returns while another one is chosen. It may be quicker."""

    trace: ClassVar[str] = r"address changed"

    def pick(self) -> Member:
        return self.master

    @property
    def when(self) -> str:
        return f", {self.delay_s:.2f} s before a failover"

    def inject(self) -> None:
        self.leave()
        with ThreadPoolExecutor(1) as beside:
            ordered = beside.submit(self.choose, self.slaves, self.delay_s)
            self.come_back()
            ordered.result()
        self.choose_unless_there_is_one()


@define(eq=False)
class SlaveMovesInFailover(Moves):
    """The master is dead, and of those that are left one leaves while the other one is chosen. Then the master is back."""

    def pick(self) -> Member:
        return self.slaves[0]

    @property
    def killed(self) -> Sequence[Process]:
        return [self.victim, self.master]

    @property
    def when(self) -> str:
        return (
            f", {self.delay_s:.2f} s after the order of a failover from {self.master.label} to {self.slaves[1].label}"
        )

    def inject(self) -> None:
        self.master.kill()
        with ThreadPoolExecutor(1) as beside:
            ordered = beside.submit(self.choose, [self.slaves[1]])
            time.sleep(self.delay_s)
            self.leave()
            self.come_back()
            ordered.result()
        self.master.start()
        self.choose_unless_there_is_one()


# While somebody catches up


@define(eq=False)
class CatchesUp(Moves):
    """`late` was away while the others wrote."""

    @property
    def late(self) -> Member:
        return self.slaves[0]

    @property
    def killed(self) -> Sequence[Process]:
        return [self.victim, self.late]

    def prepare(self) -> None:
        Moves.prepare(self)
        self.delay_s = self.rng.uniform(0.0, 0.5)

    @property
    def when(self) -> str:
        return f", {self.delay_s:.2f} s after {self.late.label} began to catch up"

    def inject(self) -> None:
        self.late.kill()
        time.sleep(self.rng.uniform(2.0, 4.0))
        before = self.late.log_size
        Process.start(self.late)
        self.late.wait_until(lambda: any(FOLLOWS in line for line in self.late.lines_from(before)), "its master")
        time.sleep(self.delay_s)
        self.leave()
        self.come_back()
        self.late.wait_ready()


class SlaveMovesAsItCatchesUp(CatchesUp):
    """Away once more before it has all, and then at another place."""

    def pick(self) -> Member:
        return self.late


class MasterMovesAsOneCatchesUp(CatchesUp):
    """It stays the master: nobody else is chosen."""

    trace: ClassVar[str] = r"address changed"

    def pick(self) -> Member:
        return self.master
