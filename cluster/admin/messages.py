"""Messages for `tail` and `peek`: found by place, key or id, with the groups that have consumed them."""

from collections.abc import Iterable
from functools import partial

from attrs import frozen

from twinlog.cluster.admin.message_view import PeekedMessage, ReaderOf, view_of
from twinlog.cluster.admin.topics import route_of, view_of_readers
from twinlog.cluster.client.api import ClientApi, PullStatus, addresses_of
from twinlog.cluster.client.messages import ReceivedMessage, as_received, received
from twinlog.cluster.client.subscription import Subscription
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.observe import requests as admin_requests
from twinlog.cluster.observe.consumption import BROADCAST
from twinlog.cluster.observe.gather import Target, readers
from twinlog.cluster.remoting.route import MessageQueue, TopicRoute
from twinlog.cluster.user_errors import NOT_FOUND, UserError
from twinlog.store.errors import StoreError
from twinlog.store.record.message import decode_message, host_text


class NoMessageError(UserError):
    """No message fits."""

    http_status = NOT_FOUND
    next_step = "See the queues of a topic with: twinlog topic show TOPIC"


@frozen
class MessageAdmin:
    """Operations that read messages without consuming them."""

    api: ClientApi

    async def newest(self, topic: str, count: int) -> tuple[ReceivedMessage, ...]:
        """The newest messages over all queues, oldest of them first. Raises NoTopicError, NoMessageError."""
        route = await route_of(self.api, topic)
        found = await in_parallel(partial(self._last_of, route, queue, count) for queue in route.read_queues())
        messages = sorted((each for part in found for each in part), key=lambda each: each.place_in_time)[-count:]
        if not messages:
            raise NoMessageError(f"the topic {topic} holds no message")
        return tuple(messages)

    async def _last_of(self, route: TopicRoute, queue: MessageQueue, count: int) -> list[ReceivedMessage]:
        address = _address(route, queue.broker_name)
        end = await self.api.max_offset(address, queue)
        start = max(await self.api.min_offset(address, queue), end - count)
        return await self._pull(address, queue, start, min(count, end - start))

    async def at(
        self, topic: str, queue_id: int, offset: int, count: int, *, broker: str | None = None
    ) -> tuple[ReceivedMessage, ...]:
        """Messages of one queue from an offset on. Raises NoTopicError, NoMessageError."""
        route = await route_of(self.api, topic)
        names = [name for name in route.brokers if broker in (None, name)]
        if not names:
            raise NoMessageError(f"the topic {topic} is not on {broker}, but on {', '.join(route.brokers)}")
        if len(names) > 1:
            raise NoMessageError(f"the topic {topic} is on {', '.join(names)}: say which with --broker")
        queue, address = MessageQueue(topic, names[0], queue_id), _address(route, names[0])
        first, end = await self.api.min_offset(address, queue), await self.api.max_offset(address, queue)
        if not first <= offset < end:
            there = f"holds {first} to {end - 1}" if end > first else "is empty"
            raise NoMessageError(f"queue {queue_id} of {topic} on {names[0]} has no message {offset}: it {there}")
        return tuple(await self._pull(address, queue, offset, min(count, end - offset)))

    async def _pull(self, address: str, queue: MessageQueue, start: int, count: int) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        while count > len(found):
            pulled = await self.api.pull(address, queue, start, count_max=min(32, count - len(found)))
            if pulled.status is not PullStatus.FOUND:
                break
            found += received(pulled.records, queue)
            start = pulled.next_offset
        return found[:count]

    async def by_key(self, topic: str, key: str, count: int) -> tuple[ReceivedMessage, ...]:
        """Messages of a topic with a key, newest last. Raises NoTopicError, NoMessageError."""
        route = await route_of(self.api, topic)
        found = await self._query(readers(tuple(route.brokers.values())), topic, key, count, is_unique_key=False)
        messages = [each for each in found if key in each.keys.split()]
        if not messages:
            raise NoMessageError(f"no message of the topic {topic} has the key {key}")
        return tuple(messages[-count:])

    async def by_id(self, message_id: str, topic: str | None) -> ReceivedMessage:
        """One message by its offsetMsgId, or by the msgId that its producer gave it. Raises NoMessageError, NoTopicError.

        The second is looked up in `topic`, or in every topic. Both ids look alike; an offsetMsgId has a broker's address.
        """
        groups = await self.api.cluster()
        names = {address: group.broker_name for group, _, address in addresses_of(groups)}
        address, offset = _place(message_id)
        if address in names:
            record = await self.api.view_message(address, offset)
            if record is not None:
                message = decode_message(record, check_crc=False)
                return as_received(message, MessageQueue(message.topic, names[address], message.queue_id))
        topics = (topic,) if topic is not None else await self.api.topics()
        for target in readers(groups):
            for found in await in_parallel(partial(self._unique, target, each, message_id) for each in topics):
                if found is not None:
                    return found
        raise NoMessageError(f"no message is called {message_id}" + (f" in the topic {topic}" if topic else ""))

    async def _unique(self, target: Target, topic: str, message_id: str) -> ReceivedMessage | None:
        found = await self._query((target,), topic, message_id, 32, is_unique_key=True)
        return next((each for each in found if each.message_id == message_id), None)

    async def _query(
        self, targets: Iterable[Target], topic: str, key: str, count: int, *, is_unique_key: bool
    ) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        for target in targets:
            data = await admin_requests.by_key(
                self.api, target.address, topic, key, count_max=count, is_unique_key=is_unique_key
            )
            found += _records(data, target.broker)
        return sorted(found, key=lambda each: each.place_in_time)

    # ---- Who has consumed it

    async def with_readers(self, messages: tuple[ReceivedMessage, ...]) -> tuple[PeekedMessage, ...]:
        """Each message with the groups that read its topic; null where the broker does not answer."""
        groups = {each.broker_name: each for each in await self.api.cluster()}
        peeked = []
        for message in messages:
            group = groups.get(message.queue.broker_name)
            address = group.find(0) if group is not None else None
            consumed_by = await self._readers(address, message) if address is not None else None
            peeked.append(PeekedMessage(message=view_of(message), consumed_by=consumed_by))
        return tuple(peeked)

    async def _readers(self, address: str, message: ReceivedMessage) -> tuple[ReaderOf, ...] | None:
        queue = message.queue
        view = await view_of_readers(self.api, Target(queue.broker_name, address), queue.topic, {})
        if view is None:
            return None
        return tuple(
            reader_of(group, committed.get(queue.queue_id), view.consumers.get(group), message)
            for (_, group), committed in view.offsets.items()
        )


def reader_of(
    group: str, committed: int | None, consumers: "admin_requests.Consumers | None", message: ReceivedMessage
) -> ReaderOf:
    """Progress of one group with a message, from its broker's answer."""
    if consumers is not None and consumers.message_model == BROADCAST:
        state = "broadcast"
    elif committed is None:
        state = "unknown"
    elif committed <= message.queue_offset:
        state = "not yet"
    else:
        state = "consumed" if _wanted(consumers, message) else "filtered"
    clients = len(consumers.clients) if consumers is not None else 0
    return ReaderOf(group=group, state=state, committed_offset=committed, clients=clients)


def _wanted(consumers: "admin_requests.Consumers | None", message: ReceivedMessage) -> bool:
    """True if the group's tags match; SQL expressions are evaluated by the broker only."""
    expression = consumers.subscriptions.get(message.queue.topic, "*") if consumers is not None else "*"
    try:
        subscription = Subscription(message.queue.topic, expression)
    except ValueError:
        return True
    looks_like_tags = all(part.replace("-", "").replace("_", "").isalnum() for part in subscription.tags)
    return subscription.matches(message.tags) or not looks_like_tags


def _place(message_id: str) -> tuple[str, int]:
    """The broker's address and the offset in its log that an offsetMsgId is made of."""
    raw = bytes.fromhex(message_id)
    return host_text(raw[:-8]), int.from_bytes(raw[-8:], signed=True)


def _records(data: bytes, broker: str) -> list[ReceivedMessage]:
    at, found = 0, []
    while at < len(data):
        try:
            message = decode_message(data, at, check_crc=False)
        except StoreError:
            break
        found.append(as_received(message, MessageQueue(message.topic, broker, message.queue_id)))
        at += message.size
    return found


def _address(route: TopicRoute, broker: str) -> str:
    address = route.brokers[broker].find(0)
    assert address is not None, "a route has no broker without an address"
    return address
