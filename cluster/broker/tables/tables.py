"""Tables of a broker: topics, subscription groups, consumers' offsets, filters, clients; and their files."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.filter.consumer_filters import ConsumerFilterManager
from twinlog.cluster.broker.settings import wall_clock_ms
from twinlog.cluster.broker.tables.clients import ConsumerManager, ProducerManager
from twinlog.cluster.broker.tables.groups import SubscriptionGroupManager
from twinlog.cluster.broker.tables.offsets import ConsumerOffsetManager
from twinlog.cluster.broker.tables.queue_locks import RebalanceLockManager
from twinlog.cluster.broker.tables.topics import TopicConfigManager, built_in_topics
from twinlog.cluster.broker.tables.writer import TableWriter
from twinlog.cluster.config.json_file import JsonFile, KnownTables, is_empty
from twinlog.cluster.remoting.command import ONEWAY, encode
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.headers.clients import NotifyConsumerIdsChanged
from twinlog.cluster.remoting.names import RETRY_PREFIX
from twinlog.store.errors import StoreDirectoryError

log = structlog.get_logger(__name__)

TOPICS, GROUPS, OFFSETS, DELAYS = "topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"


@define(eq=False)
class SavedTable:
    """A table with its file."""

    file: JsonFile
    merge: Callable[[Mapping[str, Any]], None]
    to_json: Callable[[], Mapping[str, Any]]


@define(eq=False, repr=False)
class BrokerTables:
    """`root` is the store's directory."""

    config: BrokerConfig
    root: Path
    now_ms: Callable[[], int] = wall_clock_ms
    topics: TopicConfigManager = field(init=False)
    groups: SubscriptionGroupManager = field(init=False)
    offsets: ConsumerOffsetManager = field(factory=ConsumerOffsetManager, init=False)
    consumers: ConsumerManager = field(init=False)
    producers: ProducerManager = field(init=False)
    filters: ConsumerFilterManager = field(init=False)
    locks: RebalanceLockManager = field(init=False)
    known_tables: KnownTables = field(init=False)
    topics_writer: TableWriter = field(init=False)
    groups_writer: TableWriter = field(init=False)
    offsets_writer: TableWriter = field(init=False)
    filters_writer: TableWriter = field(init=False)

    def __attrs_post_init__(self) -> None:
        config = self.config
        self.known_tables = KnownTables(self.side_directory)
        self.topics = TopicConfigManager(self.now_ms, config.auto_create_topic_enable)
        self.topics.add_built_in(built_in_topics(config))
        self.topics_writer = TableWriter(self.known_file(TOPICS), self.topics.to_json)
        self.topics.on_change.append(self.topics_writer.changed)
        self.groups = SubscriptionGroupManager(self.now_ms, config.auto_create_subscription_group)
        self.groups_writer = TableWriter(self.known_file(GROUPS), self.groups.to_json)
        self.groups.on_change.append(self.groups_writer.changed)
        self.offsets_writer = TableWriter(self.known_file(OFFSETS), self.offsets.to_json)
        self.filters = ConsumerFilterManager(self.now_ms, self._filters_changed, self._is_by_tag)
        self.filters_writer = TableWriter(JsonFile(self.directory / "consumerFilter.json"), self.filters.to_json)
        self.consumers = ConsumerManager(trio.current_time, _notify_consumers, self.filters.unregister)
        self.producers = ProducerManager(trio.current_time)
        self.locks = RebalanceLockManager(trio.current_time)

    @property
    def directory(self) -> Path:
        """Directory of RocketMQ's files."""
        return self.root.expanduser() / "config"

    @property
    def side_directory(self) -> Path:
        """Directory of files that RocketMQ does not know."""
        return self.root.expanduser() / "twinlog"

    def known_file(self, name: str) -> JsonFile:
        """Return a table's file. Its first save with entries is recorded, so that a later start detects a missing table."""
        return JsonFile(self.directory / name, self.known_tables)

    def load(self, delays: SavedTable) -> list[str]:
        """Read the saved tables, also that of delayed messages; return the names of missing tables.

        Raises StoreDirectoryError for a broken file: a start with an empty table would lose consumers' offsets.
        """
        lost = []
        self.known_tables.load()
        filters = SavedTable(self.filters_writer.file, self.filters.merge, self.filters.to_json)
        for table in (*self._saved(delays), filters):
            file = table.file
            try:
                is_there = file.load_into(table.merge)
            except ValueError as error:
                raise StoreDirectoryError(
                    f"{file.path} cannot be read, and the broker does not start without it: {error}. Repair it, restore it from "
                    f"a backup or a slave, or delete it and its .bak: then it is copied from a slave or the master, or starts "
                    f"empty if there is none."
                ) from error
            if not is_there and file.path.name in self.known_tables.names:
                lost.append(file.path.name)
        self.offsets.dirty = False
        self._warn_missing()
        return lost

    def note(self, delays: SavedTable) -> None:
        """Record which tables have entries: a store of an older version has no such record. Blocks for the disk."""
        tables = self._saved(delays)
        self.known_tables.note(
            *(each.file.path.name for each in tables if not each.file.is_missing and not is_empty(each.to_json()))
        )

    def _saved(self, delays: SavedTable) -> tuple[SavedTable, ...]:
        return (
            SavedTable(self.topics_writer.file, self.topics.merge, self.topics.to_json),
            SavedTable(self.groups_writer.file, self.groups.merge, self.groups.to_json),
            SavedTable(self.offsets_writer.file, self.offsets.merge, self.offsets.to_json),
            delays,
        )

    def _warn_missing(self) -> None:
        """Log missing tables of a store without a record of its tables, such as RocketMQ's: messages and retry topics show that
        there were topics and groups.
        """
        queues = self.root.expanduser() / "consumequeue"
        has_messages = queues.is_dir() and any(queues.iterdir())
        had_groups = any(topic.startswith(RETRY_PREFIX) for topic in self.topics.table)
        for file, was_there in (
            (self.topics_writer.file, has_messages),
            (self.groups_writer.file, had_groups),
            (self.offsets_writer.file, had_groups),
        ):
            if was_there and file.is_missing and file.path.name not in self.known_tables.names:
                log.warning(
                    "a table and its backup are missing: it starts empty",
                    file=str(file.path),
                    why="the store is not new: they were removed",
                    next="stop this broker, and copy it from a backup or another member; a slave copies its master's by itself",
                )

    def note_offsets(self) -> None:
        """Have the offsets written if any has changed."""
        if self.offsets.dirty:
            self.offsets.dirty = False
            self.offsets_writer.changed()

    def _filters_changed(self) -> None:
        self.filters_writer.changed()

    def _is_by_tag(self, group: str, topic: str) -> bool:
        """True when a group does not filter a topic by an expression."""
        subscription = self.consumers.find_subscription(group, topic)
        return subscription is None or subscription.is_tag


def _notify_consumers(group: str, connections: list[Connection]) -> None:
    """Ask a group's members to rebalance."""
    header = NotifyConsumerIdsChanged(group)
    frame = encode(header.command(flag=ONEWAY))
    for connection in connections:
        connection.write(frame)
