"""Decisions about open transactions: check with the producer now, later, or no more; and set of ended ones. Pure.

Source: TransactionalMessageServiceImpl.check (RocketMQ 4.9.8).
"""

from enum import Enum, auto
from typing import Self

from attrs import define, field, frozen

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.transactions.records import check_times
from twinlog.store.config import StoreConfig
from twinlog.store.record.message import Message

IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"


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
