"""Producer: sends messages round robin to the topic's queues, and tries another broker when one fails.

Source: DefaultMQProducerImpl, SelectMessageQueueByHash (RocketMQ 4.9.8): which responses are retried on another broker, how
often, and which queues a topic gets that does not exist yet.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

import anyio
from attrs import Factory, define, field, frozen

from twinlog.cluster.client.api import (
    DEFAULT_TOPIC,
    DEFAULT_TOPIC_QUEUES,
    ClientApi,
    SendResponse,
    SendStatus,
    read_sent,
)
from twinlog.cluster.client.messages import (
    BATCH_SIZE_MAX,
    COMPRESS_FROM,
    OutgoingMessage,
    UniqueIds,
    compress,
    encode_batch,
    split_batch,
    wire_properties,
)
from twinlog.cluster.client.routes import NoRouteError, PublishRoute, Routes, SendUnderWay
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.remoting.calls import Answer
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingError, RemotingTimeoutError, RequestError
from twinlog.cluster.remoting.headers.messages import SendBatchMessage, SendMessageV2
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.store.record.properties import java_hash

RETRY_ELSEWHERE = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)


@frozen
class SendResult:
    """The stored message's place, and how safe it is. For a batch: the place of its first message; ids joined by commas."""

    status: SendStatus
    queue: MessageQueue
    queue_offset: int
    message_id: str
    offset_message_id: str
    remark: str | None


@frozen(kw_only=True)
class PreparedSend:
    """A send request without its queue: every try sends the same message id, so that consumers can detect duplicates."""

    topic: str
    message_id: str
    properties: str
    body: bytes
    flag: int = 0
    sys_flag: int = 0
    kind: type[SendMessageV2] = SendMessageV2
    reconsume_times: int = 0
    reconsume_times_max: int | None = None


def is_retried(error: RemotingError) -> bool:
    """True when another broker may store the message; a refusal of the message itself is the same everywhere."""
    return not isinstance(error, RequestError) or error.code in RETRY_ELSEWHERE


def is_unsent(error: RemotingError) -> bool:
    """True when the message was not stored, as no master took it, and one may soon: during a failover, or a restart."""
    match error:
        case NoRouteError():
            return error.may_come
        case RequestError():
            return error.code == ResponseCode.SERVICE_NOT_AVAILABLE
        case RemotingConnectError():
            return not error.sent
    return False


def _replaced(address: str) -> RemotingConnectError:
    return RemotingConnectError(address, "it had not answered, and is not the master any more", sent=True)


def result_of(prepared: PreparedSend, queue: MessageQueue, sent: SendResponse) -> SendResult:
    where = MessageQueue(queue.topic, queue.broker_name, sent.queue_id)
    return SendResult(sent.status, where, sent.queue_offset, prepared.message_id, sent.offset_message_id, sent.remark)


Select = Callable[[Sequence[MessageQueue]], MessageQueue]


def by_key(key: str) -> Select:
    """Select the same queue for all messages of a key, so that they stay in order: the queue that Java's clients select.

    A change of the number of queues changes the selected queue.

    >>> queues = [MessageQueue("T", "broker-a", number) for number in range(4)]
    >>> by_key("order-17")(queues) == by_key("order-17")(queues)
    True
    """

    def select(queues: Sequence[MessageQueue]) -> MessageQueue:
        return queues[abs(java_hash(key)) % len(queues)]

    return select


IN_FLIGHT_MAX = 256  # Messages of one call of send_all: limits the memory on both sides.
Outcome = SendResult | RemotingError


@frozen
class _Failed:
    """The first try of one message of send_all."""

    prepared: PreparedSend
    queue: MessageQueue | None
    error: RemotingError


@define(eq=False)
class _Begun:
    """A message of send_all that was sent, or could not be: what waits for its outcome."""

    end: Callable[[], Awaitable[SendResult | _Failed]]
    under_way: SendUnderWay | None


@define(eq=False)
class Producer:
    """Sends messages of one producer group. Make it with `Client.producer`.

    `tries_max`: tries of one message; each has the client's time limit, and ends when its master is replaced. While no master
    takes messages, as during a failover, a send looks for one until that limit is over, which is no try.
    `compress_from`: bytes of a body from which on it is compressed; None: never. `retry_unsafe`: also try another broker when one
    has stored the message, but not as safely as it is configured to (RocketMQ's retryAnotherBrokerWhenNotStoreOK); consumers then
    receive the message twice.
    """

    api: ClientApi
    group: str = "TWINLOG_PRODUCER"
    tries_max: int = 3
    compress_from: int | None = field(default=COMPRESS_FROM, kw_only=True)
    retry_unsafe: bool = field(default=False, kw_only=True)
    routes: Routes = field(default=Factory(lambda self: Routes(self.api), takes_self=True), kw_only=True, repr=False)
    ids: UniqueIds = field(factory=UniqueIds, kw_only=True, repr=False)
    _turn: int = field(default=0, init=False)

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The topic's queues that can be written now. Raises NoRouteError."""
        return (await self.routes.publish(topic)).queues

    async def send(
        self,
        message: OutgoingMessage,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send one message and wait for the broker's response. After a try without an answer the message may be there twice.

        `queue`, or `select`, which is called with the queues: the only queue that is tried. A status other than SEND_OK is not
        an error: the message is stored. Raises NoRouteError, RequestError (the broker refused), another RemotingError (no
        broker could be reached) of the last try, RemotingTimeoutError after `timeout_ms` for all tries.
        """
        prepared = self.prepare(message)
        if timeout_ms is None:
            return await self.deliver(prepared, queue=queue, select=select)
        with anyio.move_on_after(timeout_ms / 1000):
            return await self.deliver(prepared, queue=queue, select=select)
        raise RemotingTimeoutError(f"topic {message.topic}", prepared.kind.code, timeout_ms)

    async def send_batch(
        self, messages: Sequence[OutgoingMessage], *, queue: MessageQueue | None = None, size_max: int = BATCH_SIZE_MAX
    ) -> list[SendResult]:
        """Send many messages of one topic with few requests; returns a result for each request.

        Raises ValueError for messages that no batch may contain (see split_batch), and errors as send(); the batches before
        the failed one are stored then.
        """
        results = []
        for part in list(split_batch(messages, size_max)):
            ids = [next(self.ids) for _ in part]
            properties = (wire_properties(message, each) for message, each in zip(part, ids, strict=True))
            body = encode_batch(zip(part, properties, strict=True))
            prepared = PreparedSend(
                topic=part[0].topic,
                message_id=",".join(ids),
                properties="WAIT\x01true",
                body=body,
                kind=SendBatchMessage,
            )
            results.append(await self.deliver(prepared, queue=queue))
        return results

    async def send_oneway(
        self, message: OutgoingMessage, *, queue: MessageQueue | None = None, select: Select | None = None
    ) -> str:
        """Send without a response, so that failures go unnoticed; returns the message's id once the request is queued."""
        prepared = self.prepare(message)
        where = await self.routes.publish(message.topic)
        chosen = queue or self.choose(where, select)
        await self.api.oneway(where.master(chosen), self.header(prepared, chosen), prepared.body)
        return prepared.message_id

    async def send_all(self, messages: Iterable[OutgoingMessage], *, select: Select | None = None) -> list[Outcome]:
        """Send many messages concurrently; returns a result or an error for each, in their order.

        Up to 256 are in flight. A message that fails is tried again on another broker; its last error is returned.
        """
        outcomes: list[Outcome] = []
        begun: deque[_Begun] = deque()
        in_vain: dict[str, RemotingError] = {}
        try:
            for message in messages:
                if len(begun) >= IN_FLIGHT_MAX:  # Wait for half of them, so that the next ones are sent together, too.
                    outcomes += await self._ends(begun, IN_FLIGHT_MAX // 2, select)
                    in_vain.clear()
                begun.append(await self._begin(self.prepare(message), select, in_vain))
            return outcomes + await self._ends(begun, len(begun), select)
        finally:  # Cancelled: nobody waits for these.
            self.routes.under_way.difference_update(each.under_way for each in begun)

    # ---- One message

    def prepare(
        self,
        message: OutgoingMessage,
        *,
        sys_flag: int = 0,
        extra: Mapping[str, str] | None = None,
        kind: type[SendMessageV2] = SendMessageV2,
    ) -> PreparedSend:
        """Internal: give the message an id and compress its body; `extra` are properties reserved by RocketMQ."""
        message_id = next(self.ids)
        body, compression = compress(message.body, at_least=self.compress_from)
        return PreparedSend(
            topic=message.topic,
            message_id=message_id,
            properties=wire_properties(message, message_id, extra),
            body=body,
            flag=message.flag,
            sys_flag=sys_flag | compression,
            kind=kind,
        )

    async def deliver(
        self,
        prepared: PreparedSend,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        tried: frozenset[str] = frozenset(),
    ) -> SendResult:
        """Internal: try until a broker has stored it; brokers in `tried` only when there is no other. Raises as send()."""
        left = 1 if queue or select else max(1, self.tries_max - len(tried))
        patient_until = anyio.current_time() + self.api.timeout_ms / 1000
        while True:
            chosen = None
            try:
                only = queue.broker_name if queue else None
                where = await self.routes.publish(prepared.topic, tried=tried, only=only)
                chosen = queue or self.choose(where, select, tried)
                sent = await self._send(where, chosen, prepared)
            except RemotingError as error:
                if chosen is not None:
                    self.routes.failed(where, chosen)
                if not is_unsent(error) or anyio.current_time() >= patient_until:
                    left -= 1
                    if not left or chosen is None or not is_retried(error):
                        raise
            else:
                left -= 1
                if sent.status is SendStatus.SEND_OK:
                    return result_of(prepared, chosen, sent)
                self.routes.forget(prepared.topic)  # Its master may have no lease.
                if not left or not self.retry_unsafe:
                    return result_of(prepared, chosen, sent)
            tried |= {chosen.broker_name} if chosen is not None else frozenset()

    async def _send(self, where: PublishRoute, queue: MessageQueue, prepared: PreparedSend) -> SendResponse:
        """One try; it ends when another master of the broker becomes known."""
        address, timeout_ms = where.master(queue), self.api.timeout_ms
        command = self.header(prepared, queue).command(prepared.body)
        under_way = self._under_way(prepared, queue, address)
        answer: Answer | None = None
        try:
            with under_way.waiting():
                answer = await self.api.client.begin(address, command, timeout_ms=timeout_ms)
                return read_sent(await answer())
        finally:
            self.routes.under_way.discard(under_way)
        if under_way.is_given_up:
            raise _replaced(address)
        if answer is None:
            raise RemotingConnectError(address, f"not connected within {timeout_ms} ms")
        raise RemotingTimeoutError(address, command.code, timeout_ms)

    def _under_way(self, prepared: PreparedSend, queue: MessageQueue, address: str) -> SendUnderWay:
        now = anyio.current_time()
        made = SendUnderWay(prepared.topic, queue.broker_name, address, now, now + self.api.timeout_ms / 1000)
        self.routes.under_way.add(made)
        return made

    def header(self, prepared: PreparedSend, queue: MessageQueue) -> SendMessageV2:
        """Internal: the request's header for that queue's broker."""
        return prepared.kind(
            producer_group=self.group,
            topic=queue.topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=DEFAULT_TOPIC_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=prepared.sys_flag,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=prepared.flag,
            properties=prepared.properties,
            reconsume_times=prepared.reconsume_times,
            max_reconsume_times=prepared.reconsume_times_max,
            batch=prepared.kind is SendBatchMessage,
            broker_name=queue.broker_name,
        )

    def choose(self, where: PublishRoute, select: Select | None, tried: frozenset[str] = frozenset()) -> MessageQueue:
        """Internal: the next queue in turn, of a broker that was not tried yet if there is one."""
        if select is not None:
            return select(where.queues)
        queues = where.queues
        if tried:
            queues = tuple(queue for queue in queues if queue.broker_name not in tried) or queues
        self._turn += 1
        return queues[(self._turn - 1) % len(queues)]

    # ---- Many messages at once

    async def _ends(self, begun: deque[_Begun], count: int, select: Select | None) -> list[Outcome]:
        """Wait for the oldest. What failed is tried again concurrently: each may take its whole time limit."""
        ended = [await begun.popleft().end() for _ in range(count)]
        failed = [each for each in ended if isinstance(each, _Failed)]
        last = iter(await in_parallel(partial(self._again, each, select) for each in failed) if failed else ())
        return [next(last) if isinstance(each, _Failed) else each for each in ended]

    async def _begin(self, prepared: PreparedSend, select: Select | None, in_vain: dict[str, RemotingError]) -> _Begun:
        """Send one message. `in_vain`: topics without a route and addresses without a connection, each of which a message has
        waited for just now: not each message of a call does.
        """
        if error := in_vain.get(prepared.topic):
            return _begun_in_vain(_Failed(prepared, None, error))
        queue: MessageQueue | None = None
        timeout_ms = self.api.timeout_ms
        try:
            where = await self.routes.publish(prepared.topic)
            queue = self.choose(where, select)
            command = self.header(prepared, queue).command(prepared.body)
            address = where.master(queue)
            if error := in_vain.get(address):
                return _begun_in_vain(_Failed(prepared, queue, error))
            answer = await self.api.client.begin(address, command, timeout_ms=timeout_ms)
        except RemotingError as failure:
            self.routes.forget(prepared.topic)
            if isinstance(failure, NoRouteError):
                in_vain[prepared.topic] = failure
            elif isinstance(failure, RemotingConnectError):
                in_vain[failure.address] = failure
            return _begun_in_vain(_Failed(prepared, queue, failure))
        under_way = self._under_way(prepared, queue, address)
        return _Begun(partial(self._end, prepared, queue, answer, where, under_way), under_way)

    async def _end(
        self,
        prepared: PreparedSend,
        queue: MessageQueue,
        answer: Answer,
        where: PublishRoute,
        under_way: SendUnderWay,
    ) -> SendResult | _Failed:
        error: RemotingError = _replaced(under_way.address)
        try:
            if answer.is_here:  # As nearly all are, while the oldest ones are waited for.
                return result_of(prepared, queue, read_sent(await answer()))
            if not under_way.is_given_up:
                with under_way.waiting():
                    return result_of(prepared, queue, read_sent(await answer()))
            if not under_way.is_given_up:
                error = RemotingTimeoutError(queue.broker_name, prepared.kind.code, self.api.timeout_ms)
        except RemotingError as failure:
            error = failure
        finally:
            self.routes.under_way.discard(under_way)
        self.routes.failed(where, queue)
        return _Failed(prepared, queue, error)

    async def _again(self, failed: _Failed, select: Select | None) -> Outcome:
        if select is not None or self.tries_max < 2 or not is_retried(failed.error):
            return failed.error
        tried = frozenset({failed.queue.broker_name} if failed.queue else ())
        try:
            return await self.deliver(failed.prepared, tried=tried)
        except RemotingError as last:
            return last


def _begun_in_vain(failed: _Failed) -> _Begun:
    async def end() -> _Failed:
        return failed

    return _Begun(end, None)
