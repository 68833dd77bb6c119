"""Three faults that a swap in etcd invites, put into the product: each loses what was acknowledged, in the story that it takes.

A random run of the simulation seldom meets these stories: the swap must wait, or its answer be lost, while both members die.
"""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import pytest
import trio

from tests.cluster.broker.roles.in_etcd import made, names, with_a_late_swap
from tests.helpers import log_bytes
from tests.simulation import etcd_holes
from tests.simulation.holes import HOLES
from tests.support.group.group import Group, until

assert etcd_holes  # Its import names these faults.
BODY = b"acknowledged by one member alone"


async def _while_etcd_is_away(group: Group) -> bool:
    """The slave is dead, and etcd cannot be told so. True if the master's word is SEND_OK."""
    master, slave = group.members
    away = {"is": True}
    for keeper in group.keepers.values():
        keeper.fate = lambda: "away" if away["is"] else "answered"
    await slave.kill()
    master.produce(BODY)
    await trio.sleep(20)
    is_acknowledged = await master.is_acknowledged()
    await master.kill()
    away["is"] = False
    return is_acknowledged


async def _while_swaps_do_not_arrive(group: Group) -> bool:
    """The slave is dead; each attempt to say so has no answer, and none arrives."""
    (master, slave), keeper = group.members, group.keepers[0]
    keeper.fate = lambda: "answered" if master.state.before is None else "lost"
    await slave.kill()
    master.produce(BODY)
    await trio.sleep(20)
    is_acknowledged = await master.is_acknowledged()
    await master.kill()
    keeper.fate = lambda: "answered"
    return is_acknowledged


async def _while_a_swap_is_late(group: Group) -> bool:
    """The slave is to come back into the set, the answer is missing, and it dies; then the swap arrives."""
    (master, slave), keeper = group.members, group.keepers[0]
    await with_a_late_swap(group)
    await trio.sleep(5)
    master.produce(BODY)
    is_acknowledged = await master.is_acknowledged()
    await master.kill()
    keeper.late[0]()
    assert names(group) == {master.name, slave.name}
    return is_acknowledged


STORIES: dict[str, Callable[[Group], Awaitable[bool]]] = {
    "a shrink is released before it is written": _while_etcd_is_away,
    "an unknown swap is taken for done": _while_swaps_do_not_arrive,
    "an unknown swap is taken for failed": _while_a_swap_is_late,
}


@pytest.mark.parametrize("is_planted", [True, False], ids=["with the fault", "without"])
@pytest.mark.parametrize("hole", STORIES)
async def test_a_fault_loses_what_was_acknowledged(nursery, tmp_path, autojump_clock, hole, is_planted):
    with HOLES[hole]() if is_planted else nullcontext():
        group = await made(nursery, tmp_path)
        slave = group.members[1]
        is_acknowledged = await STORIES[hole](group)
        await slave.start()
        await until(lambda: slave.is_serving, "the slave is elected: it is in the set", seconds=60)
        is_there = BODY in log_bytes(slave.store)
    assert (is_acknowledged, is_there) == (is_planted, False)
