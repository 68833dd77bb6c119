"""A group that runs, whose logs get level or come to differ."""

import trio

from twinlog.cluster.admin.admin import open_admin
from twinlog.cluster.client.messages import OutgoingMessage
from twinlog.cluster.client.producer import Producer


async def send(cluster, *bodies: bytes) -> None:
    async with open_admin((cluster.namesrv,)) as admin:
        for body in bodies:
            await Producer(admin.api, compress_from=None).send(OutgoingMessage(topic="orders", body=body))


async def level(cluster) -> int:
    """Until the slave has all of it; where the logs end."""
    with trio.fail_after(10):
        while cluster.slave.store.max_offset != cluster.master.store.max_offset:
            await trio.sleep(0.01)
    return cluster.master.store.max_offset


def change(broker, offset: int) -> None:
    """Another byte on the disk of a broker, in a block that has no digest yet."""
    file = broker.store.commit_log.files.file_at(offset)
    (byte,) = file.read(offset - file.start, 1)
    file.write_at(offset - file.start, bytes([byte ^ 1]))
