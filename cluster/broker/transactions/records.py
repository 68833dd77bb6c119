"""Records of transactions: half, commit and op messages, and copies for checks; and decisions about open ones. No I/O.

    half       topic RMQ_SYS_TRANS_HALF_TOPIC, queue 0; REAL_TOPIC and REAL_QID say its target; no transaction bits
    commit     the message itself, bits COMMIT, with the half's properties and its physical offset
    op         topic RMQ_SYS_TRANS_OP_HALF_TOPIC, tag d, body: queue offset of the half that has ended (5.x: `1,2,` for several)
    re-put     an open half is appended again before its producer is asked, so that all before it are done

A rollback is an op message alone. Sources: TransactionalMessageBridge, TransactionalMessageServiceImpl, EndTransactionProcessor
(RocketMQ 4.9.8). Unlike there, a half message with a DELAY level keeps it until the commit, which RocketMQ loses; to postpone a
half message (CHECK_IMMUNITY_TIME_IN_SECONDS) does not count as a check, and the copy ends with the first one.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Self

from attrs import define, evolve, field, frozen

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.delay.records import REAL_QUEUE_ID, REAL_TOPIC, delayed, put_again
from twinlog.cluster.remoting.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from twinlog.store.config import StoreConfig
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.record.message import TRANSACTION_COMMIT, TRANSACTION_MASK, Message, encode_message
from twinlog.store.record.properties import DISPATCH, TAGS, WAIT, format_properties, tags_code, without_dispatch

TRANSACTION = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
HALF_QUEUE_ID = 0
OP_TAG = "d"
_OF_HALVES = DISPATCH | {TRANSACTION, REAL_TOPIC, REAL_QUEUE_ID}


def is_transaction(properties: Mapping[str, str]) -> bool:
    """True when a message begins a transaction."""
    return properties.get(TRANSACTION, "").lower() == "true"


def half_properties(topic: str, queue_id: int, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of the half message. WAIT, if given, is the last one."""
    return {**properties, REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}


def committed(half: Message, levels_ms: tuple[int, ...], now_ms: int) -> PutMessage:
    """Return the message of a half message. Raises ValueError when the half has no target."""
    properties = half.properties
    topic, queue_id = properties.get(REAL_TOPIC, ""), int(properties.get(REAL_QUEUE_ID, ""))
    if not topic or topic in (HALF_TOPIC, OP_HALF_TOPIC) or queue_id < 0:
        raise ValueError(f"a half message of topic '{topic}'")
    raw, code = without_dispatch(half.properties_raw), tags_code(properties.get(TAGS, ""))
    own = {name: value for name, value in properties.items() if name not in _OF_HALVES}
    if late := delayed(topic, queue_id, own, levels_ms, now_ms):
        topic, queue_id, code = late.topic, late.queue_id, late.tags_code
        raw = format_properties(late.properties, puts=len(properties)).encode()
    sys_flag = half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
    copy = put_again(half, topic, queue_id, raw, code)
    return copy._replace(sys_flag=sys_flag, prepared_transaction_offset=half.phy_offset)


def op_message(half_queue_id: int, half_queue_offset: int, host: bytes, now_ms: int) -> PutMessage:
    """Make the op message that marks a half message as committed or rolled back."""
    return PutMessage(
        topic=OP_HALF_TOPIC,
        queue_id=half_queue_id,
        body=b"%d" % half_queue_offset,
        properties=format_properties({TAGS: OP_TAG, WAIT: "true"}).encode(),
        flag=0,
        sys_flag=0,
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
        tags_code=tags_code(OP_TAG),
    )


def ended_halves(op: Message) -> list[int]:
    """Return the queue offsets of half messages in an op message. Raises ValueError for any other message."""
    if op.properties.get(TAGS) != OP_TAG:
        raise ValueError(f"an op message with tag {op.properties.get(TAGS)}")
    return [int(part) for part in op.body.decode("ascii").split(",") if part.strip()]


def counted(half: Message) -> Message:
    """Return the half message with one more check in its properties."""
    return evolve(half, properties_raw=_with(half, {CHECK_TIMES: str(check_times(half) + 1)}))


def asked_again(half: Message) -> PutMessage:
    """Make the copy for the end of the half queue; `flag` and `reconsume_times` are lost, as in RocketMQ."""
    return _copy(evolve(half, flag=0, reconsume_times=0), HALF_TOPIC, half.queue_id)


def postponed(half: Message) -> PutMessage:
    """Make the copy of a half message that must not be checked yet; it has the offset of the first copy."""
    first = half.properties.get(PREPARED_QUEUE_OFFSET) or str(half.queue_offset)
    return asked_again(evolve(half, properties_raw=_with(half, {WAIT: "false", PREPARED_QUEUE_OFFSET: first})))


def given_up(half: Message, check_max: int) -> PutMessage:
    """Make the copy of a half message that is not ended, for inspection by an administrator.

    One that is too old, but not checked too often, has one more check: RocketMQ counts before it compares the age.
    """
    return _copy(half if check_times(half) >= check_max else counted(half), CHECK_MAX_TIME_TOPIC, 0)


def resumed(half: Message) -> PutMessage:
    """Make the copy of a half message that was given up, with its checks set to zero."""
    return _copy(evolve(half, properties_raw=_with(half, {CHECK_TIMES: "0"})), HALF_TOPIC, HALF_QUEUE_ID)


def _with(half: Message, more: Mapping[str, str]) -> bytes:
    return format_properties({**half.properties, **more}).encode()


def _copy(half: Message, topic: str, queue_id: int) -> PutMessage:
    code = tags_code(half.properties.get(TAGS, ""))
    return put_again(half, topic, queue_id, without_dispatch(half.properties_raw), code)


def check_body(half: Message, queue_offset: int, phy_offset: int) -> bytes:
    """Make the body of request 39: the half message under its real topic, with the offsets of its newest copy.

    The store time is the old copy's and WAIT false, as RocketMQ sends it. Raises ValueError without a target.
    """
    properties = half.properties
    return encode_message(
        evolve(
            half,
            topic=properties.get(REAL_TOPIC, ""),
            queue_id=int(properties.get(REAL_QUEUE_ID, "")),
            queue_offset=queue_offset,
            phy_offset=phy_offset,
            properties_raw=_with(half, {WAIT: "false"}),
        )
    )


def check_times(half: Message) -> int:
    """Return the number of checks so far; -1 for an invalid number, as in RocketMQ."""
    text = half.properties.get(CHECK_TIMES, "0")
    return int(text) if text.lstrip("-").isdecimal() else -1


def prepared_offset(half: Message) -> int | None:
    """Return the queue offset of the first copy of a postponed half message."""
    text = half.properties.get(PREPARED_QUEUE_OFFSET, "")
    return int(text) if text.isdecimal() else None


@frozen(kw_only=True)
class CheckRules:
    """Limits for asking producers. Times in ms."""

    timeout_ms: int
    check_max: int
    reserved_ms: int  # Older half messages are not checked any more.

    @classmethod
    def of(cls, config: BrokerConfig, store: StoreConfig) -> Self:
        """Return the limits of a configuration."""
        return cls(
            timeout_ms=config.transaction_timeout_ms,
            check_max=config.transaction_check_max,
            reserved_ms=store.file_reserved_time_hours * 3_600_000,
        )

    def immunity_ms(self, half: Message) -> int | None:
        """Return the time for which the message itself asks for no check; None if it has no such property."""
        text = half.properties.get(IMMUNITY_SECONDS)
        if text is None:
            return None
        return int(text) * 1000 if text.isdecimal() else self.timeout_ms


class HalfVerdict(Enum):
    """Decision about a half message without an op message."""

    GIVE_UP = auto()
    WAIT = auto()  # It, and all behind it, are too recent.
    POSTPONE = auto()
    ASK = auto()


def judge(half: Message, rules: CheckRules, started_ms: int, now_ms: int) -> HalfVerdict:
    """Decide about a half message in the round of checks that began at `started_ms`."""
    age_ms = now_ms - half.born_timestamp
    if check_times(half) >= rules.check_max or age_ms > rules.reserved_ms:
        return HalfVerdict.GIVE_UP
    if half.store_timestamp >= started_ms:
        return HalfVerdict.WAIT
    immunity_ms = rules.immunity_ms(half)
    if immunity_ms is not None:
        return HalfVerdict.POSTPONE if age_ms < immunity_ms else HalfVerdict.ASK
    return HalfVerdict.WAIT if 0 <= age_ms < rules.timeout_ms else HalfVerdict.ASK


@define
class EndedHalves:
    """Half messages from the current position on that have ended, as far as op messages were read.

    An op message is done when all its half messages are passed; `done_offset` is the queue offset of the first that is not.
    A late one, for a half message that is already passed, is kept until all copies that existed by then are passed.
    """

    next_offset: int  # Of the op message to read next.
    _op_of: dict[int, int] = field(factory=dict, init=False)  # Half to op message.
    _late: dict[int, tuple[int, int]] = field(factory=dict, init=False)  # Half to op message, and position to drop it.
    _left: dict[int, int] = field(factory=dict, init=False)  # Op message to number of its halves not passed yet.

    def add(self, op_offset: int, halves: list[int], position: int, half_end: int) -> None:
        """Add the op message at `op_offset`. Half messages below `position` are passed; their queue ends at `half_end`."""
        assert op_offset >= self.next_offset, (op_offset, self.next_offset)
        assert position <= half_end, (position, half_end)
        self.next_offset = op_offset + 1
        for half in halves:
            if half in self._op_of or half in self._late:
                continue
            if half >= position:
                self._op_of[half] = op_offset
            else:
                self._late[half] = op_offset, half_end
            self._left[op_offset] = self._left.get(op_offset, 0) + 1

    def __contains__(self, half: int | None) -> bool:
        return half in self._op_of or half in self._late

    def passed(self, position: int) -> None:
        """Drop half messages below `position`, which are handled."""
        for half in [half for half in self._op_of if half < position]:
            self._count_down(self._op_of.pop(half))
        for half in [half for half, (_, until) in self._late.items() if until <= position]:
            self._count_down(self._late.pop(half)[0])

    def _count_down(self, op_offset: int) -> None:
        self._left[op_offset] -= 1
        assert self._left[op_offset] >= 0, op_offset
        if not self._left[op_offset]:
            del self._left[op_offset]

    @property
    def done_offset(self) -> int:
        """Offset of the op message to read from after a restart."""
        return min(self._left, default=self.next_offset)
