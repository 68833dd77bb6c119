"""Where a group's offsets are kept: at its brokers, or in a file. Sources: RemoteBrokerOffsetStore, LocalFileOffsetStore."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import structlog
import trio
from attrs import define, field

from twinlog.cluster.client.client import Client
from twinlog.cluster.client.subscription import From, FromTime
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingError, RemotingTimeoutError
from twinlog.cluster.remoting.names import retry_topic
from twinlog.cluster.remoting.route import MASTER_ID, MessageQueue, by_broker, queue_of_key, queue_to_json, read_queue
from twinlog.store.util.sync import make_directory, write_durably

TELL_ALL_EVERY = 12  # Commits: once a minute.

log = structlog.get_logger(__name__)


@define(eq=False)
class OffsetTable:
    """Offsets by queue; `changed` are those that nobody else knows yet."""

    offsets: dict[MessageQueue, int] = field(factory=dict)
    _told: dict[MessageQueue, int] = field(factory=dict, init=False)

    def update(self, queue: MessageQueue, offset: int, *, only_up: bool = True) -> None:
        """A late answer must not take a group back; a reset may."""
        if not only_up or offset > self.offsets.get(queue, -1):
            self.offsets[queue] = offset

    def begin(self, queue: MessageQueue, offset: int, *, is_stored: bool = True) -> None:
        """What the store said is nothing to tell it; where a new group begins is, or a restart would begin elsewhere."""
        self.offsets[queue] = offset
        if is_stored:
            self._told[queue] = offset

    def changed(self) -> dict[MessageQueue, int]:
        """What is still to be stored."""
        return {queue: offset for queue, offset in self.offsets.items() if self._told.get(queue) != offset}

    def told(self, offsets: Mapping[MessageQueue, int]) -> None:
        """These were stored; what was forgotten meanwhile stays so."""
        self._told.update((queue, offset) for queue, offset in offsets.items() if queue in self.offsets)

    def tell_all_again(self) -> None:
        """A broker that was restarted may have lost what it was told."""
        self._told.clear()

    def forget(self, queue: MessageQueue) -> None:
        self.offsets.pop(queue, None)
        self._told.pop(queue, None)


def dump_offsets(offsets: Mapping[MessageQueue, int], name: str = "offsetTable") -> bytes:
    """A body, or file, with offsets by queue."""
    return fastjson.dumps({name: {fastjson.ObjectKey.of(queue_to_json(queue)): at for queue, at in offsets.items()}})


def load_offsets(data: bytes | memoryview) -> dict[MessageQueue, int]:
    """The reverse, also of the list that brokers send to clients of other languages. Raises ValueError."""
    try:
        table = fastjson.loads(data)["offsetTable"]
        if isinstance(table, list):
            return {read_queue(entry): int(entry["offset"]) for entry in table}
        return {queue_of_key(key): int(offset) for key, offset in table.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no table of offsets: {type(error).__name__}: {error}") from error


def read_offset_file(path: Path) -> dict[MessageQueue, int]:
    """The offsets in a file or, when that is damaged, in its backup; none when there is no file. Raises OSError."""
    for each in (path, path.with_name(path.name + ".bak")):
        try:
            return load_offsets(each.read_bytes())
        except (FileNotFoundError, ValueError):
            continue
    return {}


Send = Callable[[str, MessageQueue, str, int], Awaitable[None]]  # Address, queue, group, offset.


class Offsets(Protocol):
    """The offsets of one group, as far as this client knows them."""

    @property
    def table(self) -> OffsetTable: ...

    async def load(self, queue: MessageQueue) -> int | None:
        """What is stored; None: nothing. Raises RemotingError, OSError."""
        ...

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Store what has changed, of these queues or of all. What fails is logged, and comes with the next commit."""
        ...


@define(eq=False)
class BrokerOffsets:
    """Of a group in clustering: each queue's at its broker."""

    client: Client
    group: str
    table: OffsetTable = field(factory=OffsetTable)
    _commits: int = field(default=0, init=False)

    async def load(self, queue: MessageQueue) -> int | None:
        return await self.client.api.committed_offset(address_of(self.client, queue), queue, self.group)

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        self._commits += 1
        if self._commits % TELL_ALL_EVERY == 0:
            self.table.tell_all_again()
        wanted = None if queues is None else set(queues)
        changed = [queue for queue in self.table.changed() if wanted is None or queue in wanted]
        await self._send(changed, self.client.api.commit_offset_oneway)

    async def store(self) -> None:
        """Store what has changed, and wait for the answers. Raises the first RemotingError, after all was tried."""
        for error in await self._send(self.table.changed(), self.client.api.commit_offset):
            raise error

    async def _send(self, queues: Iterable[MessageQueue], send: Send) -> list[RemotingError]:
        """To all brokers at the same time: one that does not answer keeps no other waiting."""
        found = await in_parallel(partial(self._send_to, mine, send) for mine in by_broker(queues).values())
        return [error for errors in found for error in errors]

    async def _send_to(self, queues: list[MessageQueue], send: Send) -> list[RemotingError]:
        errors: list[RemotingError] = []
        for queue in queues:
            if (offset := self.table.offsets.get(queue)) is None:
                continue  # It was given up while the others were sent: its next reader may be further.
            try:
                await send(address_of(self.client, queue), queue, self.group, offset)
                self.table.told({queue: offset})
            except RemotingError as error:
                log.info("an offset was not committed", topic=queue.topic, error=str(error))
                errors.append(error)
                if isinstance(error, (RemotingConnectError, RemotingTimeoutError)):
                    break  # One time limit is enough; the others come with the next commit, too.
        return errors


@define(eq=False)
class FileOffsets:
    """Of a broadcasting consumer: this client's own, in RocketMQ's file format."""

    path: Path
    table: OffsetTable = field(factory=OffsetTable)
    _stored: dict[MessageQueue, int] | None = field(default=None, init=False)
    _writing: trio.Lock = field(factory=trio.Lock, init=False)

    async def load(self, queue: MessageQueue) -> int | None:
        if self._stored is None:
            self._stored = await trio.to_thread.run_sync(read_offset_file, self.path)
        return self._stored.get(queue)

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        async with self._writing:
            changed = self.table.changed()
            if not changed:
                return
            whole = {**(self._stored or {}), **changed}
            try:
                await trio.to_thread.run_sync(partial(_write, self.path, dump_offsets(whole)))
            except OSError as error:
                log.warning(
                    "the offsets of a broadcasting consumer were not stored", path=str(self.path), error=str(error)
                )
                return
            self._stored = whole
            self.table.told(changed)


def _write(path: Path, data: bytes) -> None:
    make_directory(path.parent)
    if path.exists():
        write_durably(path.with_name(path.name + ".bak"), path.read_bytes())
    write_durably(path, data)


def address_of(client: Client, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
    """A member of the queue's broker group. Raises RemotingConnectError when none is known."""
    address = client.routes.address(queue.broker_name, broker_id)
    if address is None:
        raise RemotingConnectError(queue.broker_name, "no address of this broker is known")
    return address


async def begin(client: Client, queue: MessageQueue, group: str, start: From | FromTime) -> int:
    """Where a group begins that has no offset. Source: RebalancePushImpl.computePullFromWhere (RocketMQ 4.9.8)."""
    address = address_of(client, queue)
    is_retry = queue.topic == retry_topic(group)
    if isinstance(start, FromTime):
        if is_retry:
            return await client.api.max_offset(address, queue)
        return await client.api.offset_at(address, queue, start.timestamp_ms)
    if start is From.FIRST or is_retry:
        return await client.api.min_offset(address, queue)
    return await client.api.max_offset(address, queue)
