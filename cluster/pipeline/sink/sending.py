"""Sends the rows of one task and waits until all are stored: the shell round rows.py and queues.py.

Each queue has a lane, which has one request under way: what is sent again cannot overtake what follows it, so the rows of a
sharding key keep their order. Requests of different queues are under way together. A row stays with its queue: while that has no
master, as during a failover, its lane tries again, up to the option deliveryTimeoutMs; then the task fails.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import trio
from attrs import define, field, frozen

from twinlog.cluster.client.api import DEFAULT_TOPIC, SendStatus
from twinlog.cluster.client.client import Client
from twinlog.cluster.client.producer import PreparedSend, Producer
from twinlog.cluster.client.routes import NoRouteError, PublishRoute
from twinlog.cluster.client.tasks import sole
from twinlog.cluster.pipeline.sink.ids import RowIds
from twinlog.cluster.pipeline.sink.options import NotSafe, SinkOptions, WriteRefusedError, sink_columns
from twinlog.cluster.pipeline.sink.queues import number_of_key, slot_table, write_queues
from twinlog.cluster.pipeline.sink.rows import Alone, RowEncoder, Rows, in_parts
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.tables.texts import warn
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingError, RequestError
from twinlog.cluster.remoting.headers.messages import SendBatchMessage
from twinlog.cluster.remoting.route import MessageQueue

PENDING_BYTES_MAX = 16 << 20  # Of messages that are not stored yet, besides those that are being made.
LATE_TOGETHER = 64  # Delayed messages of one queue under way together: they have no order.
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 5.0  # Between two tries.
MASTER_SECONDS = 10.0  # A repeated task waits so long for masters, so that rows find the queues of their first copies.
_ALWAYS_REFUSED = frozenset(
    {ResponseCode.MESSAGE_ILLEGAL, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION}
    | {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
)
NO_RIGHTS = "AclException"
_LACKS = {
    SendStatus.FLUSH_DISK_TIMEOUT: "its disk did not confirm them in time (flushDiskType=SYNC_FLUSH)",
    SendStatus.FLUSH_SLAVE_TIMEOUT: "its slave did not confirm them in time (brokerRole=SYNC_MASTER)",
    SendStatus.SLAVE_NOT_AVAILABLE: "it has no slave that is in sync (brokerRole=SYNC_MASTER)",
}


T = TypeVar("T")


class NotSafeError(RemotingError):
    """Messages are stored, but not as safely as their broker is configured to."""

    def __init__(self, status: SendStatus, count: int) -> None:
        super().__init__(f"the broker stored {count} messages with {status.name}: {_LACKS[status]}")
        self.status = status


def is_final(error: RemotingError) -> bool:
    """True for a refusal that another try cannot change."""
    if isinstance(error, NoRouteError):
        return not error.may_come
    return isinstance(error, RequestError) and (error.code in _ALWAYS_REFUSED or NO_RIGHTS in error.remark)


@frozen
class _Request:
    prepared: PreparedSend
    size: int
    count: int


@define(eq=False)
class _Lane:
    """Messages for one queue: those gathered for the next batch, and the requests that wait."""

    queue: MessageQueue
    together: int = 1  # Requests under way at once.
    items: list[bytes] = field(factory=list)
    size: int = 0
    requests: deque[_Request] = field(factory=deque)
    under_way: int = 0


@frozen(eq=False)
class _Topic:
    """The queues of a topic as they were when the task began, with their lanes; `late`: of delayed messages.

    `slots`: numbers of the queues for rows without a sharding key.
    """

    lanes: Sequence[_Lane]
    late: Sequence[_Lane]
    slots: Sequence[int]


@define(eq=False)
class RowSender:
    """Sends rows of one task. `nursery` carries the requests; errors of them come out of it."""

    options: SinkOptions
    client: Client
    nursery: trio.Nursery
    attempt: int = 0  # 0: the first one of this task.
    sent: int = field(default=0, init=False)  # Messages that are stored.
    _producer: Producer = field(init=False)
    _topics: dict[str, _Topic] = field(factory=dict, init=False)
    _pending: int = field(default=0, init=False)  # Bytes that are not stored yet.
    _lowered: trio.Event = field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._producer = self.client.producer(self.options.producer_group, compress_from=None)

    async def send(self, rows: Rows) -> None:
        """Take some rows; waits while too many bytes are pending. Raises WriteRefusedError."""
        if rows.topics is None:
            assert self.options.topic is not None
            lanes_of = [await self._topic(self.options.topic)] * len(rows.items)
        else:
            lanes_of = [self._topics.get(name) or await self._topic(name) for name in rows.topics]
        slots = rows.slots.tolist()
        for row, (item, topic) in enumerate(zip(rows.items, lanes_of, strict=True)):
            key = rows.keys[row] if rows.keys is not None else None
            number = topic.slots[slots[row]] if key is None else number_of_key(key, len(topic.lanes))
            lane = topic.lanes[number]
            alone = rows.alone.get(row)
            if alone is not None and alone.is_delayed:
                self._put_alone(topic.late[number], alone)
            elif alone is not None:
                self._cut(lane)
                self._put_alone(lane, alone)
            else:
                if lane.size + len(item) > self.options.batch_size:
                    self._cut(lane)
                lane.items.append(item)
                lane.size += len(item)
                self._pending += len(item)
        await self._room(PENDING_BYTES_MAX)

    async def finish(self) -> int:
        """Send what is left, and wait until everything is stored; returns the number of messages."""
        self._cut_all()
        await self._room(0)
        return self.sent

    async def _room(self, most: int) -> None:
        if self._pending > most:
            self._cut_all()  # Small rests of many queues may be all that is pending.
        while self._pending > most:
            self._lowered = trio.Event()
            await self._lowered.wait()
        await trio.lowlevel.checkpoint()

    # ---- Queues

    async def _topic(self, name: str) -> _Topic:
        if (known := self._topics.get(name)) is None:
            known = self._topics[name] = await self._route(name)
        return known

    async def _route(self, name: str) -> _Topic:
        """Queues of a topic. All of them for sharding keys; for other rows those that have a master."""
        route = await self._try(partial(self._publish, name), f"topic {name}")
        queues = write_queues(route.route) if route.route.topic == name else list(route.queues)
        lanes, late = [_Lane(queue) for queue in queues], [_Lane(queue, LATE_TOGETHER) for queue in queues]
        served = set(route.queues)
        usable = [number for number, queue in enumerate(queues) if queue in served]
        if len(usable) < len(queues):
            away = sorted({queue.broker_name for queue in queues} - {queue.broker_name for queue in served})
            warn(f"topic {name}: {', '.join(away)} has no master now: its queues get only rows with a sharding key")
        table = slot_table([queues[number] for number in usable])
        return _Topic(lanes, late, [usable[number] for number in table.tolist()])

    async def _publish(self, name: str) -> PublishRoute:
        route = await self._producer.routes.publish(name)
        until = trio.current_time() + MASTER_SECONDS
        while self.attempt and len(write_queues(route.route)) > len(route.queues) and trio.current_time() < until:
            if route.route.topic != name:  # It does not exist yet, and gets queues when the first message comes.
                break
            await trio.sleep(PAUSE_SECONDS)
            self._producer.routes.forget(name)
            route = await self._producer.routes.publish(name)
        return route

    # ---- Requests

    def _cut_all(self) -> None:
        for topic in self._topics.values():
            for lane in topic.lanes:
                self._cut(lane)

    def _cut(self, lane: _Lane) -> None:
        """Make a request of what a lane has gathered."""
        if lane.items:
            body = b"".join(lane.items)
            prepared = PreparedSend(
                topic=lane.queue.topic, message_id="", properties="WAIT\x01true", body=body, kind=SendBatchMessage
            )
            self._start(lane, _Request(prepared, lane.size, len(lane.items)))
            lane.items, lane.size = [], 0

    def _put_alone(self, lane: _Lane, message: Alone) -> None:
        prepared = PreparedSend(
            topic=lane.queue.topic,
            message_id="",
            properties=message.properties,
            body=message.body,
            flag=message.flag,
        )
        size = len(message.body) + len(message.properties)
        self._pending += size
        self._start(lane, _Request(prepared, size, 1))

    def _start(self, lane: _Lane, request: _Request) -> None:
        lane.requests.append(request)
        if lane.under_way < lane.together:
            lane.under_way += 1
            self.nursery.start_soon(self._run, lane)

    async def _run(self, lane: _Lane) -> None:
        """Send a lane's requests, until none waits."""
        what = f"topic {lane.queue.topic}, queue {lane.queue.queue_id} of {lane.queue.broker_name}"
        while lane.requests:
            request = lane.requests.popleft()
            await self._try(partial(self._deliver, lane.queue, request), what)
            self.sent += request.count
            self._pending -= request.size
            self._lowered.set()
        lane.under_way -= 1

    async def _deliver(self, queue: MessageQueue, request: _Request) -> None:
        result = await self._producer.deliver(request.prepared, queue=queue)
        if result.status is not SendStatus.SEND_OK:
            raise NotSafeError(result.status, request.count)

    async def _try(self, do: Callable[[], Awaitable[T]], what: str) -> T:
        """Call until it succeeds, with pauses. Raises WriteRefusedError."""
        deadline = trio.current_time() + self.options.delivery_timeout_ms / 1000
        pause, is_warned = PAUSE_SECONDS, False
        while True:
            try:
                return await do()
            except RemotingError as error:
                is_over = trio.current_time() + pause >= deadline
                if is_over or self._is_final(error):
                    raise WriteRefusedError(_refusal(what, error, self.options)) from error
                if not is_warned:
                    warn(f"{what}: {error}; rows are sent again, for up to {self.options.delivery_timeout_ms} ms")
                    is_warned = True
            await trio.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _is_final(self, error: RemotingError) -> bool:
        fails = self.options.on_not_safe is NotSafe.FAIL
        return fails if isinstance(error, NotSafeError) else is_final(error)


def _refusal(what: str, error: RemotingError, options: SinkOptions) -> str:
    """Cause, reason and next step."""
    why = str(error).rstrip(".")
    if isinstance(error, NotSafeError):
        tried = "" if options.on_not_safe is NotSafe.FAIL else f", also not within {options.delivery_timeout_ms} ms"
        return (
            f"{what}: {why}{tried}. They are stored, but may be lost with their master, so the task fails. Bring back what is "
            "missing; rows that are sent again have equal ids (SPARK_ROW_ID)."
        )
    if isinstance(error, RequestError) and (NO_RIGHTS in error.remark or error.code == ResponseCode.NO_PERMISSION):
        return (
            f"{what}: the broker allows no messages there: {why}. Check options accessKey and secretKey, the account's right to "
            "publish (PUB) to the topic, and whether topic and broker may be written."
        )
    if isinstance(error, NoRouteError) and not error.may_come:
        return f"{what}: {why}. Check the name and option nameServer, or create the topic."
    if isinstance(error, RequestError) and error.code == ResponseCode.MESSAGE_ILLEGAL:
        return f"{what}: {why}. If its maxMessageSize is smaller than 4 MiB, set option maxMessageSize to it."
    if is_final(error):
        return f"{what}: {why}."
    return f"{what}: not stored within {options.delivery_timeout_ms} ms (option deliveryTimeoutMs): {why}."


async def write_rows(options: SinkOptions, ids: RowIds, batches: Iterator[pa.RecordBatch], attempt: int = 0) -> int:
    """Send the rows of a task; returns their number once all are stored. `attempt`: 0 for the task's first one.

    Raises WriteRefusedError, ReadRefusedError.
    """
    first = next(batches, None)
    if first is None:
        return 0
    columns = sink_columns(first.schema, options)
    encoder = RowEncoder(options, columns, ids)
    count = 0
    async with options.connection.client() as client, in_one() as nursery:
        sender = RowSender(options, client, nursery, attempt)
        batch: pa.RecordBatch | None = first
        while batch is not None:
            for part in in_parts(batch, columns.value):
                await sender.send(encoder.encode(part))
            batch = await next_batch(batches)
        count = await sender.finish()
    return count


async def next_batch(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    """The next rows, from a thread: answers are read, and time limits kept, while Spark makes them. None at the end."""
    return await trio.to_thread.run_sync(next, batches, None, abandon_on_cancel=True)


@asynccontextmanager
async def in_one() -> AsyncIterator[trio.Nursery]:
    """A nursery whose first error comes out itself, not in a group: Spark shows the last line of a traceback."""
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        refused, _ = group.split(ReadRefusedError)
        only = sole(group) if refused is None else _first(refused)
        if only is None:
            raise
        raise only from only.__cause__


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


async def check_topic(options: SinkOptions) -> None:
    """Raise WriteRefusedError unless a name server answers and the topic of the options, if there is one, can be written.

    A topic that does not exist is taken if a broker creates topics when a message comes.
    """
    topic = options.topic or DEFAULT_TOPIC
    servers = ";".join(options.connection.name_servers)
    try:
        async with options.connection.open() as api:
            route = await api.topic_route(topic)
            if route is None and options.topic is not None and await api.topic_route(DEFAULT_TOPIC) is None:
                raise WriteRefusedError(
                    f"topic {topic}: no broker of {servers} has it, and none creates topics when a message comes. Check the "
                    "name, or create it."
                )
    except RemotingError as error:
        raise WriteRefusedError(
            f"nameServer {servers}: no route of topic {topic} can be had: {error}. Check that these are name servers, and that "
            "they run."
        ) from error
    if options.topic is not None and route is not None and not write_queues(route):
        raise WriteRefusedError(f"topic {topic}: none of its queues may be written. Change its permission to RW.")
