"""Masters that cannot store while their processes live, on real processes: the others elect, and they come back by themselves.

One group for all, which each test leaves with a master and two slaves. Each elects one: at the fourth time within ten minutes the
group would hold off.
"""

import errno
from collections.abc import Iterator

import pytest
import trio

from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.disk.faults import HANG, Shim
from tests.support.process_group.roles import Group, RoleBroker, Traffic, in_thread, running
from tests.support.process_group.status import status

pytestmark = pytest.mark.timeout(120)
QUICK = {"autoFailover": "members", "haLeaseMs": "1000", "autoFailoverAfterMs": "1500"}
# From the fault on: 1.5 s until it hands over, and less than one until another one serves; the rest is for a busy machine.
ELECTED_SECONDS_MAX = 12.0


@pytest.fixture(scope="module")
def shim(tmp_path_factory) -> Iterator[Shim]:
    shim = Shim.build(tmp_path_factory.mktemp("shim"))
    with pytest.MonkeyPatch.context() as patched:
        for name, value in shim.env.items():
            patched.setenv(name, value)
        yield shim


@pytest.fixture(scope="module")
def group(tmp_path_factory, shim) -> Iterator[Group]:
    with running(tmp_path_factory.mktemp("group"), 3, **QUICK) as group:
        yield group


@pytest.fixture
def traffic(group, request) -> Traffic:
    return Traffic(group.namesrv.address, topic=request.node.name.replace("[", "-").rstrip("]"))


def _serves(member: RoleBroker) -> bool:
    return status(member)["roleState"] == "serving"


async def elected(group: Group, *, but: RoleBroker) -> RoleBroker:
    """The member that serves in another one's place."""
    began = trio.current_time()
    with trio.fail_after(ELECTED_SECONDS_MAX):
        while True:
            for each in group.members:
                if each is not but and await in_thread(_serves, each):
                    print(f"{each.label} serves in place of {but.label} after {trio.current_time() - began:.1f} s")
                    return each
            await trio.sleep(0.05)


@pytest.mark.parametrize(
    ("calls", "number", "part"),
    [
        pytest.param("pwrite", errno.ENOSPC, "commitlog", marks=pytest.mark.long),
        ("fsync fdatasync", HANG, ""),  # The saving of its role hangs, too.
    ],
    ids=["full", "hanging"],
)
async def test_it_hands_over_and_follows_once_its_disk_is_in_order(calls, number, part, group, shim, traffic):
    first = await in_thread(group.master)
    async with traffic.flowing():
        await traffic.more(20)
        shim.arm(calls, number, f"/{first.label}/{part}")
        second = await elected(group, but=first)
        await traffic.more(20)
        assert "this master hands over" in first.tail(1000)
        shim.disarm()
        began = trio.current_time()
        while (await in_thread(status, first))["roleState"] not in ("following", "forwarding"):
            await trio.sleep(0.05)
        print(f"{first.label} follows after {trio.current_time() - began:.1f} s")
    await in_thread(group.wait_healthy)
    assert await in_thread(group.master) is second
    traffic.check(await traffic.consumed())
    for member in group.members:
        wait_for_same_commitlog(first.commit_log, member.commit_log)
    assert "it cannot store, and others can" in (await in_thread(group.twinlog, "history")).stdout


async def test_a_disk_that_fails_for_good(group, shim, traffic):
    """What it wrote may be lost: it takes no more until it is started again, and is no master meanwhile."""
    first = await in_thread(group.master)
    async with traffic.flowing():
        await traffic.more(20)
        shim.arm("fsync fdatasync", errno.EIO, f"/{first.label}/commitlog")
        second = await elected(group, but=first)
        await traffic.more(20)
    shim.disarm()
    await in_thread(first.kill)
    await in_thread(first.start)
    await in_thread(group.wait_healthy)
    assert await in_thread(group.master) is second
    traffic.check(await traffic.consumed())
