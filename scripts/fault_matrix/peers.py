"""A pair of which one member is the real RocketMQ and the other one twinlog, whichever of them is master, and that change places.

A member keeps its store directory and its broker.conf, and is started on them as the one or the other. Roles change as
RocketMQ's users change them, by editing (theirs_group.py): with one twinlog member alone there is no record of roles.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field

from scripts.fault_matrix.checkers.masters import Epoch
from scripts.fault_matrix.group import PYTHON, Member, NameServer, master_role
from scripts.fault_matrix.places import Net, Place
from scripts.fault_matrix.theirs_group import TheirGroup
from scripts.fault_matrix.theirs_member import TheirMember, java
from tests.support.clients.remoting import is_registered
from tests.support.disk.compare import end_offset
from tests.support.process_group import jars
from tests.support.process_group.process import PROGRAM, Process
from tests.support.process_group.rocketmq import SMALL_HEAP

if TYPE_CHECKING:
    from scripts.fault_matrix.rows import Row

OURS, RELEASES = "twinlog", (jars.VERSION, jars.VERSION_5)
MAIN = "org.apache.rocketmq.broker.BrokerStartup"
# A RocketMQ slave asks for its master when it registers; both mean the same by SYNC_MASTER.
SETTINGS = {
    "registerNameServerPeriod": "10000",
    "haSendHeartbeatInterval": "300",
    "inSyncReplicas": "2",
    "haAutoResync": "true",
}
SECONDS_TO_REGISTER, SECONDS_TO_FOLLOW = 20.0, 30.0


class MixedMember(TheirMember):
    """`kind`: OURS, or a release of RocketMQ."""

    kind = OURS
    hole = ""

    def become(self, kind: str) -> None:
        """From its next start on."""
        self.kind = kind
        self.slow_to_stop = kind != OURS  # type: ignore[misc]
        self.own_log = self.log
        program = [PYTHON, "-m", "scripts.fault_matrix.planted", self.hole] if self.hole else [PROGRAM]
        root = self.conf.parent
        started = [*program, "broker"] if kind == OURS else [*java(root, kind, SMALL_HEAP), MAIN]
        self._command = [*self.place.prefix, *started, "-c", str(self.conf)]

    def printed(self, start_of_line: str) -> bool:
        """`ready ` is what ours says; RocketMQ's word for it is taken, too."""
        word = "The broker[" if start_of_line == "ready " and self.kind != OURS else start_of_line
        return Process.printed(self, word)

    def wait_booted(self) -> None:
        self.wait_until(lambda: self.printed("ready "), "its boot")


@define
class MixedGroup(TheirGroup):
    """Its name server is ours. `failed_over`: from ours, from theirs."""

    failed_over: set[bool] = field(factory=set)

    @property
    def pair(self) -> tuple[MixedMember, MixedMember]:
        """Ours, and RocketMQ's."""
        found = {each.kind == OURS: each for each in self.members if isinstance(each, MixedMember)}
        return found[True], found[False]

    def twinlog(self, *arguments: str, status: int | None = 0, place: Place | None = None):  # type: ignore[no-untyped-def]
        if arguments[:2] == ("wait", "level"):
            self.wait_level()
            return None
        return TheirGroup.twinlog(self, *arguments, status=status, place=place)

    def start(self, member: Member) -> None:
        """And wait until whoever asks a name server finds it."""
        member.start()
        member.wait_until(
            lambda: is_registered(self.namesrv, member.address), "its registration", timeout_s=SECONDS_TO_REGISTER
        )

    def hand_over(self) -> None:
        """Planned: the master takes nothing more, its slave has all, both are stopped, edited and started."""
        old, (new,) = self.master(), self.slaves()
        self.refuse_writes(old)
        old.stop()
        new.stop()
        self.crown(new, old)
        self.start(new)
        self.start(old)

    def crown(self, new: Member, old: Member) -> None:
        """What a person types."""
        assert isinstance(new, MixedMember)
        assert isinstance(old, MixedMember)
        old.edit("SLAVE", 1)
        new.edit(self.master_role, 0)
        self.reigns.append(Epoch(len(self.reigns), new.address, end_offset(new.commit_log)))

    def wait_held(self) -> None:
        """The slave has messages: RocketMQ's connects late, and one that is empty shows nothing of what a change keeps."""
        (slave,) = self.slaves()
        slave.wait_until(lambda: end_offset(slave.commit_log) > 0, "its first message")
        self.wait_healthy(SECONDS_TO_FOLLOW)

    def follows(self) -> bool:
        """Whether the slave gets level, or nearly so."""
        try:
            self.wait_healthy(SECONDS_TO_FOLLOW)
        except AssertionError as error:
            self.write("note", text=f"{error}")
            return False
        return True


@contextmanager
def running_mixed(root: Path, net: Net, row: "Row", seed: int, *, hole: str) -> Iterator[MixedGroup]:
    """A master and its slave, level; who is which follows from the seed."""
    rng = random.Random(f"mixed {seed}")
    kinds = [OURS, rng.choice(RELEASES)]
    rng.shuffle(kinds)
    with ExitStack() as stack:
        server = NameServer(root / "n0", net.places[2], {})
        stack.push(server)
        server.start()
        found: list[MixedMember] = []
        for number, kind in enumerate(kinds):
            member = MixedMember(root / f"m{number}", net.places[number], server.address, number, SETTINGS)
            member.hole = hole
            member.become(kind)
            member.edit("SLAVE" if number else master_role(row.level), number)
            stack.push(member)
            found.append(member)
        group = MixedGroup(root, net, (server,), tuple(found), net.places[-1], master_role=master_role(row.level))
        group.reigns.append(Epoch(0, found[0].address, 0))
        for each in found:
            group.start(each)
        group.wait_level()
        yield group
