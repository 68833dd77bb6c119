"""How far a group is in a topic's queues: for requests 208 and 317. Source: AdminBrokerProcessor.java (RocketMQ 4.9.8)."""

from typing import Any

from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting import fastjson


def consumed_topics(broker: BrokerParts, group: str, topics: list[str]) -> list[TopicConfig]:
    """Those of `topics` that there are, and that the group subscribes to if any of its members is here."""
    info = broker.consumers.find(group)
    subscriptions = info.subscriptions if info is not None else {}
    found = [topic for name in topics if (topic := broker.topics.select(name)) is not None]
    return [topic for topic in found if not subscriptions or topic.name in subscriptions]


def consume_stats(
    broker: BrokerParts, group: str, topics: list[TopicConfig], *, written: bool = False
) -> dict[str, Any]:
    """ConsumeStats of these topics together. `written`: over the queues that can be written to, not those to read."""
    table: dict[str, dict[str, int]] = {}
    for topic in topics:
        table.update(_progress(broker, group, topic, topic.write_queues if written else topic.read_queues))
    tps = sum(broker.stats.group_get_tps(group, topic.name) for topic in topics)
    return {"consumeTps": float(tps), "offsetTable": table}


def lag(stats: dict[str, Any]) -> int:
    """Messages that a group has not consumed."""
    return sum(queue["brokerOffset"] - queue["consumerOffset"] for queue in stats["offsetTable"].values())


def queue_key(broker: BrokerParts, topic: str, queue_id: int) -> fastjson.ObjectKey:
    """MessageQueue as the key of a table."""
    return fastjson.ObjectKey.of({"brokerName": broker.config.broker_name, "queueId": queue_id, "topic": topic})


def _progress(broker: BrokerParts, group: str, topic: TopicConfig, queues: int) -> dict[str, dict[str, int]]:
    progress: dict[str, dict[str, int]] = {}
    for queue_id in range(queues):
        consumed = max(broker.offsets.query(group, topic.name, queue_id), 0)
        last = broker.store.store_timestamp(topic.name, queue_id, consumed - 1) if consumed else 0
        progress[queue_key(broker, topic.name, queue_id)] = {
            "brokerOffset": broker.shown_end(topic.name, queue_id),
            "consumerOffset": consumed,
            "lastTimestamp": max(last, 0),
        }
    return progress
