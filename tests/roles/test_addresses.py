"""Groups whose members have host names as addresses, or several addresses behind a translation, on real processes."""

import json
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group import twinlog
from tests.support.process_group.ports import free_broker_port, free_port
from tests.support.process_group.relay import relays
from tests.support.process_group.roles import Group, RoleBroker, Traffic, in_thread
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(120)


@contextmanager
def named(directory, count: int = 3):
    """Members that know each other, and the name server, by host names; one has its master's from its broker.conf."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(twinlog.NameServer(directory / "namesrv"))
        address = namesrv.address.replace("127.0.0.1", "localhost")
        brokers = [RoleBroker(directory / f"m{number}", address, number, {}) for number in range(count)]
        for broker in brokers:
            broker.move("localhost")
        brokers[-1].settings["haMasterAddress"] = f"localhost:{brokers[0].ha_port}"
        for broker in brokers:
            broker.settings["haMembers"] = ";".join(each.address for each in brokers)
            broker.configure()
        group = Group(namesrv, tuple(stack.enter_context(broker) for broker in brokers))
        group.wait_record()
        yield group


@pytest.mark.long  # Containers have names, too: tests/docker.
async def test_roles_change_in_a_group_of_host_names(tmp_path):
    """Switchover, failover, return, in traffic: nothing that was acknowledged is lost."""
    with named(tmp_path) as group:
        first, second, third = group.members
        assert all(address.startswith("localhost:") for _, address in first.recorded().values())
        traffic = Traffic(group.namesrv.address)
        async with traffic.flowing():
            await traffic.more(20)
            await in_thread(group.twinlog, "switchover", "--candidate", second.label, "--yes")
            await traffic.more(20)
            second.kill()
            await in_thread(group.twinlog, "failover", "--candidate", third.label, "--yes")
            await traffic.more(20)
            await in_thread(second.start)
            await in_thread(group.wait_healthy)
            await traffic.more(20)
        traffic.check(await traffic.consumed())
        listed = await in_thread(group.listed)
        assert {name: each["address"] for name, each in listed.items()} == {
            each.label: each.address for each in group.members
        }
        assert "TWINLOG OK" in (await in_thread(group.twinlog, "check")).stdout


class Translated(RoleBroker):
    """A member that is reached under other addresses and ports than its own, by clients and by members: these are relays."""

    def __init__(self, root: Path, namesrv: str, number: int) -> None:
        super().__init__(root, namesrv, number, {})
        own, outside, between = (f"127.0.{network}.{number + 1}" for network in (2, 3, 4))
        port1, port2 = free_broker_port(), free_broker_port()
        self.settings |= {
            "bindAddress": own,
            "haListenHost": own,
            "brokerIP1": outside,
            "brokerPort1": str(port1),
            "brokerIP2": between,
            "brokerPort2": str(port2),
            "haPort": str(port2 + 1),
        }
        self.configure()
        self.address, self.member_address = f"{outside}:{port1}", f"{between}:{port2}"
        self.for_clients = [(f"{outside}:{port1 + off}", f"{own}:{self.port + off}") for off in (-2, 0)]
        self.for_members = [(f"{between}:{port2 + off}", f"{own}:{self.port + off}") for off in (-2, 0, 1)]

    def knows(self, count: int) -> bool:
        """True once it has a record of so many members."""
        role = self.store / "twinlog/role"
        group = json.loads(role.read_text().partition("\n")[2])["group"] if role.exists() else None
        return group is not None and len(group["members"]) == count

    def peers(self) -> set[str]:
        """IPs of members to which it has connections."""
        connections = psutil.Process(self.pid).net_connections()
        return {
            each.raddr.ip for each in connections if each.raddr and each.raddr.ip.startswith(("127.0.3.", "127.0.4."))
        }


@contextmanager
def translated(directory, count: int = 3):
    with ExitStack() as stack:
        namesrv = stack.enter_context(twinlog.NameServer(directory / "namesrv"))
        brokers = [Translated(directory / f"m{number}", namesrv.address, number) for number in range(count)]
        stack.enter_context(relays(*(way for broker in brokers for way in broker.for_members)))
        group = Group(namesrv, tuple(stack.enter_context(broker) for broker in brokers))
        wait_for(
            lambda: all(each.knows(count) for each in brokers), "a record, though no member is reached as clients are"
        )
        stack.enter_context(relays(*(way for broker in brokers for way in broker.for_clients)))
        group.wait_record()
        yield group


@pytest.mark.long  # tests/roles/test_translation.py has networks in which it is needed.
async def test_roles_change_across_an_address_translation(tmp_path):
    """Clients and members know different addresses and published ports; connections come from the translation's own."""
    with translated(tmp_path) as group:
        first, second, third = group.members
        traffic = Traffic(group.namesrv.address)
        async with traffic.flowing():
            await traffic.more(20)
            await in_thread(group.twinlog, "switchover", "--candidate", second.label, "--yes")
            await traffic.more(20)
            await in_thread(group.wait_healthy)
            assert set().union(*(each.peers() for each in group.members)) == {
                f"127.0.4.{number}" for number in (1, 2, 3)
            }
            second.kill()
            await in_thread(group.twinlog, "failover", "--candidate", third.label, "--yes")
            await traffic.more(20)
            await in_thread(second.start)
            await in_thread(group.wait_healthy)
            await in_thread(group.twinlog, "reinit", first.label, "--yes")
            await in_thread(group.wait_healthy)
            await traffic.more(20)
        traffic.check(await traffic.consumed())
        listed = await in_thread(group.listed)
        assert {name: (each["address"], each["member_address"]) for name, each in listed.items()} == {
            each.label: (each.address, each.member_address) for each in group.members
        }
        for slave in (first, second):
            await in_thread(wait_for_same_commitlog, third.commit_log, slave.commit_log)
        assert all(each["lag_bytes"] == 0 for each in listed.values() if each["role"] == "slave")
        for command in ("crosscheck", "check"):
            await in_thread(group.twinlog, command)


@pytest.mark.long
def test_doctor_names_the_address_that_does_not_fit(tmp_path):
    """Each member is asked what it finds at the others' addresses: a closed port, and a name that nobody knows."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(twinlog.NameServer(tmp_path / "namesrv"))
        brokers = [RoleBroker(tmp_path / f"m{number}", namesrv.address, number, {}) for number in range(3)]
        closed = free_port()
        brokers[1].settings["brokerPort2"] = str(closed)
        brokers[2].settings["brokerIP2"] = "no-such-host.invalid"
        for broker in brokers:
            broker.configure()
        group = Group(namesrv, tuple(stack.enter_context(broker) for broker in brokers))
        group.wait_record()
        first, second, third = (broker.label for broker in brokers)
        found = json.loads(group.twinlog("doctor", "-o", "json", status=None).stdout)["findings"]
        told = {each["what"]: each["fix"] for each in found if each["cause"] == "address not reached"}
        assert len(told) == 3
        what = f"{second} tells members that it is at 127.0.0.1:{closed} for requests; from {first} and {third}, the connection"
        (fix,) = [told[each] for each in told if each.startswith(what)]
        assert f"set brokerIP2 of {second} (brokerPort2 for a published port)" in fix
        for use in ("requests", "replication"):
            port = brokers[2].port + (use == "replication")
            what = f"{third} tells members that it is at no-such-host.invalid:{port} for {use}; from {first} and {second}, the"
            assert any(each.startswith(what) for each in told)
        text = group.twinlog("doctor", status=None).stdout
        assert f"let {first} and {second} resolve no-such-host.invalid" in " ".join(text.split())
