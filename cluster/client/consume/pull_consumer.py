"""Queues that a program picks itself, read ahead in the background. Source: DefaultLitePullConsumer (RocketMQ 4.9.8).

async with PullConsumer(client, "auditors") as consumer:
    await consumer.assign(await consumer.queues("Greetings"))
    messages = await consumer.poll()
"""

from collections import deque
from collections.abc import Iterable
from functools import partial

import structlog
import trio
from attrs import define, field

from twinlog.cluster.client.client import Client
from twinlog.cluster.client.consume.offsets import BrokerOffsets, begin
from twinlog.cluster.client.consume.process_queue import FlowLimits, ProcessQueue
from twinlog.cluster.client.consume.reader import QueueReader, Reading
from twinlog.cluster.client.messages import ReceivedMessage
from twinlog.cluster.client.routes import NoRouteError
from twinlog.cluster.client.subscription import From, FromTime, Sql, Subscription
from twinlog.cluster.client.tasks import Service, in_parallel
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.route import MessageQueue

COMMIT_SECONDS = 5.0

log = structlog.get_logger(__name__)


@define(eq=False)
class PullConsumer(Service):
    """Reads what it is assigned. It is no member of its group: nothing is shared out, nothing comes again.

    What a poll returned counts as done when the next poll is made, or commit() is called. With `auto_commit` what is done is
    committed every 5 s and at the end. `start`: where to begin in a queue for which the group has no offset.
    """

    client: Client
    group: str
    wanted: str | Sql = field(default="*", kw_only=True)
    start: From | FromTime = field(default=From.LAST, kw_only=True)
    auto_commit: bool = field(default=True, kw_only=True)
    limits: FlowLimits = field(factory=FlowLimits, kw_only=True)
    offsets: BrokerOffsets = field(init=False, repr=False)
    _reading: Reading = field(init=False, repr=False)
    _readers: dict[MessageQueue, QueueReader] = field(factory=dict, init=False, repr=False)
    _ready: deque[ProcessQueue] = field(factory=deque, init=False, repr=False)
    _returned: list[tuple[ProcessQueue, list[ReceivedMessage]]] = field(factory=list, init=False, repr=False)
    _arrival: trio.Event = field(factory=trio.Event, init=False, repr=False)
    _nursery: trio.Nursery | None = field(default=None, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.offsets = BrokerOffsets(self.client, self.group)
        self._reading = Reading(
            client=self.client,
            group=self.group,
            limits=self.limits,
            carries_filter=True,
            arrived=self._arrived,
            passed=self._passed,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; then what is done is committed, with `auto_commit`."""
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                while True:
                    await trio.sleep(COMMIT_SECONDS)
                    if self.auto_commit:
                        await self.offsets.commit()
        finally:
            self._nursery = None
            if self.auto_commit:
                with trio.move_on_after(self.client.timeout_ms / 1000, shield=True):
                    await self._store_at_the_end()

    async def _store_at_the_end(self) -> None:
        """With an answer: the connections may close right after."""
        try:
            await self.offsets.store()
        except RemotingError as error:
            log.warning("the last offsets were not committed", group=self.group, error=str(error))

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The topic's readable queues. Raises NoRouteError when nobody has it."""
        route = await self.client.routes.find(topic)
        queues = route.read_queues() if route is not None else []
        if not queues:
            raise NoRouteError(f"no broker has a readable queue of the topic {topic}")
        return queues

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """What is read now."""
        return frozenset(self._readers)

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues and no others; those that are read already go on as they are. Raises RemotingError.

        With `auto_commit` the others are committed a last time; without it, call commit() first.
        """
        wanted = set(queues)
        gone = self.assigned - wanted
        for queue in gone:
            self._stop(queue)
        if self.auto_commit:
            await self.offsets.commit(gone)
        for queue in gone:  # Somebody else may commit it from now on.
            self.offsets.table.forget(queue)
        for topic in {queue.topic for queue in wanted}:
            await self.client.routes.find(topic)
        await in_parallel(partial(self._open, queue) for queue in wanted - self.assigned)

    async def _open(self, queue: MessageQueue) -> None:
        stored = await self.offsets.load(queue)
        offset = stored if stored is not None else await begin(self.client, queue, self.group, self.start)
        self.offsets.table.begin(queue, offset, is_stored=stored is not None)
        self._read(queue, offset)

    def _read(self, queue: MessageQueue, offset: int) -> None:
        assert self._nursery is not None, "use it in an async with block"
        subscription = Subscription.of(queue.topic, self.wanted, 0)
        reader = self._readers[queue] = QueueReader(self._reading, subscription, ProcessQueue(queue, offset))
        self._nursery.start_soon(reader.run)

    def _stop(self, queue: MessageQueue) -> None:
        reader = self._readers.pop(queue)
        reader.stop()
        reader.held.clear()
        self._returned = [(held, messages) for held, messages in self._returned if held is not reader.held]

    # ---- Positions

    async def seek(self, queue: MessageQueue, to: int | From | FromTime) -> None:
        """Go on from an offset, an end of the queue, or near a time. Raises KeyError for a queue that is not assigned."""
        if queue not in self._readers:
            raise KeyError(queue)
        offset = to if isinstance(to, int) else await begin(self.client, queue, self.group, to)
        self._stop(queue)
        self.offsets.table.update(queue, offset, only_up=False)
        self._read(queue, offset)

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that is not done."""
        return self._readers[queue].held.commit_offset

    async def commit(self) -> None:
        """Everything that was returned is done: store that now, and wait for the brokers' answers. Raises RemotingError."""
        self._finish()
        await self.offsets.store()

    # ---- Messages

    async def poll(self, *, count_max: int = 32, timeout_seconds: float = 5.0) -> list[ReceivedMessage]:
        """Some messages of one queue, oldest first; none when nothing came in time. Queues take turns."""
        self._finish()
        with trio.move_on_after(timeout_seconds):
            while True:
                while self._ready:
                    held = self._ready.popleft()
                    if held.is_dropped or not (messages := held.take(count_max)):
                        continue
                    self._returned.append((held, messages))
                    if held.has_waiting:
                        self._ready.append(held)
                    return messages
                self._arrival = trio.Event()
                await self._arrival.wait()
        return []

    def _finish(self) -> None:
        """What earlier polls returned is done."""
        for held, messages in self._returned:
            held.remove(messages)
            self._passed(held, False)
            if reader := self._readers.get(held.queue):
                reader.wake()
        self._returned.clear()

    def _arrived(self, held: ProcessQueue) -> None:
        if held not in self._ready:
            self._ready.append(held)
        self._arrival.set()

    def _passed(self, held: ProcessQueue, back: bool) -> None:
        if not held.is_dropped:
            self.offsets.table.update(held.queue, held.commit_offset, only_up=False)
