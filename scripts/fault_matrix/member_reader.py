"""Reads all that one member serves, into the history: whatever a fault did to it, nothing broken may be delivered."""

from functools import partial
from pathlib import Path

import structlog
import trio

from scripts.fault_matrix.workload import TOPIC, Writer, value_of, writer
from twinlog.cluster.admin.admin import open_admin
from twinlog.cluster.client.api import ClientApi, PullStatus, name_servers
from twinlog.cluster.client.messages import received
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.store.errors import StoreError

SECONDS_MAX = 30.0
PULLS_MAX = 10_000


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
    at, end, found = 0, await api.max_offset(address, queue), 0
    name = f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
    for _ in range(PULLS_MAX):
        if at >= end:
            break
        number = next(out.ids)
        out.write("invoke", "read", process, number, queue=name)
        pulled = await api.pull(address, queue, at)
        if pulled.status is PullStatus.FOUND:
            found += _write(out, queue, name, pulled.records, process, number, at)
        elif pulled.next_offset <= at:
            break
        at = pulled.next_offset
    return found


def _write(out: Writer, queue: MessageQueue, name: str, records: bytes, process: str, number: int, at: int) -> int:
    try:
        messages = received(records, queue)
    except StoreError as error:
        out.write("ok", "read", process, number, queue=name, offset=at, text=f"no records: {error}")
        return 1
    for message in messages:
        value = None if message.body_problem else value_of(message.body)
        place = {"queue": name, "offset": message.queue_offset, "phy": message.phy_offset}
        out.write("ok", "read", process, number, value=value, **place)
    return len(messages)
