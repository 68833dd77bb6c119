"""A member is who it is, on real processes: its address changes and it stays; a copy of its directory is nobody."""

import json
import shutil

import pytest

from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group.roles import TOPIC, Group, RoleBroker, Traffic, in_thread, running
from tests.support.process_group.status import status
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(120)


def is_known(group: Group, ids: dict[str, str]) -> bool:
    """True if all have a record of all, each under the id that it had, and where it is now."""
    expected = {each.label: (ids[each.label], each.address) for each in group.members}
    return all(each.recorded() == expected for each in group.members)


def reigns(group: Group) -> list[tuple[int, str]]:
    found = json.loads(group.twinlog("history", "-o", "json").stdout)["reigns"]
    return [(each["epoch"], each["new"]) for each in found]


async def test_a_slave_and_then_the_master_move_in_traffic(tmp_path):
    """At another IP and port; the slave's broker.conf has another name, and another id. Nobody fails over, nothing is lost."""
    with running(tmp_path, 3) as group:
        first, second, third = group.members
        ids = {name: id for name, (id, _) in first.recorded().items()}
        before = reigns(group)
        traffic = Traffic(group.namesrv.address)
        async with traffic.flowing():
            await traffic.more(20)
            await in_thread(third.stop)
            third.move("127.0.0.3", broker_id=7, conf="third.conf")
            await in_thread(third.start)
            await in_thread(wait_for, lambda: is_known(group, ids), "the slave in all records")
            await in_thread(group.wait_healthy)
            await traffic.more(20)
            await in_thread(first.stop)
            first.move("127.0.0.2")
            await in_thread(first.start)
            await in_thread(wait_for, lambda: is_known(group, ids), "the master in all records")
            await in_thread(group.wait_healthy)
            await traffic.more(20)
        traffic.check(await traffic.consumed())
        assert await in_thread(group.master) is first
        assert await in_thread(reigns, group) == before
        listed = await in_thread(group.listed)
        assert {name: each["address"] for name, each in listed.items()} == {
            each.label: each.address for each in group.members
        }
        await in_thread(wait_for, lambda: "OK" in group.twinlog("check", status=None).stdout, "a content check")
        for slave in (second, third):
            await in_thread(wait_for_same_commitlog, first.commit_log, slave.commit_log)


def test_a_copy_of_a_slaves_directory_does_not_take_part(tmp_path):
    """It says whose copy it is, and what to do; the slave acknowledges as before."""
    with running(tmp_path) as group:
        first, second = group.members
        group.twinlog("send", TOPIC, "one")
        second.stop()
        copy = RoleBroker(tmp_path / "copy", group.namesrv.address, 1, {})
        shutil.copytree(second.store, copy.store)
        second.start()
        group.wait_healthy()
        before = first.recorded()
        with copy:
            says = f"as {second.label} ({second.address}), which takes part: its directory is a copy of that one"
            copy.wait_until(lambda: says in copy.log.read_text(), "its word of whose copy it is")
            group.twinlog("send", TOPIC, "two")
            assert status(copy)["roleState"] != "following"
            assert group.listed()[second.label]["address"] == second.address, "clients find the slave"
            assert status(second)["roleState"] == "following"
            assert [each["counted"] for each in status(first)["slaves"]] == [True]
            assert first.recorded() == second.recorded() == before
        assert copy.commit_log.exists()
        assert group.listed()[second.label]["address"] == second.address, "and what stopped took nothing away"
        assert copy.address not in group.namesrv.log.read_text(), "it was never registered"
        wait_for_same_commitlog(first.commit_log, second.commit_log)
