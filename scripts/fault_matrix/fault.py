"""What a fault is, and the ones that need nothing but signals and commands."""

import random
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix.group import Group, Member, NameServer
from tests.support.process_group.process import Process

LEASE_S = 3.0  # haLeaseMs


@define(eq=False)
class Fault:
    """Something that goes wrong, and how it gets right again.

    `hold_s` is between the two. `trace`: a regular expression that some line of a member's log, or of what `twinlog check` says
    meanwhile or just after, must match; "" where it is over before anybody has to notice. `needs`: root, cc.
    """

    group: Group
    rng: random.Random
    hold_s: float = field(init=False)
    needs: ClassVar[Sequence[str]] = ()
    trace: ClassVar[str] = ""

    def __attrs_post_init__(self) -> None:
        self.hold_s = self.rng.uniform(0.3, 1.5)
        self.prepare()

    def prepare(self) -> None:
        """Choose a victim, other numbers."""

    @property
    def text(self) -> str:
        """What it does, in a sentence."""
        raise NotImplementedError

    @property
    def killed(self) -> Sequence[Process]:
        """Whose processes it ends."""
        return ()

    def inject(self) -> None:
        raise NotImplementedError

    def heal(self) -> None:
        """Begin to; whoever was started need not be ready yet."""
        raise NotImplementedError


def name_of(process: Process) -> str:
    return process.label if isinstance(process, Member) else process.name


@define(eq=False)
class Kill(Fault):
    """Three times in a row: twice more while it recovers."""

    victim: Process = field(init=False)
    delays: list[float] = field(init=False)
    delay_s: ClassVar[tuple[float, float]] = (0.02, 0.9)
    trace: ClassVar[str] = r"store recovered|no master|unreachable|replication interrupted"

    def pick(self) -> Process:
        raise NotImplementedError

    def prepare(self) -> None:
        self.victim = self.pick()
        self.delays = [self.rng.uniform(*self.delay_s) for _ in range(2)]

    @property
    def killed(self) -> Sequence[Process]:
        return [self.victim]

    @property
    def text(self) -> str:
        delays = " and ".join(f"{each:.2f}" for each in self.delays)
        return f"kill -9 of {name_of(self.victim)}, and again {delays} s after its next starts"

    def inject(self) -> None:
        self.victim.kill()
        for delay in self.delays:
            Process.start(self.victim)  # Without waiting for it.
            time.sleep(delay)
            self.victim.kill()

    def heal(self) -> None:
        Process.start(self.victim)


class KillMaster(Kill):
    def pick(self) -> Process:
        return self.group.master()


class KillSlave(Kill):
    def pick(self) -> Process:
        return self.rng.choice(self.group.slaves())


@define(eq=False)
class KillNameServer(Kill):
    trace: ClassVar[str] = r"name server"

    def prepare(self) -> None:
        Kill.prepare(self)
        self.hold_s = self.rng.uniform(2.0, 4.0)  # Long enough for `twinlog check` to be asked meanwhile.

    def pick(self) -> Process:
        return self.rng.choice(self.group.namesrvs)


@define(eq=False)
class Pause(Fault):
    """SIGSTOP, later SIGCONT."""

    victim: Member = field(init=False)
    trace: ClassVar[str] = r"does not answer|no lease|no answer|stall|silent|not in sync|timed? out|stood still"
    seconds: ClassVar[tuple[float, float]] = (0.5, 2.0)

    def pick(self) -> Member:
        raise NotImplementedError

    def prepare(self) -> None:
        self.victim = self.pick()
        self.hold_s = self.rng.uniform(*self.seconds)

    @property
    def text(self) -> str:
        return f"SIGSTOP of {self.victim.label} for {self.hold_s:.1f} s"

    def inject(self) -> None:
        self.victim.send_signal(signal.SIGSTOP)

    def heal(self) -> None:
        self.victim.send_signal(signal.SIGCONT)


class PauseMasterShort(Pause):
    trace: ClassVar[str] = ""

    def pick(self) -> Member:
        return self.group.master()


class PauseMasterLong(PauseMasterShort):
    trace: ClassVar[str] = Pause.trace
    seconds: ClassVar[tuple[float, float]] = (LEASE_S + 4, LEASE_S + 6)


class PauseSlaveLong(Pause):
    seconds: ClassVar[tuple[float, float]] = (LEASE_S + 4, LEASE_S + 6)

    def pick(self) -> Member:
        return self.rng.choice(self.group.slaves())


@define(eq=False)
class PauseMasterAndFailOver(PauseMasterLong):
    """Meanwhile a person makes another member the master: the woken one must not acknowledge what clients have sent it before."""

    trace: ClassVar[str] = r"role|epoch|master changed"
    seconds: ClassVar[tuple[float, float]] = (0.05, 0.4)

    @property
    def text(self) -> str:
        return f"SIGSTOP of the master {self.victim.label}, failover, and SIGCONT at once"

    def inject(self) -> None:
        """It wakes as soon as another one serves: clients wait for 4 s only, and their requests are to be there."""
        others = self.group.slaves()
        sizes = {each: each.log_size for each in others}
        lease_ends = time.monotonic() + LEASE_S
        self.victim.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        with ThreadPoolExecutor(1) as beside:
            failover = beside.submit(fail_over, self.group, others, self.rng)
            while not failover.done() and not any(_leads(each, sizes[each]) for each in others):
                time.sleep(0.02)
            time.sleep(max(0.0, lease_ends - time.monotonic()))
            self.heal()
            failover.result()


def _leads(member: Member, log_size: int) -> bool:
    """Since its log was so long."""
    return any("this member is the master now" in line for line in member.lines_from(log_size))


def fail_over(group: Group, others: list[Member], rng: random.Random, *options: str) -> Member:
    """To one of these; where another holds more, a refusal names it."""
    told = []
    for candidate in rng.sample(others, len(others)):
        arguments = ("failover", "--candidate", candidate.label, "--yes", "--reason", "fault matrix", *options)
        done = group.twinlog(*arguments, status=None, place=candidate.place)  # Where members believe it.
        if done.returncode in (0, 6):
            group.write("note", text=f"failover to {candidate.label}")
            return candidate
        told.append(done.stderr)
    raise AssertionError("no candidate was accepted:\n" + "\n".join(told))


@define(eq=False)
class Storm(Fault):
    """One switchover after the other, and in the middle of one of them a process dies."""

    changes: int = field(init=False)
    victim: Member = field(init=False)
    trace: ClassVar[str] = r"role|epoch|switchover|master"

    def prepare(self) -> None:
        self.changes = self.rng.randrange(3, 6)
        self.hold_s = 0.1
        self.victim = self.rng.choice(self.group.members)

    @property
    def killed(self) -> Sequence[Process]:
        return [self.victim]

    @property
    def text(self) -> str:
        return f"{self.changes} role changes one after the other, kill -9 of {self.victim.label} among them, then a failover"

    def inject(self) -> None:
        for _ in range(self.changes):
            done = self.group.twinlog("switchover", "--yes", "--reason", "storm", status=None)
            self.group.write("note", text=f"switchover: exit status {done.returncode}")
            time.sleep(self.rng.uniform(0.0, 0.5))
        was_master = self.victim is self.group.master()
        self.victim.kill()
        if was_master:
            others = [each for each in self.group.members if each is not self.victim]
            fail_over(self.group, others, self.rng)
        else:
            done = self.group.twinlog("switchover", "--yes", status=None)
            self.group.write("note", text=f"switchover beside a dead member: exit status {done.returncode}")

    def heal(self) -> None:
        Process.start(self.victim)


@define(eq=False)
class EmptyNameServer(Fault):
    """Killed, and back without anything that it knew."""

    victim: NameServer = field(init=False)
    trace: ClassVar[str] = r"name server"

    def prepare(self) -> None:
        self.victim = self.rng.choice(self.group.namesrvs)
        self.hold_s = self.rng.uniform(2.0, 4.0)

    @property
    def killed(self) -> Sequence[Process]:
        return [self.victim]

    @property
    def text(self) -> str:
        return f"the name server {self.victim.address} dies, and is back {self.hold_s:.1f} s later, empty"

    def inject(self) -> None:
        self.victim.kill()
        (self.victim.root / "kv.json").unlink(missing_ok=True)

    def heal(self) -> None:
        Process.start(self.victim)
