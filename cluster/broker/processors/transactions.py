"""Transaction requests: a producer commits or rolls back (37); an administrator has a half message checked again (323).

On commit the message itself becomes a record; in both cases an op message says that the transaction has ended. Other than in
RocketMQ, what is no half message is refused. Sources: EndTransactionProcessor.java, AdminBrokerProcessor.resumeCheckHalfMessage
(RocketMQ 4.9.8).
"""

from attrs import frozen

from twinlog.cluster.broker.roles.gate import gated
from twinlog.cluster.broker.send.acks import CODES, refusal, wait_until_safe, waits
from twinlog.cluster.broker.transactions.records import PRODUCER_GROUP, committed, op_message, resumed
from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.broker_admin import ResumeCheckHalfMessage
from twinlog.cluster.remoting.headers.messages import EndTransaction
from twinlog.cluster.remoting.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.store.errors import MessageFormatError
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.record.message import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, Message, decode_message, host_bytes
from twinlog.store.record.properties import WAIT


@frozen(eq=False)
class _Stored:
    """Answers success once disk and replicas were waited for: what is not as safe as it should be is stored all the same."""

    request: Request

    def answer(self, frames: list[bytes]) -> None:
        self.request.reply(Reply(ext=None))

    def refuse(self, frames: list[bytes], status: PutStatus, reason: str) -> None:
        self.request.reply(Reply(ext=None))


@gated
def end_transaction(broker: BrokerParts, header: EndTransaction, request: Request) -> Reply | None:
    """Producers ask oneway. None: nothing is known yet, the producer will be asked; or the answer comes later."""
    if broker.is_slave:
        raise RequestError(ResponseCode.SLAVE_NOT_AVAILABLE, "a slave cannot end transactions")
    if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
        return None
    half = _find(broker, header)
    wait = half.properties.get(WAIT, "true").lower() == "true"
    commits = header.commit_or_rollback == TRANSACTION_COMMIT
    if commits and wait and (why := refusal(broker.store, broker.ha.group_transfer)) is not None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, why)  # The half message stays, its producer will be asked.
    end_offset = _commit(broker, half) if commits else 0
    op = op_message(half.queue_id, half.queue_offset, host_bytes(broker.address), broker.now_ms())
    broker.store.put([op])  # If this fails, the producer is asked again.
    if end_offset and wait and waits(broker.store):
        if not request.command.is_oneway:
            wait_until_safe(broker.store, broker.ha.group_transfer, end_offset, _Stored(request), b"")
        return None
    return Reply(ext=None)


def _find(broker: BrokerParts, header: EndTransaction) -> Message:
    """The half message, if it is the one that is meant. Raises RequestError."""
    if header.commit_log_offset >= broker.store.max_offset:
        broker.store.commit_pending()  # It may still lie in a buffer.
    record = broker.store.message_at(header.commit_log_offset)
    try:
        half = decode_message(record) if record is not None else None
    except MessageFormatError:
        half = None
    if half is None or half.topic != HALF_TOPIC:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
    if half.properties.get(PRODUCER_GROUP) != header.producer_group:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    if half.queue_offset != header.tran_state_table_offset:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    return half


def _commit(broker: BrokerParts, half: Message) -> int:
    """Where the record of the message ends. Raises RequestError when it cannot be stored."""
    try:
        message = committed(half, broker.store.delays_ms, broker.now_ms())
    except ValueError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
    (result,) = broker.store.put([message])
    if result.status is not PutStatus.PUT_OK:
        remark = f"the message was not stored: {broker.store.why_not_writable or result.status.value}"
        raise RequestError(CODES[result.status], remark)
    return result.end_offset


_ID_LENGTHS = (32, 56)  # Of IPv4 and IPv6 hosts; the last 16 digits are the place in the log.


@gated
def resume_check_half_message(broker: BrokerParts, header: ResumeCheckHalfMessage, request: Request) -> Reply:
    """Puts a copy of the half message behind the others, with no check counted yet."""
    half = _find_resumed(broker, header.msg_id or "")
    result = broker.store.put([resumed(half)])[0]
    if result.status is not PutStatus.PUT_OK:
        raise _failed(f"the store does not take it, {result.status.value}")
    return Reply(ext=None)


def _find_resumed(broker: BrokerParts, message_id: str) -> Message:
    if len(message_id) not in _ID_LENGTHS or not message_id.isascii() or not message_id.isalnum():
        raise _failed("msgId is no offset message id: 32 hexadecimal digits, or 56 with IPv6")
    try:
        offset = int(message_id[-16:], 16)
        record = broker.store.message_at(offset) if offset < 1 << 63 else None
        half = decode_message(record, check_crc=False) if record is not None else None
    except (ValueError, MessageFormatError):
        half = None
    if half is None:
        raise _failed("there is no message with this id here")
    if half.topic not in (HALF_TOPIC, CHECK_MAX_TIME_TOPIC):
        raise _failed(f"it belongs to topic {half.topic}, and is no half message")
    return half


def _failed(why: str) -> RequestError:
    remark = f"Put message back to {HALF_TOPIC} failed: {why}."
    return RequestError(ResponseCode.SYSTEM_ERROR, remark)


HANDLERS = (
    end_transaction,
    resume_check_half_message,
)
