"""Answers to producers, ready-made when their message is appended and sent when it is as safe as was asked.

Source: SendMessageProcessor.handlePutMessageResult; RocketMQ 4.9.8. Other than there, an answer that is not SEND_OK says why in
its remark.
"""

from typing import Protocol

from attrs import define, field

from twinlog.cluster.broker.tables.writer import TableWriter
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import decode, encode
from twinlog.cluster.remoting.connection import Connection
from twinlog.store.config import BrokerRole
from twinlog.store.log.offset_waiters import AckSink, PutStatus
from twinlog.store.message_store import MessageStore

WAITING_MAX = 100_000  # Answers that wait, half a kilobyte each.
_WORD = 4  # The length word that decode() does without.

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
    """FlushService and GroupTransferService, as far as a put is concerned."""

    def wait(self, end_offset: int, sink: AckSink, frame: bytes) -> None:
        """Answer the sink once the log is safe up to `end_offset`, or refuse it."""


class TransferService(WaitService, Protocol):
    """GroupTransferService."""

    @property
    def waiting(self) -> int:
        """Number of messages that wait."""

    @property
    def refusal(self) -> str | None:
        """Reason to refuse messages that ask to wait before they are stored; None: there is none."""


def _refused(frame: bytes, status: PutStatus, reason: str) -> bytes:
    """The same answer with another code and the reason as its remark."""
    response = decode(frame[_WORD:])
    response.code, response.remark = CODES[status], reason
    return encode(response)


@define(eq=False)
class ProducerAcks:
    """Sends answers down one connection."""

    connection: Connection

    def answer(self, frames: list[bytes]) -> None:
        """All is well: one write for all of them."""
        self.connection.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def refuse(self, frames: list[bytes], status: PutStatus, reason: str) -> None:
        """Stored, but not as safe as was asked."""
        self.connection.write(b"".join(_refused(frame, status, reason) for frame in frames))


@define(eq=False)
class AcksOnceSaved:
    """Passes answers on once the topics are in their file: they say that a topic exists which a message has just made."""

    acks: AckSink
    topics: TableWriter

    def answer(self, frames: list[bytes]) -> None:
        """All is well."""
        self.topics.when_saved(lambda: self.acks.answer(frames))

    def refuse(self, frames: list[bytes], status: PutStatus, reason: str) -> None:
        """Stored, but not as safe as was asked."""
        self.topics.when_saved(lambda: self.acks.refuse(frames, status, reason))


@define(eq=False)
class BothAcks:
    """One message of a synchronous master with synchronous flush: waits for both, and the replica's word counts more."""

    sink: AckSink
    frame: bytes
    _missing: int = field(default=2, init=False)
    _flush_refusal: tuple[PutStatus, str] | None = field(default=None, init=False)
    _replica_refusal: tuple[PutStatus, str] | None = field(default=None, init=False)

    def start(self, end_offset: int, flush: WaitService, transfer: WaitService) -> None:
        """Ask both at once."""
        flush.wait(end_offset, self, self.frame)
        transfer.wait(end_offset, self, self.frame)

    def answer(self, frames: list[bytes]) -> None:
        """One of the two is done."""
        self._settle()

    def refuse(self, frames: list[bytes], status: PutStatus, reason: str) -> None:
        """One of the two gave up."""
        if status is PutStatus.FLUSH_DISK_TIMEOUT:
            self._flush_refusal = (status, reason)
        else:
            self._replica_refusal = (status, reason)
        self._settle()

    def _settle(self) -> None:
        self._missing -= 1
        if self._missing:
            return
        refusal = self._replica_refusal or self._flush_refusal
        if refusal is None:
            self.sink.answer([self.frame])
        else:
            self.sink.refuse([self.frame], *refusal)


def waits(store: MessageStore) -> bool:
    """True when producers of this store wait for disk or replicas."""
    return store.config.broker_role is BrokerRole.SYNC_MASTER or store.flusher.is_synchronous


def refusal(store: MessageStore, transfer: TransferService) -> str | None:
    """Reason to refuse a message that asks to wait, when too few slaves are in sync; None: there is none."""
    return transfer.refusal if store.config.broker_role is BrokerRole.SYNC_MASTER else None


def is_crowded(store: MessageStore, transfer: TransferService) -> bool:
    """True when so many messages wait for disk or slaves that no more may."""
    return waits(store) and store.flusher.waiting + transfer.waiting >= WAITING_MAX


def wait_until_safe(store: MessageStore, transfer: WaitService, end_offset: int, sink: AckSink, frame: bytes) -> None:
    """Answer `sink` with `frame` once disk and replicas have what lies below `end_offset`, as far as the store promises."""
    if store.config.broker_role is not BrokerRole.SYNC_MASTER:
        store.flusher.wait(end_offset, sink, frame)
    elif not store.flusher.is_synchronous:
        transfer.wait(end_offset, sink, frame)
    else:
        BothAcks(sink, frame).start(end_offset, store.flusher, transfer)
