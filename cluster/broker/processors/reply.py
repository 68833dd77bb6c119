"""324, 325: reply of a consumer to a request message, pushed to the producer (326) and stored in the log.

Source: ReplyMessageProcessor.java (RocketMQ 4.9.8). The producer waits for the push; the copy in the log
(storeReplyMessageEnable) is for later inspection, so nothing waits for its flush or its slaves.
"""

import random

import structlog
from attrs import define

from twinlog.cluster.broker.peers.client_calls import ClientCalls
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.send.requests import SendRequests, answer_fields
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.tables.clients import ProducerManager
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingError, RequestError
from twinlog.cluster.remoting.headers import messages as h
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.store.log.commit_log import PutMessage, PutResult
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import TRANSACTION_MASK, message_id
from twinlog.store.record.properties import format_properties, parse_properties, without_dispatch
from twinlog.store.record.scan import properties_tags_code

log = structlog.get_logger(__name__)

REPLY_TO_CLIENT, PUSH_REPLY_TIME = "REPLY_TO_CLIENT", "PUSH_REPLY_TIME"
CLIENT_ID_SHOWN_MAX = 255


@define(eq=False)
class ReplyProcessor:
    """Replies of consumers to requests of producers."""

    settings: Settings
    store: MessageStore
    requests: SendRequests
    producers: ProducerManager
    client_calls: ClientCalls
    gate: Gate

    async def send_reply_message(self, header: h.SendReplyMessage, request: Request) -> Reply | None:
        """Answered once the producer has the reply; code 1 when it cannot be delivered."""
        return await self._reply(header, request)

    async def send_reply_message_v2(self, header: h.SendReplyMessageV2, request: Request) -> Reply | None:
        """Handle a reply with the short field names of V2."""
        return await self._reply(header, request)

    async def _reply(self, header: h.SendMessage, request: Request) -> Reply:
        fields = answer_fields(self.settings.config)
        try:
            topic = self.requests.admit(request.connection, header)
            self.requests.check_broker(topic)
            fault = await self._push(header, request)
        except RequestError as error:
            return Reply(error.code, error.remark, ext=fields)
        queue_id = header.queue_id if header.queue_id >= 0 else random.randrange(max(1, topic.write_queues))
        placed = self._store(topic, queue_id, header, request)
        msg_id = message_id(self.settings.store_host, placed.phy_offset) if placed is not None else "0"
        fields |= {
            "msgId": msg_id,
            "queueId": str(queue_id),
            "queueOffset": str(placed.queue_offset if placed is not None else 0),
        }
        return Reply(ResponseCode.SYSTEM_ERROR if fault else ResponseCode.SUCCESS, fault or None, ext=fields)

    async def _push(self, header: h.SendMessage, request: Request) -> str:
        """Push the reply to the producer; return the error text, empty for success. Raises RequestError when too many wait."""
        properties = parse_properties(header.properties or "")
        client_id = properties.get(REPLY_TO_CLIENT)
        if not client_id:
            return f"reply message properties[{REPLY_TO_CLIENT}] is null"
        shown = client_id[:CLIENT_ID_SHOWN_MAX]
        connection = self.producers.find(client_id)
        if connection is None:
            return f"push reply message fail, channel of <{shown}> not found."
        properties[PUSH_REPLY_TIME] = str(self.store.now_ms())
        push = h.PushReplyMessageToClient(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=request.connection.remote_address,
            store_host=self.settings.address,
            store_timestamp=self.store.now_ms(),
            properties=format_properties(properties),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )
        command = push.command(bytes(request.body))
        try:
            answer = await self.client_calls.call(connection, command)
        except RequestError:
            raise
        except RemotingError as error:
            log.warning("a reply did not reach its producer", client=shown, why=str(error))
            return f"push reply message to {shown} fail: {error}"
        return "" if answer.code == ResponseCode.SUCCESS else f"push reply message to {shown} fail: {answer.remark}"

    def _store(self, topic: TopicConfig, queue_id: int, header: h.SendMessage, request: Request) -> PutResult | None:
        """Store a reply; None when replies are not stored."""
        if (
            not self.settings.config.store_reply_message_enable
            or self.store.config.is_slave
            or self.gate.state != "open"
        ):
            return None
        raw = without_dispatch((header.properties or "").encode())
        message = PutMessage(
            topic=topic.name,
            queue_id=queue_id,
            body=bytes(request.body),
            properties=raw,
            flag=header.flag,
            sys_flag=header.sys_flag & ~TRANSACTION_MASK,
            born_timestamp=header.born_timestamp,
            born_host=request.connection.remote_host,
            store_host=self.settings.store_host,
            reconsume_times=header.reconsume_times or 0,
            tags_code=properties_tags_code(raw),
        )
        (result,) = self.store.put([message])
        if result.status is not PutStatus.PUT_OK:
            log.warning("a reply was not stored", topic=topic.name, why=result.status.value)
            return None
        return result
