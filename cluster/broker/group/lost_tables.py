"""Tables that were there and are gone, taken from other members: topics, groups, offsets of consumers and of delayed messages.

A slave gets its master's in any case. A master asks its slaves, which have a copy of each: before it serves, for up to 5 s, as
consumers whose offsets are gone begin anew, and delayed messages are delivered again. Where no slave answers, a table begins
empty, and slaves are asked as soon as there are any; what was changed here in between is newer and stays. Which tables were
there says cluster/config/json_file.py.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.consume.queues import Queues
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

Told = dict[str, Mapping[str, Any]]  # A table in the form of its file, by the slave that has it.

_REQUESTS: Mapping[str, Callable[[], RequestHeader]] = {
    TOPICS: GetAllTopicConfig,
    GROUPS: GetAllSubscriptionGroupConfig,
    OFFSETS: GetAllConsumerOffset,
    DELAYS: GetAllDelayOffset,
}
_MEANING: Mapping[str, str] = {
    TOPICS: "clients do not find their topics until these are made again",
    GROUPS: "groups are made anew with the defaults",
    OFFSETS: "consumer groups begin anew: they may get messages again, or pass over some",
    DELAYS: "delayed messages that are still in the log are delivered again",
}


@define(eq=False, repr=False)
class LostTables:
    """`wanted`: the names of those that are asked for; `empty`: of those that began empty."""

    tables: BrokerTables
    store: MessageStore
    schedule: ScheduleMessageService
    queues: Queues
    group: GroupView
    gate: Gate
    client: RemotingClient
    wanted: set[str] = field(factory=set, init=False)
    empty: set[str] = field(factory=set, init=False)
    _topics: dict[str, TopicConfig] = field(factory=dict, init=False)  # What the tables began with.
    _groups: dict[str, SubscriptionGroupConfig] = field(factory=dict, init=False)

    @property
    def names(self) -> list[str]:
        """Of those that are not here as they were."""
        return sorted(self.wanted | self.empty)

    def marked(self, name: str, table: dict[str, Any]) -> dict[str, Any]:
        """A table for slaves, marked when it is lost here: then they keep their copy, even if it has new entries here."""
        return {**table, IS_LOST: True} if name in self.wanted else table

    def lost(self, name: str) -> None:
        """A table was there, and its file and the one before its last change are gone."""
        self.wanted.add(name)
        self._topics, self._groups = dict(self.tables.topics.table), dict(self.tables.groups.table)
        log.warning(
            "a table is missing, and so is the one before its last change: another member is asked for it",
            file=str(self.tables.directory / name),
            why="it was there before: somebody removed both, or the disk lost them",
            means=_MEANING[name],
            asked="the master" if self.store.config.is_slave else "slaves",
        )

    async def take_at_start(self) -> None:
        """Ask a master's slaves before anything is served; without an answer in time the tables begin empty."""
        if self.store.config.is_slave or not self.wanted:
            return
        with trio.move_on_after(START_SECONDS_MAX):
            await self.group.registration.look()
            while True:
                if await self._ask():
                    break
                await trio.sleep(AGAIN_SECONDS)
        for name in sorted(self.wanted):
            self._begins_empty(name, "no slave could be asked")
        self.wanted.discard(DELAYS)  # It is too late for that one: they are being delivered.

    async def run(self) -> None:
        """Go on asking until everything is here."""
        while self.wanted:
            await trio.sleep(LATER_SECONDS)
            if self.store.config.is_slave:
                gone = {name for name in self.wanted | self.empty if self.tables.known_file(name).is_missing}
                self.wanted, self.empty = self.wanted & gone, self.empty & gone
            elif self.gate.state == "open":
                self.wanted.discard(DELAYS)
                await self._ask()

    async def _ask(self) -> bool:
        """Ask all slaves once, and take what they have; whether there is nobody else to be asked."""
        addresses, told = sorted(self.group.slave_addresses()), dict[str, Told]()
        silent: set[str] = set()

        async def ask(address: str) -> None:
            try:
                for name in sorted(self.wanted):
                    asked = fast_address(address) if name == TOPICS else address
                    value = await ask_object(self.client, asked, _REQUESTS[name](), timeout_ms=TIMEOUT_MS)
                    if self._has_content(name, value):
                        told.setdefault(name, {})[address] = value
            except (RemotingError, ValueError, TypeError, AttributeError, OverflowError) as error:
                silent.add(address)
                log.debug("a slave does not tell its tables", peer=address, error=str(error))

        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(ask, address)
        for name in sorted(self.wanted):
            if name in told:
                await self._take(name, told[name])
            elif addresses and not silent:
                self._begins_empty(name, "no slave has it")
                self.wanted.discard(name)
        return not self.wanted or not silent

    def _has_content(self, name: str, value: Mapping[str, Any]) -> bool:
        """True when it has more than every broker has. Raises ValueError, TypeError, AttributeError."""
        if name == TOPICS:
            return bool(read_topics(value).keys() - self.tables.topics.system)
        if name == GROUPS:
            return bool(read_groups(value).keys() - set(BUILT_IN_GROUPS))
        return bool(read_offsets(value) if name == OFFSETS else read_delay_offsets(value))

    async def _take(self, name: str, told: Told) -> None:
        newest = max(sorted(told), key=lambda address: _version(told[address]))
        with contextlib.suppress(OSError):  # It was logged, and the next change is another try.
            if name == TOPICS:
                self.tables.topics.fill(told[newest], self._topics)
                self.tables.topics_writer.changed()
                self.group.registration.topics_changed()
                await self.tables.topics_writer.save()
            elif name == GROUPS:
                self.tables.groups.fill(told[newest], self._groups)
                self.tables.groups_writer.changed()
                await self.tables.groups_writer.save()
            elif name == OFFSETS:
                await self._take_offsets(told)
            else:
                levels = _greatest({"": read_delay_offsets(value)} for value in told.values())[""]
                schedule = self.schedule
                schedule.merge({"offsetTable": levels})
                await trio.to_thread.run_sync(schedule.file.save_table, schedule.file_table)
        self.wanted.discard(name)
        self.empty.discard(name)
        log.warning(
            "a table that was missing is taken from slaves",
            file=str(self.tables.directory / name),
            peers=sorted(told) if name in (OFFSETS, DELAYS) else [newest],
            why="their copy may lack what was changed in the last seconds before the stop",
        )

    async def _take_offsets(self, told: Told) -> None:
        """Of several slaves the greatest offset, as each may be some seconds behind; none behind the end of its queue."""
        tables = self.tables
        tables.offsets.fill(_greatest(read_offsets(value) for value in told.values()))
        self.store.dispatch_pending()
        tables.offsets.lower(self.queues.end)
        tables.offsets_writer.changed()
        await tables.offsets_writer.save()

    def _begins_empty(self, name: str, why: str) -> None:
        if name not in self.empty:
            log.warning(
                "a table that was there begins empty",
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
