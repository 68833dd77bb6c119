"""Routes: the queues of a topic, and the addresses of broker groups. Pure: JSON in, frozen objects out.

Source: TopicRouteData, ClusterInfo, MQClientInstance.topicRouteData2TopicPublishInfo (RocketMQ 4.9.8).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from attrs import field, frozen

from twinlog.cluster.remoting.fastjson import ObjectKey

MASTER_ID = 0
PERM_PRIORITY, PERM_READ, PERM_WRITE, PERM_INHERIT = 8, 4, 2, 1  # Bits of perm (PermName).
UNIT, UNIT_SUBSCRIPTION = 1, 2  # Bits of topic_sys_flag.


@frozen(order=True)
class MessageQueue:
    """One queue of a topic on one broker group."""

    topic: str
    broker_name: str
    queue_id: int


def queue_to_json(queue: MessageQueue) -> dict[str, Any]:
    """A MessageQueue as RocketMQ's bodies have it."""
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def read_queue(fields: Mapping[str, Any]) -> MessageQueue:
    """Read such JSON. Raises KeyError, TypeError and ValueError when it is malformed."""
    return MessageQueue(str(fields["topic"]), str(fields["brokerName"]), int(fields["queueId"]))


def queue_of_key(key: str) -> MessageQueue:
    """The queue that is a map's key."""
    return read_queue(orjson.loads(key.encode()))  # orjson refuses subclasses of str.


def key_of_queue(queue: MessageQueue) -> ObjectKey:
    """The reverse."""
    return ObjectKey.of(queue_to_json(queue))


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Group queues by the names of their brokers."""
    groups: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        groups[queue.broker_name].append(queue)
    return groups


@frozen
class BrokerAddresses:
    """The members of one broker group by brokerId (BrokerData)."""

    cluster: str
    broker_name: str
    addresses: Mapping[int, str] = field(factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As routes and the cluster table show it; the ids are int keys."""
        addresses = dict(sorted(self.addresses.items()))
        return {"brokerAddrs": addresses, "brokerName": self.broker_name, "cluster": self.cluster}

    @property
    def master(self) -> str | None:
        return self.addresses.get(MASTER_ID)

    def find(self, broker_id: int) -> str | None:
        """The address of that member or, as in RocketMQ's clients, of one that can replace it."""
        for each in (broker_id, broker_id + 1 if broker_id else MASTER_ID):
            if each in self.addresses:
                return self.addresses[each]
        return next(iter(self.addresses.values()), None)


@frozen
class QueueData:
    """The queues of a topic on one broker group, and their permissions."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int
    topic_sys_flag: int = 0

    def to_json(self) -> dict[str, Any]:
        """As routes show it."""
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queues,
        }

    @property
    def perm_text(self) -> str:
        """RW, R-, -W or --."""
        return ("R" if self.perm & PERM_READ else "-") + ("W" if self.perm & PERM_WRITE else "-")


@frozen
class TopicRoute:
    """The response to request 105."""

    topic: str
    brokers: Mapping[str, BrokerAddresses]
    queue_data: tuple[QueueData, ...]

    def publish_queues(self, topic: str | None = None, *, queues_max: int | None = None) -> list[MessageQueue]:
        """Queues that can be written now: permitted, and with a master.

        `topic` and `queues_max` are for a topic that does not exist yet and is created with queues like TBW102's.
        """
        queues = []
        for data in self.queue_data:
            broker = self.brokers.get(data.broker_name)
            if data.perm & PERM_WRITE and broker is not None and broker.master is not None:
                count = data.write_queues if queues_max is None else min(queues_max, data.read_queues)
                queues += [MessageQueue(topic or self.topic, data.broker_name, each) for each in range(count)]
        return queues

    def read_queues(self) -> list[MessageQueue]:
        """Queues that can be read now, from a master or a slave."""
        return [
            MessageQueue(self.topic, data.broker_name, each)
            for data in self.queue_data
            if data.perm & PERM_READ and data.broker_name in self.brokers
            for each in range(data.read_queues)
        ]


def read_route(topic: str, data: Mapping[str, Any]) -> TopicRoute:
    """Parse TopicRouteData. Broker names are in order, because producers count queues that way."""
    queue_data = [
        QueueData(each["brokerName"], int(each["readQueueNums"]), int(each["writeQueueNums"]), int(each["perm"]))
        for each in data.get("queueDatas", ())
    ]
    brokers = (_read_broker(each) for each in data.get("brokerDatas", ()))
    return TopicRoute(
        topic,
        {broker.broker_name: broker for broker in brokers},
        tuple(sorted(queue_data, key=lambda each: each.broker_name)),
    )


def read_cluster(data: Mapping[str, Any]) -> tuple[BrokerAddresses, ...]:
    """Parse ClusterInfo (106): every broker group, by cluster and name."""
    groups = map(_read_broker, data.get("brokerAddrTable", {}).values())
    return tuple(sorted(groups, key=lambda each: (each.cluster, each.broker_name)))


def _read_broker(data: Mapping[str, Any]) -> BrokerAddresses:
    addresses = {int(broker_id): str(address) for broker_id, address in data.get("brokerAddrs", {}).items()}
    return BrokerAddresses(data.get("cluster", ""), data["brokerName"], dict(sorted(addresses.items())))
