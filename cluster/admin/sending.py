"""Sending messages one by one or in batches, to chosen queues, at a limited rate."""

from collections.abc import AsyncIterator, Callable, Sequence

import anyio
from attrs import define, field, frozen

from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.client.messages import OutgoingMessage, split_batch
from twinlog.cluster.client.producer import Producer, SendResult, by_key
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.cluster.user_errors import NOT_FOUND, UserError


class NoQueueError(UserError):
    """The topic has no such queue that could be written to now."""

    http_status = NOT_FOUND
    next_step = "See the queues of a topic with: twinlog topic show TOPIC"


@frozen(kw_only=True)
class Destination:
    """Queues that messages may go to; nothing given: all in turn."""

    queue_id: int | None = None
    broker: str | None = None
    shard: str | None = None


@frozen(kw_only=True)
class SentMessage:
    """Result of a send. Of a batch (`messages` above 1) where its first message went; its ids are joined by commas."""

    status: str
    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    offset_message_id: str
    message_id: str
    remark: str | None
    messages: int


def sent_view(sent: SendResult, messages: int) -> SentMessage:
    """The result for so many messages, as it is shown."""
    return SentMessage(
        status=sent.status.name,
        topic=sent.queue.topic,
        broker=sent.queue.broker_name,
        queue_id=sent.queue.queue_id,
        queue_offset=sent.queue_offset,
        offset_message_id=sent.offset_message_id,
        message_id=sent.message_id,
        remark=sent.remark,
        messages=messages,
    )


async def send_messages(
    api: ClientApi,
    messages: AsyncIterator[OutgoingMessage],
    on_sent: Callable[[SendResult, int], None],
    *,
    to: Destination | None = None,
    rate: float | None = None,
    batch: int = 1,
) -> int:
    """Send messages in order and report each result with its number of messages; return the number of messages.

    `rate`: messages a second at most. Raises RemotingError for the first that no broker takes, NoQueueError.
    """
    producer, total, started = Producer(api), 0, anyio.current_time()
    choose = _Chooser(producer, to or Destination())
    waiting: list[OutgoingMessage] = []
    async for message in messages:
        waiting.append(message)
        if len(waiting) < batch:
            continue
        total += await _send(producer, waiting, choose, on_sent)
        waiting = []
        if rate is not None:
            await anyio.sleep_until(started + total / rate)
    return total + (await _send(producer, waiting, choose, on_sent) if waiting else 0)


async def _send(
    producer: Producer,
    messages: Sequence[OutgoingMessage],
    choose: "_Chooser",
    on_sent: Callable[[SendResult, int], None],
) -> int:
    queue = await choose(messages[0].topic)
    if len(messages) == 1:
        on_sent(await producer.send(messages[0], queue=queue), 1)
        return 1
    for part in split_batch(messages):
        for sent in await producer.send_batch(part, queue=queue):
            on_sent(sent, len(part))
    return len(messages)


@define
class _Chooser:
    """Chooses the queue for each send, if a destination is given."""

    producer: Producer
    to: Destination
    _turn: int = field(default=0, init=False)

    async def __call__(self, topic: str) -> MessageQueue | None:
        to = self.to
        if to == Destination():
            return None
        queues = await self.producer.queues(topic)
        if to.shard is not None:
            return by_key(to.shard)(queues)
        fitting = [
            each for each in queues if to.queue_id in (None, each.queue_id) and to.broker in (None, each.broker_name)
        ]
        if not fitting:
            there = ", ".join(sorted({f"{each.broker_name} {each.queue_id}" for each in queues}))
            raise NoQueueError(f"no such queue of {topic} can be written to now; there are: {there}")
        self._turn += 1
        return fitting[(self._turn - 1) % len(fitting)]
