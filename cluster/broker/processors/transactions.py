"""Transaction requests: a producer commits or rolls back (37); an administrator resumes the check of a half message (323).

On commit the message itself becomes a record; in both cases an op message marks the transaction as ended. Unlike in RocketMQ, an
offset that is not a half message's is refused. Sources: EndTransactionProcessor.java, AdminBrokerProcessor.resumeCheckHalfMessage
(RocketMQ 4.9.8).
"""

from attrs import define, frozen

from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.roles.gate import Gate, gated
from twinlog.cluster.broker.send.acks import CODES, TransferService, refusal, wait_until_safe, waits
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.transactions.records import PRODUCER_GROUP, committed, op_message, resumed
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.broker_admin import ResumeCheckHalfMessage
from twinlog.cluster.remoting.headers.messages import EndTransaction
from twinlog.cluster.remoting.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, Message
from twinlog.store.record.properties import WAIT


@frozen(eq=False)
class _Stored:
    """Sends a success after the wait for disk and slaves, also when that failed: the message is stored."""

    request: Request

    def answer(self, frames: list[bytes]) -> None:
        self.request.reply(Reply())

    def refuse(self, frames: list[bytes], status: PutStatus, reason: str) -> None:
        self.request.reply(Reply())


@define(eq=False)
class TransactionProcessor:
    """Ends of transactions."""

    settings: Settings
    store: MessageStore
    transfer: TransferService
    gate: Gate

    @gated
    def end_transaction(self, header: EndTransaction, request: Request) -> Reply | None:
        """End a transaction, usually oneway. None: still unknown, the producer will be asked; or answered later."""
        if self.store.config.is_slave:
            raise RequestError(ResponseCode.SLAVE_NOT_AVAILABLE, "a slave cannot end transactions")
        if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return None
        half = self._find(header)
        wait = half.properties.get(WAIT, "true").lower() == "true"
        commits = header.commit_or_rollback == TRANSACTION_COMMIT
        if commits and wait and (why := refusal(self.store, self.transfer)) is not None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, why)  # The half message stays, and its producer is asked.
        end_offset = self._commit(half) if commits else 0
        op = op_message(half.queue_id, half.queue_offset, self.settings.store_host, self.store.now_ms())
        self.store.put([op])  # If this fails, the producer is asked again.
        if end_offset and wait and waits(self.store):
            if not request.command.is_oneway:
                wait_until_safe(self.store, self.transfer, end_offset, _Stored(request), b"")
            return None
        return Reply()

    def _find(self, header: EndTransaction) -> Message:
        """Return the half message of the request. Raises RequestError if another one, or none, is there."""
        if header.commit_log_offset >= self.store.max_offset:
            self.store.commit_pending()  # It may still be in a write buffer.
        half = shared.read_message(self.store, header.commit_log_offset, check_crc=True)
        if half is None or half.topic != HALF_TOPIC:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if half.properties.get(PRODUCER_GROUP) != header.producer_group:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        return half

    def _commit(self, half: Message) -> int:
        """Store the message; return the end offset of its record. Raises RequestError."""
        try:
            message = committed(half, self.store.delays_ms, self.store.now_ms())
        except ValueError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        (result,) = self.store.put([message])
        if result.status is not PutStatus.PUT_OK:
            remark = f"the message was not stored: {self.store.why_not_writable or result.status.value}"
            raise RequestError(CODES[result.status], remark)
        return result.end_offset

    @gated
    def resume_check_half_message(self, header: ResumeCheckHalfMessage, request: Request) -> Reply:
        """Append a copy of the half message with its checks set to zero."""
        half = self._find_resumed(header.msg_id or "")
        result = self.store.put([resumed(half)])[0]
        if result.status is not PutStatus.PUT_OK:
            raise _failed(f"the store refuses it: {result.status.value}")
        return Reply()

    def _find_resumed(self, message_id: str) -> Message:
        if len(message_id) not in _ID_LENGTHS or not message_id.isascii() or not message_id.isalnum():
            raise _failed("msgId is not an offset message id: 32 hexadecimal digits, or 56 with IPv6")
        try:
            offset = int(message_id[-16:], 16)
        except ValueError:
            offset = -1
        half = shared.read_message(self.store, offset) if 0 <= offset < 1 << 63 else None
        if half is None:
            raise _failed("there is no message with this id here")
        if half.topic not in (HALF_TOPIC, CHECK_MAX_TIME_TOPIC):
            raise _failed(f"it belongs to topic {half.topic} and is not a half message")
        return half


_ID_LENGTHS = (32, 56)  # Of IPv4 and IPv6 hosts; the last 16 digits are the offset in the log.


def _failed(why: str) -> RequestError:
    remark = f"Put message back to {HALF_TOPIC} failed: {why}."
    return RequestError(ResponseCode.SYSTEM_ERROR, remark)
