"""A group's offsets: a table of them, and their storage at the brokers or in a file.

The file of a broadcasting consumer: {"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T1"}:5}}
Sources: RemoteBrokerOffsetStore, LocalFileOffsetStore (RocketMQ 4.9.8).
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
from anyio import to_thread
from attrs import define, field

from twinlog.cluster.client.client import Client
from twinlog.cluster.client.subscription import From, FromTime
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingError, RemotingTimeoutError
from twinlog.cluster.remoting.names import retry_topic
from twinlog.cluster.remoting.route import MASTER_ID, MessageQueue, by_broker, queue_of_key, queue_to_json, read_queue
from twinlog.store.util.late_logger import LateLogger
from twinlog.store.util.sync import make_directory, write_durably

COMMIT_ALL_EVERY = 12  # Commits: once a minute.

log = LateLogger(__name__)


@define(eq=False)
class OffsetTable:
    """Offsets by queue, and which of them are not stored yet."""

    offsets: dict[MessageQueue, int] = field(factory=dict)
    _stored: dict[MessageQueue, int] = field(factory=dict, init=False)

    def update(self, queue: MessageQueue, offset: int, *, only_up: bool = True) -> None:
        """Set a queue's offset. A late result must not move the group backwards (`only_up`); a reset may."""
        assert offset >= 0, (queue, offset)
        if not only_up or offset > self.offsets.get(queue, -1):
            self.offsets[queue] = offset

    def begin(self, queue: MessageQueue, offset: int, *, is_stored: bool = True) -> None:
        """Set a queue's first offset. A new group's is not stored yet; without a commit, a restart might begin elsewhere."""
        assert offset >= 0, (queue, offset)
        self.offsets[queue] = offset
        if is_stored:
            self._stored[queue] = offset

    def changed(self) -> dict[MessageQueue, int]:
        """The offsets that are not stored yet."""
        return {queue: offset for queue, offset in self.offsets.items() if self._stored.get(queue) != offset}

    def note_stored(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Note that these offsets are stored; queues that were forgotten meanwhile are ignored."""
        self._stored.update((queue, offset) for queue, offset in offsets.items() if queue in self.offsets)

    def store_all_again(self) -> None:
        """Store all with the next commit: a broker that was restarted may have lost some."""
        self._stored.clear()

    def forget(self, queue: MessageQueue) -> None:
        self.offsets.pop(queue, None)
        self._stored.pop(queue, None)


def dump_offsets(offsets: Mapping[MessageQueue, int], name: str = "offsetTable") -> bytes:
    """The body or file with offsets by queue."""
    return fastjson.dumps({name: {fastjson.ObjectKey.of(queue_to_json(queue)): at for queue, at in offsets.items()}})


def load_offsets(data: bytes | memoryview) -> dict[MessageQueue, int]:
    """Read such a body or file, or the list that brokers send to clients of other languages. Raises ValueError."""
    try:
        table = fastjson.loads(data)["offsetTable"]
        if isinstance(table, list):
            return {read_queue(entry): int(entry["offset"]) for entry in table}
        return {queue_of_key(key): int(offset) for key, offset in table.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no table of offsets: {type(error).__name__}: {error}") from error


def read_offset_file(path: Path) -> dict[MessageQueue, int]:
    """Read the offsets in a file or, when that is damaged, in its backup; empty without a file. Raises OSError."""
    for each in (path, path.with_name(path.name + ".bak")):
        try:
            return load_offsets(each.read_bytes())
        except (FileNotFoundError, ValueError):
            continue
    return {}


Send = Callable[[str, MessageQueue, str, int], Awaitable[None]]  # Address, queue, group, offset.


class Offsets(Protocol):
    """The offsets of one group in the queues of this client."""

    @property
    def table(self) -> OffsetTable: ...

    async def load(self, queue: MessageQueue) -> int | None:
        """The stored offset; None without one. Raises RemotingError, OSError."""

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Store changed offsets, of these queues or of all. Failures are logged, and stored with the next commit."""


@define(eq=False)
class BrokerOffsets:
    """Offsets of a group in clustering mode, stored at each queue's broker."""

    client: Client
    group: str
    table: OffsetTable = field(factory=OffsetTable)
    _commits: int = field(default=0, init=False)

    async def load(self, queue: MessageQueue) -> int | None:
        return await self.client.api.committed_offset(address_of(self.client, queue), queue, self.group)

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        self._commits += 1
        if self._commits % COMMIT_ALL_EVERY == 0:
            self.table.store_all_again()
        wanted = None if queues is None else set(queues)
        changed = [queue for queue in self.table.changed() if wanted is None or queue in wanted]
        # Queues that are given up have another reader soon, and a broker may handle a oneway request after that reader's.
        api = self.client.api
        await self._send(changed, api.commit_offset_oneway if queues is None else api.commit_offset)

    async def store(self) -> None:
        """Store changed offsets and wait for the responses. Raises the first RemotingError, after all were tried."""
        for error in await self._send(self.table.changed(), self.client.api.commit_offset):
            raise error

    async def _send(self, queues: Iterable[MessageQueue], send: Send) -> list[RemotingError]:
        """Send to all brokers concurrently: one that does not respond delays no other."""
        found = await in_parallel(partial(self._send_to, mine, send) for mine in by_broker(queues).values())
        return [error for errors in found for error in errors]

    async def _send_to(self, queues: list[MessageQueue], send: Send) -> list[RemotingError]:
        errors: list[RemotingError] = []
        for queue in queues:
            if (offset := self.table.offsets.get(queue)) is None:
                continue  # It was given up while the others were sent: its next reader may have read further.
            try:
                await send(address_of(self.client, queue), queue, self.group, offset)
                self.table.note_stored({queue: offset})
            except RemotingError as error:
                log.info("offset not committed; retrying with the next commit", topic=queue.topic, error=str(error))
                errors.append(error)
                if isinstance(error, (RemotingConnectError, RemotingTimeoutError)):
                    break  # One timeout is enough; the others follow with the next commit.
        return errors


@define(eq=False)
class FileOffsets:
    """Offsets of a broadcasting consumer: this client's own, in RocketMQ's file format."""

    path: Path
    table: OffsetTable = field(factory=OffsetTable)
    _stored: dict[MessageQueue, int] | None = field(default=None, init=False)
    _writing: anyio.Lock = field(factory=anyio.Lock, init=False)

    async def load(self, queue: MessageQueue) -> int | None:
        if self._stored is None:
            self._stored = await to_thread.run_sync(read_offset_file, self.path)
        return self._stored.get(queue)

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        async with self._writing:
            changed = self.table.changed()
            if not changed:
                return
            whole = {**(self._stored or {}), **changed}
            try:
                await to_thread.run_sync(partial(_write, self.path, dump_offsets(whole)))
            except OSError as error:
                log.warning(
                    "offsets of a broadcasting consumer not stored; retrying with the next commit",
                    path=str(self.path),
                    error=str(error),
                )
                return
            self._stored = whole
            self.table.note_stored(changed)


def _write(path: Path, data: bytes) -> None:
    make_directory(path.parent)
    if path.exists():
        write_durably(path.with_name(path.name + ".bak"), path.read_bytes())
    write_durably(path, data)


def address_of(client: Client, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
    """The address of a member of the queue's broker group. Raises RemotingConnectError when none is known."""
    address = client.routes.address(queue.broker_name, broker_id)
    if address is None:
        raise RemotingConnectError(queue.broker_name, "no address of this broker is known")
    return address


async def start_offset(client: Client, queue: MessageQueue, group: str, start: From | FromTime) -> int:
    """The first offset of a group without a stored one. Source: RebalancePushImpl.computePullFromWhere (RocketMQ 4.9.8)."""
    address = address_of(client, queue)
    is_retry = queue.topic == retry_topic(group)
    if isinstance(start, FromTime):
        if is_retry:
            return await client.api.max_offset(address, queue)
        return await client.api.offset_at(address, queue, start.timestamp_ms)
    if start is From.FIRST or is_retry:
        return await client.api.min_offset(address, queue)
    return await client.api.max_offset(address, queue)
