"""Member of a consumer group: gets a share of the queues, receives messages as they arrive, retries failed ones.

    async with PushConsumer(client, "readers", {"Greetings": "*"}) as consumer:
        async for batch in consumer:
            for message in batch:
                print(message.body)

Sources: DefaultMQPushConsumerImpl, ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService (RocketMQ 4.9.8).
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
from attrs import define, field, validators

from twinlog.cluster.client.client import Client
from twinlog.cluster.client.consume.assignment import Assignment
from twinlog.cluster.client.consume.batch import Batch, Batches, ConsumerEndedError
from twinlog.cluster.client.consume.locks import AGAIN_SECONDS, RENEW_SECONDS, QueueLocks
from twinlog.cluster.client.consume.offsets import BrokerOffsets, FileOffsets, Offsets, dump_offsets, load_offsets
from twinlog.cluster.client.consume.process_queue import FlowLimits, ProcessQueue, Turns
from twinlog.cluster.client.consume.reader import Reading
from twinlog.cluster.client.consume.retry import LOCAL_RETRY_SECONDS, Retries
from twinlog.cluster.client.consume.waiting import WaitingTasks
from twinlog.cluster.client.messages import ReceivedMessage, as_received, now_ms
from twinlog.cluster.client.service import Service
from twinlog.cluster.client.subscription import ConsumerData, From, FromTime, Sql, Subscription, as_heartbeat
from twinlog.cluster.client.tasks import every
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import VERSION, RemotingCommand
from twinlog.cluster.remoting.names import TAG, as_component, retry_topic
from twinlog.cluster.remoting.route import MessageQueue, queue_to_json
from twinlog.cluster.remoting.streams import Event, events_of_loop
from twinlog.store.errors import StoreError
from twinlog.store.record.message import decode_message
from twinlog.store.util.late_logger import LateLogger

COMMIT_SECONDS = 5.0
# Between messages a worker lets the loop's other tasks run when they could not for so long: handlers may never wait. Being
# cancelled is noticed then, too. A turn of the loop for each message would take as long as the rest of its work.
SLICE_SECONDS = 0.002
LEAVE_SECONDS = 1.0  # Time limit at the end for each of: offsets, locks, the group.
DIRECTLY_SECONDS = 30.0  # For a message that a person chose; the broker's own time limit is shorter.

log = LateLogger(__name__)

Handler = Callable[[Batch], Awaitable[None]]


@define(eq=False)
class PushConsumer(Service):
    """Receives the messages of `topics` (topic to filter: `*`, `TagA || TagB` or Sql) as a member of a group.

    With a `handler`, `workers` tasks call it, and a batch is done when it returns; when it raises, the batch is retried.
    Without one, iterate: requesting the next batch settles the one before. Several tasks may iterate concurrently; iteration
    ends when the block is left.
    Other tasks of the loop run between batches every 2 ms, also when a handler never waits.

    `ordered`: one batch of a queue after the other, and each queue at one member of the group only.
    `broadcasting`: every member gets all messages; its offsets are in `offset_file`, and failed messages are not retried.
    `start`: start position of a new group. `batch_max`: messages of a batch. `reconsume_times_max`: tries before a message
    becomes a dead letter; -1: 16, or unlimited when ordered. `suspend_seconds`: pause before an ordered consumer tries again.
    `limits`: messages that are read ahead.

    Messages are delivered at least once: again after a crash, a rebalance, or when the block is left during a batch.
    """

    client: Client
    group: str
    topics: Mapping[str, str | Sql]
    handler: Handler | None = field(default=None, kw_only=True)
    ordered: bool = field(default=False, kw_only=True)
    broadcasting: bool = field(default=False, kw_only=True)
    start: From | FromTime = field(default=From.LAST, kw_only=True)
    batch_max: int = field(default=1, kw_only=True, validator=validators.ge(1))
    workers: int = field(default=20, kw_only=True, validator=validators.ge(1))
    reconsume_times_max: int = field(default=-1, kw_only=True)
    suspend_seconds: float = field(default=1.0, kw_only=True)
    limits: FlowLimits = field(factory=FlowLimits, kw_only=True)
    offset_file: Path | None = field(default=None, kw_only=True)
    data: ConsumerData = field(init=False, repr=False)
    offsets: Offsets = field(init=False, repr=False)
    assignment: Assignment = field(init=False, repr=False)
    locks: QueueLocks | None = field(init=False, repr=False)
    started_ms: int = field(default=0, init=False)
    _is_over: bool = field(default=False, init=False)
    _asked_for: deque[Batch] = field(factory=deque, init=False, repr=False)
    _turns: Turns = field(init=False, repr=False)
    _retries: Retries = field(init=False, repr=False)
    _waiting: WaitingTasks = field(factory=WaitingTasks, init=False, repr=False)
    _new_event: Callable[[], Event] = field(init=False, repr=False)
    _pausing: int = field(default=0, init=False)  # Tasks that let others run, and take the next batch themselves.
    _pause_at: float = field(default=0.0, init=False)
    _task_group: anyio.abc.TaskGroup | None = field(default=None, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        version = now_ms()
        subscriptions = [Subscription.of(topic, wanted, version) for topic, wanted in self.topics.items()]
        if not self.broadcasting:
            subscriptions.append(Subscription.of(retry_topic(self.group), "*", version))
        self.data = ConsumerData(
            group=self.group,
            subscriptions=tuple(subscriptions),
            broadcasting=self.broadcasting,
            start=as_heartbeat(self.start),
        )
        address = self.client.client_id.partition("@")[0]
        own_file = Path.home() / ".rocketmq_offsets" / f"{address}@DEFAULT" / as_component(self.group) / "offsets.json"
        file = FileOffsets(self.offset_file or own_file)
        self.offsets = file if self.broadcasting else BrokerOffsets(self.client, self.group)
        self.locks = QueueLocks(self.client, self.group) if self.ordered and not self.broadcasting else None
        self._turns = Turns(self.ordered, self._holds)
        self._retries = Retries(self.client, self.group, self.ordered, self.broadcasting, self.reconsume_times_max)
        self.assignment = Assignment(
            self.client,
            self.group,
            self.data.subscriptions,
            Reading(consumer=self, client=self.client, group=self.group, limits=self.limits, ordered=self.ordered),
            self.offsets,
            self.start,
            self.locks,
            self.broadcasting,
            self._turns.is_running,
        )

    def _holds(self, queue: MessageQueue) -> bool:
        return self.locks is None or self.locks.holds(queue)

    # ---- Life

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; then offsets are committed, locks released, and the group is left. `async with` does this.

        Raises RemotingError when no name server responds, RequestError for a filter that the broker refuses.
        """
        self.client.join(consumer=self)
        self._new_event = events_of_loop()
        self.started_ms = now_ms()
        try:
            await self._prepare()
            async with anyio.create_task_group() as self._task_group:
                await self._task_group.start(self.assignment.run)
                self._task_group.start_soon(every, COMMIT_SECONDS, self._commit)
                if self.locks is not None:
                    self._task_group.start_soon(self._keep_locks, self.locks)
                if self.handler is not None:
                    for _ in range(self.workers):
                        self._task_group.start_soon(self._work, self.handler)
                task_status.started()
        finally:
            self._task_group, self._is_over = None, True
            self._waiting.wake_all()  # Whoever iterates outside of the block is told.
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(LEAVE_SECONDS):
                    await self.assignment.drop(list(self.assignment.readers))
                with anyio.move_on_after(LEAVE_SECONDS):
                    if self.locks is not None:  # No batch is handled any more.
                        await self.locks.unlock_all()
                with anyio.move_on_after(LEAVE_SECONDS):
                    await self.client.leave(consumer=self.group)

    async def _prepare(self) -> None:
        for subscription in self.data.subscriptions:
            route = await self.client.routes.find(subscription.topic)
            if route is None or subscription.kind == TAG:
                continue
            for address in sorted(filter(None, (broker.find(0) for broker in route.brokers.values())))[:1]:
                await self.client.api.check_filter(address, self.client.client_id, self.group, subscription)
        await self.client.introduce()

    async def _keep_locks(self, locks: QueueLocks) -> None:
        renewed = True
        while True:
            await anyio.sleep(RENEW_SECONDS if renewed else AGAIN_SECONDS)
            readers = list(self.assignment.readers.values())
            renewed = await locks.lock({*(reader.held.queue for reader in readers), *self._turns.running()})
            for reader in readers:  # Queues that waited for their lock can continue.
                self.on_arrival(reader.held)

    async def _commit(self) -> None:
        self.note_done()
        await self.offsets.commit()

    async def _work(self, handler: Handler) -> None:
        while True:
            if time.monotonic() >= self._pause_at or (batch := self._next()) is None:
                try:
                    batch = await self.take()
                except ConsumerEndedError:
                    return
            try:
                await handler(batch)
            except Exception as error:
                log.warning(
                    "handler failed; the batch is retried", group=self.group, queue=batch.queue, error=repr(error)
                )
                batch.later(batch.delay_level)
            if not batch.done_now():
                await batch.done()

    # ---- Batches

    def __aiter__(self) -> Batches:
        return Batches(self)

    async def take(self) -> Batch:
        """Wait for the next batch; the caller calls its done(). Raises RuntimeError before the consumer's block was entered."""
        has_paused = time.monotonic() >= self._pause_at
        try:
            if has_paused:
                await self._pause()
            else:  # A loop over batches that are there would not see its cancellation.
                await anyio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            self._waiting.wake_one()  # Others take what this task would have taken.
            raise
        while True:
            if self._task_group is None:
                if self._is_over:
                    raise ConsumerEndedError
                raise RuntimeError("this consumer is not running: use it inside its `async with` block")
            # Of several tasks that pause, the last one goes on; it wakes others when there is more than it takes.
            if not (has_paused and self._pausing) and (batch := self._next()) is not None:
                return batch
            await self._waiting.wait(self._new_event)
            has_paused = True

    async def _pause(self) -> None:
        """Let all other tasks run: handlers that never wait would keep the loop."""
        self._pausing += 1
        try:
            await anyio.lowlevel.checkpoint()
        finally:
            self._pausing -= 1
        self._pause_at = time.monotonic() + SLICE_SECONDS

    def _next(self) -> Batch | None:
        if self._asked_for:
            batch = self._asked_for.popleft()
        elif (turn := self._turns.take(self.batch_max)) is not None:
            held, messages = turn
            held.last_taken = time.time()
            batch = Batch(tuple(messages), held, self)
        else:
            return None
        self._wake_for_more()  # This task's handler may wait.
        return batch

    def _wake_for_more(self) -> None:
        if self._turns.has_more or self._asked_for:
            self._waiting.wake_one()

    async def consume_directly(self, message: ReceivedMessage) -> Batch:
        """Internal: let one message be consumed that a person chose (309); returns it settled. Nothing is committed."""
        batch = Batch((message,), None, self)
        settled = batch.settled = anyio.Event()
        self._asked_for.append(batch)
        self._waiting.wake_one()
        await settled.wait()
        return batch

    def settle_now(self, batch: Batch) -> bool:
        """Internal: see BatchOwner. Offsets are computed when they are committed, not for each batch."""
        held = batch.held
        if batch.failed or held is None:
            return False
        held.remove(batch.messages)
        if self.ordered:
            self._go_on(held)
        elif held.on_room is not None and not held.is_full(self.limits):
            held.on_room()
        return True

    async def settle(self, batch: Batch) -> None:
        """Internal: see BatchOwner."""
        held = batch.held
        if held is None:
            return
        here = await self._retries.place_failed(batch, held) if batch.failed else []
        # No checkpoint from here on: after a cancelled done() everything above is repeated.
        if held.is_dropped:  # Its next reader gets the messages again.
            here = []
        again = {message.queue_offset for message in here}
        held.remove(
            [message for message in batch.messages if message.queue_offset not in again] if again else batch.messages
        )
        if here and self._task_group is not None:
            self._turns.suspended.add(held)
            self._task_group.start_soon(self._come_again, held, here)
        self._go_on(held)
        self._wake_for_more()

    async def _come_again(self, held: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        await anyio.sleep(self.suspend_seconds if self.ordered else LOCAL_RETRY_SECONDS)
        self._turns.suspended.discard(held)
        held.give_back(messages)
        self._go_on(held)
        self._wake_for_more()

    def _go_on(self, held: ProcessQueue) -> None:
        """Let the queue's reader continue after a batch, here or at another member."""
        if reader := self.assignment.readers.get(held.queue):
            reader.wake()
            self._turns.add(reader.held)
        elif self.locks is not None and self._task_group is not None:
            self._task_group.start_soon(self.assignment.release, held.queue)

    def note_done(self) -> None:
        """Internal: note in the table of offsets what is done."""
        for reader in self.assignment.readers.values():
            self.on_passed(reader.held, back=False)

    # ---- For its readers (ReadingConsumer)

    def on_arrival(self, held: ProcessQueue) -> None:
        if self._turns.add(held):
            self._waiting.wake_one()

    def on_passed(self, held: ProcessQueue, *, back: bool) -> None:
        self.offsets.table.update(held.queue, held.commit_offset, only_up=not back)

    def may_pull(self, held: ProcessQueue) -> bool:
        return self._holds(held.queue)

    def offset_to_commit(self, held: ProcessQueue) -> int | None:
        if self.broadcasting:
            return None
        self.on_passed(held, back=False)
        return self.offsets.table.offsets.get(held.queue)

    def on_request(self, address: str, request: RemotingCommand) -> RemotingCommand | None:
        """Internal: the response to request 40, 220, 221, 307 or 309; None: none, or it is sent later."""
        try:
            return _answer(self, address, request)
        except ValueError as error:
            remark = f"the request cannot be understood: {error}"
            return RemotingCommand.response_to(request, ResponseCode.SYSTEM_ERROR, remark=remark)


# Requests of brokers. Source: ClientRemotingProcessor (RocketMQ 4.9.8).


def _answer(consumer: PushConsumer, address: str, request: RemotingCommand) -> RemotingCommand | None:
    consumer.note_done()
    match request.code:
        case RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            consumer.assignment.soon()
            return None
        case RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            consumer.client.start_soon(partial(consumer.assignment.reset, load_offsets(request.body)))
            return None
        case RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            topic, offsets = (request.ext or {}).get("topic", ""), consumer.offsets.table.offsets
            of_topic = {queue: offset for queue, offset in offsets.items() if queue.topic == topic}
            return _response(request, dump_offsets(of_topic, "messageQueueTable"))
        case RequestCode.GET_CONSUMER_RUNNING_INFO:
            return _response(request, fastjson.dumps(_running_info(consumer)))
        case RequestCode.CONSUME_MESSAGE_DIRECTLY:
            consumer.client.start_soon(partial(_consume_directly, consumer, address, request))
            return None
    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    return RemotingCommand.response_to(request, code, remark=f" request type {request.code} not supported")


def _response(request: RemotingCommand, body: bytes) -> RemotingCommand:
    return RemotingCommand.response_to(request, ResponseCode.SUCCESS, body=body)


def _running_info(consumer: PushConsumer) -> dict[str, Any]:
    """The body of 307 (ConsumerRunningInfo)."""
    return {
        "mqTable": {
            fastjson.ObjectKey.of(queue_to_json(queue)): _queue_info(consumer, queue)
            for queue in sorted(consumer.assignment.readers)
        },
        "properties": {
            "PROP_CLIENT_VERSION": f"V{VERSION}",
            "PROP_CONSUMEORDERLY": str(consumer.ordered).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_ms),
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_NAMESERVER_ADDR": ";".join(consumer.client.namesrv),
            "PROP_THREADPOOL_CORE_SIZE": str(consumer.workers if consumer.handler is not None else 0),
        },
        "statusTable": {each.topic: _NO_STATUS for each in consumer.data.subscriptions},
        "subscriptionSet": [each.to_json() for each in consumer.data.subscriptions],
    }


_NO_STATUS = {
    "consumeFailedMsgs": 0,
    "consumeFailedTPS": 0.0,
    "consumeOKTPS": 0.0,
    "consumeRT": 0.0,
    "pullRT": 0.0,
    "pullTPS": 0.0,
}


def _queue_info(consumer: PushConsumer, queue: MessageQueue) -> dict[str, Any]:
    held = consumer.assignment.readers[queue].held
    locked_at = consumer.locks.last_renewed(queue) if consumer.locks is not None else None
    return {
        "cachedMsgCount": held.count,
        "cachedMsgMaxOffset": held.next_offset - 1 if held.count else 0,
        "cachedMsgMinOffset": held.commit_offset if held.count else 0,
        "cachedMsgSizeInMiB": held.size >> 20,
        "commitOffset": consumer.offsets.table.offsets.get(queue, -1),
        "droped": held.is_dropped,
        "lastConsumeTimestamp": round(held.last_taken * 1000),
        "lastLockTimestamp": _clock_ms(locked_at or 0),
        "lastPullTimestamp": _clock_ms(held.last_pulled),
        "locked": consumer.locks is not None and consumer.locks.holds(queue),
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }


def _clock_ms(moment: float) -> int:
    """Convert a time of the loop's clock to ms since 1970; 0 stays 0."""
    return round((time.time() - anyio.current_time() + moment) * 1000) if moment else 0


async def _consume_directly(consumer: PushConsumer, address: str, request: RemotingCommand) -> None:
    begun = anyio.current_time()
    try:
        record = decode_message(bytes(request.body))
    except StoreError as error:
        remark = f"the body is no message: {error}"
        refusal = RemotingCommand.response_to(request, ResponseCode.SYSTEM_ERROR, remark=remark)
        consumer.client.remoting.respond(address, refusal)
        return
    queue = MessageQueue(record.topic, (request.ext or {}).get("brokerName", ""), record.queue_id)
    result = "CR_RETURN_NULL"
    with anyio.move_on_after(DIRECTLY_SECONDS):
        batch = await consumer.consume_directly(as_received(record, queue))
        result = "CR_LATER" if batch.failed else "CR_SUCCESS"
    body = {
        "autoCommit": True,
        "consumeResult": result,
        "order": consumer.ordered,
        "spentTimeMills": round((anyio.current_time() - begun) * 1000),
    }
    consumer.client.remoting.respond(address, _response(request, fastjson.dumps(body)))
