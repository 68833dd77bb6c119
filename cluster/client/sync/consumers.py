"""Blocking consumers: see the asynchronous classes.

with SyncPushConsumer(client, "readers", {"Greetings": "*"}) as consumer:
    for batch in consumer:
        for message in batch:
            print(message.body)
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from attrs import define

from twinlog.cluster.client.consume.batch import Batch, Batches
from twinlog.cluster.client.consume.process_queue import FlowLimits
from twinlog.cluster.client.consume.pull_consumer import PullConsumer
from twinlog.cluster.client.consume.push_consumer import PushConsumer
from twinlog.cluster.client.messages import ReceivedMessage
from twinlog.cluster.client.subscription import From, FromTime, Sql
from twinlog.cluster.client.sync.calls import Portal, ServiceWrapper, Wrapper, blocking, plain
from twinlog.cluster.client.sync.client import SyncClient
from twinlog.cluster.remoting.route import MessageQueue

LIMITS = FlowLimits()


class SyncBatch(Wrapper[Batch]):
    """Batch for threads: messages of one queue, oldest first."""

    done = blocking(Batch.done)

    @property
    def messages(self) -> tuple[ReceivedMessage, ...]:
        """The messages."""
        return self.asynchronous.messages

    @property
    def queue(self) -> MessageQueue:
        """The queue of the messages; for retried messages it belongs to the retry topic."""
        return self.asynchronous.queue

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def later(self, delay_level: int = 0) -> None:
        """Mark all as failed: they are delivered again after the broker's next delay, or that level's."""
        self.asynchronous.later(delay_level)

    def dead(self) -> None:
        """Make all of them dead letters (topic %DLQ% and the group's name), without another try."""
        self.asynchronous.dead()


@define(eq=False)
class SyncBatches(Iterator[SyncBatch]):
    """Iterator over batches; requesting the next one settles the one before."""

    _inside: Batches
    _portal: Portal

    def __iter__(self) -> "SyncBatches":
        return self

    def __next__(self) -> SyncBatch:
        return SyncBatch.around(self._portal.call(self._inside.__anext__), self._portal)


class SyncPushConsumer(ServiceWrapper[PushConsumer]):
    """PushConsumer for threads. With a `handler`, up to `workers` threads call it; without one, any number of threads iterate.

    At the end of the block handlers that run are waited for, but not after Ctrl-C: their batches are delivered again then.
    Parameters are those of PushConsumer.
    """

    def __init__(
        self,
        client: SyncClient,
        group: str,
        topics: Mapping[str, str | Sql],
        *,
        handler: Callable[[SyncBatch], None] | None = None,
        ordered: bool = False,
        broadcasting: bool = False,
        start: From | FromTime = From.LAST,
        batch_max: int = 1,
        workers: int = 20,
        reconsume_times_max: int = -1,
        suspend_seconds: float = 1.0,
        limits: FlowLimits = LIMITS,
        offset_file: Path | None = None,
    ) -> None:
        super().__init__()
        self._client = client
        self._handler = handler
        self._arguments = partial(
            PushConsumer,
            group=group,
            topics=topics,
            handler=self._handle if handler is not None else None,
            ordered=ordered,
            broadcasting=broadcasting,
            start=start,
            batch_max=batch_max,
            workers=workers,
            reconsume_times_max=reconsume_times_max,
            suspend_seconds=suspend_seconds,
            limits=limits,
            offset_file=offset_file,
        )

    def _make(self) -> PushConsumer:
        return self._arguments(self._client.asynchronous)

    def _around(self) -> Portal:
        return self._client.portal

    def _on_interrupt(self) -> None:
        self._client.threads.abandon()

    async def _handle(self, batch: Batch) -> None:
        assert self._handler is not None
        await self._client.threads.run(partial(self._handler, SyncBatch.around(batch, self._client.root)))

    def __iter__(self) -> SyncBatches:
        return SyncBatches(Batches(self.asynchronous), self.portal)

    def take(self) -> SyncBatch:
        """Wait for the next batch; the caller calls its done()."""
        return SyncBatch.around(self.portal.call(self.asynchronous.take), self.portal)


class SyncPullConsumer(ServiceWrapper[PullConsumer]):
    """PullConsumer for one thread at a time: each poll() ends the messages of the one before.

    Parameters are those of PullConsumer.
    """

    def __init__(
        self,
        client: SyncClient,
        group: str,
        *,
        wanted: str | Sql = "*",
        start: From | FromTime = From.LAST,
        auto_commit: bool = True,
        limits: FlowLimits = LIMITS,
    ) -> None:
        super().__init__()
        self._client = client
        self._arguments = partial(
            PullConsumer,
            group=group,
            wanted=wanted,
            start=start,
            auto_commit=auto_commit,
            limits=limits,
        )

    def _make(self) -> PullConsumer:
        return self._arguments(self._client.asynchronous)

    def _around(self) -> Portal:
        return self._client.portal

    queues = blocking(PullConsumer.queues)
    assign = blocking(PullConsumer.assign)
    seek = blocking(PullConsumer.seek)
    position = plain(PullConsumer.position)
    commit = blocking(PullConsumer.commit)
    poll = blocking(PullConsumer.poll)

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """The assigned queues."""
        return self.portal.make(lambda: self.asynchronous.assigned)
