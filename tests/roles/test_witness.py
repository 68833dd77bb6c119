"""A pair elects by itself only if its name server does not hear the master, either."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from scripts.fault_matrix.places import Namespaces, Place
from scripts.fault_matrix.places import namespaces as places
from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group import namespaces, twinlog
from tests.support.process_group.roles import TOPIC, Group, RoleBroker, Traffic, in_thread, running
from tests.support.process_group.status import status
from tests.support.process_group.up import run
from tests.support.waiting import wait_for

T = TypeVar("T")
pytestmark = pytest.mark.timeout(150)
SETTINGS = {"autoFailover": "members", "haLeaseMs": "1500", "autoFailoverAfterMs": "2000"}
why_not = namespaces.can_be_made()


def last_reign(group: Group) -> dict:
    return json.loads(group.twinlog("history", "-o", "json").stdout)["reigns"][-1]


async def test_a_pair_passes_a_master_that_died_and_one_that_hangs(tmp_path):
    """And then says to nobody SEND_OK until a second member is back. With TLS to the name server, and the group's secret."""
    secret = tmp_path / "secret"
    await in_thread(run, "group", "secret", "new", str(secret), namesrv="")
    with running(tmp_path, 2, **SETTINGS, **{"tls.enable": "true", "haSecretFile": str(secret)}) as group:
        first, second = group.members
        traffic = Traffic(group.namesrv.address)
        async with traffic.flowing():
            await traffic.more(20)
            first.kill()
            await in_thread(wait_for, lambda: status(second)["roleState"] == "serving", "an election")
            acknowledged = len(traffic.acknowledged)
            refused = sum(traffic.others.values())
            await in_thread(wait_for, lambda: sum(traffic.others.values()) > refused + 20, "answers")
            assert len(traffic.acknowledged) == acknowledged, traffic.others
            assert "who cannot be had now" in status(second)["policy"]["words"]
            checked = await in_thread(group.twinlog, "check", status=None)
            assert f"{second.label}: producers hear SLAVE_NOT_AVAILABLE" in checked.stdout
            await in_thread(first.start)
            await traffic.more(20)
            await in_thread(group.wait_healthy)
            second.send_signal(signal.SIGSTOP)
            await in_thread(wait_for, lambda: status(first)["roleState"] == "serving", "an election")
            second.send_signal(signal.SIGCONT)
            await traffic.more(20)
        await in_thread(group.wait_healthy)
        assert await in_thread(group.master) is first
        traffic.check(await traffic.consumed())
        await in_thread(wait_for_same_commitlog, first.commit_log, second.commit_log)
        assert f"{group.namesrv.address}" in (await in_thread(last_reign, group))["reason"]


class Apart:
    """A pair, its name server and clients, each on a machine of its own."""

    def __init__(self, directory: Path, net: Namespaces, stack: ExitStack) -> None:
        self.net = net
        self.first, self.second, self.witness, self.clients = net.places
        namesrv = twinlog.NameServer(directory / "namesrv")
        namesrv.address = f"{self.witness.address}:{namesrv.port}"
        stack.callback(namesrv.stop)
        inside(self.witness, namesrv.start)
        members = []
        for number, place in enumerate((self.first, self.second)):
            hosts = {"brokerIP1": place.address, "brokerIP2": place.address}
            broker = RoleBroker(directory / f"m{number}", namesrv.address, number, {**SETTINGS, **hosts})
            broker.address = f"{place.address}:{broker.port}"
            stack.callback(broker.stop)
            inside(place, broker.start)
            members.append(broker)
        self.group = Group(namesrv, tuple(members))
        inside(self.clients, self.group.wait_record)

    def cut(self, one: Place, other: Place) -> None:
        """Nothing arrives, either way."""
        self.net.cut(one, other)
        self.net.cut(other, one)

    def stays(self, why: str) -> None:
        """The slave stays one, and says why."""
        slave = self.group.members[1]
        lines = slave.log.read_text().count("no automatic failover yet")

        def says() -> bool:
            found = [line for line in slave.log.read_text().splitlines() if "no automatic failover yet" in line]
            return any(why in line for line in found[lines:])

        slave.wait_until(says, f"its word: {why}")
        assert inside(self.second, lambda: status(slave))["roleState"] == "following"

    def heals(self) -> None:
        """All packets arrive again; the slave follows, and a message is held by two."""
        self.net.mend()
        inside(self.clients, self.group.wait_healthy)
        assert inside(self.clients, lambda: self.group.twinlog("send", TOPIC, "one")).returncode == 0


def inside(place: Place, function: Callable[[], T]) -> T:
    """Call a function as from that machine."""
    return namespaces.Namespace(place.namespace, place.address, "").run(function)


@contextmanager
def apart(directory: Path) -> Iterator[Apart]:
    with places(4) as net, ExitStack() as stack:
        yield Apart(directory, net, stack)


@pytest.mark.skipif(bool(why_not), reason=f"no network namespaces: {why_not}")
def test_a_slave_that_is_cut_off_stays_and_says_why(tmp_path):
    """From its master, which the name server hears; without the name server; from all. It elects once the master is cut off."""
    with apart(tmp_path) as pair:
        group, (first, second) = pair.group, pair.group.members
        pair.heals()
        pair.cut(pair.first, pair.second)
        pair.stays(f"{group.namesrv.address} hears the master {first.address}, which serves in epoch")
        assert inside(pair.first, lambda: status(first))["roleState"] == "serving"
        pair.heals()

        pair.cut(pair.first, pair.second)
        group.namesrv.kill()
        pair.stays("no witness knows: ")
        inside(pair.witness, group.namesrv.start)
        pair.heals()

        for other in (pair.first, pair.witness):
            pair.cut(pair.second, other)
        pair.stays("no witness knows: ")
        pair.heals()
        assert inside(pair.clients, group.master) is first

        for other in (pair.second, pair.witness):
            pair.cut(pair.first, other)
        wait_for(lambda: inside(pair.second, lambda: status(second))["roleState"] == "serving", "an election")
        pair.heals()
        assert inside(pair.clients, group.master) is second
        reason = inside(pair.clients, lambda: last_reign(group))["reason"]
        assert f"nor do {group.namesrv.address} hear it" in reason
        wait_for_same_commitlog(first.commit_log, second.commit_log)
