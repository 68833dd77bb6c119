"""Groups whose members have host names as addresses, on real processes."""

from contextlib import ExitStack, contextmanager

import pytest

from tests.support.process_group import twinlog
from tests.support.process_group.roles import Group, RoleBroker, Traffic, in_thread

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
