"""Send requests: 10, 310 and, for batches, 320. The path of every message.

All sends of one read from a connection are appended and answered together. Sources: SendMessageProcessor,
AbstractSendMessageProcessor; RocketMQ 4.9.8. cluster/broker/send/requests.py turns a request into a message.
"""

import random
from collections.abc import Collection, Sequence

from attrs import define, field

from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.send.acks import (
    CODES,
    AcksOnceSaved,
    ProducerAcks,
    TransferService,
    is_crowded,
    refusal,
    wait_until_each_safe,
    wait_until_safe,
    waits,
)
from twinlog.cluster.broker.send.requests import HEADERS, MULTI_TAG, Send, SendRequests, answer_fields, split_batch
from twinlog.cluster.broker.send.templates import SendTemplates
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.tables.writer import TableWriter
from twinlog.cluster.remoting import names
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import ONEWAY, RemotingCommand, decode
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.dispatch import OVERLOAD
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.header_fields import decode_header
from twinlog.cluster.remoting.response_template import ResponseTemplate
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.log.offset_waiters import AckSink, PutStatus
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import TRANSACTION_MASK, message_id
from twinlog.store.record.properties import (
    CLUSTER,
    DELAY,
    PROPERTY_SEPARATOR,
    WAIT,
    format_properties,
    parse_properties,
    without_dispatch,
)
from twinlog.store.record.scan import stored_tags_code

SEND_CODES = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)

_REMARKS = {
    PutStatus.MESSAGE_ILLEGAL: "the message is illegal, maybe msg body or properties length not matched (limit 32767)",
    PutStatus.PROPERTIES_SIZE_EXCEEDED: "the message is illegal, its properties are longer than 32767 bytes.",
    PutStatus.CREATE_MAPPED_FILE_FAILED: "create mapped file failed, server is busy or broken.",
    PutStatus.SERVICE_NOT_AVAILABLE: "service not available now",
    PutStatus.OS_PAGECACHE_BUSY: "[REJECTREQUEST]system busy, start flow control for a while",
}


@define(eq=False)
class SendProcessor:
    """Appends messages of producers and answers them."""

    settings: Settings
    store: MessageStore
    requests: SendRequests
    transfer: TransferService
    topics_writer: TableWriter
    stats: BrokerStatsManager
    gate: Gate
    templates: SendTemplates = field(init=False)
    _store_host: bytes = field(init=False)
    _id_format: str = field(init=False)  # Of an offsetMsgId, for the message's place in the log.
    _ok: ResponseTemplate = field(init=False)
    _batch_ok: ResponseTemplate = field(init=False)
    _answer_fields: dict[str, str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.templates = SendTemplates(self.requests)
        self._read_settings()
        self.settings.on_change.append(self._read_settings)

    def _read_settings(self) -> None:
        self._store_host = self.settings.store_host
        self._id_format = f"{message_id(self._store_host, 0)[:-16]}%016X"
        self._answer_fields = answer_fields(self.settings.config)
        self._ok = self._answer_with(self._id_format)
        self._batch_ok = self._answer_with("%b")

    def _answer_with(self, ids: str) -> ResponseTemplate:
        names = {"msgId": ids, "queueId": "%d", "queueOffset": "%d"}
        return ResponseTemplate(ResponseCode.SUCCESS, None, names, self._answer_fields)

    def process(self, connection: Connection, commands: Sequence[RemotingCommand | Send]) -> None:
        """Append messages, and have them answered. Never waits. Some were read already, by a template."""
        if self.gate.state != "open":
            whole = [decode(each.command.body) if isinstance(each, Send) else each for each in commands]
            commands = [command for command in whole if not self._stopped(connection, command)]
        sends: list[Send] = []
        read_plain, read = self.requests.read_plain, self.requests.read
        for command in commands:
            if isinstance(command, Send):
                sends.append(command)
                continue
            try:
                send = read_plain(connection, command) or read(connection, command)
                if send is not None:
                    sends.append(send)
                else:
                    self._finish(connection, sends)
                    sends = []
                    self._process_batch(connection, command)
            except RequestError as error:
                self._refuse(connection, command, error.code, error.remark)
            except ValueError as error:  # A bad request does not stop the others of this read.
                self._refuse(connection, command, ResponseCode.SYSTEM_ERROR, str(error))
        self._finish(connection, sends)

    def _stopped(self, connection: Connection, command: RemotingCommand) -> bool:
        """True when the gate holds, forwards or refuses the request."""
        return self.gate.takes(connection, command, lambda: self.process(connection, [command]))

    def _finish(self, connection: Connection, sends: list[Send]) -> None:
        if sends and (refused := self._why_not_now()) is not None:
            for send in sends:
                if send.wait:
                    self._refuse(connection, send.command, *refused)
            sends = [send for send in sends if not send.wait]
        if not sends:
            return
        acks: AckSink = ProducerAcks(connection)
        if not self.topics_writer.is_saved:
            acks = self._once_saved(acks, {topic for send in sends for topic in _topics_of(send)})
        results = self.store.put([send.message for send in sends])
        at_once: list[bytes] = []
        later: list[tuple[int, bytes]] = []
        head, may_wait = self._ok.head, waits(self.store)
        for (command, _, queue_id, wait), (status, phy_offset, size, queue_offset, _) in zip(
            sends, results, strict=True
        ):
            if status is not PutStatus.PUT_OK:
                self._refuse_put(connection, command, status)
            elif not command.flag & ONEWAY:
                frame = head(command, (phy_offset, queue_id, queue_offset))
                if wait and may_wait:
                    later.append((phy_offset + size, frame))
                else:
                    at_once.append(frame)
        if later:
            wait_until_each_safe(self.store, self.transfer, later, acks)
        if at_once:
            acks.answer(at_once)

    def _why_not_now(self) -> tuple[ResponseCode, str] | None:
        """Reason to refuse messages that ask to wait before they are stored; None: there is none."""
        if (why := refusal(self.store, self.transfer)) is not None:
            return ResponseCode.SYSTEM_ERROR, why
        return (ResponseCode.SYSTEM_BUSY, OVERLOAD) if is_crowded(self.store, self.transfer) else None

    def _process_batch(self, connection: Connection, command: RemotingCommand) -> None:
        """Append a batch: one record for each message, one response. Raises RequestError."""
        header = decode_header(HEADERS[command.code], command.ext)
        topic = self.requests.admit(connection, header)
        if topic.name.startswith(names.RETRY_PREFIX):
            remark = f"batch request does not support retry group {topic.name}"
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
        self.requests.check_broker(topic)
        properties = parse_properties(without_dispatch((header.properties or "").encode()).decode())
        if header.sys_flag & TRANSACTION_MASK or properties.get(DELAY, "0") != "0":
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be delayed or be part of a transaction")
        if len(command.body) > self.store.config.max_message_size:
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
        properties[CLUSTER] = self.settings.config.broker_cluster_name
        shared = format_properties(properties).encode()
        messages, born_host = [], self.requests.born_host(connection, command)
        sys_flag = header.sys_flag | MULTI_TAG if topic.filter_type == "MULTI_TAG" else header.sys_flag
        name, born_timestamp, times = topic.name, header.born_timestamp, header.reconsume_times or 0
        store_host, separator = self._store_host, PROPERTY_SEPARATOR.encode()
        for flag, body, own in inner:
            own = without_dispatch(own)
            raw = own + separator + shared if own and not own.endswith(separator) else own + shared
            code = stored_tags_code(raw, 0, len(raw))
            message = (name, queue_id, body, raw, flag, sys_flag, born_timestamp, born_host, store_host, times, 0, code)
            # tuple's own constructor takes half the time of the generated one.
            messages.append(tuple.__new__(PutMessage, message))
        results = self.store.put(messages, together=True)
        if results[0].status is not PutStatus.PUT_OK:
            self._refuse_put(connection, command, results[0].status)
            return
        self.stats.batch_put(topic.name, queue_id, len(results))
        if not command.is_oneway:
            ids = ",".join(self._id_format % result.phy_offset for result in results).encode()
            frame = self._batch_ok.head(command, (ids, queue_id, results[0].queue_offset))
            acks = self._once_saved(ProducerAcks(connection), [topic.name])
            if wait and waits(self.store):
                wait_until_safe(self.store, self.transfer, results[-1].end_offset, acks, frame)
            else:
                acks.answer([frame])

    def _once_saved(self, acks: AckSink, topics: Collection[str]) -> AckSink:
        """Return a sink that waits until new topics are on disk, if there are any."""
        writer = self.topics_writer
        return acks if writer.holds(topics) else AcksOnceSaved(acks, writer)

    def _refuse_put(self, connection: Connection, command: RemotingCommand, status: PutStatus) -> None:
        remark = _REMARKS.get(status, status.name)
        if status in (PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.CREATE_MAPPED_FILE_FAILED):
            why = self.store.why_not_writable or "the store takes no messages"
            if self.store.config.is_slave:
                why = "this broker is a slave; producers write to the master"
            remark = f"{remark}: {why}"
        code = ResponseCode.SYSTEM_BUSY if status is PutStatus.OS_PAGECACHE_BUSY else CODES[status]
        self._refuse(connection, command, code, remark)

    def _refuse(self, connection: Connection, command: RemotingCommand, code: int, remark: str) -> None:
        if not command.is_oneway:
            # The Java client does not check that the map is there.
            response = RemotingCommand.response_to(command, code, remark=remark, ext=dict(self._answer_fields))
            connection.send(response)


def _topics_of(send: Send) -> tuple[str, ...]:
    """Return the topic that the client named, and the one that the message was stored in."""
    ext = send.command.ext or {}
    return send.message.topic, ext.get("b", ""), ext.get("topic", "")
