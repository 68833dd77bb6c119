"""The real RocketMQ as a group under test: a master, a slave and a name server, and the person who changes their roles.

RocketMQ's classic replication has no command for a role change. Its users edit broker.conf and restart, so that is what the
commands `failover` and `switchover` come to here; faults and clients are the same as for ours.
"""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field

from scripts.fault_matrix.checkers.masters import Epoch
from scripts.fault_matrix.disks import mounted_all
from scripts.fault_matrix.group import Group, Member, master_role, proxies_of
from scripts.fault_matrix.places import Net, Place
from scripts.fault_matrix.theirs_member import TheirMember, TheirNameServer
from tests.support.clients.remoting import request
from tests.support.disk.compare import end_offset
from tests.support.process_group.process import Process

if TYPE_CHECKING:
    from scripts.fault_matrix.rows import Row

UPDATE_BROKER_CONFIG = 25
NEAR = 256 * 1024  # Two answers, some ms apart, in the traffic of a test.
# What RocketMQ's documentation calls the safest: replicated and flushed before SEND_OK.
SAFEST = {"flushDiskType": "SYNC_FLUSH"}


@define
class TheirGroup(Group):
    """`epochs` are the reigns that the person has begun: RocketMQ 4.9 knows none."""

    master_role: str = "SYNC_MASTER"
    reigns: list[Epoch] = field(factory=list)
    wiped: int = 0  # Stores of slaves that did not follow any more.

    def master(self) -> Member:
        """Who is the master by its broker.conf."""
        return next(each for each in self.members if each.settings["brokerId"] == "0")

    def epochs(self) -> dict[str, tuple[Epoch, ...]]:
        return {each.label: tuple(self.reigns) for each in self.members}

    def check(self) -> list[str]:
        """Nothing of RocketMQ's tells what is wrong."""
        return []

    def is_told(self, text: str, pattern: str) -> bool:
        """Whatever is no OK."""
        return True

    # ---- What a person does

    def twinlog(
        self, *arguments: str, status: int | None = 0, place: Place | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Role changes by hand, all else by the command."""
        if arguments[0] not in ("failover", "switchover"):
            return Group.twinlog(self, *arguments, status=status, place=place)
        wanted = arguments[arguments.index("--candidate") + 1] if "--candidate" in arguments else ""
        candidates = [each for each in self.slaves() if not wanted or each.label == wanted]
        if not candidates or not candidates[0].running:
            return subprocess.CompletedProcess(arguments, 1, "", "there is no slave that runs")
        self.promote(candidates[0], planned=arguments[0] == "switchover")
        return subprocess.CompletedProcess(arguments, 0, "", "")

    def promote(self, candidate: Member, *, planned: bool) -> None:
        """The slave is stopped, edited and started as the master. A master that can be stopped is stopped before."""
        old = self.master()
        assert isinstance(candidate, TheirMember)
        assert isinstance(old, TheirMember)
        if planned:
            self.refuse_writes(old)
            old.stop()
        candidate.stop()
        old.edit("SLAVE", 1)
        candidate.edit(self.master_role, 0)
        self.reigns.append(Epoch(len(self.reigns), candidate.address, end_offset(candidate.commit_log)))
        if planned:
            Process.start(old)
        candidate.start()

    def refuse_writes(self, master: Member) -> None:
        """So that its slave has all when it is stopped; broker.conf is written anew before its next start."""
        request(master.address, UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n")
        try:
            self.wait_level()
        except AssertionError as error:
            self.write("note", text=f"before the change of roles: {error}")

    def restart_stale(self) -> None:
        """A master that was followed by another one is started as its slave as soon as somebody gets at it.

        It is killed: by its orderly end it would take its number, 0, off the name server, and so the new master's address.
        """
        for member in self.members:
            if isinstance(member, TheirMember) and member.is_stale:
                self.write("note", text=f"{member.label} still runs as a master; it is killed and started as a slave")
                member.kill()
                Process.start(member)

    def wipe_slave(self) -> None:
        """What RocketMQ's maintainers advise for a slave that does not follow: begin without its store."""
        (slave,) = self.slaves()
        self.wiped += 1
        self.write("note", text=f"{slave.label} does not follow; its store is removed")
        if slave.running:
            slave.kill()
        assert isinstance(slave, TheirMember)
        slave.empty()
        Process.start(slave)

    def start_dead(self) -> None:
        """Whoever ended by itself."""
        for member in self.members:
            if not member.running:
                Process.start(member)

    # ---- How it is, as far as RocketMQ tells

    def gap(self) -> int | None:
        """How many bytes the slave's log ends before the master's; None while one of them does not answer."""
        done = Group.twinlog(self, "list", "-o", "json", status=None)
        with suppress(ValueError, KeyError):  # An error is told in JSON, too: nobody is registered yet.
            found = {each["address"]: each for each in json.loads(done.stdout)["members"]}
            (slave,) = self.slaves()
            master = self.master()
            ends = [found.get(each.address, {}).get("written_offset") for each in (master, slave)]
            if None not in ends and -1 not in ends:
                return int(ends[0]) - int(ends[1])
        return None

    def wait_healthy(self, seconds: float = 40) -> None:
        """Both answer, and their logs end side by side."""
        self._wait_gap(NEAR, seconds)

    def wait_level(self, seconds: float = 30) -> None:
        """Without traffic."""
        self._wait_gap(0, seconds)

    def _wait_gap(self, most: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (gap := self.gap()) is None or abs(gap) > most:
            assert time.monotonic() < deadline, f"the slave's log ends {gap} bytes before the master's"
            time.sleep(0.3)


@contextmanager
def running_theirs(
    root: Path, net: Net, row: "Row", seed: int, environment: Mapping[str, str] | None
) -> Iterator[TheirGroup]:
    """A master and its slave, level. Ends all that it started, and unmounts what it mounted."""
    places, role = net.places, master_role(row.level)
    with ExitStack() as stack:
        server = TheirNameServer(root / "n0", places[2])
        stack.push(server)
        server.start()
        proxies = proxies_of(places[:2], seed, stack) if row.proxied else {}
        found: list[TheirMember] = []
        for number in range(2):
            member = TheirMember(root / f"m{number}", places[number], server.address, number, SAFEST, environment)
            member.edit("SLAVE" if number else role, number)
            found.append(member)
        group = TheirGroup(root, net, (server,), tuple(found), places[-1], proxies=proxies, master_role=role)
        group.reigns.append(Epoch(0, found[0].address, 0))
        if row.disks:
            stack.enter_context(mounted_all(group, row.image_mb))
        for member in found:
            stack.push(member)
            Process.start(member)
        for member in found:
            member.wait_booted()
        # It reports 5 s after its start; a slave that comes later than a log's first file never gets that.
        found[0].wait_until(lambda: bool(found[0].lines_with("master transfer data")), "its slave's first report")
        group.wait_level()
        yield group
