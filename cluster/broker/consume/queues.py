"""Queues as requests see them: only those that exist, and up to where consumers may read."""

from attrs import define, field

from twinlog.cluster.broker.consume.visibility import Visibility
from twinlog.cluster.broker.tables.topics import TopicConfigManager
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.consume_queue import ConsumeQueue


@define(eq=False, repr=False)
class Queues:
    """Consume queues of the store. `visibility` None: consumers may read everything."""

    store: MessageStore
    topics: TopicConfigManager
    visibility: Visibility | None = field(default=None, kw_only=True)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The topic's queue; None for others, so that requests for queues that do not exist create none."""
        config = self.topics.select(topic)
        if config is not None and 0 <= queue_id < max(config.read_queues, config.write_queues):
            return self.store.queue(topic, queue_id)
        known = (queue for name, number, queue in self.store.queues() if (name, number) == (topic, queue_id))
        return next(known, None)

    def end(self, topic: str, queue_id: int) -> int:
        """The offset of the queue's next message."""
        return self.store.queue(topic, queue_id).max_offset

    def shown_end(self, topic: str, queue_id: int) -> int:
        """The offset behind the last message that consumers may read."""
        queue = self.store.queue(topic, queue_id)
        return queue.max_offset if self.visibility is None else self.visibility.queue_end(queue)
