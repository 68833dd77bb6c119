"""Progress of a group in a topic's queues, for requests 208 and 317. Source: AdminBrokerProcessor.java (RocketMQ 4.9.8)."""

from typing import Any

from attrs import define

from twinlog.cluster.broker.consume.queues import Queues
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.tables.tables import BrokerTables
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting.route import MessageQueue, key_of_queue
from twinlog.store.message_store import MessageStore


@define(eq=False)
class GroupProgress:
    """Progress of consumer groups in queues."""

    settings: Settings
    store: MessageStore
    tables: BrokerTables
    stats: BrokerStatsManager
    queues: Queues

    def topics_of(self, group: str, topics: list[str]) -> list[TopicConfig]:
        """Return the existing ones of `topics`; if the group has members, only those that it subscribes to."""
        info = self.tables.consumers.find(group)
        subscriptions = info.subscriptions if info is not None else {}
        found = [topic for name in topics if (topic := self.tables.topics.select(name)) is not None]
        return [topic for topic in found if not subscriptions or topic.name in subscriptions]

    def of(self, group: str, topics: list[TopicConfig], *, written: bool = False) -> dict[str, Any]:
        """Return the ConsumeStats of these topics. `written`: over the write queues instead of the read queues."""
        table: dict[str, dict[str, int]] = {}
        for topic in topics:
            for queue_id in range(topic.write_queues if written else topic.read_queues):
                queue = MessageQueue(topic.name, self.settings.config.broker_name, queue_id)
                table[key_of_queue(queue)] = self._progress(group, topic.name, queue_id)
        tps = sum(self.stats.group_get_tps(group, topic.name) for topic in topics)
        return {"consumeTps": float(tps), "offsetTable": table}

    def _progress(self, group: str, topic: str, queue_id: int) -> dict[str, int]:
        consumed = max(self.tables.offsets.query(group, topic, queue_id), 0)
        last = self.store.store_timestamp(topic, queue_id, consumed - 1) if consumed else 0
        end = self.queues.shown_end(topic, queue_id)
        return {"brokerOffset": end, "consumerOffset": consumed, "lastTimestamp": max(last, 0)}


def lag(stats: dict[str, Any]) -> int:
    """Sum up the messages that a group has not consumed."""
    return sum(queue["brokerOffset"] - queue["consumerOffset"] for queue in stats["offsetTable"].values())
