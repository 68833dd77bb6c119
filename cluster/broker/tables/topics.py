"""Topics of a broker: a pure table, and the rules by which messages and administrators add to it.

Sources: TopicConfig.java, TopicConfigManager.java, PermName.java, TopicSysFlag.java (RocketMQ 4.9.8).
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import attrs
from attrs import define, field, frozen

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.tables.versioned import VersionedTable
from twinlog.cluster.config.json_file import entries_of
from twinlog.cluster.remoting import names
from twinlog.cluster.remoting.route import PERM_INHERIT, PERM_READ, PERM_WRITE, UNIT, UNIT_SUBSCRIPTION
from twinlog.store.util.late_logger import LateLogger

log = LateLogger(__name__)

TOPICS_KEY = "topicConfigTable"
SCHEDULE_QUEUES = 18  # Fixed, whatever delay levels are configured.
QUEUES_MAX = 65536  # Ours: bounds the memory that one request can use.


@frozen
class TopicConfig:
    name: str
    read_queues: int = 16
    write_queues: int = 16
    perm: int = PERM_READ | PERM_WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the entry of topics.json and of the bodies of 21 and 103; keys sorted, as fastjson does."""
        return {
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queues,
        }

    @classmethod
    def read(cls, name: str, value: Mapping[str, Any]) -> Self:
        """Read a topic. Raises ValueError for an invalid name or number."""
        if fault := names.topic_fault(name):
            raise ValueError(fault)
        config = cls(
            name=name,
            read_queues=int(value.get("readQueueNums", 16)),
            write_queues=int(value.get("writeQueueNums", 16)),
            perm=int(value.get("perm", PERM_READ | PERM_WRITE)),
            filter_type="MULTI_TAG" if value.get("topicFilterType") == "MULTI_TAG" else "SINGLE_TAG",
            sys_flag=int(value.get("topicSysFlag", 0)),
            order=value.get("order") is True,
        )
        if not (0 <= config.read_queues <= QUEUES_MAX and 0 <= config.write_queues <= QUEUES_MAX):
            raise ValueError(f"topic {name}: {config.read_queues} read and {config.write_queues} write queues")
        return config


def built_in_topics(config: BrokerConfig) -> list[TopicConfig]:
    """Return the topics that a broker with this configuration always has; saved ones replace them."""
    cluster, queues = config.broker_cluster_name, config.default_topic_queues
    everything = PERM_READ | PERM_WRITE | PERM_INHERIT
    topics = [TopicConfig(names.SELF_TEST_TOPIC, 1, 1)]
    if config.auto_create_topic_enable:
        topics.append(TopicConfig(names.AUTO_CREATE_TOPIC, queues, queues, everything))
    topics += [
        TopicConfig(names.BENCHMARK_TOPIC, 1024, 1024),
        TopicConfig(cluster, 16, 16, everything if config.cluster_topic_enable else PERM_INHERIT),
        TopicConfig(config.broker_name, 1, 1, everything if config.broker_topic_enable else PERM_INHERIT),
        TopicConfig(names.OFFSET_MOVED_TOPIC, 1, 1),
        TopicConfig(names.SCHEDULE_TOPIC, SCHEDULE_QUEUES, SCHEDULE_QUEUES),
        TopicConfig(f"{cluster}_REPLY_TOPIC", 1, 1),
    ]
    if config.trace_topic_enable and config.msg_trace_topic_name:
        topics.append(TopicConfig(config.msg_trace_topic_name, 1, 1))
    return topics


def read_topics(value: Mapping[str, Any]) -> dict[str, TopicConfig]:
    """Read the topics of topics.json. Raises ValueError."""
    return {name: TopicConfig.read(name, each) for name, each in entries_of(value, TOPICS_KEY).items()}


@define(eq=False)
class TopicConfigManager(VersionedTable[TopicConfig]):
    """Topics by name: topics.json, and the body of 21."""

    KEY: ClassVar[str] = TOPICS_KEY
    read = staticmethod(read_topics)

    system: frozenset[str] = field(default=names.SYSTEM_TOPICS, init=False)  # Refused by 17 and 215.

    def add_built_in(self, topics: Iterable[TopicConfig]) -> None:
        for topic in topics:
            self.table[topic.name] = topic
            self.system |= {topic.name}

    def select(self, topic: str) -> TopicConfig | None:
        return self.table.get(topic)

    def is_system(self, topic: str) -> bool:
        return topic in self.system or names.is_system_topic(topic)

    def create_in_send(
        self, topic: str, default_topic: str, client_queues: int, unit_mode: bool = False, connection_address: str = ""
    ) -> TopicConfig | None:
        """Return a topic, created like `default_topic` if it is new; None if that is not allowed."""
        if existing := self.table.get(topic):
            return existing
        if names.topic_fault(topic) is not None:
            return None
        config = self._inherit(topic, default_topic, client_queues, unit_mode)
        if config is None and topic.startswith(names.RETRY_PREFIX):
            config = TopicConfig(topic, 1, 1, sys_flag=UNIT_SUBSCRIPTION if unit_mode else 0)
        if config is None:
            return None
        log.info("topic created by a message", topic=topic, queues=config.write_queues, peer=connection_address)
        return self.update(config)

    def _inherit(self, topic: str, default_topic: str, client_queues: int, unit_mode: bool) -> TopicConfig | None:
        model = self.table.get(default_topic)
        if model is None:
            return None
        if default_topic == names.AUTO_CREATE_TOPIC and not self.auto_create:
            # RocketMQ removes the bit permanently, so that clients stop trying.
            model = self.table[default_topic] = attrs.evolve(model, perm=PERM_READ | PERM_WRITE)
        if not model.perm & PERM_INHERIT:
            return None
        queues = max(0, min(client_queues, model.write_queues))
        return TopicConfig(
            topic, queues, queues, model.perm & ~PERM_INHERIT, model.filter_type, sys_flag=UNIT if unit_mode else 0
        )

    def create_in_send_back(self, topic: str, queues: int, *, sys_flag: int = 0) -> TopicConfig | None:
        """Return a retry or dead letter topic, created if it is new; None for an invalid name."""
        if existing := self.table.get(topic):
            return existing
        if names.topic_fault(topic) is not None:
            return None
        return self.update(TopicConfig(topic, queues, queues, sys_flag=sys_flag))

    def update(self, config: TopicConfig) -> TopicConfig:
        """Add or replace a topic. `order` is kept: only the name servers' order configuration sets it.

        Raises RequestError for an invalid name, or above the limit of topics.
        """
        old = self.table.get(config.name)
        if old is None:
            names.require_topic(config.name)
            names.require_room("topics", len(self.table), names.TOPICS_MAX)
        config = attrs.evolve(config, order=old.order if old else config.order)
        self.table[config.name] = config
        self.renew_version(config.name)
        return config

    def set_order(self, ordered: Iterable[str]) -> None:
        """Set which topics are ordered: those that name servers list in the response to a registration."""
        wanted = set(ordered)
        different = [config for name, config in self.table.items() if config.order != (name in wanted)]
        for config in different:
            self.table[config.name] = attrs.evolve(config, order=not config.order)
        if different:
            self.renew_version(different[0].name)
