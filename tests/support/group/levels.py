"""Groups that are started, filled and waited for."""

from tests.support.group.group import FILE_SIZE, until
from twinlog.store.config import BrokerRole

SYNC, SLAVE = BrokerRole.SYNC_MASTER, BrokerRole.SLAVE


async def level(master, slave, *, seconds: float = 60) -> float:
    return await until(lambda: slave.up and slave.max_offset == master.max_offset, "both level", seconds=seconds)


async def started(group, *, slaves: int = 1, **options):
    master = group.add(SYNC)
    others = [group.add(SLAVE, **options) for _ in range(slaves)]
    await master.start()
    for each in others:
        await each.start()
    await until(lambda: len(master.ha.group_transfer.slaves) == slaves, "all slaves connected")
    return master, *others


def fill(member, files: int) -> None:
    """So many more files."""
    end = member.max_offset + files * FILE_SIZE
    while member.max_offset < end:
        member.send(b"x" * 1500, wait=False)
