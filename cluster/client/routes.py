"""A client's cache of routes. Source: MQClientInstance (RocketMQ 4.9.8).

A route is requested every 30 s. When no queue of it can be written, or a broker of it has failed, it is stale: it is requested
again with the next message, with the pauses of Backoff, so that producers find a new master within a second. While a send has no
answer for a second, its route is requested, too: a master that hangs refuses nothing.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress
from math import inf

import anyio
from attrs import define, field, frozen

from twinlog.cluster.client.api import DEFAULT_TOPIC, DEFAULT_TOPIC_QUEUES, ClientApi
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.route import MASTER_ID, BrokerAddresses, MessageQueue, TopicRoute

REFRESH_SECONDS = 30.0
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 1.0  # Between two requests for the route of a topic that cannot be written.
CALM_SECONDS = 2.0  # Without a request, after which the pauses begin anew: twice the longest one.
SUSPECT_SECONDS, LOOK_SECONDS = (
    1.0,
    0.5,
)  # A send without an answer for so long has its route requested; how often it is looked.


def _jitter() -> float:
    return random.uniform(0.5, 1.0)  # Spreads the requests of clients that lost the same master at the same moment.


@define
class Backoff:
    """Pauses between requests: none, then about 0.1, 0.2, 0.4, 0.8 s, then 1 s; after 2 quiet seconds none again."""

    due: float = field(default=-inf, init=False)  # Earliest time of the next request.
    jitter: Callable[[], float] = field(default=_jitter, kw_only=True, repr=False)
    _pause: float = field(default=0.0, init=False)

    def asked(self, now: float) -> None:
        """Note a request at this time."""
        is_new = now >= self.due + CALM_SECONDS
        self._pause = PAUSE_SECONDS if is_new else min(2 * self._pause, PAUSE_SECONDS_MAX)
        self.due = now + self._pause * self.jitter()


class NoRouteError(RemotingError):
    """No broker has the topic, can create it, or can be written now. `may_come`: it could be written, and may be again soon."""

    next_step = (
        "With `may_come` try again for as long as a failover takes; otherwise create the topic: twinlog topic create."
    )

    def __init__(self, why: str, *, may_come: bool = False) -> None:
        super().__init__(why)
        self.may_come = may_come


@frozen
class PublishRoute:
    """The queues of a topic that can be written, with their brokers."""

    route: TopicRoute
    queues: tuple[MessageQueue, ...]
    asked: float  # Time of the request, by the loop's clock.

    def master(self, queue: MessageQueue) -> str:
        """The address of the queue's broker; raises NoRouteError for a queue that cannot be written."""
        broker = self.route.brokers.get(queue.broker_name)
        if broker is None or broker.master is None:
            raise NoRouteError(f"the broker {queue.broker_name} has no master that takes messages now", may_come=True)
        return broker.master


@define(eq=False)
class SendUnderWay:
    """A send without an answer yet. It is given up when its broker has another master."""

    topic: str
    broker_name: str
    address: str
    since: float
    deadline: float
    is_given_up: bool = field(default=False, init=False)
    _scope: anyio.CancelScope | None = field(default=None, init=False)  # Of its task, while that waits.

    def waiting(self) -> anyio.CancelScope:
        """The scope of its task's wait, which ends at the deadline, or when it is given up."""
        self._scope = anyio.CancelScope(deadline=self.deadline)
        return self._scope

    def give_up(self) -> None:
        """Wait no longer."""
        self.is_given_up = True
        if self._scope is not None:
            self._scope.cancel()


@define(eq=False)
class Routes:
    """Requests a route when it is new, stale or 30 s old. An old route is used when no name server responds."""

    api: ClientApi
    _read: dict[str, tuple[TopicRoute, float]] = field(factory=dict, init=False)
    _publish: dict[str, PublishRoute] = field(factory=dict, init=False)
    _brokers: dict[str, BrokerAddresses] = field(factory=dict, init=False)  # Also of stale routes.
    _asked: dict[str, float] = field(factory=dict, init=False)  # Time of the last request, by topic.
    _asking: anyio.Lock = field(factory=anyio.Lock, init=False)
    _backoffs: dict[str, Backoff] = field(factory=lambda: defaultdict(Backoff), init=False)
    _doubted: set[str] = field(factory=set, init=False)  # Topics, a broker of which has failed since their request.
    _failures: dict[str, tuple[float, NoRouteError]] = field(
        factory=dict, init=False
    )  # Last time and reason, by topic.
    _written: set[str] = field(factory=set, init=False)  # Topics that could be written.
    under_way: set[SendUnderWay] = field(factory=set, init=False)

    async def find(self, topic: str) -> TopicRoute | None:
        """The topic's route; None when no broker has it. Raises RemotingError when no name server ever responded."""
        known = self._read.get(topic)
        if known is not None and anyio.current_time() < known[1] + REFRESH_SECONDS:
            return known[0]
        self._asked[topic] = anyio.current_time()
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
            self._read[topic] = route, anyio.current_time()
            self._brokers.update(route.brokers)
            self._give_up_replaced(route)

    def _give_up_replaced(self, route: TopicRoute) -> None:
        """Wait no longer for masters that the route has replaced."""
        for each in self.under_way:
            broker = route.brokers.get(each.broker_name)
            if broker is not None and broker.master not in (None, each.address):
                each.give_up()

    async def look(self) -> None:
        """Request the routes of sends that have no answer for a while, with the pauses of Backoff."""
        now = anyio.current_time()
        for topic in {each.topic for each in self.under_way if now >= each.since + SUSPECT_SECONDS}:
            if now >= self._backoffs[topic].due:
                self.forget(topic)
                with suppress(RemotingError):
                    async with self._asking:
                        await self._ask(topic)

    async def publish(self, topic: str, *, tried: Collection[str] = (), only: str | None = None) -> PublishRoute:
        """The queues to write; for a topic that does not exist they are like TBW102's. Raises NoRouteError, RemotingError.

        Waits up to a second when it was requested just now and has no broker but those that were `tried`; with `only`, when it
        has not this one, or this one was tried.
        """
        began = anyio.current_time()
        if known := self._usable(topic, tried, only):
            return known
        await anyio.sleep_until(self._backoffs[topic].due)
        async with self._asking:  # One task requests, the others use its response.
            if known := self._usable(topic, tried, only):
                return known
            failed = self._failures.get(topic)
            if failed is not None and failed[0] >= began:
                raise NoRouteError(str(failed[1]), may_come=failed[1].may_come)
            return await self._ask(topic)

    def _usable(self, topic: str, tried: Collection[str], only: str | None) -> PublishRoute | None:
        """The known route while it is fresh, or stale and too early to request again, with a broker that was not tried."""
        known, now = self._publish.get(topic), anyio.current_time()
        if known is None or now >= known.asked + REFRESH_SECONDS:
            return None
        if topic not in self._doubted:
            return known
        brokers = {queue.broker_name for queue in known.queues}
        has_others = not (brokers if only is None else brokers & {only}) <= set(tried)
        return known if has_others and now < self._backoffs[topic].due else None

    async def _ask(self, topic: str) -> PublishRoute:
        now = anyio.current_time()
        self._backoffs[topic].asked(now)
        if (read := self._read.get(topic)) and not read[0].publish_queues():  # Sufficient for readers only.
            self.forget(topic)
        try:
            route = await self._ask_publish(topic)
        except RemotingError as error:
            self._publish.pop(topic, None)
            self._failures[topic] = now, error if isinstance(error, NoRouteError) else NoRouteError(str(error))
            self.forget(topic)
            raise
        self._failures.pop(topic, None)
        self._doubted.discard(topic)
        self._publish[topic] = route
        self._written.add(topic)
        return route

    async def _ask_publish(self, topic: str) -> PublishRoute:
        route = await self.find(topic)
        queues = route.publish_queues() if route else []
        if route is None and (route := await self.find(DEFAULT_TOPIC)):
            queues = route.publish_queues(topic, queues_max=DEFAULT_TOPIC_QUEUES)
        if route is None:
            raise NoRouteError(
                f"no broker that is registered now has the topic {topic} or creates topics when a message comes",
                may_come=topic in self._written,
            )
        if not queues:
            raise NoRouteError(
                f"no queue of the topic {topic} can be written now: its masters are down or write-protected",
                may_come=True,
            )
        return PublishRoute(route, tuple(queues), anyio.current_time())

    def forget(self, topic: str) -> None:
        """Mark a route as stale after a broker of it failed. It stays in use while no name server responds."""
        self._doubted.add(topic)
        for each in (topic, DEFAULT_TOPIC):
            if known := self._read.get(each):
                self._read[each] = known[0], -inf

    def failed(self, where: PublishRoute, queue: MessageQueue) -> None:
        """Mark the route of a queue as stale after its master failed, unless another master is known by now."""
        known = self._publish.get(queue.topic)
        now = known.route.brokers.get(queue.broker_name) if known is not None else None
        before = where.route.brokers.get(queue.broker_name)
        if now is None or before is None or now.master in (None, before.master):
            self.forget(queue.topic)

    async def refresh(self) -> None:
        """Request all known routes again. On failure a route stays as it is."""
        for topic in {*self._read, *self._publish}:
            try:
                route = await self.api.topic_route(topic)
            except RemotingError:
                continue
            self._publish.pop(topic, None)
            self._doubted.discard(topic)
            self._learn(topic, route)
        if self._read:  # Drop brokers that are in no route any more.
            self._brokers = {name: each for route, _ in self._read.values() for name, each in route.brokers.items()}

    async def renew(self, topic: str) -> None:
        """Request one route again, unless that was done in the last second. Raises RemotingError."""
        if anyio.current_time() >= self._asked.get(topic, -inf) + 1:
            self.forget(topic)
            await self.find(topic)

    def address(self, broker_name: str, broker_id: int = MASTER_ID, *, or_another: bool = True) -> str | None:
        """The address of a broker group's member, or of one that can replace it; None: not known."""
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
        """The names of the clusters of all known brokers."""
        return frozenset(broker.cluster for broker in self._brokers.values())
