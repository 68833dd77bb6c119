"""Batches of messages, as consumers get them and settle them."""

from collections.abc import Iterator
from typing import Protocol

import anyio
from attrs import define, field

from twinlog.cluster.client.consume.process_queue import ProcessQueue
from twinlog.cluster.client.messages import ReceivedMessage
from twinlog.cluster.remoting.route import MessageQueue

TO_DEAD_LETTERS = -1  # As a delay level: no retry.


class ConsumerEndedError(Exception):
    """The block of a consumer was left while somebody waited for a batch."""


class BatchOwner(Protocol):
    """The consumer that batches come from."""

    async def take(self) -> "Batch":
        """Wait for the next batch. Raises ConsumerEndedError."""

    async def settle(self, batch: "Batch") -> None:
        """Let the group's offset move past the batch, and send back what failed."""

    def settle_now(self, batch: "Batch") -> bool:
        """The same for a batch of which nothing failed, which needs no waiting; False: it does. The caller takes the next one."""


@define(eq=False)
class Batch:
    """Messages of one queue, oldest first. They are done after done(), or when the next batch is requested.

    A batch that is never done is delivered again, to the group's next consumer of the queue.
    """

    messages: tuple[ReceivedMessage, ...]
    held: ProcessQueue | None = field(repr=False)  # None: a message that a person chose (request 309).
    owner: BatchOwner = field(repr=False)
    failed: bool = field(default=False, init=False)
    delay_level: int = field(default=0, init=False)
    settled: anyio.Event | None = field(default=None, init=False, repr=False)  # While somebody waits for done().
    _begun: bool = field(default=False, init=False, repr=False)

    @property
    def queue(self) -> MessageQueue:
        """The queue of the messages; for retried messages it belongs to the retry topic."""
        return self.messages[0].queue

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def later(self, delay_level: int = 0) -> None:
        """Mark all as failed: they are delivered again after the broker's next delay (10 s, 30 s, 1 min, ...), or that level's.

        After the group's last try they become dead letters. An ordered consumer gets them again after a second.
        """
        self.failed, self.delay_level = True, delay_level

    def dead(self) -> None:
        """Make all of them dead letters (topic %DLQ% and the group's name), without another try."""
        self.later(TO_DEAD_LETTERS)

    async def done(self) -> None:
        """Settle the batch: the group's offset moves past it, failed messages are sent back. A second call does nothing.

        When it is cancelled or raises, call it again: it continues with the messages that are not settled yet.
        """
        if self._begun:
            return
        self._begun = True
        try:
            await self.owner.settle(self)
        except BaseException:
            self._begun = False
            raise
        if self.settled is not None:
            self.settled.set()

    def done_now(self) -> bool:
        """Internal: the same as done() if that waits for nothing, which is the rule; False: call done()."""
        if not self._begun and not self.failed and self.settled is None:
            self._begun = self.owner.settle_now(self)
        return self._begun


@define(eq=False)
class Batches:
    """Iterator over batches; requesting the next one settles the one before. It ends when the consumer does."""

    owner: BatchOwner
    _current: Batch | None = field(default=None, init=False)

    def __aiter__(self) -> "Batches":
        return self

    async def __anext__(self) -> Batch:
        if self._current is not None and not self._current.done_now():
            await self._current.done()
        self._current = None
        try:
            self._current = await self.owner.take()
        except ConsumerEndedError:
            raise StopAsyncIteration from None
        return self._current
