"""Event of a consumer that asked for an offset outside of a queue and got another: topic OFFSET_MOVED_EVENT, queue 0.

Its body is JSON: group, queue, requested and new offset. Source: PullMessageProcessor.generateOffsetMovedEvent, OffsetMovedEvent
(RocketMQ 4.9.8). Unlike there, the same event is written once a minute, and at most a hundred in a minute: a consumer that
ignores the new offset must not fill the disk.
"""

from typing import NamedTuple

from attrs import define, field

from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.names import OFFSET_MOVED_TOPIC
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.record.properties import DELAY, KEYS, TAGS, format_properties, tags_code

PERIOD_SECONDS = 60.0
EVENTS_MAX = 100  # In one period.


class OffsetMoved(NamedTuple):
    """Offsets count messages of the queue."""

    group: str
    broker_name: str
    topic: str
    queue_id: int
    requested: int
    new: int

    def message(self, host: bytes, now_ms: int) -> PutMessage:
        """Make the message as RocketMQ stores it; `host` is the broker's own."""
        queue = {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}
        event = {
            "consumerGroup": self.group,
            "messageQueue": queue,
            "offsetNew": self.new,
            "offsetRequest": self.requested,
        }
        return PutMessage(
            topic=OFFSET_MOVED_TOPIC,
            queue_id=0,
            body=fastjson.dumps(event),
            properties=format_properties({TAGS: self.group, DELAY: "0", KEYS: self.group}).encode(),
            flag=0,
            sys_flag=0,
            born_timestamp=now_ms,
            born_host=host,
            store_host=host,
            tags_code=tags_code(self.group),
        )


@define(eq=False)
class OffsetMovedEvents:
    """Filter of events: one message for each event and period."""

    _period_start: float = field(default=float("-inf"), init=False)
    _written: set[OffsetMoved] = field(factory=set, init=False)  # In this period.

    def is_due(self, event: OffsetMoved, now: float) -> bool:
        """True when the event is to be written; `now` in seconds, monotonic."""
        if now >= self._period_start + PERIOD_SECONDS:
            self._period_start = now
            self._written.clear()
        if event in self._written or len(self._written) >= EVENTS_MAX:
            return False
        self._written.add(event)
        return True
