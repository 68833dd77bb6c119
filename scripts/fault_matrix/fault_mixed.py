"""RocketMQ and twinlog in one pair: who serves changes, and what serves a directory changes, in traffic."""

import signal
import time
from collections.abc import Sequence
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix.fault import Fault
from scripts.fault_matrix.peers import OURS, RELEASES, MixedGroup, MixedMember

SILENT_S = 4.0  # Longer than a master waits for its slave.


@define(eq=False)
class Mixed(Fault):
    """`kinds`: what each member is when it begins, the master first."""

    needs: ClassVar[Sequence[str]] = ("java",)
    kinds: tuple[str, str] = field(init=False)

    def prepare(self) -> None:
        self.hold_s = 0.1
        self.mixed.wait_held()
        (slave,) = self.mixed.slaves()
        self.kinds = self.kind_of(self.mixed.master()), self.kind_of(slave)

    @property
    def mixed(self) -> MixedGroup:
        assert isinstance(self.group, MixedGroup)
        return self.group

    @staticmethod
    def kind_of(member: object) -> str:
        assert isinstance(member, MixedMember)
        return member.kind

    def heal(self) -> None:
        """All that a person does is part of it."""


@define(eq=False)
class HandOver(Mixed):
    """Planned, in whichever direction it is."""

    @property
    def text(self) -> str:
        return f"planned change of roles: the master {self.kinds[0]} and the slave {self.kinds[1]} change places"

    def inject(self) -> None:
        self.mixed.hand_over()


@define(eq=False)
class FailOverMixed(Mixed):
    """The slave hangs, and may not be counted; then the master dies, and the slave is started as the master.

    What only the old master has nobody was promised. Ours cuts it by itself. RocketMQ's cannot, and begins anew. A second
    time it is the other kind's turn to die.
    """

    trace: ClassVar[str] = r"FLUSH_SLAVE_TIMEOUT|SLAVE_NOT_AVAILABLE|in-sync|role|closed|refused|timed? out"
    hands_over: bool = field(init=False)

    def prepare(self) -> None:
        Mixed.prepare(self)
        self.hands_over = (self.kinds[0] == OURS) in self.mixed.failed_over
        if self.hands_over:
            self.kinds = self.kinds[1], self.kinds[0]

    @property
    def text(self) -> str:
        before = "roles change; then " if self.hands_over else ""
        return f"{before}the slave {self.kinds[1]} hangs, the master {self.kinds[0]} dies, and the slave takes over"

    def inject(self) -> None:
        if self.hands_over:
            self.mixed.hand_over()
            self.mixed.wait_healthy()
        old, (new,) = self.mixed.master(), self.mixed.slaves()
        assert isinstance(old, MixedMember)
        self.mixed.failed_over.add(old.kind == OURS)
        new.send_signal(signal.SIGSTOP)
        time.sleep(SILENT_S)
        old.kill()
        new.kill()  # With what it has not taken out of its socket.
        self.mixed.crown(new, old)
        self.mixed.start(new)
        if old.kind != OURS:
            old.empty()
        self.mixed.start(old)


@define(eq=False)
class Exchange(Mixed):
    """Each directory is served by the other kind from now on, one after the other, and roles stay."""

    @property
    def text(self) -> str:
        return f"{self.kinds[0]} and {self.kinds[1]} each go on with the other's store directory"

    def inject(self) -> None:
        ours, theirs = self.mixed.pair
        release = self.rng.choice(RELEASES)
        self._restart(ours, release)
        self._restart(theirs, OURS)

    def _restart(self, member: MixedMember, kind: str) -> None:
        how = self.rng.choice(("stop", "kill"))
        self.group.write("note", text=f"{member.label}: {how} of {member.kind}, start as {kind}")
        member.kill() if how == "kill" else member.stop()
        member.become(kind)
        self.mixed.start(member)
        self.mixed.follows()


@define(eq=False)
class OtherRelease(Mixed):
    """RocketMQ's member is started as another release."""

    @property
    def text(self) -> str:
        return f"RocketMQ of {' and '.join(self.kinds)} is started as another release"

    def inject(self) -> None:
        _, theirs = self.mixed.pair
        theirs.stop()
        theirs.become(next(each for each in RELEASES if each != theirs.kind))
        self.mixed.start(theirs)
