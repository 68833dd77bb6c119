"""Responses to producers: encoded when the message is appended, sent when disk and slaves hold it as configured.

Source: SendMessageProcessor.handlePutMessageResult; RocketMQ 4.9.8. Unlike there, a response other than SEND_OK gives the reason
in its remark.
"""

from typing import Protocol

from attrs import define, field

from twinlog.cluster.broker.tables.writer import TableWriter
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import decode, encode
from twinlog.cluster.remoting.connection import Connection
from twinlog.store.config import BrokerRole
from twinlog.store.log.offset_waiters import AckSink, Answers, PutStatus
from twinlog.store.message_store import MessageStore

WAITING_MAX = 100_000  # Waiting responses, half a kilobyte each.
_WORD = 4  # The length prefix, which decode() does not take.

CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.CREATE_MAPPED_FILE_FAILED: ResponseCode.SYSTEM_ERROR,
    PutStatus.OS_PAGECACHE_BUSY: ResponseCode.SYSTEM_ERROR,
    PutStatus.UNKNOWN_ERROR: ResponseCode.SYSTEM_ERROR,
}


class WaitService(Protocol):
    """The part of FlushService and GroupTransferService that a put uses."""

    def wait(self, end_offset: int, sink: AckSink, frame: bytes) -> None:
        """Answer the sink once the log is flushed or replicated up to `end_offset`, or refuse it."""


class TransferService(WaitService, Protocol):
    """GroupTransferService."""

    def wait_each(self, answers: Answers, sink: AckSink) -> None:
        """Do wait() for several messages at once."""

    @property
    def waiting(self) -> int:
        """Number of messages that wait."""

    @property
    def refusal(self) -> str | None:
        """Reason to refuse messages that ask to wait before they are stored; None: there is none."""


def _refused(frame: bytes, status: PutStatus, reason: str) -> bytes:
    """Return the same response with another code and the reason as its remark."""
    response = decode(frame[_WORD:])
    response.code, response.remark = CODES[status], reason
    return encode(response)


@define(eq=False)
class ProducerAcks:
    """Sends responses over one connection."""

    connection: Connection

    def answer(self, frames: list[bytes]) -> None:
        """Send the responses in one write."""
        self.connection.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def refuse(self, frames: list[bytes], status: PutStatus, reason: str) -> None:
        """Send the responses with the code of `status`: the messages are stored, but not flushed or replicated in time."""
        self.connection.write(b"".join(_refused(frame, status, reason) for frame in frames))


@define(eq=False)
class AcksOnceSaved:
    """Passes responses on once topics.json is written: a response confirms a topic that its message has created."""

    acks: AckSink
    topics: TableWriter

    def answer(self, frames: list[bytes]) -> None:
        """Pass the responses on once the file is written."""
        self.topics.when_saved(lambda: self.acks.answer(frames))

    def refuse(self, frames: list[bytes], status: PutStatus, reason: str) -> None:
        """Pass the refusal on once the file is written."""
        self.topics.when_saved(lambda: self.acks.refuse(frames, status, reason))


@define(eq=False)
class BothAcks:
    """Wait of one message for both flush and slaves; if both fail, the response has the slaves' status."""

    sink: AckSink
    frame: bytes
    _missing: int = field(default=2, init=False)
    _flush_refusal: tuple[PutStatus, str] | None = field(default=None, init=False)
    _replica_refusal: tuple[PutStatus, str] | None = field(default=None, init=False)

    def answer(self, frames: list[bytes]) -> None:
        """Count one wait as done."""
        self._settle()

    def refuse(self, frames: list[bytes], status: PutStatus, reason: str) -> None:
        """Count one wait as failed."""
        if status is PutStatus.FLUSH_DISK_TIMEOUT:
            self._flush_refusal = (status, reason)
        else:
            self._replica_refusal = (status, reason)
        self._settle()

    def _settle(self) -> None:
        self._missing -= 1
        assert self._missing >= 0, "answered twice"
        if self._missing:
            return
        refusal = self._replica_refusal or self._flush_refusal
        if refusal is None:
            self.sink.answer([self.frame])
        else:
            self.sink.refuse([self.frame], *refusal)


def waits(store: MessageStore) -> bool:
    """True when producers wait for disk or slaves before they get a response."""
    return store.config.broker_role is BrokerRole.SYNC_MASTER or store.flusher.is_synchronous


def refusal(store: MessageStore, transfer: TransferService) -> str | None:
    """Reason to refuse a message that asks to wait, when too few slaves are in sync; None: there is none."""
    return transfer.refusal if store.config.broker_role is BrokerRole.SYNC_MASTER else None


def is_crowded(store: MessageStore, transfer: TransferService) -> bool:
    """True when WAITING_MAX messages wait for disk or slaves, so that further ones are refused."""
    return waits(store) and store.flusher.waiting + transfer.waiting >= WAITING_MAX


def wait_until_safe(store: MessageStore, transfer: WaitService, end_offset: int, sink: AckSink, frame: bytes) -> None:
    """Answer `sink` with `frame` once the log below `end_offset` is flushed and replicated as the store is configured."""
    if store.config.broker_role is not BrokerRole.SYNC_MASTER:
        store.flusher.wait(end_offset, sink, frame)
    elif not store.flusher.is_synchronous:
        transfer.wait(end_offset, sink, frame)
    else:
        both = BothAcks(sink, frame)
        store.flusher.wait(end_offset, both, frame)
        transfer.wait(end_offset, both, frame)


def wait_until_each_safe(store: MessageStore, transfer: TransferService, answers: Answers, sink: AckSink) -> None:
    """Do wait_until_safe() for several messages."""
    if store.config.broker_role is BrokerRole.SYNC_MASTER and not store.flusher.is_synchronous:
        transfer.wait_each(answers, sink)  # The path of most messages that wait.
    else:
        for end_offset, frame in answers:
            wait_until_safe(store, transfer, end_offset, sink, frame)
