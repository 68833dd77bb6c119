"""Consumer of queues that the application assigns; it reads ahead in the background.

Source: DefaultLitePullConsumer (RocketMQ 4.9.8).

async with PullConsumer(client, "auditors") as consumer:
    await consumer.assign(await consumer.queues("Greetings"))
    messages = await consumer.poll()
"""

from collections import deque
from collections.abc import Iterable
from functools import partial

import anyio
import anyio.abc
from attrs import define, field

from twinlog.cluster.client.client import Client
from twinlog.cluster.client.consume.offsets import BrokerOffsets, start_offset
from twinlog.cluster.client.consume.process_queue import FlowLimits, ProcessQueue
from twinlog.cluster.client.consume.reader import QueueReader, Reading
from twinlog.cluster.client.messages import ReceivedMessage
from twinlog.cluster.client.routes import NoRouteError
from twinlog.cluster.client.service import Service
from twinlog.cluster.client.subscription import From, FromTime, Sql, Subscription
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.store.util.late_logger import LateLogger

COMMIT_SECONDS = 5.0

log = LateLogger(__name__)


@define(eq=False)
class PullConsumer(Service):
    """Reads the queues that it is assigned. It is no member of its group: there is no rebalance, and there are no retries.

    Messages that poll() returned are done with the next poll() or commit(). With `auto_commit` offsets are committed every 5 s
    and at the end. `wanted`: the filter. `start`: start position in queues for which the group has no offset.
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
    _arrival: anyio.Event = field(factory=anyio.Event, init=False, repr=False)
    _task_group: anyio.abc.TaskGroup | None = field(default=None, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.offsets = BrokerOffsets(self.client, self.group)
        self._reading = Reading(
            consumer=self, client=self.client, group=self.group, limits=self.limits, carries_filter=True
        )

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; then offsets are committed, with `auto_commit`. `async with` does this."""
        try:
            async with anyio.create_task_group() as self._task_group:
                task_status.started()
                while True:
                    await anyio.sleep(COMMIT_SECONDS)
                    if self.auto_commit:
                        await self.offsets.commit()
        finally:
            self._task_group = None
            if self.auto_commit:
                with anyio.move_on_after(self.client.timeout_ms / 1000, shield=True):
                    await self._store_at_the_end()

    async def _store_at_the_end(self) -> None:
        """Store with a response, because the connections may close right after."""
        try:
            await self.offsets.store()
        except RemotingError as error:
            log.warning("last offsets not committed", group=self.group, error=str(error))

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The topic's readable queues. Raises NoRouteError when no broker has it."""
        route = await self.client.routes.find(topic)
        queues = route.read_queues() if route is not None else []
        if not queues:
            raise NoRouteError(f"no broker has a readable queue of the topic {topic}")
        return queues

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """The assigned queues."""
        return frozenset(self._readers)

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues and no others; queues that are read already are not disturbed. Raises RemotingError.

        With `auto_commit` the offsets of removed queues are committed; without it, call commit() first.
        """
        wanted = set(queues)
        gone = self.assigned - wanted
        for queue in gone:
            self._stop(queue)
        if self.auto_commit:
            await self.offsets.commit(gone)
        for queue in gone:  # Another consumer may commit it from now on.
            self.offsets.table.forget(queue)
        for topic in {queue.topic for queue in wanted}:
            await self.client.routes.find(topic)
        await in_parallel(partial(self._open, queue) for queue in wanted - self.assigned)

    async def _open(self, queue: MessageQueue) -> None:
        stored = await self.offsets.load(queue)
        offset = stored if stored is not None else await start_offset(self.client, queue, self.group, self.start)
        self.offsets.table.begin(queue, offset, is_stored=stored is not None)
        self._read(queue, offset)

    def _read(self, queue: MessageQueue, offset: int) -> None:
        if self._task_group is None:
            raise RuntimeError("this consumer is not running: use it inside its `async with` block")
        subscription = Subscription.of(queue.topic, self.wanted, 0)
        reader = self._readers[queue] = QueueReader(self._reading, subscription, ProcessQueue(queue, offset))
        self._task_group.start_soon(reader.run)

    def _stop(self, queue: MessageQueue) -> None:
        reader = self._readers.pop(queue)
        reader.stop()
        reader.held.clear()
        self._returned = [(held, messages) for held, messages in self._returned if held is not reader.held]

    # ---- Positions

    async def seek(self, queue: MessageQueue, to: int | From | FromTime) -> None:
        """Continue at an offset, an end of the queue, or near a time. Raises KeyError for a queue that is not assigned."""
        if queue not in self._readers:
            raise KeyError(queue)
        offset = to if isinstance(to, int) else await start_offset(self.client, queue, self.group, to)
        self._stop(queue)
        self.offsets.table.update(queue, offset, only_up=False)
        self._read(queue, offset)

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that is not done."""
        return self._readers[queue].held.commit_offset

    async def commit(self) -> None:
        """Mark all returned messages as done, store the offsets and wait for the responses. Raises RemotingError."""
        self._finish()
        await self.offsets.store()

    # ---- Messages

    async def poll(self, *, count_max: int = 32, timeout_seconds: float = 5.0) -> list[ReceivedMessage]:
        """Messages of one queue, oldest first; an empty list when none arrived in time. Queues take turns."""
        self._finish()
        with anyio.move_on_after(timeout_seconds):
            while True:
                while self._ready:
                    held = self._ready.popleft()
                    if held.is_dropped or not (messages := held.take(count_max)):
                        continue
                    self._returned.append((held, messages))
                    if held.has_waiting:
                        self._ready.append(held)
                    return messages
                self._arrival = anyio.Event()
                await self._arrival.wait()
        return []

    def _finish(self) -> None:
        """Mark the messages of earlier polls as done."""
        for held, messages in self._returned:
            held.remove(messages)
            self.on_passed(held, back=False)
            if reader := self._readers.get(held.queue):
                reader.wake()
        self._returned.clear()

    # ---- For its readers (ReadingConsumer)

    def on_arrival(self, held: ProcessQueue) -> None:
        if held not in self._ready:
            self._ready.append(held)
        self._arrival.set()

    def on_passed(self, held: ProcessQueue, *, back: bool) -> None:
        if not held.is_dropped:
            self.offsets.table.update(held.queue, held.commit_offset, only_up=False)

    def may_pull(self, held: ProcessQueue) -> bool:
        return True

    def offset_to_commit(self, held: ProcessQueue) -> int | None:
        return None
