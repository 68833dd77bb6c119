"""Sends messages: round robin over the topic's queues, another broker when one fails.

Source: DefaultMQProducerImpl.sendDefaultImpl (RocketMQ 4.9.8): which answers are tried again elsewhere, how often, and
where a topic that does not exist yet takes its queues from.
"""

import time
from collections.abc import Mapping

from attrs import define, field, frozen

from cluster.client.api import DEFAULT_TOPIC, DEFAULT_TOPIC_QUEUES, ClientApi, SendStatus
from cluster.client.route import MessageQueue, TopicRoute
from cluster.client.unique_id import UniqueIds
from cluster.remoting.codes import ResponseCode
from cluster.remoting.errors import RemotingError, RequestError
from store.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, format_properties

RETRY_ELSEWHERE = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
RESERVED_PROPERTIES = frozenset({"UNIQ_KEY", "WAIT", "TAGS", "KEYS", "DELAY"})


class NoRouteError(RemotingError):
    """No broker has the topic, and none offers to create it."""


@frozen(kw_only=True)
class OutgoingMessage:
    """What a producer sends. `delay_level` 0: at once."""

    topic: str
    body: bytes
    tags: str = ""
    keys: str = ""
    delay_level: int = 0
    flag: int = 0
    properties: Mapping[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for name, value in self.properties.items():
            if name in RESERVED_PROPERTIES:
                raise ValueError(f"the property {name} belongs to RocketMQ")
            if any(sign in name + value for sign in (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR)):
                raise ValueError(f"the property {name} contains a separator character (U+0001 or U+0002)")
            if not name or not value:
                raise ValueError("a property needs a name and a value")


@frozen
class SendResult:
    """Where a message went, and how safe it is there."""

    status: SendStatus
    queue: MessageQueue
    queue_offset: int
    message_id: str
    offset_message_id: str
    remark: str | None


@define(eq=False)
class Producer:
    """One producer group. Routes are asked for once and again after a failure."""

    api: ClientApi
    group: str = "TWINLOG_PRODUCER"
    tries_max: int = 3
    _routes: dict[str, tuple[TopicRoute, list[MessageQueue]]] = field(factory=dict, init=False)
    _turn: int = field(default=0, init=False)
    _ids: UniqueIds = field(factory=UniqueIds, init=False)

    async def send(self, message: OutgoingMessage) -> SendResult:
        """Send one message and wait for the broker's answer.

        A status other than SEND_OK is an answer, not an error: the message is stored. Raises NoRouteError, RequestError
        (the broker refused) or another RemotingError (no broker could be reached) of the last try.
        """
        message_id = next(self._ids)
        properties = _wire_properties(message, message_id)
        tried: set[str] = set()
        for attempt in range(1, self.tries_max + 1):
            route, queues = await self._route(message.topic)
            queue = self._pick(queues, tried)
            address = route.brokers[queue.broker_name].master
            assert address is not None, "publish queues have a master"
            try:
                sent = await self.api.send(
                    address,
                    queue,
                    group=self.group,
                    properties=properties,
                    body=message.body,
                    born_timestamp=time.time_ns() // 1_000_000,
                    flag=message.flag,
                )
            except RemotingError as error:
                final = isinstance(error, RequestError) and error.code not in RETRY_ELSEWHERE
                if final or attempt == self.tries_max:
                    raise
                tried.add(queue.broker_name)
                self._routes.pop(message.topic, None)
                continue
            where = MessageQueue(queue.topic, queue.broker_name, sent.queue_id)
            return SendResult(sent.status, where, sent.queue_offset, message_id, sent.offset_message_id, sent.remark)
        raise AssertionError("the last try returns or raises")

    def _pick(self, queues: list[MessageQueue], tried: set[str]) -> MessageQueue:
        candidates = [queue for queue in queues if queue.broker_name not in tried] or queues
        self._turn += 1
        return candidates[(self._turn - 1) % len(candidates)]

    async def _route(self, topic: str) -> tuple[TopicRoute, list[MessageQueue]]:
        if topic not in self._routes:
            self._routes[topic] = await self._ask_route(topic)
        return self._routes[topic]

    async def _ask_route(self, topic: str) -> tuple[TopicRoute, list[MessageQueue]]:
        route = await self.api.topic_route(topic)
        queues = route.publish_queues() if route else []
        if route is None and (route := await self.api.topic_route(DEFAULT_TOPIC)):
            queues = route.publish_queues(topic, queues_max=DEFAULT_TOPIC_QUEUES)
        if route is None:
            raise NoRouteError(
                f"no broker that is registered now has the topic {topic} or creates topics when a message comes"
            )
        if not queues:
            raise NoRouteError(
                f"no queue of the topic {topic} can be written now: its masters are down or write-protected"
            )
        return route, queues


def _wire_properties(message: OutgoingMessage, message_id: str) -> str:
    properties = dict(message.properties)
    if message.keys:
        properties["KEYS"] = message.keys
    properties["UNIQ_KEY"] = message_id
    properties["WAIT"] = "true"
    if message.tags:
        properties["TAGS"] = message.tags
    if message.delay_level:
        properties["DELAY"] = str(message.delay_level)
    return format_properties(properties)
