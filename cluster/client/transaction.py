"""Transactional messages: consumers receive them only if a local transaction succeeds.

    half message --SEND_OK--> local transaction --commit or rollback (37)--> broker
                                    '--- no decision: the broker asks (39), `check` decides

Sources: TransactionMQProducer, DefaultMQProducerImpl.sendMessageInTransaction (RocketMQ 4.9.8).
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import Enum
from functools import partial

from attrs import define, field

from twinlog.cluster.client.api import SendStatus
from twinlog.cluster.client.client import Client, OnRequest
from twinlog.cluster.client.messages import OutgoingMessage, ReceivedMessage, as_received
from twinlog.cluster.client.producer import Producer, SendResult
from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.headers.messages import EndTransaction
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.store.errors import StoreError
from twinlog.store.record.message import TRANSACTION_PREPARED, decode_message
from twinlog.store.util.late_logger import LateLogger

log = LateLogger(__name__)


class Decision(Enum):
    """The decision about a half message; the values are those of commitOrRollback."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0  # Not yet decided: the broker asks later.


Check = Callable[[ReceivedMessage], Decision | Awaitable[Decision]]


class HalfMessageError(RemotingError):
    """The half message was stored, but not as safely as the broker is configured to, and was rolled back. Try again."""

    next_step = "Begin the transaction again: its block was not run."

    def __init__(self, result: SendResult) -> None:
        super().__init__(
            f"the half message was rolled back: {result.status.name}: {result.remark or 'no reason given'}"
        )
        self.result = result


@define(eq=False)
class Transaction:
    """One half message; `decision` may be changed until the block ends."""

    result: SendResult
    decision: Decision = Decision.COMMIT

    def rollback(self) -> None:
        """Discard the message at the end of the block."""
        self.decision = Decision.ROLLBACK

    def leave_open(self) -> None:
        """Decide later: the broker asks, and `check` decides."""
        self.decision = Decision.UNKNOWN


@define(eq=False)
class TransactionProducer:
    """Sends messages of local transactions. `check` decides, from durable state, about a message that a broker asks about.

    It may be called for messages of any producer of the group, also of an earlier run of the program.
    """

    client: Client
    group: str
    check: Check
    producer: Producer = field(init=False, repr=False)
    _others: OnRequest | None = field(default=None, init=False, repr=False)  # Handler of the client's other groups.

    def __attrs_post_init__(self) -> None:
        self.producer = self.client.producer(self.group)
        self._others = self.client.handlers.get(RequestCode.CHECK_TRANSACTION_STATE)
        self.client.handlers[RequestCode.CHECK_TRANSACTION_STATE] = self._on_check

    @asynccontextmanager
    async def begin(self, message: OutgoingMessage) -> AsyncIterator[Transaction]:
        """Run the block as the local transaction: the message is committed at its end, or rolled back when it raises.

        Raises HalfMessageError, or as Producer.send, before the block begins, and ValueError for a delayed message. A broker
        that does not receive the decision asks for it.
        """
        if message.delay_level:
            raise ValueError("a message of a transaction cannot be delayed")
        await self.client.introduce_to(message.topic)
        extra = {"TRAN_MSG": "true", "PGROUP": self.group}
        result = await self.producer.deliver(self.producer.prepare(message, sys_flag=TRANSACTION_PREPARED, extra=extra))
        transaction = Transaction(result)
        if result.status is not SendStatus.SEND_OK:
            await self._end(transaction.result, Decision.ROLLBACK)
            raise HalfMessageError(result)
        try:
            yield transaction
        except Exception as error:  # Not when it is cancelled: only `check` can find out whether the work was done.
            await self._end(result, Decision.ROLLBACK, remark=f"{type(error).__name__}: {error}")
            raise
        await self._end(result, transaction.decision)

    async def send(
        self, message: OutgoingMessage, local: Callable[[SendResult], Awaitable[Decision | None]]
    ) -> tuple[SendResult, Decision]:
        """Send a message and run `local` as its transaction; a return value of None commits."""
        async with self.begin(message) as transaction:
            transaction.decision = await local(transaction.result) or Decision.COMMIT
        return transaction.result, transaction.decision

    async def _end(self, result: SendResult, decision: Decision, *, remark: str | None = None) -> None:
        header = self._header(decision, result.message_id, result.queue_offset, int(result.offset_message_id[-16:], 16))
        header.broker_name = result.queue.broker_name
        address = self.client.routes.address(result.queue.broker_name, or_another=False)
        try:
            if address is None:
                raise RemotingError(f"the master of {result.queue.broker_name} is not known now")
            await self.client.api.oneway(address, header, remark=remark)
        except RemotingError as error:
            log.warning("transaction left open; its broker will ask", message=result.message_id, error=str(error))

    def _header(self, decision: Decision, message_id: str, half_offset: int, phy_offset: int) -> EndTransaction:
        return EndTransaction(
            producer_group=self.group,
            tran_state_table_offset=half_offset,
            commit_log_offset=phy_offset,
            commit_or_rollback=decision.value,
            msg_id=message_id,
            transaction_id=message_id,
        )

    # ---- Checks by brokers

    def _on_check(self, address: str, request: RemotingCommand) -> RemotingCommand | None:
        try:
            record = decode_message(bytes(request.body))
        except StoreError as error:
            log.warning("transaction check ignored: its body is no message", peer=address, error=str(error))
            return None
        if record.properties.get("PGROUP") == self.group:
            message = as_received(
                record, MessageQueue(record.topic, (request.ext or {}).get("bname", ""), record.queue_id)
            )
            self.client.start_soon(partial(self._answer_check, address, request.ext or {}, message))
        elif self._others is not None:
            return self._others(address, request)
        return None

    async def _answer_check(self, address: str, asked: dict[str, str], message: ReceivedMessage) -> None:
        remark = None
        try:
            found = self.check(message)
            decision = await found if inspect.isawaitable(found) else found
        except Exception as error:
            log.exception("transaction check failed; the broker will ask again", message=message.message_id)
            decision, remark = Decision.UNKNOWN, f"{type(error).__name__}: {error}"
        offsets = int(asked.get("tranStateTableOffset", 0)), int(asked.get("commitLogOffset", 0))
        header = self._header(decision, message.message_id, *offsets)
        header.from_transaction_check = True
        try:
            await self.client.api.oneway(address, header, remark=remark)
        except RemotingError as error:
            log.warning("transaction decision not sent; the broker will ask again", peer=address, error=str(error))
