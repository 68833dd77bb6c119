"""36: a consumer sends back a message that it could not consume; it is retried later, or becomes a dead letter.

Source: SendMessageProcessor.asyncConsumerSendMsgBack, AbstractSendMessageProcessor (RocketMQ 4.9.8).
"""

import random
from collections.abc import Mapping

from attrs import define

from twinlog.cluster.broker.delay.records import delayed, put_again
from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.roles.gate import Gate, gated
from twinlog.cluster.broker.send.requests import retries_max
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig, SubscriptionGroupManager
from twinlog.cluster.broker.tables.topics import TopicConfigManager
from twinlog.cluster.remoting import names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.messages import ConsumerSendMsgBack
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.cluster.remoting.route import PERM_WRITE, UNIT_SUBSCRIPTION
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import Message
from twinlog.store.record.properties import DELAY, DISPATCH, WAIT, format_properties, tags_code

RETRY_TOPIC, ORIGIN_MESSAGE_ID = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
FIRST_RETRY_LEVEL = 3  # 10 s; one level more for each further retry.


@define(eq=False)
class SendBackProcessor:
    """Messages that consumers send back."""

    settings: Settings
    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    stats: BrokerStatsManager
    gate: Gate

    @gated
    def consumer_send_msg_back(self, header: ConsumerSendMsgBack, request: Request) -> Reply:
        """Answered when the new record is stored, without a wait for slaves."""
        group = self._check_group(header)
        if group.retry_queues <= 0:
            return Reply()  # The group has no retries: the message is dropped.
        message = shared.read_message(self.store, header.offset)
        if message is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        if is_dead(message, header, group, request.command.version):
            topic, queues, level = names.dlq_topic(header.group), 1, 0
        else:
            topic, queues = names.retry_topic(header.group), group.retry_queues
            level = header.delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
        self._create(topic, queues, UNIT_SUBSCRIPTION if header.unit_mode else 0)
        copy = sent_back(message, topic, random.randrange(queues), level, self.store.delays_ms, self.store.now_ms())
        status = self.store.put([copy])[0].status
        if status is not PutStatus.PUT_OK:
            raise RequestError(ResponseCode.SYSTEM_ERROR, status.value)
        origin = message.properties.get(RETRY_TOPIC) or message.topic
        self.stats.send_back(header.group, origin, 1)
        if topic == names.dlq_topic(header.group):
            self.stats.dead_letter(header.group, origin)
        return Reply()

    def _check_group(self, header: ConsumerSendMsgBack) -> SubscriptionGroupConfig:
        group = self.groups.find(header.group)
        if group is None:
            name = header.group[: names.GROUP_LENGTH_MAX]
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}")
        if not self.settings.config.broker_permission & PERM_WRITE:
            remark = f"the broker[{self.settings.address}] sending message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark)
        return group

    def _create(self, topic: str, queues: int, sys_flag: int) -> None:
        config = self.topics.create_in_send_back(topic, queues, sys_flag=sys_flag)
        if config is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"topic[{topic[:40]}...] not exist")
        if not config.perm & PERM_WRITE:
            raise RequestError(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")


def is_dead(message: Message, header: ConsumerSendMsgBack, group: SubscriptionGroupConfig, version: int) -> bool:
    """True after the last retry, or when the consumer asked for none."""
    return message.reconsume_times >= retries_max(group, header.max_reconsume_times, version) or header.delay_level < 0


def sent_back(
    message: Message, topic: str, queue_id: int, level: int, delays_ms: tuple[int, ...], now_ms: int
) -> PutMessage:
    """Make the new record: the old one with its history in the properties, delayed if `level` is above 0."""
    old = message.properties
    properties: Mapping[str, str] = {
        **{name: value for name, value in old.items() if name not in DISPATCH},
        RETRY_TOPIC: old.get(RETRY_TOPIC) or message.topic,
        WAIT: "false",
        DELAY: str(level),
        ORIGIN_MESSAGE_ID: old.get(ORIGIN_MESSAGE_ID) or message.message_id,
    }
    code = tags_code(old.get("TAGS", ""))
    if later := delayed(topic, queue_id, properties, delays_ms, now_ms):
        topic, queue_id, properties, code = later
    again = put_again(message, topic, queue_id, format_properties(properties).encode(), code)
    return again._replace(reconsume_times=message.reconsume_times + 1)
