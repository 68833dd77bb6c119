"""The routes that a client knows, fresh enough to use. Source: MQClientInstance (RocketMQ 4.9.8)."""

from collections.abc import Iterable
from math import inf

import trio
from attrs import define, field, frozen

from cluster.client.message_api import DEFAULT_TOPIC, DEFAULT_TOPIC_QUEUES
from cluster.client.namesrv_api import NameServerApi
from cluster.client.route import MASTER_ID, BrokerAddresses, MessageQueue, TopicRoute
from cluster.remoting.errors import RemotingError

REFRESH_SECONDS = 30.0


class NoRouteError(RemotingError):
    """No broker has the topic, and none offers to create it."""


@frozen
class PublishRoute:
    """Where a topic's messages can be written, and by whom."""

    route: TopicRoute
    queues: tuple[MessageQueue, ...]
    asked: float  # trio's clock.

    def master(self, queue: MessageQueue) -> str:
        """The address of the queue's broker; raises NoRouteError for a queue that cannot be written."""
        broker = self.route.brokers.get(queue.broker_name)
        if broker is None or broker.master is None:
            raise NoRouteError(f"the broker {queue.broker_name} has no master that could take messages now")
        return broker.master


@define(eq=False)
class Routes:
    """Asks for a topic when it is new or 30 s old; an old answer is better than none."""

    api: NameServerApi
    _read: dict[str, tuple[TopicRoute, float]] = field(factory=dict, init=False)
    _publish: dict[str, PublishRoute] = field(factory=dict, init=False)
    _brokers: dict[str, BrokerAddresses] = field(factory=dict, init=False)  # Also of topics that are asked for again.
    _asked: dict[str, float] = field(factory=dict, init=False)  # When, by topic.
    _asking: trio.Lock = field(factory=trio.Lock, init=False)

    @property
    def topics(self) -> frozenset[str]:
        """Whose routes are known."""
        return frozenset(self._read)

    async def find(self, topic: str) -> TopicRoute | None:
        """None when no broker has the topic. Raises RemotingError when no name server ever told."""
        known = self._read.get(topic)
        if known is not None and trio.current_time() < known[1] + REFRESH_SECONDS:
            return known[0]
        self._asked[topic] = trio.current_time()
        try:
            route = await self.api.topic_route(topic)
        except RemotingError:
            if known is None:
                raise
            route = known[0]
        self._learn(topic, route)
        return route

    def _learn(self, topic: str, route: TopicRoute | None) -> None:
        if route is None:
            self._read.pop(topic, None)
        else:
            self._read[topic] = route, trio.current_time()
            self._brokers.update(route.brokers)

    async def publish(self, topic: str) -> PublishRoute:
        """Where to write; a topic that does not exist takes its queues from TBW102's. Raises NoRouteError, RemotingError."""
        known = self._publish.get(topic)
        if known is not None and trio.current_time() < known.asked + REFRESH_SECONDS:
            return known
        async with self._asking:  # One asks, the others use its answer.
            known = self._publish.get(topic)
            if known is None or trio.current_time() >= known.asked + REFRESH_SECONDS:
                known = self._publish[topic] = await self._ask_publish(topic)
            return known

    async def _ask_publish(self, topic: str) -> PublishRoute:
        route = await self.find(topic)
        queues = route.publish_queues() if route else []
        if route is None and (route := await self.find(DEFAULT_TOPIC)):
            queues = route.publish_queues(topic, queues_max=DEFAULT_TOPIC_QUEUES)
        if route is None:
            raise NoRouteError(
                f"no broker that is registered now has the topic {topic} or creates topics when a message comes"
            )
        if not queues:
            raise NoRouteError(
                f"no queue of the topic {topic} can be written now: its masters are down or write-protected"
            )
        return PublishRoute(route, tuple(queues), trio.current_time())

    def forget(self, topic: str) -> None:
        """Ask again before the next use: a broker failed. Where no name server answers, the old answer stays."""
        self._publish.pop(topic, None)
        for each in (topic, DEFAULT_TOPIC):
            if known := self._read.get(each):
                self._read[each] = known[0], -inf

    async def refresh(self, topics: Iterable[str] = ()) -> None:
        """Ask again for all that are known, and for these. What cannot be asked stays as it is."""
        for topic in {*self._read, *self._publish, *topics}:
            try:
                route = await self.api.topic_route(topic)
            except RemotingError:
                continue
            self._publish.pop(topic, None)
            self._learn(topic, route)
        if self._read:  # Brokers of no topic any more are gone.
            self._brokers = {name: each for route, _ in self._read.values() for name, each in route.brokers.items()}

    async def renew(self, topic: str) -> None:
        """Ask again for one topic, unless somebody did in the last second. Raises RemotingError."""
        if trio.current_time() >= self._asked.get(topic, -inf) + 1:
            self.forget(topic)
            await self.find(topic)

    def address(self, broker_name: str, broker_id: int = MASTER_ID, *, or_another: bool = True) -> str | None:
        """Where a broker group's member is, or one that can stand in for it; None: nobody knows."""
        broker = self._brokers.get(broker_name)
        if broker is None:
            return None
        return broker.find(broker_id) if or_another else broker.addresses.get(broker_id)

    def addresses(self, *, masters_only: bool) -> frozenset[str]:
        """Every broker of every known route."""
        return frozenset(
            address
            for broker in self._brokers.values()
            for broker_id, address in broker.addresses.items()
            if broker_id == MASTER_ID or not masters_only
        )

    @property
    def clusters(self) -> frozenset[str]:
        """The names of the clusters that those brokers belong to."""
        return frozenset(broker.cluster for broker in self._brokers.values())
