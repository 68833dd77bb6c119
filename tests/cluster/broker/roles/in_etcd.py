"""A group in virtual time that has handed its record to a model of etcd, and what tests ask of it."""

from pathlib import Path
from typing import Any

import trio

from tests.support.group.group import Group, Member, until
from tests.support.group.kept import EtcdModel
from tests.support.group.stores import role_group
from twinlog.cluster.broker.peers.role_messages import AutoFailoverRequest
from twinlog.store.config import FlushDiskType


async def made(
    nursery: trio.Nursery, tmp_path: Path, *, size: int = 2, sync_flush: bool = True, **config: Any
) -> Group:
    """A group that has handed its record to etcd while it runs."""
    flush = FlushDiskType.SYNC_FLUSH if sync_flush else FlushDiskType.ASYNC_FLUSH
    config = {"max_time_slave_not_catchup_ms": 10_000, **config}
    group = role_group(
        nursery,
        tmp_path,
        size=size,
        need=config.pop("in_sync_replicas", 2),
        config=config,
        etcd=EtcdModel(),
        flush=flush,
    )
    await group.start()
    group.first.produce(b"before")
    await into_etcd(group, group.first)
    return group


async def into_etcd(group: Group, master: Member) -> None:
    await until(lambda: master.roles.hand_to_etcd._why_not(master.roles.member.group) == "", "all see etcd")
    await master.roles.set_auto_failover(AutoFailoverRequest(mode="etcd"))
    await group.settled()
    assert names(group) == {each.name for each in group.members}


def names(group: Group) -> set[str]:
    """Of those in sync, as etcd has it."""
    assert group.etcd is not None
    ids = {each.identity: each.name for each in group.members}
    return {ids[id] for id in group.etcd.record.in_sync}


def is_growing(master: Member) -> bool:
    """True if the version that it has, and has not seen in etcd yet, has both members."""
    state = master.state
    return state is not None and state.before is not None and len(state.group.in_sync) == 2


async def with_a_late_swap(group: Group) -> trio.Event:
    """The slave has left the set, is to come back, and is dead again; the swap for that has no answer, and has not arrived.
    Swaps are answered from the event on.
    """
    (master, slave), keeper, answers = group.members, group.keepers[0], trio.Event()
    await slave.kill()
    await until(lambda: names(group) == {master.name}, "the set shrinks")
    keeper.fate = lambda: "late" if is_growing(master) and not answers.is_set() else "answered"
    await slave.start()
    await until(lambda: keeper.late, "a swap is under way")
    await slave.kill()
    return answers
