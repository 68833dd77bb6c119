"""A group of three elects by itself, on real processes: nobody types a failover here.

One group for all, which each test leaves with a master and two slaves. Three of them elect another master: at the fourth time
within ten minutes the group would hold off.
"""

import json
import signal
import time
from collections.abc import Iterator

import pytest
import trio

from tests.support.process_group.roles import Group, RoleBroker, Traffic, in_thread, running
from tests.support.process_group.status import status
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(120)
PAUSE_SECONDS = 8.0
NOBODY_SECONDS = 2.0  # A group that elects past a dead process has done so long before.


@pytest.fixture(scope="module")
def group(tmp_path_factory) -> Iterator[Group]:
    with running(tmp_path_factory.mktemp("group"), 3, autoFailover="members") as found:
        found.wait_auto_failover("members")
        yield found


@pytest.fixture
def traffic(group, request) -> Traffic:
    return Traffic(group.namesrv.address, topic=request.node.name)


def last_reign(group: Group) -> dict:
    return json.loads(group.twinlog("history", "-o", "json").stdout)["reigns"][-1]


async def elected(group: Group, *, but: RoleBroker, seconds: float) -> RoleBroker:
    """Who serves instead of one that cannot answer, at the latest after so long."""
    began = time.monotonic()
    while not (found := await in_thread(group.serving, but=but)):
        assert time.monotonic() - began < seconds, group.tails()
        await trio.sleep(0.1)
    (master,) = found
    print(f"{master.label} serves in place of {but.label}, seen after {time.monotonic() - began:.1f} s")
    return master


async def nobody_elects(group: Group, *, but: RoleBroker) -> None:
    await trio.sleep(NOBODY_SECONDS)
    assert await in_thread(group.serving, but=but) == []


async def test_a_master_that_is_killed_is_replaced(group, traffic):
    """Nothing acknowledged is lost; it comes back, and follows."""
    old = group.master()
    async with traffic.flowing():
        await traffic.more(20)
        await in_thread(old.kill)
        new = await elected(group, but=old, seconds=6)
        await traffic.more(20)
        await in_thread(old.start)
        await in_thread(group.wait_healthy)
    assert await in_thread(group.master) is new
    traffic.check(await traffic.consumed())
    reign = await in_thread(last_reign, group)
    assert (reign["epoch"], reign["kind"], reign["old"], reign["new"]) == (1, "failover", old.label, new.label)
    assert f"{old.label} ({old.address}) was not heard for " in reign["reason"]
    assert "its process is gone; nor do broker-a-" in reign["reason"]


async def test_a_master_that_hangs_is_replaced(group, traffic):
    old = group.master()
    async with traffic.flowing():
        await traffic.more(20)
        old.send_signal(signal.SIGSTOP)
        try:
            new = await elected(group, but=old, seconds=10)
            await traffic.more(20)
        finally:
            old.send_signal(signal.SIGCONT)
        await in_thread(group.wait_healthy)
    assert await in_thread(group.master) is new
    traffic.check(await traffic.consumed())
    assert (await in_thread(last_reign, group))["epoch"] == 2


async def test_a_slave_that_is_killed_changes_nothing(group, traffic):
    master = group.master()
    slave = next(each for each in group.members if each is not master)
    async with traffic.flowing():
        await traffic.more(20)
        await in_thread(slave.kill)
        await trio.sleep(NOBODY_SECONDS)
        await traffic.more(20)
        await in_thread(slave.start)
        await in_thread(group.wait_healthy)
    assert await in_thread(group.master) is master
    assert (await in_thread(last_reign, group))["epoch"] == 2


async def test_nobody_elects_where_a_person_decides(group):
    """The master comes back in its epoch."""
    master = group.master()
    await in_thread(group.twinlog, "auto-failover", "off")
    await in_thread(group.wait_auto_failover, "off")
    await in_thread(master.kill)
    await nobody_elects(group, but=master)
    await in_thread(master.start)
    await in_thread(group.wait_healthy)
    assert await in_thread(group.master) is master
    assert (await in_thread(last_reign, group))["epoch"] == 2
    await in_thread(group.twinlog, "auto-failover", "members")
    await in_thread(group.wait_auto_failover, "members")


async def test_nobody_elects_before_a_pause_is_over(group):
    old = group.master()
    began = time.monotonic()
    await in_thread(group.twinlog, "pause", "--for", f"{PAUSE_SECONDS:.0f}s", "--reason", "new switches")
    wait_for(lambda: all(status(each)["groupRecord"]["paused"] for each in group.members), "the pause in all records")
    await in_thread(old.kill)
    assert time.monotonic() - began < PAUSE_SECONDS, "this machine is too slow to see what a pause does"
    await elected(group, but=old, seconds=PAUSE_SECONDS + 7)
    assert time.monotonic() - began > PAUSE_SECONDS
    await in_thread(old.start)
    await in_thread(group.wait_healthy)
