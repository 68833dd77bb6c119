"""Reads all that one member serves, into the history: whatever a fault did to it, nothing broken may be delivered."""

from functools import partial
from pathlib import Path

import structlog
import trio

from scripts.fault_matrix.workload import TOPIC, Writer, pull, writer
from twinlog.cluster.admin.admin import open_admin
from twinlog.cluster.client.api import ClientApi, name_servers
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.route import MessageQueue

SECONDS_MAX = 30.0


def read_member(namesrv: str, address: str, path: Path, process: str) -> int:
    """How many messages it gave; of what it refuses nothing is written."""
    return trio.run(partial(_read, name_servers(namesrv), address, path, process))


async def _read(namesrv: tuple[str, ...], address: str, path: Path, process: str) -> int:
    found = 0
    with structlog.testing.capture_logs(), writer(path, "") as out, trio.move_on_after(SECONDS_MAX):
        async with open_admin(namesrv, timeout_ms=4000) as admin:
            route = await admin.api.topic_route(TOPIC)
            for queue in route.read_queues() if route is not None else ():
                try:
                    found += await _read_queue(admin.api, out, queue, address, process)
                except RemotingError:  # The queue is not here yet, or its member has other things to do.
                    continue
    return found


async def _read_queue(api: ClientApi, out: Writer, queue: MessageQueue, address: str, process: str) -> int:
    places: dict[MessageQueue, int] = {}
    end, found = await api.max_offset(address, queue), 0
    while places.get(queue, 0) < end and (more := await pull(api, out, "read", process, queue, address, places)):
        found += more
    return found
