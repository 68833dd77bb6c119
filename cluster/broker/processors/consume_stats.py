"""Progress of a group in a topic's queues, for requests 208 and 317. Source: AdminBrokerProcessor.java (RocketMQ 4.9.8)."""

from typing import Any

from attrs import define

from twinlog.cluster.broker.consume.queues import Queues
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.tables.clients import ConsumerManager
from twinlog.cluster.broker.tables.offsets import ConsumerOffsetManager
from twinlog.cluster.broker.tables.topics import TopicConfig, TopicConfigManager
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.connection import Connection
from twinlog.store.message_store import MessageStore


@define(eq=False)
class GroupProgress:
    """Progress of consumer groups in queues."""

    settings: Settings
    store: MessageStore
    topics: TopicConfigManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager[Connection]
    stats: BrokerStatsManager
    queues: Queues

    def topics_of(self, group: str, topics: list[str]) -> list[TopicConfig]:
        """Return the existing ones of `topics`; if the group has members, only those that it subscribes to."""
        info = self.consumers.find(group)
        subscriptions = info.subscriptions if info is not None else {}
        found = [topic for name in topics if (topic := self.topics.select(name)) is not None]
        return [topic for topic in found if not subscriptions or topic.name in subscriptions]

    def of(self, group: str, topics: list[TopicConfig], *, written: bool = False) -> dict[str, Any]:
        """Return the ConsumeStats of these topics. `written`: over the write queues instead of the read queues."""
        table: dict[str, dict[str, int]] = {}
        for topic in topics:
            table.update(self._progress(group, topic, topic.write_queues if written else topic.read_queues))
        tps = sum(self.stats.group_get_tps(group, topic.name) for topic in topics)
        return {"consumeTps": float(tps), "offsetTable": table}

    def queue_key(self, topic: str, queue_id: int) -> fastjson.ObjectKey:
        """Return a MessageQueue as the key of a table."""
        return fastjson.ObjectKey.of(
            {"brokerName": self.settings.config.broker_name, "queueId": queue_id, "topic": topic}
        )

    def _progress(self, group: str, topic: TopicConfig, queues: int) -> dict[str, dict[str, int]]:
        progress: dict[str, dict[str, int]] = {}
        for queue_id in range(queues):
            consumed = max(self.offsets.query(group, topic.name, queue_id), 0)
            last = self.store.store_timestamp(topic.name, queue_id, consumed - 1) if consumed else 0
            progress[self.queue_key(topic.name, queue_id)] = {
                "brokerOffset": self.queues.shown_end(topic.name, queue_id),
                "consumerOffset": consumed,
                "lastTimestamp": max(last, 0),
            }
        return progress


def lag(stats: dict[str, Any]) -> int:
    """Sum up the messages that a group has not consumed."""
    return sum(queue["brokerOffset"] - queue["consumerOffset"] for queue in stats["offsetTable"].values())
