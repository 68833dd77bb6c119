"""Which queue a message goes to, when its producer cares. Pure. Source: SelectMessageQueueByHash (RocketMQ 4.9.8)."""

from collections.abc import Callable, Sequence

from twinlog.cluster.client.route import MessageQueue
from twinlog.store.record.properties import java_hash

Select = Callable[[Sequence[MessageQueue]], MessageQueue]


def by_key(key: str) -> Select:
    """Messages of one key go to one queue, and so stay in order: the queue that Java's clients choose for the same text.

    The queue is another when the number of queues changes.

    >>> queues = [MessageQueue("T", "broker-a", number) for number in range(4)]
    >>> by_key("order-17")(queues) == by_key("order-17")(queues)
    True
    """

    def select(queues: Sequence[MessageQueue]) -> MessageQueue:
        return queues[abs(java_hash(key)) % len(queues)]

    return select
