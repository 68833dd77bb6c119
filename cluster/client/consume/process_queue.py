"""What a consumer holds of one queue: pulled, handed out, done. Pure; the shells around it wait and ask.

    pulled --put--> waiting --take--> running --remove--> gone        `commit_offset`: the first that is not gone
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
    """What is pulled ahead of the consumer, for each queue. RocketMQ's pullThresholdForQueue and its neighbours."""

    messages_max: int = 1000
    size_max: int = 100 * 1024 * 1024  # Bytes of bodies.
    span_max: int = (
        2000  # Queue offsets between the first and the last that are held; not asked of an ordered consumer.
    )


@define(eq=False)
class ProcessQueue:
    """One queue that is read. Offsets count messages of the queue."""

    queue: MessageQueue
    next_offset: int  # Of the next pull.
    broker_id: int = MASTER_ID  # Whom to ask; brokers suggest it.
    is_dropped: bool = field(default=False, init=False)  # Somebody else's from now on: nothing is committed any more.
    count: int = field(default=0, init=False)  # Messages held.
    size: int = field(default=0, init=False)  # Bytes of their bodies.
    last_pulled: float = field(default=0.0, init=False)  # Both by trio's clock.
    last_taken: float = field(default=0.0, init=False)
    _waiting: deque[ReceivedMessage] = field(factory=deque, init=False)
    _running: dict[int, ReceivedMessage] = field(factory=dict, init=False)  # By offset.

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def is_running(self) -> bool:
        """Whether some are handed out and not yet done."""
        return bool(self._running)

    def is_in_hand(self, message: ReceivedMessage) -> bool:
        """Whether it is handed out and not yet done."""
        return message.queue_offset in self._running

    def put(self, messages: Iterable[ReceivedMessage]) -> None:
        """Take what a pull brought, in order."""
        for message in messages:
            self._waiting.append(message)
            self.count += 1
            self.size += len(message.body)

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """Hand out the next ones, oldest first; they are held until they are removed."""
        taken = [self._waiting.popleft() for _ in range(min(count_max, len(self._waiting)))]
        self._running.update((message.queue_offset, message) for message in taken)
        return taken

    def give_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Let some that were handed out come again, in their place among those that wait: those may have failed, too."""
        back = [message for message in messages if self._running.pop(message.queue_offset, None) is not None]
        self._waiting = deque(sorted([*back, *self._waiting], key=lambda message: message.queue_offset))

    def remove(self, messages: Iterable[ReceivedMessage]) -> None:
        """They are done, or were sent back to the broker."""
        for message in messages:
            if (held := self._running.pop(message.queue_offset, None)) is not None:
                self.count -= 1
                self.size -= len(held.body)

    @property
    def commit_offset(self) -> int:
        """Where the group goes on: at the first message that is not done."""
        held = min(self._running, default=self.next_offset)
        return min(held, self._waiting[0].queue_offset) if self._waiting else held

    def is_full(self, limits: FlowLimits, *, ordered: bool = False) -> bool:
        """Whether to pull no more for now."""
        if self.count >= limits.messages_max or self.size >= limits.size_max:
            return True
        return not ordered and self.count > 0 and self.next_offset - self.commit_offset > limits.span_max

    def clear(self) -> None:
        """Forget everything that is held: the queue is read from elsewhere, or by somebody else."""
        self._waiting.clear()
        self._running.clear()
        self.count = self.size = 0


@define(eq=False)
class Turns:
    """Queues with messages wait in line. `ordered`: one batch of a queue at a time, and only while `holds` its lock.

    A queue that was given up and begun anew has two ProcessQueues while the old one's batch is in hand: both count as one.
    """

    ordered: bool
    holds: Callable[[MessageQueue], bool]
    suspended: set[ProcessQueue] = field(factory=set, init=False)  # A message of theirs has failed just now.
    _line: dict[ProcessQueue, None] = field(factory=dict, init=False)
    _taken: dict[MessageQueue, ProcessQueue] = field(factory=dict, init=False)  # Of ordered ones: the last taken from.

    def is_running(self, queue: MessageQueue) -> bool:
        """Whether a batch of this ordered queue is in hand, or waits for its next try."""
        held = self._taken.get(queue)
        return held is not None and held.is_running

    def running(self) -> list[MessageQueue]:
        """All such queues, also those that are read no more."""
        return [queue for queue in self._taken if self.is_running(queue)]

    def may_take(self, held: ProcessQueue) -> bool:
        """Whether something of this queue may be handed out now."""
        if held.is_dropped or not held.has_waiting:
            return False
        if not self.ordered:
            return True
        return self.holds(held.queue) and not self.is_running(held.queue) and held not in self.suspended

    def add(self, held: ProcessQueue) -> bool:
        """Let it wait for its turn, when it has something; whether it has."""
        may = self.may_take(held)
        if may:
            self._line[held] = None
        return may

    def take(self, count_max: int) -> tuple[ProcessQueue, list[ReceivedMessage]] | None:
        """The next messages, of the queue that has waited longest; None: nothing can be handed out."""
        while self._line:
            held = next(iter(self._line))
            del self._line[held]
            if self.may_take(held):
                messages = held.take(count_max)
                if self.ordered:
                    self._taken[held.queue] = held
                self.add(held)  # Behind the others.
                return held, messages
        return None
