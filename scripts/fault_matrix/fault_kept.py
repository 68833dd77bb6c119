"""A group whose record etcd keeps (autoFailover=etcd): members and etcd that die or stand still, in which order.

fault_unattended.py has the promises; one more is that no acknowledgement waits for etcd, which oracle L judges.
"""

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix.checkers.unattended import ANYBODY, NEVER_PAUSED, NEVER_PAUSED_ENDS
from scripts.fault_matrix.etcd import PlacedCluster
from scripts.fault_matrix.fault_unattended import SILENCE_S, SILENT_S, Deaths
from scripts.fault_matrix.group import Member

LEAVES_S = 6.0
SETTINGS = {"autoFailover": "etcd", "haMaxTimeSlaveNotCatchup": f"{LEAVES_S * 1000:.0f}"}
# An election has to be quicker than a master that is cut off, as with the defaults: only then rules decide, and not the time.
SETTINGS_OF_CUTS = {**SETTINGS, "haMaxTimeSlaveNotCatchup": "10000"}
SIGN_S = SILENT_S + 5.0  # The sign of a silent one lives for 5 s in etcd.
PAUSE_S_MAX = 3.0  # A lease. Whoever is demoted needs longer than that.
OUTAGE_S = 8.0  # Longer than the master's sign in etcd lives, and than a master may be silent.
SET_S_MAX = 40.0
ETCD_IS_AWAY = r"etcd is not to be relied on now"
SHRINKS = r"group record in force.*in_sync"


@define(eq=False)
class Kept(Deaths):
    """Heals by starting etcd, and then the members that are dead."""

    def prepare(self) -> None:
        self.wait_in_sync(*self.group.members)
        Deaths.prepare(self)

    @property
    def cluster(self) -> PlacedCluster:
        assert self.group.etcd is not None
        return self.group.etcd

    @property
    def text(self) -> str:
        return f"{self.what}; the master is {self.master.label}; {self.cluster}"

    @property
    def slave(self) -> Member:
        return self.slaves[0]

    @property
    def leaves_s(self) -> float:
        """After so long a slave leaves the set. A master that was passed leaves it at once."""
        return float(self.master.settings["haMaxTimeSlaveNotCatchup"]) / 1000

    def heal(self) -> None:
        self.cluster.start()
        Deaths.heal(self)

    def wait_in_sync(self, *members: Member) -> None:
        """Wait for that; another set is a finding, and the run goes on."""
        try:
            self.group.wait_in_sync(*members, seconds=SET_S_MAX)
        except TimeoutError as error:
            self.group.complain("K", f"{error}; there are {', '.join(sorted(self.cluster.in_sync()))}")

    def somebody_acknowledges(self, seconds: float) -> None:
        self.another_acknowledges(ANYBODY, seconds)

    def goes_on_alone(self, more_s: float = 0.0) -> None:
        """A client finds out by time-outs of 4 s."""
        self.somebody_acknowledges(self.leaves_s + 9.0 + more_s)
        self.wait_in_sync(self.master)

    @contextmanager
    def never_paused(self) -> Iterator[None]:
        """Promise it, for as long as the block lasts."""
        number = self.group.faults - 1
        self.group.write("note", number, f"{NEVER_PAUSED} {PAUSE_S_MAX:g}")
        yield
        self.group.write("note", number, f"{NEVER_PAUSED_ENDS} {PAUSE_S_MAX:g}")

    def outage(self) -> None:
        """The group goes on meanwhile."""
        with self.never_paused():
            time.sleep(OUTAGE_S)


# Members


class SlaveThenMaster(Kept):
    """The slave left the set, and lacks what the master acknowledged alone."""

    elections = 1
    trace = r"no automatic failover yet.*not in the in-sync set"
    what = "kill -9 of the slave, then of the master, which went on alone; the slave is back first"

    def breaks(self) -> None:
        self.kill(self.slave)
        self.goes_on_alone()
        time.sleep(self.rng.uniform(0.5, 1.5))
        self.kill(self.master)
        self.start(self.slave)
        time.sleep(SILENCE_S + 2.0)
        self.start(self.master)
        self.somebody_acknowledges(SILENT_S)


class EachInTurn(Kept):
    another_s = SILENT_S
    elections = 1
    what = "kill -9 of the slave, which is started again, and then of the master"

    def breaks(self) -> None:
        self.kill(self.slave)
        self.goes_on_alone()
        self.start(self.slave)
        self.wait_in_sync(*self.group.members)
        self.kill(self.master)


class MasterThenEtcd(Kept):
    """The old master is back while etcd is away, and stays outside of the set."""

    elections = 1
    what = "kill -9 of the master, then of etcd; the old master is back first"

    def breaks(self) -> None:
        self.kill(self.master)
        self.another_acknowledges(self.master.address, SILENT_S)
        self.wait_in_sync(self.slave)
        self.cluster.kill()
        self.outage()
        with self.never_paused():
            self.start(self.master)
            time.sleep(2.0)


class EtcdThenSlaveThenMaster(Kept):
    """Nobody may go on alone, as nobody can write down that the other one left."""

    elections = 1
    what = "kill -9 of etcd, then of the slave, then of the master; the slave and etcd are back first"

    def breaks(self) -> None:
        self.cluster.kill()
        self.outage()
        self.kill(self.slave)
        time.sleep(self.leaves_s + self.rng.uniform(2.0, 4.0))
        self.kill(self.master)
        self.start(self.slave)
        time.sleep(SILENCE_S + 1.0)
        self.cluster.start()
        self.another_acknowledges(self.master.address, SILENT_S)


class MasterAndEtcd(Kept):
    elections = 1
    trace = r"no automatic failover yet.*cannot be relied on"
    what = "kill -9 of etcd and of the master; etcd is back first"

    def breaks(self) -> None:
        self.cluster.kill()
        self.kill(self.master)
        time.sleep(SILENCE_S + 3.0)
        self.cluster.start()
        self.another_acknowledges(self.master.address, SILENT_S)


class BothKilled(Kept):
    """Back in some order; who is back first may be elected, as it is in the set."""

    elections = 2
    trace = r"store recovered"
    what = "kill -9 of both, which come back in some order"

    def breaks(self) -> None:
        self.kill(*self.group.members)
        self.start(*self.rng.sample(self.dead, len(self.dead)))
        self.somebody_acknowledges(SILENT_S)


# Members that stand still


@define(eq=False)
class Hangs(Kept):
    """SIGSTOP until it heals."""

    victims: Sequence[Member] = field(factory=tuple, init=False)

    def stop(self, *members: Member) -> None:
        self.victims = members
        for each in members:
            each.send_signal(signal.SIGSTOP)

    def heal(self) -> None:
        for each in self.victims:
            each.send_signal(signal.SIGCONT)
        Kept.heal(self)


class MasterHangs(Hangs):
    another_s = SIGN_S
    elections = 1
    what = "SIGSTOP of the master until the slave goes on alone"

    def breaks(self) -> None:
        self.stop(self.master)


class SlaveHangs(Hangs):
    trace = SHRINKS
    what = "SIGSTOP of the slave until the master goes on alone"

    def breaks(self) -> None:
        self.stop(self.slave)
        self.goes_on_alone()


class BothAway(Hangs):
    """Nobody is dead, and nobody may be elected, then or just after."""

    trace = r"stood still|did not run|stalls|has no CPU|goes on|not heard|no lease|does not answer"
    what = f"neither member has a CPU for {SILENCE_S:g} s"

    def breaks(self) -> None:
        self.stop(*self.group.members)
        time.sleep(SILENCE_S)
        for each in self.victims:
            each.send_signal(signal.SIGCONT)
        self.somebody_acknowledges(SILENT_S)


# etcd


class LeaderKilled(Kept):
    """Of three another one leads; one alone is away."""

    trace = ""
    what = "kill -9 of etcd's leader"

    def breaks(self) -> None:
        self.cluster.leader().kill()
        self.outage()


class EtcdKilled(Kept):
    trace = ETCD_IS_AWAY
    what = "kill -9 of all of etcd, which is back later"

    def breaks(self) -> None:
        self.cluster.kill()
        self.outage()
        with self.never_paused():
            self.cluster.start()
            time.sleep(3.0)


class EtcdHangs(Kept):
    trace = ETCD_IS_AWAY
    what = "SIGSTOP of all of etcd"

    def breaks(self) -> None:
        for each in self.cluster.members:
            each.pause()
        self.outage()

    def heal(self) -> None:
        for each in self.cluster.members:
            each.resume()
        Kept.heal(self)


@define(eq=False)
class EtcdSlow(Kept):
    """It answers between two stand-stills. The set changes all the same, later."""

    trace: ClassVar[str] = SHRINKS
    what: ClassVar[str] = "etcd stands still for 2 s again and again; kill -9 of the slave meanwhile"
    still_s: ClassVar[float] = 2.0
    runs_s: ClassVar[float] = 0.4
    _healed: threading.Event = field(factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def breaks(self) -> None:
        self._thread = threading.Thread(target=self._stand_still, daemon=True)
        self._thread.start()
        self.outage()
        self.kill(self.slave)
        self.goes_on_alone(5 * (self.still_s + self.runs_s))

    def _stand_still(self) -> None:
        while not self._healed.wait(self.runs_s):
            for each in self.cluster.members:
                each.pause()
            time.sleep(self.still_s)
            for each in self.cluster.members:
                each.resume()

    def heal(self) -> None:
        self._healed.set()
        if self._thread is not None:
            self._thread.join()
        Kept.heal(self)


class EtcdFull(Kept):
    """The set cannot shrink then: nothing is acknowledged without the slave until there is room."""

    trace = ETCD_IS_AWAY
    what = "etcd has no space and refuses every write (NOSPACE); kill -9 of the slave meanwhile"

    def breaks(self) -> None:
        with self.never_paused():
            self.cluster.fill()
        self.outage()
        self.kill(self.slave)
        time.sleep(self.leaves_s + 2.0)

    def heal(self) -> None:
        self.cluster.make_room()
        Kept.heal(self)


class EtcdLosesData(Kept):
    """A person begins anew there, by one command; then the master is killed, which shows that it is as before."""

    another_s = SILENT_S
    elections = 1
    trace = r"its data was lost"
    what = "etcd loses its data; the record is put there anew; kill -9 of the master"

    def breaks(self) -> None:
        with self.never_paused():
            self.cluster.lose_data()
        self.outage()
        if self.cluster.record() is not None:
            self.group.complain("L", "a record was put into an etcd that lost its data, and nobody said so")
        with self.never_paused():
            done = self.group.twinlog("auto-failover", "etcd", status=None)
            self.group.write("note", text=f"auto-failover etcd: exit status {done.returncode} {done.stderr}")
            self.wait_in_sync(*self.group.members)
        self.kill(self.master)


# Three members


class OneAfterTheOther(Kept):
    """A member that left the set is not needed: the last one goes on alone."""

    another_s = SILENT_S
    elections = 1
    what = "of three kill -9 of a slave, which leaves the set, and then of the master"

    def breaks(self) -> None:
        self.kill(self.slave)
        self.wait_in_sync(*(each for each in self.group.members if each is not self.slave))
        self.kill(self.master)


class SlavesInTurn(Kept):
    """The second one leaves the set after the first one has."""

    trace = SHRINKS
    what = "of three kill -9 of a slave, which leaves the set, and then of the other one"

    def breaks(self) -> None:
        self.kill(self.slave)
        self.wait_in_sync(*(each for each in self.group.members if each is not self.slave))
        self.kill(self.slaves[1])
        self.goes_on_alone()


class SlavesAtOnce(Kept):
    """Both leave the set by one version."""

    trace = SHRINKS
    what = "of three kill -9 of both slaves at once"

    def breaks(self) -> None:
        self.kill(*self.slaves)
        self.goes_on_alone()
