"""Whose turn it is among the queues of a push consumer. Pure."""

from collections.abc import Callable

from attrs import define, field

from twinlog.cluster.client.consume.process_queue import ProcessQueue
from twinlog.cluster.client.received import ReceivedMessage
from twinlog.cluster.client.route import MessageQueue


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
