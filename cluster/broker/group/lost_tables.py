"""Recovery of lost tables from other members: topics, groups, offsets of consumers and of delayed messages.

A slave copies its master's in any case. A master asks its slaves, which have copies: before it serves, for up to 5 s, because
without offsets consumers start over and delayed messages are delivered again. If no slave answers, a table starts empty, and
slaves are asked as soon as there are any; changes made here meanwhile are newer and stay. cluster/config/json_file.py records
which tables existed.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.consume.visibility import Queues
from twinlog.cluster.broker.delay.service import ScheduleMessageService, read_delay_offsets
from twinlog.cluster.broker.group.group_view import GroupView
from twinlog.cluster.broker.group.slave_sync import IS_LOST, ask_object, fast_address
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.tables.groups import BUILT_IN_GROUPS, SubscriptionGroupConfig, read_groups
from twinlog.cluster.broker.tables.offsets import read_offsets
from twinlog.cluster.broker.tables.tables import DELAYS, GROUPS, OFFSETS, TOPICS, BrokerTables
from twinlog.cluster.broker.tables.topics import TopicConfig, read_topics
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.header_fields import RequestHeader
from twinlog.cluster.remoting.headers.broker_admin import (
    GetAllConsumerOffset,
    GetAllDelayOffset,
    GetAllSubscriptionGroupConfig,
    GetAllTopicConfig,
)
from twinlog.cluster.remoting.names import DataVersion
from twinlog.store.message_store import MessageStore

log = structlog.get_logger(__name__)

START_SECONDS_MAX, AGAIN_SECONDS, LATER_SECONDS = 5.0, 0.5, 5.0
TIMEOUT_MS = 2_000

Copies = dict[str, Mapping[str, Any]]  # Copies of a table in the form of its file, by slave.

_REQUESTS: Mapping[str, Callable[[], RequestHeader]] = {
    TOPICS: GetAllTopicConfig,
    GROUPS: GetAllSubscriptionGroupConfig,
    OFFSETS: GetAllConsumerOffset,
    DELAYS: GetAllDelayOffset,
}
_MEANING: Mapping[str, str] = {
    TOPICS: "clients do not find their topics until these are created again",
    GROUPS: "groups are created again with the defaults",
    OFFSETS: "consumer groups start over: they may get messages again, or miss some",
    DELAYS: "delayed messages that are still in the log are delivered again",
}


@define(eq=False, repr=False)
class LostTables:
    """Lost tables and their recovery. `wanted`: names of those to recover; `empty`: of those that started empty."""

    tables: BrokerTables
    store: MessageStore
    schedule: ScheduleMessageService
    queues: Queues
    group: GroupView
    gate: Gate
    client: RemotingClient
    wanted: set[str] = field(factory=set, init=False)
    empty: set[str] = field(factory=set, init=False)
    _topics: dict[str, TopicConfig] = field(factory=dict, init=False)  # Content of the tables at the start.
    _groups: dict[str, SubscriptionGroupConfig] = field(factory=dict, init=False)

    @property
    def names(self) -> list[str]:
        """Names of the tables that are lost or started empty."""
        return sorted(self.wanted | self.empty)

    def marked(self, name: str, table: dict[str, Any]) -> dict[str, Any]:
        """Return a table for slaves, marked if it is lost here, so that they keep their copies."""
        return {**table, IS_LOST: True} if name in self.wanted else table

    def lost(self, name: str) -> None:
        """Note that a table existed, but its file and its backup are missing."""
        self.wanted.add(name)
        self._topics, self._groups = dict(self.tables.topics.table), dict(self.tables.groups.table)
        log.warning(
            "a table and its backup are missing: another member is asked for it",
            file=str(self.tables.directory / name),
            why="they existed before: they were removed, or the disk lost them",
            means=_MEANING[name],
            asked="the master" if self.store.config.is_slave else "slaves",
        )

    async def take_at_start(self) -> None:
        """Ask a master's slaves before it serves; tables that none of them sends in time start empty."""
        if self.store.config.is_slave or not self.wanted:
            return
        with trio.move_on_after(START_SECONDS_MAX):
            await self.group.registration.find_master()
            while True:
                if await self._ask():
                    break
                await trio.sleep(AGAIN_SECONDS)
        for name in sorted(self.wanted):
            self._start_empty(name, "no slave answered")
        self.wanted.discard(DELAYS)  # Too late: delayed messages are being delivered.

    async def run(self) -> None:
        """Ask slaves again until all tables are recovered."""
        while self.wanted:
            await trio.sleep(LATER_SECONDS)
            if self.store.config.is_slave:
                if self.group.master.address is None:
                    continue  # Nothing is copied: a member that starts may still be the master.
                gone = {name for name in self.wanted | self.empty if self.tables.known_file(name).is_missing}
                self.wanted, self.empty = self.wanted & gone, self.empty & gone
            elif self.gate.state == "open":
                self.wanted.discard(DELAYS)
                await self._ask()

    async def _ask(self) -> bool:
        """Ask all slaves once and take their copies; False while a table is missing and a slave did not answer."""
        addresses, received = sorted(self.group.slave_addresses()), dict[str, Copies]()
        silent: set[str] = set()

        async def ask(address: str) -> None:
            try:
                for name in sorted(self.wanted):
                    asked = fast_address(address) if name == TOPICS else address
                    value = await ask_object(self.client, asked, _REQUESTS[name](), timeout_ms=TIMEOUT_MS)
                    if self._has_content(name, value):
                        received.setdefault(name, {})[address] = value
            except (RemotingError, ValueError, TypeError, AttributeError, OverflowError) as error:
                silent.add(address)
                log.debug("a slave did not send its tables", peer=address, error=str(error))

        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(ask, address)
        for name in sorted(self.wanted):
            if name in received:
                await self._take(name, received[name])
            elif addresses and not silent:
                self._start_empty(name, "no slave has it")
                self.wanted.discard(name)
        return not self.wanted or not silent

    def _has_content(self, name: str, value: Mapping[str, Any]) -> bool:
        """True when a copy has more entries than those of every broker. Raises ValueError, TypeError, AttributeError."""
        if name == TOPICS:
            return bool(read_topics(value).keys() - self.tables.topics.system)
        if name == GROUPS:
            return bool(read_groups(value).keys() - set(BUILT_IN_GROUPS))
        return bool(read_offsets(value) if name == OFFSETS else read_delay_offsets(value))

    async def _take(self, name: str, copies: Copies) -> None:
        newest = max(sorted(copies), key=lambda address: _version(copies[address]))
        with contextlib.suppress(OSError):  # It was logged, and the next change writes again.
            if name == TOPICS:
                self.tables.topics.fill(copies[newest], self._topics)
                self.tables.topics_writer.changed()
                self.group.registration.topics_changed()
                await self.tables.topics_writer.save()
            elif name == GROUPS:
                self.tables.groups.fill(copies[newest], self._groups)
                self.tables.groups_writer.changed()
                await self.tables.groups_writer.save()
            elif name == OFFSETS:
                await self._take_offsets(copies)
            else:
                levels = _greatest({"": read_delay_offsets(value)} for value in copies.values())[""]
                schedule = self.schedule
                schedule.merge({"offsetTable": levels})
                await trio.to_thread.run_sync(schedule.file.save_table, schedule.file_table)
        self.wanted.discard(name)
        self.empty.discard(name)
        log.warning(
            "a lost table was copied from slaves",
            file=str(self.tables.directory / name),
            peers=sorted(copies) if name in (OFFSETS, DELAYS) else [newest],
            why="their copy may lack changes of the last seconds before the stop",
        )

    async def _take_offsets(self, copies: Copies) -> None:
        """Take the greatest offset of several slaves, as each may be some seconds behind, and none behind its queue's end."""
        tables = self.tables
        tables.offsets.fill(_greatest(read_offsets(value) for value in copies.values()))
        self.store.dispatch_pending()
        tables.offsets.lower(self.queues.end)
        tables.offsets_writer.changed()
        await tables.offsets_writer.save()

    def _start_empty(self, name: str, why: str) -> None:
        if name not in self.empty:
            log.warning(
                "a lost table starts empty",
                file=str(self.tables.directory / name),
                why=why,
                means=_MEANING[name],
                next="copy it from a backup or another member while this broker is stopped; a slave that appears is asked for it",
            )
        self.empty.add(name)


def _version(value: Mapping[str, Any]) -> tuple[int, int]:
    version = DataVersion.read(value.get("dataVersion") or {})
    return version.counter, version.timestamp


def _greatest(tables: Iterable[Mapping[str, Mapping[int, int]]]) -> dict[str, dict[int, int]]:
    greatest: dict[str, dict[int, int]] = {}
    for table in tables:
        for key, entries in table.items():
            own = greatest.setdefault(key, {})
            for number, offset in entries.items():
                own[number] = max(offset, own.get(number, offset))
    return greatest
