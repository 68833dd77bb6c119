"""Consume queues for requests: only existing ones, and only the part that is visible to consumers."""

from attrs import define, field

from twinlog.cluster.broker.consume.visibility import Visibility
from twinlog.cluster.broker.tables.topics import TopicConfigManager
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.consume_queue import ConsumeQueue


@define(eq=False, repr=False)
class Queues:
    """Consume queues of the store. `visibility` None: consumers may read all messages."""

    store: MessageStore
    topics: TopicConfigManager
    visibility: Visibility | None = field(default=None, kw_only=True)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue of the topic; None if it does not exist, so that requests create no queues."""
        config = self.topics.select(topic)
        if config is not None and 0 <= queue_id < max(config.read_queues, config.write_queues):
            return self.store.queue(topic, queue_id)
        known = (queue for name, number, queue in self.store.queues() if (name, number) == (topic, queue_id))
        return next(known, None)

    def end(self, topic: str, queue_id: int) -> int:
        """Return the offset of the queue's next message."""
        return self.store.queue(topic, queue_id).max_offset

    def shown_end(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message that consumers may read."""
        queue = self.store.queue(topic, queue_id)
        return queue.max_offset if self.visibility is None else self.visibility.queue_end(queue)
