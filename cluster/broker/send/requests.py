"""Send requests, checked and turned into messages to store: topic, queue, properties, and the body of a batch.

The body of a batch request is a sequence of messages, big endian:

    i32 size of this message | i32 magic, 0 | i32 CRC, 0 | i32 flag | i32 n, n bytes body | i16 n, n bytes properties

This is on the path of every message. Sources: SendMessageProcessor.asyncSendMessage, handleRetryAndDLQ,
AbstractSendMessageProcessor.msgCheck, MessageDecoder.encodeMessages (RocketMQ 4.9.8).
"""

import random
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from attrs import define, field

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.delay.records import delayed
from twinlog.cluster.broker.roles.forward import FROM
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.send.properties import SendProperties
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig, SubscriptionGroupManager
from twinlog.cluster.broker.tables.topics import TopicConfig, TopicConfigManager
from twinlog.cluster.broker.transactions.records import HALF_QUEUE_ID, half_properties, is_transaction
from twinlog.cluster.remoting import names
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.header_fields import decode_header
from twinlog.cluster.remoting.headers.messages import SendBatchMessage, SendMessage, SendMessageV2
from twinlog.cluster.remoting.route import PERM_WRITE
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import TRANSACTION_MASK, host_bytes
from twinlog.store.record.properties import (
    CLUSTER,
    DELAY,
    DISPATCH,
    WAIT,
    format_properties,
    parse_properties,
    tags_code,
)


def answer_fields(config: BrokerConfig) -> dict[str, str]:
    """Fields of every response to a producer, also of refusals: the Java client does not check that they are there."""
    return {"MSG_REGION": config.region_id, "TRACE_ON": str(config.trace_on).lower()}


HEADERS: dict[int, type[SendMessage]] = {
    RequestCode.SEND_MESSAGE: SendMessage,
    RequestCode.SEND_MESSAGE_V2: SendMessageV2,
    RequestCode.SEND_BATCH_MESSAGE: SendBatchMessage,
}
MULTI_TAG = 2  # sys_flag bit.
SEND_V2 = int(RequestCode.SEND_MESSAGE_V2)
_KEPT_QUEUE_ID_DIGITS = 4
_QUEUE_ID_DIGITS_MAX = 9
_SYS_FLAGS = {str(number): number for number in range(1 << 11)}
_BORN_DIGITS_MAX = 18  # An i64 may have more digits; a time in ms does not.
_new_tuple: Any = tuple.__new__  # Twice as fast as the NamedTuple's constructor.
_RETRY_MAX_SINCE_VERSION = 121  # V3_4_9: maxReconsumeTimes of older clients is ignored.


def retries_max(group: SubscriptionGroupConfig, asked: int | None, version: int) -> int:
    """Return how often a message is retried: as its client asks or, without that, as its group is configured."""
    return asked if asked is not None and version >= _RETRY_MAX_SINCE_VERSION else group.retry_times_max


class _QueueIds(dict[str, int]):
    """Queue ids by their text, which are parsed once: those of few digits. KeyError for what is no plain number."""

    def __missing__(self, text: str) -> int:
        if text.isdecimal() and text.isascii() and len(text) <= _QUEUE_ID_DIGITS_MAX:
            number = int(text)
            if len(text) <= _KEPT_QUEUE_ID_DIGITS:
                self[text] = number
            return number
        raise KeyError(text)


_QUEUE_IDS = _QueueIds()


class Send(NamedTuple):
    """A checked request. `queue_id` is the client's; a delayed message is stored in a queue of the schedule topic.

    The command of one that was read by a template has no ext, and the frame as its body, see templates.py.
    """

    command: RemotingCommand
    message: PutMessage
    queue_id: int
    wait: bool


@define(eq=False)
class SendRequests:
    """Reads the requests of a broker's producers."""

    settings: Settings
    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    stats: BrokerStatsManager
    gate: Gate
    properties: SendProperties = field(init=False)
    _store_host: bytes = field(init=False)
    restricted: bool = field(init=False)  # Sends may be refused by permission or start time.

    def __attrs_post_init__(self) -> None:
        self._read_settings()
        self.settings.on_change.append(self._read_settings)

    def _read_settings(self) -> None:
        config = self.settings.config
        self.properties = SendProperties(config.broker_cluster_name)
        self._store_host = self.settings.store_host
        self.restricted = bool(config.start_accept_send_request_timestamp) or not config.broker_permission & PERM_WRITE

    def read_plain(self, connection: Connection, command: RemotingCommand) -> Send | None:
        """Fast path for most messages, three times as fast as read(); None when read() is needed."""
        ext = command.ext
        if command.code != SEND_V2 or ext is None or self.restricted:
            return None
        try:
            topic = self.topics.table[ext["b"]]
            name, queue_id = topic.name, _QUEUE_IDS[ext["e"]]
            stored = self.properties.rewrite(ext["i"])
            born, sys_flag, flag, reconsume_times = ext["g"], ext["f"], ext["h"], ext.get("j", "0")
        except KeyError:
            return None
        if (
            queue_id >= topic.write_queues
            or name in names.FORBIDDEN_TO_SEND
            or name.startswith("%")
            or topic.filter_type == "MULTI_TAG"
            or stored.special
            or flag != "0"
            or ext.get("m", "false") != "false"
            or reconsume_times != "0"
            or not (born.isdecimal() and born.isascii() and len(born) <= _BORN_DIGITS_MAX)
        ):
            return None
        try:
            sys_flag_bits = _SYS_FLAGS[sys_flag]
        except KeyError:
            return None
        message = _new_tuple(
            PutMessage,
            (
                name,
                queue_id,
                command.body,
                stored.raw,
                0,
                sys_flag_bits,
                int(born),
                self.born_host(connection, command) if FROM in ext else connection.remote_host,
                self._store_host,
                0,
                0,
                stored.tags_code,
            ),
        )
        send: Send = _new_tuple(Send, (command, message, queue_id, stored.wait))
        return send

    def read(self, connection: Connection, command: RemotingCommand) -> Send | None:
        """Check a request and make its message; None for a batch. Raises RequestError."""
        header = decode_header(HEADERS[command.code], command.ext)
        if header.batch or command.code == RequestCode.SEND_BATCH_MESSAGE:
            return None
        topic = self.topics.table.get(header.topic)
        if topic is None or header.topic in names.FORBIDDEN_TO_SEND or not 0 <= header.queue_id < topic.write_queues:
            topic = self.admit(connection, header)
        name, queue_id, reconsume_times = topic.name, header.queue_id, header.reconsume_times or 0
        if queue_id < 0:
            queue_id = random.randrange(max(1, topic.write_queues))
        self.check_broker(topic)
        if name.startswith(names.RETRY_PREFIX):
            topic, queue_id, given_up = self._retry_target(topic, queue_id, header, command.version)
            name = topic.name
        else:
            given_up = False
        stored = self.properties.rewrite(header.properties or "")
        raw, code, asked_queue = stored.raw, stored.tags_code, queue_id
        if stored.special:
            retried = reconsume_times > 0
            name, queue_id, raw, code = self._special(name, queue_id, header.properties or "", given_up, retried)
        sys_flag = header.sys_flag | MULTI_TAG if topic.filter_type == "MULTI_TAG" else header.sys_flag
        if stored.special and (name == names.HALF_TOPIC or reconsume_times > 0):
            sys_flag &= ~TRANSACTION_MASK  # A record marked as prepared is not put into a queue.
        message = PutMessage(
            name,
            queue_id,
            command.body,
            raw,
            header.flag,
            sys_flag,
            header.born_timestamp,
            self.born_host(connection, command),
            self._store_host,
            reconsume_times,
            0,
            code,
        )
        return Send(command, message, asked_queue, stored.wait)

    def check_broker(self, topic: TopicConfig) -> None:
        """Raises RequestError while this broker accepts no messages."""
        config = self.settings.config
        accepts_from = config.start_accept_send_request_timestamp
        if accepts_from and self.store.now_ms() < accepts_from:
            remark = f"broker unable to service, until {accepts_from} (ms since 1970)"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        if topic.order and not config.broker_permission & PERM_WRITE:
            remark = f"the broker[{self.settings.address}] sending message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark)

    def admit(self, connection: Connection, header: SendMessage) -> TopicConfig:
        """Return the topic of a request, created if that is allowed. Raises RequestError."""
        if fault := names.topic_fault(header.topic):
            raise RequestError(ResponseCode.SYSTEM_ERROR, fault)
        if header.topic in names.FORBIDDEN_TO_SEND:
            remark = f"Sending message to topic[{header.topic}] is forbidden."
            raise RequestError(ResponseCode.NO_PERMISSION, remark)
        topic = self.topics.create_in_send(
            header.topic,
            header.default_topic,
            header.default_topic_queue_nums,
            header.unit_mode,
            connection.remote_address,
        )
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! See `twinlog topic` or mqadmin updateTopic."
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if header.queue_id >= max(topic.read_queues, topic.write_queues):
            remark = (
                f"request queueId[{header.queue_id}] is illegal, topic {topic.name} has {topic.write_queues} write and "
                f"{topic.read_queues} read queues on this broker, producer: {connection.remote_address}"
            )
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        return topic

    def born_host(self, connection: Connection, command: RemotingCommand) -> bytes:
        """Return the address of the client that sent the message, also when another member forwarded it."""
        client = self.gate.original_client(connection, command)
        return connection.remote_host if client is None else host_bytes(client)

    def _retry_target(
        self, topic: TopicConfig, queue_id: int, header: SendMessage, version: int
    ) -> tuple[TopicConfig, int, bool]:
        """Return the target of a retried message: its topic, or the dead letter topic after its last retry."""
        group = topic.name.removeprefix(names.RETRY_PREFIX)
        config = self.groups.find(group)
        if config is None:
            remark = f"subscription group not exist, {group}"
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if (header.reconsume_times or 0) < retries_max(config, header.max_reconsume_times, version):
            return topic, queue_id, False
        dead = self.topics.create_in_send_back(names.dlq_topic(group), 1)
        if dead is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"group {group} has no valid name for a dead letter topic")
        self.stats.dead_letter(group, topic.name)
        return dead, 0, True

    def _special(
        self, topic: str, queue_id: int, text: str, given_up: bool, retried: bool
    ) -> tuple[str, int, bytes, int]:
        """Return topic, queue, properties and tags code of a delayed message or a half message."""
        properties = {name: value for name, value in parse_properties(text).items() if name not in DISPATCH}
        begins = is_transaction(properties) and not retried  # Clients before 4.6.1 keep the property on retries.
        if begins and self.settings.config.reject_transaction_message:
            remark = f"the broker[{self.settings.config.broker_ip1}] sending transaction message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark)
        properties[CLUSTER] = self.settings.config.broker_cluster_name
        puts = len(properties)
        wait = properties.pop(WAIT, None)
        code = tags_code(properties.get("TAGS", ""))
        if given_up:
            properties.pop(DELAY, None)
        with_wait = properties if wait is None else {**properties, WAIT: wait}
        if begins:
            half = format_properties(half_properties(topic, queue_id, with_wait))
            return names.HALF_TOPIC, HALF_QUEUE_ID, half.encode(), code
        try:
            late = delayed(topic, queue_id, with_wait, self.store.delays_ms, self.store.now_ms())
        except ValueError as error:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, f"DELAY is not a level: {error}") from error
        if late is not None:
            return late.topic, late.queue_id, format_properties(late.properties).encode(), late.tags_code
        return topic, queue_id, format_properties(properties, puts=puts).encode(), code


_HEAD, _PROPERTIES_SIZE = Struct(">iiiii"), Struct(">h")
assert (_HEAD.size, _PROPERTIES_SIZE.size) == (20, 2)


class InnerMessage(NamedTuple):
    """One message of a batch."""

    flag: int
    body: memoryview
    properties: bytes


def split_batch(body: bytes | memoryview) -> list[InnerMessage]:
    """Split a batch into its messages. Raises ValueError for a body that is not made of whole messages."""
    data = memoryview(body)
    messages: list[InnerMessage] = []
    head, properties_head, new = _HEAD.size, _PROPERTIES_SIZE.size, tuple.__new__
    at = 0
    try:
        while at < len(data):
            size, _magic, _crc, flag, body_size = _HEAD.unpack_from(data, at)
            body_end = at + head + body_size
            (properties_size,) = _PROPERTIES_SIZE.unpack_from(data, body_end)
            end = body_end + properties_head + properties_size
            if body_size < 0 or properties_size < 0 or end != at + size or end > len(data):
                raise ValueError(f"message {len(messages)} of the batch has sizes that are inconsistent")
            properties = bytes(data[body_end + properties_head : end])
            messages.append(new(InnerMessage, (flag, data[at + head : body_end], properties)))
            at = end
    except StructError as error:
        raise ValueError(f"message {len(messages)} of the batch ends early") from error
    return messages
