"""Check of open transactions: asks producers about transactions that they began and did not end. Masters only.

Each round walks the half queue from where the last one stopped: ended half messages are passed, a recent one ends the round, an
old enough one is appended to the queue again and its producer is asked. The progress in the half queue and the op queue is saved
as the offsets of the group CID_RMQ_SYS_TRANS. Sources: TransactionalMessageCheckService, TransactionalMessageServiceImpl.check,
AbstractTransactionalMessageCheckListener (RocketMQ 4.9.8). Unlike there, all op messages are read before a producer is asked.
"""

from collections.abc import Callable

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.tables.offsets import NOT_STORED
from twinlog.cluster.broker.tables.tables import BrokerTables
from twinlog.cluster.broker.transactions.records import (
    HALF_QUEUE_ID,
    PRODUCER_GROUP,
    CheckRules,
    EndedHalves,
    HalfVerdict,
    asked_again,
    check_body,
    counted,
    ended_halves,
    given_up,
    judge,
    postponed,
    prepared_offset,
)
from twinlog.cluster.remoting.command import ONEWAY
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.headers.messages import CheckTransactionState
from twinlog.cluster.remoting.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP
from twinlog.store.errors import MessageFormatError
from twinlog.store.log.commit_log import PutMessage, PutResult
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.record.message import Message, decode_message, message_id
from twinlog.store.record.properties import UNIQ_KEY

log = structlog.get_logger(__name__)

_OPS_AT_ONCE = 32
_CHECKPOINT_EACH = 32  # Messages between two checkpoints.
ROUND_SECONDS_MAX = 60.0


@define(kw_only=True, eq=False)
class TransactionCheckService:
    store: MessageStore
    tables: BrokerTables
    rules: CheckRules
    interval_ms: int
    now_ms: Callable[[], int]
    _unsaved: int = field(default=0, init=False)  # Position to go on from, while it is not on disk.
    _copies_end: int = field(default=0, init=False)  # End of the last copy in the log.
    _ended: EndedHalves = field(factory=lambda: EndedHalves(0), init=False)
    _alone: set[str] = field(factory=set, init=False)  # Groups without a producer, each logged once.

    def producer_of(self, group: str) -> Connection | None:
        """Return the connection of a producer of the group, an idle one if there is any."""
        return self.tables.producers.next_of(group, lambda each: not each.closed and not each.unsent_bytes)

    def begin_anew(self) -> None:
        """Start from the saved offsets: another member may have been the master meanwhile."""
        self._unsaved = self._copies_end = 0
        self._ended = EndedHalves(0)

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await trio.sleep(self.interval_ms / 1000)
            try:
                await self.check()
            except Exception:  # A bug or a broken disk must not end the checks for good.
                log.exception("open transactions could not be checked")

    async def check(self) -> None:
        """Run one round. Raises OSError when the log cannot be read."""
        self.tables.topics.create_in_send_back(HALF_TOPIC, 1)
        halves, ops = self.store.queue(HALF_TOPIC, HALF_QUEUE_ID), self.store.queue(OP_HALF_TOPIC, HALF_QUEUE_ID)
        first_half, first_op = self._offset_of(halves), self._offset_of(ops)
        if first_op != self._ended.done_offset:
            self._ended = EndedHalves(first_op)
        position, handled = max(first_half, self._unsaved), 0
        started_ms, deadline = self.now_ms(), trio.current_time() + ROUND_SECONDS_MAX
        try:
            while position < halves.max_offset and trio.current_time() < deadline:
                handled += 1
                if handled % _CHECKPOINT_EACH == 0:
                    await trio.lowlevel.checkpoint()
                if position not in self._ended:
                    if self._read_ops(ops, position, halves.max_offset):
                        continue
                    if not self._handle(halves, position, started_ms):
                        break
                position += 1
            if self._copies_end > self.store.flushed_offset:
                await self.store.flush()
        finally:
            self._unsaved = position
            # Passed messages are not read again, even after a restart, so their copies must be on disk.
            assert position >= first_half, (position, first_half)
            if self._copies_end <= self.store.flushed_offset:
                self._unsaved = 0
                self._ended.passed(position)
                self._commit(halves, first_half, position)
                self._commit(ops, first_op, self._ended.done_offset)

    def _offset_of(self, queue: ConsumeQueue) -> int:
        stored = self.tables.offsets.query(TRANSACTION_GROUP, queue.topic, queue.queue_id)
        return queue.min_offset if stored == NOT_STORED else max(queue.min_offset, min(stored, queue.max_offset))

    def _commit(self, queue: ConsumeQueue, before: int, now: int) -> None:
        if now != before:
            self.tables.offsets.commit(TRANSACTION_GROUP, queue.topic, queue.queue_id, now)

    def _read_ops(self, ops: ConsumeQueue, position: int, half_end: int) -> bool:
        """Read more op messages; False when there were none."""
        first = max(self._ended.next_offset, ops.min_offset)
        for offset in range(first, min(first + _OPS_AT_ONCE, ops.max_offset)):
            op = self._message(ops, offset)
            halves: list[int] = []
            try:
                halves = ended_halves(op) if op is not None else []
            except ValueError as error:
                log.warning("an op message cannot be read", queue_offset=offset, error=str(error))
            self._ended.add(offset, halves, position, half_end)
        return first < ops.max_offset

    def _message(self, queue: ConsumeQueue, queue_offset: int) -> Message | None:
        record = self.store.message_of(queue.topic, queue.queue_id, queue_offset)
        try:
            if record is not None:
                return decode_message(record)
        except MessageFormatError as error:
            log.warning(
                "a message of a transaction is damaged", topic=queue.topic, offset=queue_offset, error=str(error)
            )
        return None

    def _handle(self, halves: ConsumeQueue, position: int, started_ms: int) -> bool:
        """Handle one open half message; False: the round ends before it."""
        half = self._message(halves, position)
        if half is None or prepared_offset(half) in self._ended:
            return True
        match judge(half, self.rules, started_ms, self.now_ms()):
            case HalfVerdict.WAIT:
                return False
            case HalfVerdict.POSTPONE:
                return self._put(postponed(half)) is not None
            case HalfVerdict.ASK:
                half = counted(half)
                copy = self._put(asked_again(half))
                if copy is not None:
                    self._ask(half, copy)
                return copy is not None
            case HalfVerdict.GIVE_UP:
                self.tables.topics.create_in_send_back(CHECK_MAX_TIME_TOPIC, 1)
                log.error(
                    "an open transaction was given up",
                    topic=CHECK_MAX_TIME_TOPIC,
                    group=half.properties.get(PRODUCER_GROUP),
                    key=half.properties.get(UNIQ_KEY),
                )
                return self._put(given_up(half, self.rules.check_max)) is not None

    def _put(self, copy: PutMessage) -> PutResult | None:
        """Append a copy; None while the store takes no messages."""
        (result,) = self.store.put([copy])
        if result.status is not PutStatus.PUT_OK:
            return None
        self._copies_end = result.end_offset
        return result

    def _ask(self, half: Message, copy: PutResult) -> None:
        """Send request 39 to a producer of the group; without one the next round tries again."""
        properties = half.properties
        group, key = properties.get(PRODUCER_GROUP, ""), properties.get(UNIQ_KEY)
        producer = self.producer_of(group)
        if producer is None:
            if group not in self._alone:
                self._alone.add(group)
                log.warning("no producer is connected for an open transaction", group=group, key=key)
            return
        self._alone.discard(group)
        header = CheckTransactionState(
            tran_state_table_offset=copy.queue_offset,
            commit_log_offset=copy.phy_offset,
            msg_id=key,
            transaction_id=key,
            offset_msg_id=message_id(half.store_host, copy.phy_offset),
        )
        try:
            body = check_body(half, copy.queue_offset, copy.phy_offset)
        except ValueError as error:
            log.warning("a half message has no target", key=key, error=str(error))
            return
        producer.send(header.command(body, flag=ONEWAY))
