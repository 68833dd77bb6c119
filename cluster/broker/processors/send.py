"""Requests that bring messages: 10, 310 and, for batches, 320. The path that every message takes.

All sends that one read brought are appended together and answered together. Sources: SendMessageProcessor,
AbstractSendMessageProcessor; RocketMQ 4.9.8.
"""

import random
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from attrs import define, field

from cluster.broker import names
from cluster.broker.acks import CODES, AcksOnceSaved, ProducerAcks, is_crowded, refusal, wait_until_safe, waits
from cluster.broker.batch_body import split_batch
from cluster.broker.delay import delayed
from cluster.broker.forward import FROM
from cluster.broker.send_checks import admit, answer_fields, check_broker
from cluster.broker.send_properties import SendProperties
from cluster.broker.topic_config import PERM_WRITE, TopicConfig
from cluster.broker.transaction import HALF_QUEUE_ID, half_properties, is_transaction
from cluster.remoting.codes import RequestCode, ResponseCode
from cluster.remoting.command import JSON, ONEWAY, RemotingCommand, encode
from cluster.remoting.connection import Connection
from cluster.remoting.dispatch import OVERLOAD
from cluster.remoting.errors import RequestError
from cluster.remoting.header_fields import decode_header
from cluster.remoting.headers.messages import SendBatchMessage, SendMessage, SendMessageV2
from store.commit_log import PutMessage
from store.config import BrokerRole
from store.message import TRANSACTION_MASK, host_bytes, message_id
from store.offset_waiters import AckSink, PutStatus
from store.properties import (
    CLUSTER,
    DELAY,
    DISPATCH,
    PROPERTY_SEPARATOR,
    WAIT,
    format_properties,
    parse_properties,
    tags_code,
    without_dispatch,
)
from store.record_scan import properties_tags_code

if TYPE_CHECKING:
    from cluster.broker.broker import Broker

SEND_CODES = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)

_HEADERS: dict[int, type[SendMessage | SendMessageV2]] = {
    RequestCode.SEND_MESSAGE: SendMessage,
    RequestCode.SEND_MESSAGE_V2: SendMessageV2,
    RequestCode.SEND_BATCH_MESSAGE: SendBatchMessage,
}
_MULTI_TAG = 2  # sys_flag bit.
_SEND_V2 = int(RequestCode.SEND_MESSAGE_V2)
_QUEUE_IDS = {str(number): number for number in range(1024)}
_SYS_FLAGS = {str(number): number for number in range(1 << 11)}
_BORN_DIGITS_MAX = 18  # Of an i64 there are more, of a time in ms there are not.
_new_tuple: Any = tuple.__new__  # Makes a NamedTuple in half the time that its own constructor takes.
_RETRY_MAX_SINCE_VERSION = 121  # V3_4_9: older clients' maxReconsumeTimes means nothing.
_REMARKS = {
    PutStatus.MESSAGE_ILLEGAL: "the message is illegal, maybe msg body or properties length not matched (limit 32767)",
    PutStatus.PROPERTIES_SIZE_EXCEEDED: "the message is illegal, its properties are longer than 32767 bytes.",
    PutStatus.CREATE_MAPPED_FILE_FAILED: "create mapped file failed, server is busy or broken.",
    PutStatus.SERVICE_NOT_AVAILABLE: "service not available now",
    PutStatus.OS_PAGECACHE_BUSY: "[REJECTREQUEST]system busy, start flow control for a while",
}


class _Send(NamedTuple):
    """A request that may be appended. Queue ids are as the client knows them: a delayed message lies in another one."""

    command: RemotingCommand
    message: PutMessage
    queue_id: int
    wait: bool


@define(eq=False)
class SendProcessor:
    """Takes messages for one broker."""

    broker: "Broker"
    _properties: SendProperties = field(init=False)
    _store_host: bytes = field(init=False)
    _id_prefix: str = field(init=False)  # Of offsetMsgIds.
    _ok: str = field(init=False)  # The success answer with JSON header, to be filled in.
    _answer_fields: dict[str, str] = field(init=False)
    _restricted: bool = field(init=False)  # This broker does not take everything.

    def __attrs_post_init__(self) -> None:
        self._take_config()
        self.broker.on_config_change.append(self._take_config)

    def _take_config(self) -> None:
        config = self.broker.config
        self._properties = SendProperties(config.broker_cluster_name)
        self._store_host = host_bytes(self.broker.address)
        self._id_prefix = message_id(self._store_host, 0)[:-16]
        self._answer_fields = answer_fields(config)
        self._ok = _ok_template(self._answer_fields)
        self._restricted = bool(config.start_accept_send_request_timestamp) or not config.broker_permission & PERM_WRITE

    def process(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        """Append, and see to the answers. Never waits."""
        if self.broker.gate.state != "open":
            commands = [command for command in commands if not self._stopped(connection, command)]
        sends: list[_Send] = []
        for command in commands:
            try:
                send = self._prepare_plain(connection, command) or self._prepare(connection, command)
                if send is not None:
                    sends.append(send)
                else:
                    self._finish(connection, sends)
                    sends = []
                    self._process_batch(connection, command)
            except RequestError as error:
                self._refuse(connection, command, error.code, error.remark)
            except ValueError as error:  # Whatever is wrong with one request, the others of this read are fine.
                self._refuse(connection, command, ResponseCode.SYSTEM_ERROR, str(error))
        self._finish(connection, sends)

    def _stopped(self, connection: Connection, command: RemotingCommand) -> bool:
        """Whether the gate has it."""
        return self.broker.gate.takes(connection, command, lambda: self.process(connection, [command]))

    def _prepare_plain(self, connection: Connection, command: RemotingCommand) -> _Send | None:
        """What nearly every message needs, in a third of the time that _prepare takes; None when that is not enough."""
        ext = command.ext
        if command.code != _SEND_V2 or ext is None or self._restricted:
            return None
        try:
            topic = self.broker.topics.table[ext["b"]]
            name, queue_id = topic.name, _QUEUE_IDS[ext["e"]]
            stored = self._properties.rewrite(ext["i"])
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
                self._born_host(connection, command) if FROM in ext else connection.remote_host,
                self._store_host,
                0,
                0,
                stored.tags_code,
            ),
        )
        send: _Send = _new_tuple(_Send, (command, message, queue_id, stored.wait))
        return send

    def _prepare(self, connection: Connection, command: RemotingCommand) -> _Send | None:
        """Everything before the store; None for a batch. Raises RequestError."""
        header = decode_header(_HEADERS[command.code], command.ext)
        if header.batch or command.code == RequestCode.SEND_BATCH_MESSAGE:
            return None
        topic = self.broker.topics.table.get(header.topic)
        if topic is None or header.topic in names.FORBIDDEN_TO_SEND or not 0 <= header.queue_id < topic.write_queues:
            topic = admit(self.broker, connection, header)
        name, queue_id, reconsume_times = topic.name, header.queue_id, header.reconsume_times or 0
        if queue_id < 0:
            queue_id = random.randrange(max(1, topic.write_queues))
        check_broker(self.broker, topic)
        if name.startswith(names.RETRY_PREFIX):
            topic, queue_id, given_up = self._retry_target(topic, queue_id, header, command.version)
            name = topic.name
        else:
            given_up = False
        stored = self._properties.rewrite(header.properties or "")
        raw, code, asked_queue = stored.raw, stored.tags_code, queue_id
        if stored.special:
            retried = reconsume_times > 0
            name, queue_id, raw, code = self._special(name, queue_id, header.properties or "", given_up, retried)
        sys_flag = header.sys_flag | _MULTI_TAG if topic.filter_type == "MULTI_TAG" else header.sys_flag
        if stored.special and (name == names.HALF_TOPIC or reconsume_times > 0):
            sys_flag &= ~TRANSACTION_MASK  # A record that is marked as prepared would enter no queue.
        message = PutMessage(
            name,
            queue_id,
            command.body,
            raw,
            header.flag,
            sys_flag,
            header.born_timestamp,
            self._born_host(connection, command),
            self._store_host,
            reconsume_times,
            0,
            code,
        )
        return _Send(command, message, asked_queue, stored.wait)

    def _born_host(self, connection: Connection, command: RemotingCommand) -> bytes:
        """Where the message was born, though another member passed it on."""
        client = self.broker.gate.believes(connection, command)
        return connection.remote_host if client is None else host_bytes(client)

    def _retry_target(
        self, topic: TopicConfig, queue_id: int, header: SendMessage | SendMessageV2, version: int
    ) -> tuple[TopicConfig, int, bool]:
        """Where a retried message goes: its topic, or the dead letters once it was tried often enough."""
        group = topic.name.removeprefix(names.RETRY_PREFIX)
        config = self.broker.groups.find(group)
        if config is None:
            remark = f"subscription group not exist, {group}"
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        times_max = config.retry_times_max
        if version >= _RETRY_MAX_SINCE_VERSION and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        if (header.reconsume_times or 0) < times_max:
            return topic, queue_id, False
        dead = self.broker.topics.create_in_send_back(names.dlq_topic(group), 1)
        if dead is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"there can be no dead letter topic for group {group}")
        self.broker.stats.dead_letter(group, topic.name)
        return dead, 0, True

    def _special(
        self, topic: str, queue_id: int, text: str, given_up: bool, retried: bool
    ) -> tuple[str, int, bytes, int]:
        """Topic, queue, properties and tags code of a message with a delay or of the first half of a transaction."""
        properties = {name: value for name, value in parse_properties(text).items() if name not in DISPATCH}
        begins = is_transaction(properties) and not retried  # Clients before 4.6.1 leave the mark on what they retry.
        if begins and self.broker.config.reject_transaction_message:
            remark = f"the broker[{self.broker.config.broker_ip1}] sending transaction message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark)
        properties[CLUSTER] = self.broker.config.broker_cluster_name
        puts = len(properties)
        wait = properties.pop(WAIT, None)
        code = tags_code(properties.get("TAGS", ""))
        if given_up:
            properties.pop(DELAY, None)
        with_wait = properties if wait is None else {**properties, WAIT: wait}
        if begins:
            half = format_properties(half_properties(topic, queue_id, with_wait))
            return names.HALF_TOPIC, HALF_QUEUE_ID, half.encode(), code
        store = self.broker.store
        try:
            late = delayed(topic, queue_id, with_wait, store.delays_ms, store.now_ms())
        except ValueError as error:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, f"DELAY is no level: {error}") from error
        if late is not None:
            return late.topic, late.queue_id, format_properties(late.properties).encode(), late.tags_code
        return topic, queue_id, format_properties(properties, puts=puts).encode(), code

    def _finish(self, connection: Connection, sends: list[_Send]) -> None:
        if sends and (refused := self._why_not_now()) is not None:
            for send in sends:
                if send.wait:
                    self._refuse(connection, send.command, *refused)
            sends = [send for send in sends if not send.wait]
        if not sends:
            return
        acks: AckSink = ProducerAcks(connection)
        if not self.broker.topics_writer.is_level:
            acks = self._once_saved(acks, {topic for send in sends for topic in _topics_of(send)})
        results = self.broker.store.put([send.message for send in sends])
        at_once: list[bytes] = []
        prefix, success, waits = self._id_prefix, self._success, self._waits
        for (command, _, queue_id, wait), (status, phy_offset, size, queue_offset, _) in zip(
            sends, results, strict=True
        ):
            if status is not PutStatus.PUT_OK:
                self._refuse_put(connection, command, status)
            elif not command.flag & ONEWAY:
                frame = success(command, f"{prefix}{phy_offset:016X}", queue_id, queue_offset)
                if wait and waits:
                    self._answer_later(acks, phy_offset + size, frame)
                else:
                    at_once.append(frame)
        if at_once:
            acks.answer(at_once)

    def _why_not_now(self) -> tuple[ResponseCode, str] | None:
        """Why messages that ask to wait are refused before they are stored; None: they are not."""
        store, transfer = self.broker.store, self.broker.ha.group_transfer
        if (why := refusal(store, transfer)) is not None:
            return ResponseCode.SYSTEM_ERROR, why
        return (ResponseCode.SYSTEM_BUSY, OVERLOAD) if is_crowded(store, transfer) else None

    def _process_batch(self, connection: Connection, command: RemotingCommand) -> None:
        """A batch request: one record for each of its messages, one answer. Raises RequestError."""
        header = decode_header(_HEADERS[command.code], command.ext)
        topic = admit(self.broker, connection, header)
        if topic.name.startswith(names.RETRY_PREFIX):
            remark = f"batch request does not support retry group {topic.name}"
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
        check_broker(self.broker, topic)
        properties = parse_properties(without_dispatch((header.properties or "").encode()).decode())
        if header.sys_flag & TRANSACTION_MASK or properties.get(DELAY, "0") != "0":
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "a batch can neither be delayed nor be a transaction")
        if len(command.body) > self.broker.store.config.max_message_size:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, _REMARKS[PutStatus.MESSAGE_ILLEGAL])
        try:
            inner = split_batch(command.body)
        except ValueError as error:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        if not inner:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "a batch without messages")
        wait = properties.get(WAIT, "true").lower() == "true"
        if wait and (refused := self._why_not_now()) is not None:
            raise RequestError(*refused)
        queue_id = header.queue_id if header.queue_id >= 0 else random.randrange(max(1, topic.write_queues))
        properties[CLUSTER] = self.broker.config.broker_cluster_name
        shared = format_properties(properties).encode()
        messages, born_host = [], self._born_host(connection, command)
        for item in inner:
            own = without_dispatch(item.properties)
            separator = PROPERTY_SEPARATOR.encode() if own and not own.endswith(b"\x02") else b""
            raw = own + separator + shared
            messages.append(
                PutMessage(
                    topic.name,
                    queue_id,
                    item.body,
                    raw,
                    item.flag,
                    header.sys_flag | _MULTI_TAG if topic.filter_type == "MULTI_TAG" else header.sys_flag,
                    header.born_timestamp,
                    born_host,
                    self._store_host,
                    header.reconsume_times or 0,
                    0,
                    properties_tags_code(raw),
                )
            )
        results = self.broker.store.put(messages, together=True)
        if results[0].status is not PutStatus.PUT_OK:
            self._refuse_put(connection, command, results[0].status)
            return
        self.broker.stats.batch_put(topic.name, queue_id, len(results))
        if not command.is_oneway:
            ids = ",".join(f"{self._id_prefix}{result.phy_offset:016X}" for result in results)
            frame = self._success(command, ids, queue_id, results[0].queue_offset)
            acks = self._once_saved(ProducerAcks(connection), [topic.name])
            if wait and self._waits:
                self._answer_later(acks, results[-1].end_offset, frame)
            else:
                acks.answer([frame])

    def _once_saved(self, acks: AckSink, topics: Collection[str]) -> AckSink:
        """An answer that may wait for a topic's way to the disk."""
        writer = self.broker.topics_writer
        return acks if writer.holds(topics) else AcksOnceSaved(acks, writer)

    @property
    def _waits(self) -> bool:
        return waits(self.broker.store)

    def _answer_later(self, acks: AckSink, end_offset: int, frame: bytes) -> None:
        """Send the answer when disk and replicas are as far as this broker promises."""
        wait_until_safe(self.broker.store, self.broker.ha.group_transfer, end_offset, acks, frame)

    def _success(self, command: RemotingCommand, offset_id: str, queue_id: int, queue_offset: int) -> bytes:
        if command.serialize_type == JSON:
            header = (self._ok % (offset_id, queue_id, queue_offset, command.opaque)).encode()
            size = len(header)
            return b"%b%b%b" % ((size + 4).to_bytes(4), size.to_bytes(4), header)
        fields = {**self._answer_fields, "msgId": offset_id, "queueId": str(queue_id), "queueOffset": str(queue_offset)}
        return encode(RemotingCommand.response_to(command, ResponseCode.SUCCESS, ext=fields))

    def _refuse_put(self, connection: Connection, command: RemotingCommand, status: PutStatus) -> None:
        remark = _REMARKS.get(status, status.name)
        if status in (PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.CREATE_MAPPED_FILE_FAILED):
            remark = f"{remark}: {self._why_not_available()}"
        code = ResponseCode.SYSTEM_BUSY if status is PutStatus.OS_PAGECACHE_BUSY else CODES[status]
        self._refuse(connection, command, code, remark)

    def _why_not_available(self) -> str:
        store = self.broker.store
        if store.config.broker_role is BrokerRole.SLAVE:
            return "this broker is a slave; producers write to the master"
        return store.why_not_writable or "the store takes no messages"

    def _refuse(self, connection: Connection, command: RemotingCommand, code: int, remark: str) -> None:
        if not command.is_oneway:
            # The map must be there: the Java client reads it without looking.
            response = RemotingCommand.response_to(command, code, remark=remark, ext=dict(self._answer_fields))
            connection.send(response)


def _topics_of(send: _Send) -> tuple[str, ...]:
    """The topic that the client named, and the one that the message went to."""
    ext = send.command.ext or {}
    return send.message.topic, ext.get("b", ""), ext.get("topic", "")


def _ok_template(fields: dict[str, str]) -> str:
    """The JSON header of a success with %s for offsetMsgId and %d for queue id, queue offset and opaque."""
    marks = {"msgId": "@", "queueId": "@", "queueOffset": "@"}
    template = encode(RemotingCommand(ResponseCode.SUCCESS, 0, 1, {**fields, **marks}))[8:].decode().replace("%", "%%")
    for mark, value in (("msgId", "%s"), ("queueId", "%d"), ("queueOffset", "%d")):
        template = template.replace(f'"{mark}":"@"', f'"{mark}":"{value}"')
    return template.replace('"opaque":0', '"opaque":%d')
