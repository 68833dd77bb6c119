"""Request messages and their replies. Sources: DefaultMQProducerImpl.request, MessageUtil (RocketMQ 4.9.8).

The reply comes over the requester's connection (request 326), from whichever broker of the cluster the replier chose.
"""

import uuid
from collections.abc import Mapping

import anyio
from attrs import define, field

from twinlog.cluster.client.client import Client
from twinlog.cluster.client.messages import OutgoingMessage, ReceivedMessage, decompress
from twinlog.cluster.client.producer import Producer, Select, SendResult
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingError, RemotingTimeoutError
from twinlog.cluster.remoting.headers.messages import SendReplyMessageV2
from twinlog.store.record.compression import CompressionError
from twinlog.store.record.properties import parse_properties
from twinlog.store.util.late_logger import LateLogger

log = LateLogger(__name__)

CORRELATION_ID, REPLY_TO, TIME_TO_LIVE, MESSAGE_TYPE = "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "MSG_TYPE"


@define(eq=False)
class ReplyMessage:
    """The reply to a request message. `properties`: the replier's, and RocketMQ's own."""

    body: bytes = field(repr=lambda body: f"<{len(body)} bytes>")
    properties: Mapping[str, str]


@define(eq=False)
class _PendingReply:
    answered: anyio.Event = field(factory=anyio.Event)
    reply: ReplyMessage | None = None


@define(eq=False)
class Requester:
    """Sends request messages to a topic; one of its consumers replies to each. A client has one Requester."""

    client: Client
    group: str
    producer: Producer = field(init=False, repr=False)
    _pending: dict[str, _PendingReply] = field(factory=dict, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        handlers, code = self.client.handlers, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        if code in handlers:
            raise ValueError("a client has one Requester")
        handlers[code] = self._on_reply
        self.producer = self.client.producer(self.group)

    async def request(
        self, message: OutgoingMessage, *, timeout_ms: int = 3000, select: Select | None = None
    ) -> ReplyMessage:
        """Send a message and wait for the reply of the consumer that receives it.

        Raises RemotingTimeoutError without a reply in time, and errors as Producer.send.
        """
        correlation_id, question = str(uuid.uuid4()), _PendingReply()
        extra = {CORRELATION_ID: correlation_id, REPLY_TO: self.client.client_id, TIME_TO_LIVE: str(timeout_ms)}
        self._pending[correlation_id] = question
        try:
            with anyio.move_on_after(timeout_ms / 1000):
                await self._introduce_to(message.topic)
                await self.producer.deliver(self.producer.prepare(message, extra=extra), select=select)
                await question.answered.wait()
        finally:
            del self._pending[correlation_id]
        if question.reply is None:
            raise RemotingTimeoutError(f"the consumers of {message.topic}", RequestCode.SEND_MESSAGE_V2, timeout_ms)
        return question.reply

    async def _introduce_to(self, topic: str) -> None:
        """Send heartbeats to all brokers of the clusters: any of them may have to deliver the reply."""
        routes = self.client.routes
        await self.client.introduce_to(topic)
        for cluster in routes.clusters:
            try:
                await routes.find(reply_topic(cluster))
            except RemotingError as error:
                log.info("route of a reply topic not known", cluster=cluster, error=str(error))
        await self.client.introduce()

    def _on_reply(self, address: str, request: RemotingCommand) -> RemotingCommand | None:
        ext = request.ext or {}
        properties = parse_properties(ext.get("properties", ""))
        question = self._pending.get(properties.get(CORRELATION_ID, ""))
        if question is None:
            log.info("reply dropped: its request has timed out", peer=address)
        else:
            try:
                body = decompress(bytes(request.body), int(ext.get("sysFlag", 0)))
            except CompressionError as error:
                return RemotingCommand.response_to(request, ResponseCode.SYSTEM_ERROR, remark=str(error))
            question.reply = ReplyMessage(body, properties)
            question.answered.set()
        return RemotingCommand.response_to(request, ResponseCode.SUCCESS)


def reply_topic(cluster: str) -> str:
    """The topic of a cluster's replies; every broker of it has the topic."""
    return f"{cluster}_REPLY_TOPIC"


async def reply(producer: Producer, question: ReceivedMessage, body: bytes, **fields: str) -> SendResult:
    """Reply to a request message; `fields` are properties of your own.

    Raises ValueError for a message that is no request, and errors as Producer.send: code 1 when the requester has left.
    """
    asked = question.properties
    if CORRELATION_ID not in asked or REPLY_TO not in asked or "CLUSTER" not in asked:
        raise ValueError(f"the message {question.message_id} is no request: it has no {CORRELATION_ID}")
    extra = {name: asked[name] for name in (CORRELATION_ID, REPLY_TO, TIME_TO_LIVE) if name in asked}
    message = OutgoingMessage(topic=reply_topic(asked["CLUSTER"]), body=body, properties=fields)
    prepared = producer.prepare(message, extra=extra | {MESSAGE_TYPE: "reply"}, kind=SendReplyMessageV2)
    return await producer.deliver(prepared)
