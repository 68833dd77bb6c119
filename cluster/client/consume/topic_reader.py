"""Reader of a whole topic for `twinlog consume` and tests: the messages that are there, or also those to come.

It knows no rebalance and no retry topics. With a group, it begins at the group's offsets and commits them.
Source: DefaultMQPullConsumerImpl, MessageDecoder (RocketMQ 4.9.8).
"""

import heapq
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import anyio
from attrs import define, field

from twinlog.cluster.client.api import TOOLS_GROUP, ClientApi, PullStatus
from twinlog.cluster.client.messages import ReceivedMessage, received
from twinlog.cluster.client.routes import NoRouteError
from twinlog.cluster.client.subscription import From, FromTime, Sql, Subscription
from twinlog.cluster.client.tasks import every, in_parallel
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingError, RemotingTimeoutError
from twinlog.cluster.remoting.route import MASTER_ID, MessageQueue, TopicRoute
from twinlog.store.util.late_logger import LateLogger

HOLD_MS = 15_000  # Time that a broker may hold a pull without messages, as in RocketMQ's clients.
ROUTE_PAUSES_SECONDS = (0.02, 0.08, 0.2)
COMMIT_SECONDS, RETRY_SECONDS = 5.0, 1.0

log = LateLogger(__name__)


@define(eq=False)
class _Cursor:
    """Progress in one queue."""

    queue: MessageQueue
    offset: int  # Of the next message to deliver.
    end: int  # Where a bounded read stops.
    committed: int | None  # Offset that needs no commit; None: the group has none yet.
    broker_id: int = MASTER_ID
    pulled_to: int = field(init=False)
    waiting: deque[ReceivedMessage] = field(factory=deque, init=False)

    def __attrs_post_init__(self) -> None:
        self.pulled_to = self.offset

    @property
    def exhausted(self) -> bool:
        return not self.waiting and self.pulled_to >= self.end


@define(eq=False)
class Consumer:
    """Reads one topic. `deliver` is called for each message and returns False to end."""

    api: ClientApi
    topic: str
    deliver: Callable[[ReceivedMessage], bool]
    tags: str | Sql = "*"
    group: str | None = None
    start: From | FromTime | int | None = None  # None: at the group's offset, else at the first message.
    _filter: Subscription = field(init=False)
    _cursors: list[_Cursor] = field(factory=list, init=False)
    _route: TopicRoute = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._filter = Subscription.of(self.topic, self.tags, 0)

    async def run(self, *, follow: bool = False) -> None:
        """Deliver stored messages, ordered by store time over all queues; with `follow`, then new ones.

        Ends when `deliver` returns False. Raises NoRouteError and other RemotingErrors; while following, a broker that
        cannot be reached is tried again every second.
        """
        self._route = await self._find_route()
        self._cursors = await in_parallel(partial(self._open, queue) for queue in self._route.read_queues())
        try:
            if await self._deliver_present() and follow:
                await self._follow()
        finally:
            with anyio.move_on_after(2, shield=True):
                for error in await self._commit():
                    raise error

    # ---- Start

    async def _find_route(self) -> TopicRoute:
        """Find the route, with a few tries: name servers learn of a topic shortly after its first message."""
        for pause in (*ROUTE_PAUSES_SECONDS, None):
            route = await self.api.topic_route(self.topic)
            if route is not None and route.read_queues():
                return route
            if pause is not None:
                await anyio.sleep(pause)
        raise NoRouteError(f"no broker has a readable queue of the topic {self.topic}")

    async def _open(self, queue: MessageQueue) -> _Cursor:
        address = self._address(queue)
        end = await self.api.max_offset(address, queue)
        if self.start is None and self.group is not None:
            stored = await self.api.committed_offset(address, queue, self.group)
            begin = stored if stored is not None else await self._begin(address, queue, end)
            # Brokers also answer 0 for a new queue without an offset.
            return _Cursor(queue, begin, end, stored or None)
        begin = await self._begin(address, queue, end)
        return _Cursor(queue, begin, end, begin)  # With a `start`, a queue's offset is committed once it has been read.

    async def _begin(self, address: str, queue: MessageQueue, end: int) -> int:
        start = self.start
        if start is From.LAST:
            return end
        if isinstance(start, FromTime):
            return await self.api.offset_at(address, queue, start.timestamp_ms)
        first = await self.api.min_offset(address, queue)
        return max(first, start) if isinstance(start, int) else first

    # ---- Reading

    async def _deliver_present(self) -> bool:
        """Merge the queues by store time up to their ends at the start. False: `deliver` wants no more."""
        while True:
            await in_parallel(partial(self._fill, cursor) for cursor in self._cursors)
            heap = [(c.waiting[0].place_in_time, i) for i, c in enumerate(self._cursors) if c.waiting]
            if not heap:
                return True
            heapq.heapify(heap)
            while heap:
                _, i = heapq.heappop(heap)
                cursor = self._cursors[i]
                if not self._deliver_next(cursor):
                    return False
                if cursor.waiting:
                    heapq.heappush(heap, (cursor.waiting[0].place_in_time, i))
                elif not cursor.exhausted:
                    break  # Its next message may be older than those of the others: pull first.

    async def _fill(self, cursor: _Cursor) -> None:
        while not cursor.waiting and not cursor.exhausted:
            await self._pull(cursor, suspend_ms=0)

    async def _follow(self) -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as task_group:
                for cursor in self._cursors:
                    task_group.start_soon(self._follow_queue, cursor, scope)
                if self.group is not None:
                    task_group.start_soon(every, COMMIT_SECONDS, self._commit)

    async def _follow_queue(self, cursor: _Cursor, enough: anyio.CancelScope) -> None:
        while True:
            try:
                await self._pull(cursor, suspend_ms=HOLD_MS)
            except (RemotingConnectError, RemotingTimeoutError):
                await anyio.sleep(RETRY_SECONDS)
                with suppress(RemotingConnectError, RemotingTimeoutError):
                    self._route = await self.api.topic_route(self.topic) or self._route
            while cursor.waiting:
                if not self._deliver_next(cursor):
                    enough.cancel()
                    return

    def _deliver_next(self, cursor: _Cursor) -> bool:
        message = cursor.waiting.popleft()
        # The offset nearest to a time may be before it.
        is_early = isinstance(self.start, FromTime) and message.store_timestamp < self.start.timestamp_ms
        more = is_early or self.deliver(message)
        cursor.offset = message.queue_offset + 1
        return more

    async def _pull(self, cursor: _Cursor, *, suspend_ms: int) -> None:
        pulled = await self.api.pull(
            self._address(cursor.queue, cursor.broker_id),
            cursor.queue,
            cursor.pulled_to,
            group=self.group or TOOLS_GROUP,
            expression=self._filter.expression,
            kind=self._filter.kind,
            suspend_ms=suspend_ms,
        )
        cursor.broker_id = pulled.suggested_broker_id
        if pulled.status is PullStatus.FOUND:
            cursor.waiting.extend(received(pulled.records, cursor.queue, self._filter.tag_filter))
        elif pulled.status is PullStatus.NO_NEW_MSG:
            cursor.end = min(cursor.end, pulled.next_offset)  # A slave, or a truncated log, has fewer messages.
        cursor.pulled_to = pulled.next_offset
        if not cursor.waiting:
            cursor.offset = cursor.pulled_to  # Messages that the filter excludes count as read.

    def _address(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
        address = self._route.brokers[queue.broker_name].find(broker_id)
        assert address is not None, "a route has no broker without an address"
        return address

    # ---- The group's offsets

    async def _commit(self) -> list[RemotingError]:
        """Commit the offsets of queues that were read; failures are retried with the next commit."""
        errors: list[RemotingError] = []
        for cursor in self._cursors:
            offset = cursor.offset
            if self.group is None or offset == cursor.committed:
                continue
            try:
                await self.api.commit_offset(self._address(cursor.queue), cursor.queue, self.group, offset)
                cursor.committed = offset
            except RemotingError as error:
                log.warning(
                    "offset not committed; retrying with the next commit",
                    queue=cursor.queue,
                    group=self.group,
                    error=str(error),
                )
                errors.append(error)
        return errors
