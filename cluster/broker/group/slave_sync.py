"""A slave's copy of its master's tables: topics, consumer offsets, delay offsets, groups, in this order.

Copied at once, then each 10 s, and when a message of an unknown topic arrives; a step that fails does not stop the others.
Source: SlaveSynchronize.java (RocketMQ 4.9.8), which requests topics, and only these, at the fast port.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.delay.service import ScheduleMessageService, read_delay_offsets
from twinlog.cluster.broker.tables.offsets import MasterOffsets, read_offsets
from twinlog.cluster.broker.tables.tables import BrokerTables
from twinlog.cluster.broker.tables.versioned import VersionedTable
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
from twinlog.cluster.remoting.names import FAST_PORT_DISTANCE, shifted
from twinlog.store.record.multi_dispatch import is_light
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

IS_LOST = "isLost"  # In a table that its broker has lost and requests from its slaves.
PERIOD_SECONDS = 10.0
TIMEOUT_MS = 3_000


def fast_address(address: str) -> str:
    """Return the address of the fast port, by that of the main port."""
    return shifted(address, -FAST_PORT_DISTANCE)


@define(kw_only=True, eq=False)
class SlaveSynchronize:
    client: RemotingClient
    tables: BrokerTables
    schedule: ScheduleMessageService
    epoch: Callable[[], int | None]  # Of the master that is followed.
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
        if topic not in self.tables.topics.table and topic not in self._new_topics and not is_light(topic):
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
        if self._take_topics(address, await ask_object(self.client, fast_address(address), GetAllTopicConfig())):
            await self.tables.topics_writer.save()
            log.info("topics copied from the master", count=len(self.tables.topics.table))

    async def _offsets(self, address: str) -> None:
        runtime = (await ask_object(self.client, address, GetBrokerRuntimeInfo()))["table"]
        reported = read_offsets(await ask_object(self.client, address, GetAllConsumerOffset()))
        life, offsets = (address, runtime.get("bootTimestamp")), self.tables.offsets
        merged, newer = self.master_offsets.merge(offsets.table, reported, life, epoch=self.epoch())
        offsets.update(merged)  # Saved with the other offsets.
        if newer != self._newer_offsets:
            self._newer_offsets = newer
            log.info("consumer offsets newer than the master's were kept", queues=newer)

    async def _delay_offsets(self, address: str) -> None:
        body = await _body(self.client, address, GetAllDelayOffset())
        table = read_delay_offsets(_object(body))
        if table != self.schedule.table or not self.schedule.file.path.exists():
            save = partial(self.schedule.file.save, body.decode(), is_empty=not table)
            await trio.to_thread.run_sync(save)
            self.schedule.replace(table)

    async def _groups(self, address: str) -> None:
        if self._take_groups(address, await ask_object(self.client, address, GetAllSubscriptionGroupConfig())):
            await self.tables.groups_writer.save()
            log.info("subscription groups copied from the master", count=len(self.tables.groups.table))

    async def take(self, offsets: Mapping[str, Any], topics: Mapping[str, Any], groups: Mapping[str, Any]) -> None:
        """Save the tables that the master hands over, in the form of to_json(). Raises ValueError, OSError."""
        tables = self.tables
        tables.offsets.update(self.master_offsets.merge_last(tables.offsets.table, read_offsets(offsets)))
        tables.offsets_writer.changed()
        self._take_topics("", topics)
        self._take_groups("", groups)
        refused: list[OSError] = []

        async def save(writer: TableWriter) -> None:
            try:
                await writer.save()
            except OSError as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            for writer in (tables.offsets_writer, tables.topics_writer, tables.groups_writer):
                nursery.start_soon(save, writer)
        if refused:
            raise refused[0]

    def _take_topics(self, address: str, table: Mapping[str, Any]) -> bool:
        return self._take("topics", address, table, self.tables.topics, self.tables.topics_writer)

    def _take_groups(self, address: str, table: Mapping[str, Any]) -> bool:
        return self._take("subscription groups", address, table, self.tables.groups, self.tables.groups_writer)

    def _take(
        self, what: str, address: str, table: Mapping[str, Any], own: VersionedTable[Any], writer: TableWriter
    ) -> bool:
        """Take a table, without saving it. False: it is the same one, or the master lost it and this copy has more entries. The
        master will request that; see lost_tables.py.
        """
        more = own.table.keys() - own.read(table).keys()
        is_last = bool(more) and table.get(IS_LOST) is True
        if is_last and what not in self._kept:
            log.warning("the master lost a table: the copy here is kept", what=what, entries=len(more), peer=address)
        self._kept = self._kept | {what} if is_last else self._kept - {what}
        if is_last or not own.replace(table):
            return False
        writer.changed()
        return True


async def ask_object(
    client: RemotingClient, address: str, header: RequestHeader, *, timeout_ms: int = TIMEOUT_MS
) -> dict[str, Any]:
    """Request a table of another member. Raises RemotingError, RequestError for any code but 0, ValueError."""
    return _object(await _body(client, address, header, timeout_ms=timeout_ms))


async def _body(client: RemotingClient, address: str, header: RequestHeader, *, timeout_ms: int = TIMEOUT_MS) -> bytes:
    return bytes((await call(client, address, header, timeout_ms=timeout_ms)).body)


def _object(body: bytes) -> dict[str, Any]:
    value = fastjson.loads(body)
    if not isinstance(value, dict):
        raise ValueError("the body is not a JSON object")
    return value
