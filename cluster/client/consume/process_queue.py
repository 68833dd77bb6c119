"""Messages that a consumer holds of one queue, and the turns of queues. Pure.

    pulled --put--> waiting --take--> running --remove--> done        `commit_offset`: the first that is not done
                       ^-----give_back-----'

Source: ProcessQueue, DefaultMQPushConsumerImpl.pullMessage (RocketMQ 4.9.8).
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from attrs import define, field, frozen

from twinlog.cluster.client.messages import ReceivedMessage
from twinlog.cluster.remoting.route import MASTER_ID, MessageQueue


@frozen
class FlowLimits:
    """Limits on messages that are pulled ahead of the consumer, for each queue (RocketMQ's pullThresholdForQueue, ...)."""

    messages_max: int = 1000
    size_max: int = 100 * 1024 * 1024  # Bytes of bodies.
    span_max: int = 2000  # Queue offsets between the first and the last that are held; not for ordered consumers.


@define(eq=False)
class ProcessQueue:
    """A queue that is read. Offsets count messages of the queue."""

    queue: MessageQueue
    next_offset: int  # Of the next pull.
    broker_id: int = MASTER_ID  # Member to pull from, as brokers suggest it.
    is_dropped: bool = field(default=False, init=False)  # Not read here any more: nothing is committed.
    count: int = field(default=0, init=False)  # Messages held.
    size: int = field(default=0, init=False)  # Bytes of their bodies.
    last_pulled: float = field(default=0.0, init=False)  # By the loop's clock.
    last_taken: float = field(default=0.0, init=False)  # Seconds since 1970.
    on_room: Callable[[], None] | None = field(default=None, init=False)  # Set while its reader waits for room.
    is_in_line: bool = field(default=False, init=False)  # See Turns.
    _waiting: deque[ReceivedMessage] = field(factory=deque, init=False)
    _running: dict[int, ReceivedMessage] = field(factory=dict, init=False)  # By offset.

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def is_running(self) -> bool:
        """True when messages are handed out and not yet done."""
        return bool(self._running)

    def is_in_hand(self, message: ReceivedMessage) -> bool:
        """True when the message is handed out and not yet done."""
        return message.queue_offset in self._running

    def put(self, messages: Iterable[ReceivedMessage]) -> None:
        """Add the messages of a pull, in order."""
        for message in messages:
            self._waiting.append(message)
            self.count += 1
            self.size += len(message.body)

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """Hand out the next messages, oldest first; they are held until they are removed."""
        waiting, running = self._waiting, self._running
        taken: list[ReceivedMessage] = []
        while waiting and len(taken) < count_max:
            message = waiting.popleft()
            running[message.queue_offset] = message
            taken.append(message)
        return taken

    def give_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Put messages that were handed out back among the waiting ones, in order: others may have failed, too."""
        back = [message for message in messages if self._running.pop(message.queue_offset, None) is not None]
        self._waiting = deque(sorted([*back, *self._waiting], key=lambda message: message.queue_offset))

    def remove(self, messages: Iterable[ReceivedMessage]) -> None:
        """Drop messages that are done, or were sent back to the broker."""
        for message in messages:
            if (held := self._running.pop(message.queue_offset, None)) is not None:
                self.count -= 1
                self.size -= len(held.body)
        assert self.size >= 0, self.size

    @property
    def commit_offset(self) -> int:
        """The offset of the first message that is not done, where the group continues."""
        held = min(self._running, default=self.next_offset)
        return min(held, self._waiting[0].queue_offset) if self._waiting else held

    def is_full(self, limits: FlowLimits, *, ordered: bool = False) -> bool:
        """True when no more is to be pulled for now."""
        if self.count >= limits.messages_max or self.size >= limits.size_max:
            return True
        return not ordered and self.count > 0 and self.next_offset - self.commit_offset > limits.span_max

    def clear(self) -> None:
        """Drop all messages: the queue is read from another offset, or by another member."""
        self._waiting.clear()
        self._running.clear()
        self.count = self.size = 0


@define(eq=False)
class Turns:
    """Queues with messages, in line for their turn. `ordered`: one batch of a queue at a time, while its lock is held.

    A queue that was given up and opened again has two ProcessQueues while the old one's batch is handled: they count as one.
    """

    ordered: bool
    holds: Callable[[MessageQueue], bool]
    suspended: set[ProcessQueue] = field(factory=set, init=False)  # Their failed messages wait for the next try.
    _line: deque[ProcessQueue] = field(factory=deque, init=False)
    _taken: dict[MessageQueue, ProcessQueue] = field(factory=dict, init=False)  # Last taken from, of ordered queues.

    def is_running(self, queue: MessageQueue) -> bool:
        """True while a batch of this ordered queue is handled, or waits for its next try."""
        held = self._taken.get(queue)
        return held is not None and held.is_running

    def running(self) -> list[MessageQueue]:
        """All ordered queues with such a batch, also those that are not read any more."""
        return [queue for queue in self._taken if self.is_running(queue)]

    def may_take(self, held: ProcessQueue) -> bool:
        """True when messages of this queue can be handed out now."""
        if held.is_dropped or not held.has_waiting:
            return False
        if not self.ordered:
            return True
        return self.holds(held.queue) and not self.is_running(held.queue) and held not in self.suspended

    @property
    def has_more(self) -> bool:
        """True when a queue is in line."""
        return bool(self._line)

    def add(self, held: ProcessQueue) -> bool:
        """Put a queue in line if it has messages to hand out; True if so."""
        if not self.may_take(held):
            return False
        if not held.is_in_line:
            held.is_in_line = True
            self._line.append(held)
        return True

    def take(self, count_max: int) -> tuple[ProcessQueue, list[ReceivedMessage]] | None:
        """Hand out the next messages, of the queue that has waited longest; None when there are none."""
        line = self._line
        while line:
            held = line.popleft()
            held.is_in_line = False
            if self.may_take(held):
                messages = held.take(count_max)
                if self.ordered:
                    self._taken[held.queue] = held
                self.add(held)  # Behind the others.
                return held, messages
        return None
