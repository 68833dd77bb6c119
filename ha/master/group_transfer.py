"""Producers of a SYNC_MASTER that wait until enough slaves hold their message.

An ack releases all messages below it with one call per connection; between append and ack nothing runs for a waiting
message, neither a task nor a timer of its own. Who counts is for ha/policy/in_sync.py to say, how many must hold a message for
ha/policy/ack_policy.py. Sources: HAService.GroupTransferService, CommitLog.submitReplicaRequest (RocketMQ 4.9.8),
GroupTransferService (5.3.3).
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol

import structlog
import trio
from attrs import define, evolve, field, frozen

from twinlog.ha.config import HAConfig
from twinlog.ha.policy.ack_policy import AckDecision, AckRule, AckVerdict, Standing, decide, describe, describe_missing
from twinlog.ha.policy.in_sync import InSync, Slave
from twinlog.store.log.offset_waiters import AckSink, Answers, OffsetWaiters, PutStatus, Waiter, by_sink
from twinlog.store.util.histogram import BOUNDS, Histogram, HistogramCounts
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger()

REASON_AGE_MAX = 0.1  # Seconds. Many messages may be refused at a time; the text of their reason is reused.
TICK_SECONDS = 1.0  # Between checks of which slaves are in sync.
EVERYTHING = 1 << 63  # More than any offset.


class SlaveConnection(Hashable, Protocol):
    """A connection, as group transfer sees it."""

    @property
    def address(self) -> str:
        """IP:PORT, for people."""

    @property
    def ip(self) -> str:
        """The IP alone, as it would be registered."""

    @property
    def member(self) -> str:
        """The id of the member at the other end; "": it did not say who it is."""


@frozen
class _Reason:
    text: str
    made_at: float


Outcome = Literal["confirmed", "timeout", "not_available"]  # SEND_OK, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE.
OUTCOMES: tuple[Outcome, ...] = ("confirmed", "timeout", "not_available")


@define(eq=False)
class AckWaits:
    """By how many members had to hold the message, the master included, and outcome. Whoever need not wait is not counted."""

    waits: dict[tuple[int, Outcome], Histogram] = field(factory=lambda: defaultdict(Histogram), init=False)

    def ended(self, waiters: Sequence[Waiter], need: int, outcome: Outcome, *, now: float, timeout: float) -> None:
        """These waited, oldest first; each began `timeout` seconds before its deadline."""
        if not waiters:
            return
        histogram, began = self.waits[need, outcome], now + timeout
        longest = began - waiters[0].deadline
        if len(waiters) == 1:  # The usual case of a lone producer.
            histogram.note(longest)
        else:
            histogram.note_run(longest, began - waiters[-1].deadline, len(waiters))

    def refused(self, need: int) -> None:
        """One did not wait: there are too few slaves."""
        self.waits[need, "not_available"].note(0.0)

    def look(self, now: float) -> None:
        """Call it every second or so."""
        for histogram in self.waits.values():
            histogram.sample(now)

    def recent(self) -> tuple[int, ...]:
        """Those of the last minute who waited, by twinlog.store.util.histogram.BOUNDS."""
        found = [waits.recent() for (_, outcome), waits in self.waits.items() if outcome != "not_available"]
        return tuple(map(sum, zip(*found, strict=True))) if found else (0,) * len(BOUNDS)

    def taken(self) -> dict[tuple[int, Outcome], HistogramCounts]:
        """All that was counted, as values."""
        return {key: histogram.taken() for key, histogram in self.waits.items()}


@define(eq=False)
class GroupTransferService:
    """Holds answers to producers until enough slaves have acknowledged their message.

    `log_end`: the log's end; None: that of the newest message that waited. `synchronous`: producers wait here. `gate`, called
    with the time at each release: why no message may be reported as safe now; None: it may.
    """

    config: HAConfig = field(factory=HAConfig)
    log_end: Callable[[], int] | None = None
    synchronous: bool = True
    gate: Callable[[float], str | None] = lambda _now: None
    confirmed_offset: int = field(default=0, init=False)  # Enough slaves hold everything below. Falls when they leave.
    decision: AckDecision = field(init=False)
    waits: AckWaits = field(factory=AckWaits, init=False)
    _in_sync: InSync = field(init=False)
    _waiters: OffsetWaiters = field(factory=OffsetWaiters, init=False)
    _first_waiter: Wakeup = field(factory=Wakeup, init=False)
    _parked: bool = field(default=False, init=False)  # The timer waits for a first waiter.
    _alone_since: float = field(factory=time.time, init=False)  # Wall clock: it is for people.
    _reason: _Reason | None = field(default=None, init=False)
    _end_offset: int = field(default=0, init=False)  # Of the newest message that asked.
    _rule: AckRule = field(init=False)
    _slaves_needed: int = field(init=False)
    _reach: int = field(default=0, init=False)  # What ends at or beyond this need not wait: too few are near enough.
    _timeout: float = field(init=False)  # Seconds.
    _expects_until: float = field(default=-math.inf, init=False)
    _is_changing: bool = field(default=False, init=False)  # See together().
    _suspended: frozenset[str] = field(factory=frozenset, init=False)  # Addresses, as it was logged.

    def __attrs_post_init__(self) -> None:
        self._in_sync = InSync(self.config.limits)
        self._timeout = self.config.slave_timeout_ms / 1000
        self._rule = self.config.ack_rule
        self.decision = decide(self._rule, eligible=0, in_sync=0)
        self._slaves_needed = self.decision.need - 1
        self.confirmed_offset = 0 if self._slaves_needed else EVERYTHING

    @property
    def push2_slave_max_offset(self) -> int:
        """The highest offset acknowledged by a slave that counts now; 0 without one."""
        return self._in_sync.push2_slave_max_offset

    @property
    def waiting(self) -> int:
        """Number of messages that wait."""
        return len(self._waiters)

    @property
    def slaves(self) -> tuple[Slave, ...]:
        """All connections that made a valid request, oldest first, with what counts of them."""
        return tuple(self.slave_of().values())

    def slave_of(self) -> dict[Hashable, Slave]:
        """The same by connection."""
        return self._in_sync.slaves(self._end, trio.current_time())

    @property
    def registered(self) -> tuple[str, ...]:
        """The IPs of the registered slaves, one for each slave."""
        return self._in_sync.registered

    def wait(self, end_offset: int, sink: AckSink, frame: bytes) -> None:
        """Answer through `sink` once enough slaves hold all bytes below `end_offset`, which must not fall from call to call.

        When there are too few that could, because they are gone, suspended or haSlaveFallbehindMax behind,
        SLAVE_NOT_AVAILABLE at once; after slaveTimeout FLUSH_SLAVE_TIMEOUT. The message is stored in each case.
        """
        self._end_offset = end_offset
        is_confirmed = end_offset <= self.confirmed_offset
        if is_confirmed and self.gate(trio.current_time()) is None:
            sink.answer([frame])
        elif not is_confirmed and end_offset >= self._reach and trio.current_time() >= self._expects_until:
            self.waits.refused(self.decision.need)
            sink.refuse([frame], PutStatus.SLAVE_NOT_AVAILABLE, self._worded(describe_missing))
        else:
            self._waiters.add(end_offset, trio.current_time() + self._timeout, sink, frame)
            self._wake_timer()

    def wait_each(self, answers: Answers, sink: AckSink) -> None:
        """Do wait() for several messages at once, which all have to wait, as a rule."""
        last, _ = answers[-1]
        if self.confirmed_offset < answers[0][0] and last < self._reach:
            self._end_offset = last
            self._waiters.add_each(answers, trio.current_time() + self._timeout, sink)
            self._wake_timer()
        else:
            for end_offset, frame in answers:
                self.wait(end_offset, sink, frame)

    def _wake_timer(self) -> None:
        if self._parked:
            self._parked = False
            self._first_waiter.set()

    @property
    def refusal(self) -> str | None:
        """Reason to refuse a message that asks to wait before it is stored; None: store it. Checked before each append."""
        if self.decision.verdict is not AckVerdict.REFUSE or trio.current_time() < self._expects_until:
            return None
        return (
            f"in-sync replicas not enough: {self.decision.alive} of this broker group are in sync, the master included, "
            f"and minInSyncReplicas={self.config.min_in_sync_replicas}. {self._worded(describe)}"
        )

    def join(self, connection: SlaveConnection, ack_offset: int) -> None:
        """Let a connection in that made a valid request; whether it counts depends on its IP."""
        now = trio.current_time()
        self._in_sync.join(
            connection, connection.address, connection.ip, ack_offset, member=connection.member, end=self._end, now=now
        )
        self._changed()

    def acknowledge(self, connection: SlaveConnection, offset: int) -> None:
        """A connection that joined holds all bytes below `offset`; the caller has checked that it can."""
        table, slaves = self._in_sync, self._slaves_needed
        if table.acknowledge(connection, offset):
            self._changed()
            return
        acks = table.acks
        if not 0 < slaves <= len(acks) or table.waited is not acks:
            self._find_confirmed()
        elif acks[-slaves] == self.confirmed_offset:
            return
        else:  # The usual case, and the path of every ack.
            self.confirmed_offset = acks[-slaves]
            self._reach = self.confirmed_offset + table.limits.gap_max
        self._release()

    def leave(self, connection: SlaveConnection) -> None:
        """Forget a connection. Its acks count no more, but nobody is refused before its time: a slave may come back."""
        self._in_sync.leave(connection)
        self._changed()

    def require(self, acks: int | None) -> None:
        """Take the number of members, the master included, that must hold a message; None: inSyncReplicas says so."""
        wanted = self.config.in_sync_replicas if acks is None else acks
        if wanted != self._rule.in_sync_replicas:
            self._rule = evolve(self._rule, in_sync_replicas=wanted)
            self._changed()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let what changes within the block take effect at its end: who counts, and the number of acknowledgements.

        In between, nobody is answered for a message that has the new number of them, but of slaves that no longer count.
        """
        self._is_changing = True
        try:
            yield
        finally:
            self._is_changing = False
            self._changed()

    def caught_up_at(self) -> dict[str, float]:
        """Time at which each connected member, by its id, held the whole log last, by trio's clock."""
        return self._in_sync.caught_up_at(self._end, trio.current_time())

    def members_changed(self, names: Collection[str]) -> None:
        """Take the IPs of the registered slaves, one for each slave, or its id for a member that says who it is."""
        self._in_sync.members_changed(names)
        self._changed()

    def name_of(self, connection: SlaveConnection) -> str:
        """By which a connection counts: see InSync."""
        return self._in_sync.name_of(connection.ip, connection.member)

    def registered_with(self, name: str) -> int:
        """Number of slaves with this IP or id that may count."""
        return self._in_sync.registered_with(name)

    async def run(self) -> None:
        """Refuse those who waited too long; when cancelled, all that still wait."""
        if self.synchronous and (
            self.decision.verdict is AckVerdict.REFUSE or self.decision.need < self._rule.in_sync_replicas
        ):
            self._log_decision()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tick_task)
                await self._expire()
        finally:
            self._refuse(self._waiters.drain(), "this broker stops")

    async def _expire(self) -> None:
        while True:
            deadline = self._waiters.next_deadline
            if deadline is None:
                self._parked = True
                await self._first_waiter.wait()
                continue
            # Never too late for anyone who comes meanwhile: all wait equally long.
            await trio.sleep_until(deadline)
            await trio.lowlevel.checkpoint()  # An ack that is there by now, in the socket, counts: let it be read.
            expired = self._waiters.expire(trio.current_time())
            self._refuse(expired, f"after {self.config.slave_timeout_ms} ms")
            if expired and self._in_sync.missed(expired[-1].end_offset, end=self._end, now=trio.current_time()):
                self._changed()

    async def _tick_task(self) -> None:
        while True:
            await trio.sleep(TICK_SECONDS)
            self.tick()

    def tick(self) -> None:
        """See who is in sync now."""
        if self._in_sync.tick(self._end, trio.current_time()):
            self._changed()
        else:
            if self._decide(self._end, trio.current_time()):
                self._find_confirmed()
            self._release()  # The gate may have opened.

    @property
    def _end(self) -> int:
        return self._end_offset if self.log_end is None else self.log_end()

    def _changed(self) -> None:
        if self._is_changing:
            return
        self._reason = None
        if not self._in_sync.counted and self._alone_since == 0:
            self._alone_since = time.time()
        elif self._in_sync.counted:
            self._alone_since = 0
        suspended = self._in_sync.suspended
        for address in suspended - self._suspended:
            log.warning("slave suspended: producers do not wait for it until it holds the whole log", peer=address)
        for address in self._suspended - suspended:
            log.info("slave no longer suspended", peer=address)
        self._suspended = suspended
        self._decide(self._end, trio.current_time())
        self._find_confirmed()
        self._release()

    def _decide(self, end: int, now: float) -> bool:
        """Decide anew how many slaves are needed; True when that is another number than before."""
        table, before = self._in_sync, self.decision
        self.decision = decide(self._rule, eligible=table.eligible, in_sync=table.in_sync(end, now))
        self._slaves_needed = self.decision.need - 1
        if self._slaves_needed == 0:
            self.confirmed_offset = EVERYTHING
        refused, refuses = before.verdict is AckVerdict.REFUSE, self.decision.verdict is AckVerdict.REFUSE
        if (self.decision.need, refuses) == (before.need, refused):
            return False
        if self.synchronous:
            self._log_decision()
        return True

    def _log_decision(self) -> None:
        """Synchronous replication never becomes asynchronous, and a master never refuses, without a line."""
        after = self.decision
        refuses, lowered = after.verdict is AckVerdict.REFUSE, after.need < self._rule.in_sync_replicas
        tell = log.warning if refuses or lowered else log.info
        tell(
            "too few members are in sync: messages are refused" if refuses else "how many members must hold a message",
            need=after.need,
            in_sync=after.alive,
            inSyncReplicas=self._rule.in_sync_replicas,
            minInSyncReplicas=self._rule.min_in_sync_replicas,
        )

    def _find_confirmed(self) -> None:
        slaves = self._slaves_needed
        if slaves:
            self.confirmed_offset = self._in_sync.held_by(slaves)
            self._reach = self._in_sync.reach(slaves)

    def expect_slaves(self) -> None:
        """Let messages wait for the slaves of a new epoch, which are about to connect, instead of refusing them."""
        self._expects_until = trio.current_time() + self._timeout

    def gate_opened(self) -> None:
        """Release messages that only the gate held back."""
        self._release()

    def refuse_all(self, why: str) -> None:
        """Refuse all that wait, at once. Their messages are stored, and may be given up."""
        self._refuse(self._waiters.drain(), why)

    def _release(self) -> None:
        if not self._waiters or self.gate(now := trio.current_time()) is not None:
            return
        released = self._waiters.release(self.confirmed_offset)
        assert not released or released[-1].end_offset <= self.confirmed_offset, "answered before it is confirmed"
        self.waits.ended(released, self._slaves_needed + 1, "confirmed", now=now, timeout=self._timeout)
        if len(released) == 1:  # The usual case of a lone producer.
            released[0].sink.answer([released[0].frame])
        else:
            for sink, frames in by_sink(released):
                sink.answer(frames)

    def _refuse(self, expired: Sequence[Waiter], why: str) -> None:
        if expired:
            now = trio.current_time()
            self.waits.ended(expired, self._slaves_needed + 1, "timeout", now=now, timeout=self._timeout)
            closed = self.gate(now)
            standing = describe(self._standing) if closed is None else closed
            reason = f"{why}, offset {expired[-1].end_offset} is not acknowledged. {standing}"
            for sink, frames in by_sink(expired):
                sink.refuse(frames, PutStatus.FLUSH_SLAVE_TIMEOUT, reason)

    def _worded(self, words: Callable[[Standing], str]) -> str:
        now = trio.current_time()
        if self._reason is None or now - self._reason.made_at > REASON_AGE_MAX:
            self._reason = _Reason(words(self._standing), now)
        return self._reason.text

    @property
    def _standing(self) -> Standing:
        return Standing(
            slaves=self.slaves,
            registered=self._in_sync.registered,
            needed=self._slaves_needed,
            end_offset=self._end_offset,
            gap_max=self._in_sync.limits.gap_max,
            alone_since=self._alone_since,
        )
