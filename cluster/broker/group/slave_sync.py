"""A slave's copy of its master's tables: topics, consumer offsets, delay offsets, groups, in this order.

Copied at once, then each 10 s, and when a message of an unknown topic arrives; a step that fails does not stop the others.
Source: SlaveSynchronize.java (RocketMQ 4.9.8), which requests topics, and only these, at the fast port.
"""

from collections.abc import Awaitable, Callable, Mapping, Set
from functools import partial
from typing import Any

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.delay.service import ScheduleMessageService, read_delay_offsets
from twinlog.cluster.broker.tables.groups import SubscriptionGroupManager, read_groups
from twinlog.cluster.broker.tables.offsets import ConsumerOffsetManager, MasterOffsets, read_offsets
from twinlog.cluster.broker.tables.topics import TopicConfigManager, read_topics
from twinlog.cluster.broker.tables.writer import TableWriter
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.calls import call
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.header_fields import RequestHeader
from twinlog.cluster.remoting.headers.broker_admin import (
    GetAllConsumerOffset,
    GetAllDelayOffset,
    GetAllSubscriptionGroupConfig,
    GetAllTopicConfig,
    GetBrokerRuntimeInfo,
)
from twinlog.store.record.multi_dispatch import is_light
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

IS_LOST = "isLost"  # In a table that its broker has lost and requests from its slaves.
PERIOD_SECONDS = 10.0
TIMEOUT_MS = 3_000


def fast_address(address: str) -> str:
    """Return the address of the fast port, by that of the main port."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


@define(kw_only=True, eq=False)
class SlaveSynchronize:
    client: RemotingClient
    topics: TopicConfigManager
    topics_writer: TableWriter
    groups: SubscriptionGroupManager
    groups_writer: TableWriter
    offsets: ConsumerOffsetManager
    offsets_writer: TableWriter
    schedule: ScheduleMessageService
    epoch: Callable[[], int | None] = lambda: None  # Of the master that is followed.
    master_address: str | None = field(default=None, init=False)
    master_offsets: MasterOffsets = field(factory=MasterOffsets, init=False)
    _round: trio.CancelScope | None = field(default=None, init=False)
    _newer_offsets: int = field(default=0, init=False)  # Logged when it changes.
    _failing: set[str] = field(factory=set, init=False)  # Steps, so that each failure is logged once.
    _kept: frozenset[str] = field(default=frozenset(), init=False)  # Tables that the master lost.
    _new_topics: set[str] = field(factory=set, init=False)  # Seen in messages; each causes one request.
    _wakeup: Wakeup = field(factory=Wakeup, init=False)

    def on_arrival(self, topic: str, _queue_id: int, _max_offset: int, _codes: list[int]) -> None:
        """Copy the topic of a new message at once: if this slave is promoted without it, nobody can read the message."""
        if topic not in self.topics.table and topic not in self._new_topics and not is_light(topic):
            self._new_topics.add(topic)
            self._wakeup.set()

    def set_master(self, address: str | None) -> None:
        """Set the master's main address; None: there is no master to copy from."""
        if address != self.master_address:
            self.master_address = address
            if self._round is not None:  # Pending responses of another master are dropped.
                self._round.cancel()
            self._wakeup.set()

    async def run(self) -> None:
        while True:
            if self.master_address is not None:
                with trio.CancelScope() as self._round:
                    await self.synchronize(self.master_address)
                self._round = None
            with trio.move_on_after(PERIOD_SECONDS):
                await self._wakeup.wait()

    async def synchronize(self, address: str) -> None:
        """Copy all four tables once."""
        steps: tuple[tuple[str, Callable[[str], Awaitable[None]]], ...] = (
            ("topics", self._topics),
            ("consumer offsets", self._offsets),
            ("delay offsets", self._delay_offsets),
            ("subscription groups", self._groups),
        )
        for name, step in steps:
            try:
                await step(address)
            except (RemotingError, LookupError, ValueError, TypeError, AttributeError, OverflowError, OSError) as error:
                if name not in self._failing:
                    log.warning("could not copy from the master", what=name, peer=address, error=str(error))
                    self._failing.add(name)
            else:
                self._failing.discard(name)

    async def _topics(self, address: str) -> None:
        table = _object(await self._ask(fast_address(address), GetAllTopicConfig()))
        if self._is_last_copy("topics", address, table, self.topics.table.keys() - read_topics(table).keys()):
            return
        if self.topics.replace(table):
            self.topics_writer.changed()
            await self.topics_writer.save()
            log.info("topics copied from the master", count=len(self.topics.table))

    async def _offsets(self, address: str) -> None:
        runtime = _object(await self._ask(address, GetBrokerRuntimeInfo()))["table"]
        reported = read_offsets(await all_consumer_offsets(self.client, address))
        life, epoch = (address, runtime.get("bootTimestamp")), self.epoch()
        merged, newer = self.master_offsets.merge(self.offsets.table, reported, life, epoch=epoch)
        self.offsets.update(merged)  # Saved with the other offsets.
        if newer != self._newer_offsets:
            self._newer_offsets = newer
            log.info("consumer offsets newer than the master's were kept", queues=newer)

    async def take(self, offsets: Mapping[str, Any], topics: Mapping[str, Any], groups: Mapping[str, Any]) -> None:
        """Save the tables that the master hands over, in the form of to_json(). Raises ValueError, OSError."""
        self.offsets.update(self.master_offsets.merge_last(self.offsets.table, read_offsets(offsets)))
        self.offsets_writer.changed()
        more_topics, more_groups = (
            self.topics.table.keys() - read_topics(topics),
            self.groups.table.keys() - read_groups(groups),
        )
        if not self._is_last_copy("topics", "", topics, more_topics) and self.topics.replace(topics):
            self.topics_writer.changed()
        if not self._is_last_copy("subscription groups", "", groups, more_groups) and self.groups.replace(groups):
            self.groups_writer.changed()
        refused: list[OSError] = []

        async def save(writer: TableWriter) -> None:
            try:
                await writer.save()
            except OSError as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            for writer in (self.offsets_writer, self.topics_writer, self.groups_writer):
                nursery.start_soon(save, writer)
        if refused:
            raise refused[0]

    async def _delay_offsets(self, address: str) -> None:
        body = await self._ask(address, GetAllDelayOffset())
        table = read_delay_offsets(_object(body))
        if table != self.schedule.table or not self.schedule.file.path.exists():
            save = partial(self.schedule.file.save, body.decode(), is_empty=not table)
            await trio.to_thread.run_sync(save)
            self.schedule.replace(table)

    async def _groups(self, address: str) -> None:
        table = _object(await self._ask(address, GetAllSubscriptionGroupConfig()))
        if self._is_last_copy(
            "subscription groups", address, table, self.groups.table.keys() - read_groups(table).keys()
        ):
            return
        if self.groups.replace(table):
            self.groups_writer.changed()
            await self.groups_writer.save()
            log.info("subscription groups copied from the master", count=len(self.groups.table))

    def _is_last_copy(self, what: str, address: str, table: Mapping[str, Any], more: Set[str]) -> bool:
        """True when the master lost its table and this copy has more entries: the master will request it, see lost_tables.py."""
        is_last = bool(more) and table.get(IS_LOST) is True
        if is_last and what not in self._kept:
            log.warning("the master lost a table: the copy here is kept", what=what, entries=len(more), peer=address)
        self._kept = self._kept | {what} if is_last else self._kept - {what}
        return is_last

    async def _ask(self, address: str, header: RequestHeader) -> bytes:
        """Send a request to the master. Raises RemotingError, RequestError for any code but 0."""
        return await _ask(self.client, address, header)


async def all_consumer_offsets(client: RemotingClient, address: str, *, timeout_ms: int = TIMEOUT_MS) -> dict[str, Any]:
    """Request 43, for read_offsets(). Raises RemotingError, RequestError for any code but 0, ValueError."""
    return await ask_object(client, address, GetAllConsumerOffset(), timeout_ms=timeout_ms)


async def ask_object(
    client: RemotingClient, address: str, header: RequestHeader, *, timeout_ms: int = TIMEOUT_MS
) -> dict[str, Any]:
    """Request a table of another member. Raises RemotingError, RequestError for any code but 0, ValueError."""
    return _object(await _ask(client, address, header, timeout_ms=timeout_ms))


async def _ask(client: RemotingClient, address: str, header: RequestHeader, *, timeout_ms: int = TIMEOUT_MS) -> bytes:
    return bytes((await call(client, address, header, timeout_ms=timeout_ms)).body)


def _object(body: bytes) -> dict[str, Any]:
    value = fastjson.loads(body)
    if not isinstance(value, dict):
        raise ValueError("the body is not a JSON object")
    return value
