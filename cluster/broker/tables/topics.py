"""Topics of a broker: a pure table, and the rules by which messages and administrators add to it.

Sources: TopicConfig.java, TopicConfigManager.java, PermName.java, TopicSysFlag.java (RocketMQ 4.9.8).
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import attrs
import structlog
from attrs import define, field, frozen

from twinlog.cluster.broker.tables.versioned import VersionedTable, entries_of
from twinlog.cluster.remoting import names
from twinlog.cluster.remoting.route import PERM_INHERIT, PERM_READ, PERM_WRITE, UNIT, UNIT_SUBSCRIPTION

log = structlog.get_logger(__name__)

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


def built_in_topics(
    *,
    cluster_name: str,
    broker_name: str,
    default_queues: int,
    auto_create: bool = True,
    cluster_topic: bool = True,
    broker_topic: bool = True,
    trace_topic: str | None = None,
) -> list[TopicConfig]:
    """Return the topics of a new broker; saved ones replace them."""
    everything = PERM_READ | PERM_WRITE | PERM_INHERIT
    topics = [TopicConfig(names.SELF_TEST_TOPIC, 1, 1)]
    if auto_create:
        topics.append(TopicConfig(names.AUTO_CREATE_TOPIC, default_queues, default_queues, everything))
    topics += [
        TopicConfig(names.BENCHMARK_TOPIC, 1024, 1024),
        TopicConfig(cluster_name, 16, 16, everything if cluster_topic else PERM_INHERIT),
        TopicConfig(broker_name, 1, 1, everything if broker_topic else PERM_INHERIT),
        TopicConfig(names.OFFSET_MOVED_TOPIC, 1, 1),
        TopicConfig(names.SCHEDULE_TOPIC, SCHEDULE_QUEUES, SCHEDULE_QUEUES),
        TopicConfig(f"{cluster_name}_REPLY_TOPIC", 1, 1),
    ]
    if trace_topic:
        topics.append(TopicConfig(trace_topic, 1, 1))
    return topics


@define(eq=False)
class TopicConfigManager(VersionedTable[TopicConfig]):
    """Topics by name: topics.json, and the body of 21."""

    KEY: ClassVar[str] = "topicConfigTable"

    system: frozenset[str] = field(default=names.SYSTEM_TOPICS, init=False)  # Refused by 17 and 215.

    @staticmethod
    def read(value: Mapping[str, Any]) -> dict[str, TopicConfig]:
        """Read topics. Raises ValueError."""
        return read_topics(value)

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


def read_topics(value: Mapping[str, Any]) -> dict[str, TopicConfig]:
    """Read the topics of topics.json. Raises ValueError."""
    return {name: TopicConfig.read(name, each) for name, each in entries_of(value, TopicConfigManager.KEY).items()}
