"""Assignment of queues to a push consumer (rebalance).

Sources: RebalanceImpl, AllocateMessageQueueAveragely (RocketMQ 4.9.8).
"""

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import anyio
import anyio.abc
from attrs import define, field

from twinlog.cluster.client.client import Client
from twinlog.cluster.client.consume.locks import QueueLocks
from twinlog.cluster.client.consume.offsets import Offsets, start_offset
from twinlog.cluster.client.consume.process_queue import ProcessQueue
from twinlog.cluster.client.consume.reader import QueueReader, Reading
from twinlog.cluster.client.subscription import From, FromTime, Subscription
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.route import MessageQueue, TopicRoute
from twinlog.store.util.late_logger import LateLogger

REBALANCE_SECONDS = 20.0
AGAIN_SECONDS, AGAIN_SECONDS_MAX = 1.0, 5.0  # While a topic, a lock or a response is missing.

log = LateLogger(__name__)


@define(eq=False)
class Assignment:
    """The readers of one consumer; run() adapts them to the members of the group.

    `locks`: None for a consumer that needs none. `broadcasting`: every member reads every queue. `is_running`: says whether a
    batch of the queue is being handled, from whichever reader.
    """

    client: Client
    group: str
    subscriptions: tuple[Subscription, ...]
    reading: Reading
    offsets: Offsets
    start: From | FromTime
    locks: QueueLocks | None
    broadcasting: bool
    is_running: Callable[[MessageQueue], bool]
    readers: dict[MessageQueue, QueueReader] = field(factory=dict, init=False)
    _wanted: anyio.Event = field(factory=anyio.Event, init=False)
    _task_group: anyio.abc.TaskGroup | None = field(default=None, init=False)
    _changing: anyio.Lock = field(factory=anyio.Lock, init=False)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Rebalance now, every 20 s and after soon(); calls started() after the first time."""
        async with anyio.create_task_group() as self._task_group:
            complete, again = await self.rebalance(), AGAIN_SECONDS
            task_status.started()
            while True:
                with anyio.move_on_after(REBALANCE_SECONDS if complete else again):
                    await self._wanted.wait()
                self._wanted = anyio.Event()
                complete = await self.rebalance()
                again = AGAIN_SECONDS if complete else min(2 * again, AGAIN_SECONDS_MAX)

    def soon(self) -> None:
        """Rebalance at once, because the group has changed."""
        self._wanted.set()

    async def rebalance(self) -> bool:
        """Stop reading queues of other members and begin with own ones. False: something failed; try again soon."""
        complete = True
        async with self._changing:
            for subscription in self.subscriptions:
                try:
                    complete &= await self._rebalance_topic(subscription)
                except (RemotingError, OSError) as error:
                    log.info(
                        "topic not rebalanced; retrying within 5 s",
                        topic=subscription.topic,
                        group=self.group,
                        error=str(error),
                    )
                    complete = False
        return complete

    async def _rebalance_topic(self, subscription: Subscription) -> bool:
        route = await self.client.routes.find(subscription.topic)
        if route is None:
            return False
        await self.client.introduce()
        queues = route.read_queues()
        if self.broadcasting:
            return await self._change(subscription, queues)
        me = self.client.client_id
        members = await self._members(route)
        if me not in members:  # The broker has no heartbeat of this client yet: no reason to give up queues.
            await self.client.introduce(again=True)
            return False
        return await self._change(subscription, allocate(me, queues, members))

    async def _members(self, route: TopicRoute) -> list[str]:
        addresses = [broker.find(0) for broker in route.brokers.values()]
        address = random.choice([address for address in addresses if address is not None])
        return await self.client.api.consumer_ids(address, self.group)

    async def _change(self, subscription: Subscription, mine: list[MessageQueue]) -> bool:
        held = [queue for queue in self.readers if queue.topic == subscription.topic]
        await self.drop([queue for queue in held if queue not in mine])
        new = [queue for queue in mine if queue not in self.readers]
        if self.locks is not None:
            await self.locks.lock(new)
            locked = [queue for queue in new if self.locks.holds(queue)]
        else:
            locked = new
        opened = await in_parallel(partial(self._open, subscription, queue) for queue in locked)
        return all(opened) and len(locked) == len(new)

    async def _open(self, subscription: Subscription, queue: MessageQueue) -> bool:
        try:
            stored = await self.offsets.load(queue)
            offset = stored if stored is not None else await start_offset(self.client, queue, self.group, self.start)
        except (RemotingError, OSError) as error:
            log.info("queue not opened; retrying within 5 s", queue=queue, group=self.group, error=str(error))
            return False
        self.offsets.table.begin(queue, offset, is_stored=stored is not None)
        reader = self.readers[queue] = QueueReader(self.reading, subscription, ProcessQueue(queue, offset))
        assert self._task_group is not None
        self._task_group.start_soon(reader.run)
        return True

    async def drop(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading queues, and commit their offsets for the next reader."""
        dropped = [reader for queue in queues if (reader := self.readers.pop(queue, None))]
        for reader in dropped:
            self.reading.consumer.on_passed(reader.held, back=False)
            reader.stop()
        gone = [reader.held.queue for reader in dropped]
        await self.offsets.commit(gone)
        for queue in gone:
            self.offsets.table.forget(queue)
        if self.locks is not None:  # A batch that is being handled keeps its lock until it is done.
            await self.locks.unlock(queue for queue in gone if not self.is_running(queue))

    async def release(self, queue: MessageQueue) -> None:
        """Unlock a queue after a batch of it, unless it is still read here."""
        async with self._changing:
            if self.locks is not None and queue not in self.readers and not self.is_running(queue):
                await self.locks.unlock([queue])

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue from these offsets, forwards or backwards; queues that are not read here are ignored."""
        async with self._changing:
            mine = {queue: offset for queue, offset in offsets.items() if queue in self.readers}
            for queue, offset in mine.items():
                self.readers.pop(queue).stop()
                self.offsets.table.update(queue, offset, only_up=False)
            await self.offsets.commit(mine)
            for queue in mine:
                self.offsets.table.forget(queue)
        self.soon()


def allocate(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """The queues of member `me`: neighbouring ones, as many as each other member's or one more.

    Every member computes the same allocation from the same queues and client ids, in any order. A client that is not (yet)
    among the members gets no queue.

    >>> queues = [MessageQueue("T", "broker-a", number) for number in range(5)]
    >>> [queue.queue_id for queue in allocate("one", queues, ["two", "one"])]
    [0, 1, 2]
    """
    ids = sorted(set(members))
    if me not in ids:
        return []
    ordered = sorted(set(queues))
    place = ids.index(me)
    share, rest = divmod(len(ordered), len(ids))
    start = place * share + min(place, rest)
    return ordered[start : start + share + (place < rest)]
