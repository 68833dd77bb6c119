"""A broker's tables: topics, subscription groups, consumers' offsets, who is connected; and the files of those that last."""

from pathlib import Path

import trio
from attrs import define, field

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.filter.consumer_filters import ConsumerFilterManager
from twinlog.cluster.broker.machine import wall_clock_ms
from twinlog.cluster.broker.tables.clients import ConsumerManager, ProducerManager
from twinlog.cluster.broker.tables.groups import SubscriptionGroupManager
from twinlog.cluster.broker.tables.locks import RebalanceLockManager
from twinlog.cluster.broker.tables.offsets import ConsumerOffsetManager
from twinlog.cluster.broker.tables.topics import TopicConfig, TopicConfigManager, built_in_topics
from twinlog.cluster.broker.tables.writer import TableWriter
from twinlog.cluster.config.json_file import JsonFile
from twinlog.cluster.config.known_tables import KnownTables
from twinlog.cluster.remoting.command import ONEWAY, encode
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.headers.clients import NotifyConsumerIdsChanged
from twinlog.store.config import StoreConfig


@define(eq=False)
class BrokerTables:
    """Filled by make_tables(), which whoever has the final configuration calls."""

    config: BrokerConfig
    store_config: StoreConfig

    topics: TopicConfigManager = field(init=False)
    groups: SubscriptionGroupManager = field(init=False)
    offsets: ConsumerOffsetManager = field(factory=ConsumerOffsetManager, init=False)
    consumers: ConsumerManager[Connection] = field(init=False)
    producers: ProducerManager[Connection] = field(init=False)
    filters: ConsumerFilterManager = field(init=False)
    locks: RebalanceLockManager = field(init=False)
    known_tables: KnownTables = field(init=False)
    topics_writer: TableWriter = field(init=False)
    groups_writer: TableWriter = field(init=False)
    offsets_writer: TableWriter = field(init=False)
    filters_writer: TableWriter = field(init=False)

    @property
    def config_directory(self) -> Path:
        """Where RocketMQ keeps them, too."""
        return self.store_config.root.expanduser() / "config"

    @property
    def side_directory(self) -> Path:
        """What RocketMQ does not know of."""
        return self.store_config.root.expanduser() / "twinlog"

    def known_file(self, name: str) -> JsonFile:
        """A table's file of which it is noted that it was there."""
        return JsonFile(self.config_directory / name, self.known_tables)

    @staticmethod
    def now_ms() -> int:
        """Wall clock."""
        return wall_clock_ms()

    def make_tables(self) -> None:
        """By the configuration as it is now."""
        config, directory = self.config, self.config_directory
        self.topics = TopicConfigManager(
            self.now_ms, auto_create=config.auto_create_topic_enable, changed=lambda topic: self.topic_changed(topic)
        )
        self.topics.add_built_in(built_in(config))
        self.groups = SubscriptionGroupManager(
            self.now_ms,
            auto_create=config.auto_create_subscription_group,
            changed=lambda group: self.groups_writer.changed(group),
        )
        self.known_tables = KnownTables(self.side_directory)
        self.topics_writer = TableWriter(self.known_file("topics.json"), self.topics.plain)
        self.groups_writer = TableWriter(self.known_file("subscriptionGroup.json"), self.groups.plain)
        self.offsets_writer = TableWriter(self.known_file("consumerOffset.json"), self.offsets.plain)
        self.filters = ConsumerFilterManager(self.now_ms, lambda: self.filters_writer.changed(), self._is_by_tag)
        self.filters_writer = TableWriter(JsonFile(directory / "consumerFilter.json"), self.filters.plain)
        self.consumers = ConsumerManager(trio.current_time, _notify_consumers, self.filters.unregister)
        self.producers = ProducerManager(trio.current_time)
        self.locks = RebalanceLockManager(trio.current_time)

    def topic_changed(self, topic: str) -> None:
        """It goes to the file soon."""
        self.topics_writer.changed(topic)

    def _is_by_tag(self, group: str, topic: str) -> bool:
        """Whether a group filters a topic by no expression."""
        subscription = self.consumers.find_subscription(group, topic)
        return subscription is None or subscription.is_tag


def built_in(config: BrokerConfig) -> list[TopicConfig]:
    """The topics that a broker with this configuration has from the start."""
    return built_in_topics(
        cluster_name=config.broker_cluster_name,
        broker_name=config.broker_name,
        default_queues=config.default_topic_queues,
        auto_create=config.auto_create_topic_enable,
        cluster_topic=config.cluster_topic_enable,
        broker_topic=config.broker_topic_enable,
        trace_topic=config.msg_trace_topic_name if config.trace_topic_enable else None,
    )


def _notify_consumers(group: str, connections: list[Connection]) -> None:
    """Tell a group's members to share the queues anew."""
    header = NotifyConsumerIdsChanged(group)
    frame = encode(header.command(flag=ONEWAY))
    for connection in connections:
        connection.write(frame)
