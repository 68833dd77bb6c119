"""Sends messages: round robin over the topic's queues, another broker when one fails.

Source: DefaultMQProducerImpl (RocketMQ 4.9.8): which answers are tried again elsewhere, how often, and where a topic that does
not exist yet takes its queues from.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

import trio
from attrs import Factory, define, field

from twinlog.cluster.client.api.answers import SendStatus
from twinlog.cluster.client.api.api import ClientApi
from twinlog.cluster.client.api.messages import SendRequest
from twinlog.cluster.client.compression import COMPRESS_FROM, compress
from twinlog.cluster.client.many import send_all
from twinlog.cluster.client.outgoing import BATCH_SIZE_MAX, OutgoingMessage, encode_batch, split_batch, wire_properties
from twinlog.cluster.client.route import MessageQueue
from twinlog.cluster.client.routes import NoRouteError, PublishRoute, Routes
from twinlog.cluster.client.selectors import Select
from twinlog.cluster.client.sending import Prepared, SendResult, is_retried, result_of
from twinlog.cluster.client.unique_id import UniqueIds
from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.errors import RemotingError, RemotingTimeoutError

__all__ = ["NoRouteError", "OutgoingMessage", "Producer", "SendResult"]


@define(eq=False)
class Producer:
    """One producer group. Make it with `Client.producer`, or over any ClientApi.

    `tries_max`: of one message; each lasts as long as the API's timeout. `compress_from`: bytes of a body from which on it is
    packed, None never. `retry_unsafe`: try elsewhere, too, when a broker has stored the message but not as safely as it
    promises (RocketMQ's retryAnotherBrokerWhenNotStoreOK): the message then comes twice.
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
        """The topic's queues that take messages now. Raises NoRouteError."""
        return (await self.routes.publish(topic)).queues

    async def send(
        self,
        message: OutgoingMessage,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send one message and wait for the broker's answer.

        With a `queue`, or a function that selects one, it goes there and nowhere else. A status other than SEND_OK is an
        answer, not an error: the message is stored. Raises NoRouteError, RequestError (the broker refused), another
        RemotingError (no broker could be reached) of the last try, RemotingTimeoutError after `timeout_ms` for all tries.
        """
        prepared = self.prepare(message)
        if timeout_ms is None:
            return await self.deliver(prepared, queue=queue, select=select)
        with trio.move_on_after(timeout_ms / 1000):
            return await self.deliver(prepared, queue=queue, select=select)
        raise RemotingTimeoutError(f"topic {message.topic}", prepared.code, timeout_ms)

    async def send_batch(
        self, messages: Sequence[OutgoingMessage], *, queue: MessageQueue | None = None, size_max: int = BATCH_SIZE_MAX
    ) -> list[SendResult]:
        """Send many messages of one topic with few requests; one result for each request.

        Raises ValueError for what no batch may hold (see split_batch), else as send(): earlier requests are stored then.
        """
        results = []
        for part in list(split_batch(messages, size_max)):
            ids = [next(self.ids) for _ in part]
            properties = (wire_properties(message, each) for message, each in zip(part, ids, strict=True))
            body = encode_batch(zip(part, properties, strict=True))
            prepared = Prepared(
                topic=part[0].topic,
                message_id=",".join(ids),
                properties="WAIT\x01true",
                body=body,
                code=RequestCode.SEND_BATCH_MESSAGE,
            )
            results.append(await self.deliver(prepared, queue=queue))
        return results

    async def send_oneway(
        self, message: OutgoingMessage, *, queue: MessageQueue | None = None, select: Select | None = None
    ) -> str:
        """Send without asking for an answer; the message's id. Returns when the request is on its way."""
        prepared = self.prepare(message)
        where = await self.routes.publish(message.topic)
        chosen = queue or self.choose(where, select)
        await self.api.client.oneway(where.master(chosen), self.request(prepared, chosen).command())
        return prepared.message_id

    async def send_all(
        self, messages: Iterable[OutgoingMessage], *, select: Select | None = None
    ) -> list[SendResult | RemotingError]:
        """Send many messages at once, in this one task: what became of each, in their order.

        256 at a time are under way. A message that fails is tried again, elsewhere; its last error stands in its place.
        """
        return await send_all(self, messages, select)

    # ---- One message

    def prepare(
        self,
        message: OutgoingMessage,
        *,
        sys_flag: int = 0,
        extra: Mapping[str, str] | None = None,
        code: RequestCode = RequestCode.SEND_MESSAGE_V2,
    ) -> Prepared:
        """Give it an id, pack its body; `extra` are properties of RocketMQ's own."""
        message_id = next(self.ids)
        body, packed = compress(message.body, at_least=self.compress_from)
        return Prepared(
            topic=message.topic,
            message_id=message_id,
            properties=wire_properties(message, message_id, extra),
            body=body,
            flag=message.flag,
            sys_flag=sys_flag | packed,
            code=code,
        )

    async def deliver(
        self,
        prepared: Prepared,
        *,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        tried: frozenset[str] = frozenset(),
    ) -> SendResult:
        """Try until a broker has stored it; brokers in `tried` only when there is no other. Raises as send()."""
        tries = 1 if queue or select else max(1, self.tries_max - len(tried))
        for left in reversed(range(tries)):
            where = await self.routes.publish(prepared.topic, tried=tried)
            chosen = queue or self.choose(where, select, tried)
            try:
                sent = await self.api.send_request(where.master(chosen), self.request(prepared, chosen))
            except RemotingError as error:
                self.routes.forget(prepared.topic)
                if not left or not is_retried(error):
                    raise
            else:
                if not left or not self.retry_unsafe or sent.status is SendStatus.SEND_OK:
                    return result_of(prepared, chosen, sent)
            tried |= {chosen.broker_name}
        raise AssertionError("the last try returns or raises")

    def request(self, prepared: Prepared, queue: MessageQueue) -> SendRequest:
        """The request to that queue's broker."""
        return SendRequest(
            code=prepared.code,
            queue=queue,
            group=self.group,
            properties=prepared.properties,
            body=prepared.body,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=prepared.flag,
            sys_flag=prepared.sys_flag,
            reconsume_times=prepared.reconsume_times,
            reconsume_times_max=prepared.reconsume_times_max,
        )

    def choose(self, where: PublishRoute, select: Select | None, tried: frozenset[str] = frozenset()) -> MessageQueue:
        """The next queue in turn, on a broker that was not tried yet where there is one."""
        if select is not None:
            return select(where.queues)
        queues = where.queues
        if tried:
            queues = tuple(queue for queue in queues if queue.broker_name not in tried) or queues
        self._turn += 1
        return queues[(self._turn - 1) % len(queues)]
