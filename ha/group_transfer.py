"""Producers of a SYNC_MASTER that wait until a slave holds their message.

An ack releases all messages below it with one call per connection; between append and ack nothing runs for a waiting
message, neither a task nor a timer of its own. Source: HAService.GroupTransferService, CommitLog.submitReplicaRequest
(RocketMQ 4.9.8).
"""

import time
from collections.abc import Collection, Hashable, Sequence
from typing import Protocol

import trio
from attrs import define, field, frozen

from ha.config import HAConfig
from ha.in_sync import InSync, Slave
from store.offset_waiters import AckSink, OffsetWaiters, PutStatus, Waiter, by_sink
from store.wakeup import Wakeup

REASON_AGE_MAX = (
    0.1  # Seconds. Many messages may be refused at a time; their reasons need not be worded anew each time.
)


class SlaveConnection(Hashable, Protocol):
    """What group transfer needs to know of a connection."""

    @property
    def address(self) -> str:
        """IP:PORT, for people."""

    @property
    def ip(self) -> str:
        """The IP alone, as it would be registered."""


@frozen
class _Reason:
    text: str
    made_at: float


@define(eq=False)
class GroupTransferService:
    """Holds answers to producers until `push2_slave_max_offset` has passed their message."""

    config: HAConfig = field(factory=HAConfig)
    _in_sync: InSync = field(factory=InSync, init=False)
    _waiters: OffsetWaiters = field(factory=OffsetWaiters, init=False)
    _first_waiter: Wakeup = field(factory=Wakeup, init=False)
    _parked: bool = field(default=False, init=False)  # The timer waits for a first waiter.
    _alone_since: float = field(factory=time.time, init=False)  # Wall clock: it is for people.
    _reason: _Reason | None = field(default=None, init=False)
    _end_offset: int = field(default=0, init=False)  # Of the newest message that asked.

    @property
    def push2_slave_max_offset(self) -> int:
        """The highest offset acknowledged by a slave that counts now; 0 without one."""
        return self._in_sync.push2_slave_max_offset

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return len(self._waiters)

    @property
    def slaves(self) -> tuple[Slave, ...]:
        """All connections that made a valid request, oldest first, with what counts of them."""
        return self._in_sync.slaves()

    def wait(self, end_offset: int, sink: AckSink, frame: bytes) -> None:
        """Answer through `sink` once a slave holds all bytes below `end_offset`, which must not fall from call to call.

        Without a slave, or with all of them haSlaveFallbehindMax behind, SLAVE_NOT_AVAILABLE at once; after
        slaveTimeout FLUSH_SLAVE_TIMEOUT. The message is stored in each case.
        """
        self._end_offset = end_offset
        confirmed = self._in_sync.push2_slave_max_offset
        if not self._in_sync.counted or end_offset - confirmed >= self.config.slave_fallbehind_max:
            sink.refuse([frame], PutStatus.SLAVE_NOT_AVAILABLE, self._why_not_available())
            return
        if end_offset <= confirmed:
            sink.answer([frame])
            return
        self._waiters.add(end_offset, trio.current_time() + self.config.slave_timeout_ms / 1000, sink, frame)
        if self._parked:
            self._parked = False
            self._first_waiter.set()

    def join(self, connection: SlaveConnection, ack_offset: int) -> None:
        """Let a connection in that made a valid request; whether it counts depends on its IP."""
        self._in_sync.join(connection, connection.address, connection.ip, ack_offset)
        self._changed()

    def acknowledge(self, connection: SlaveConnection, offset: int) -> None:
        """A connection that joined holds all bytes below `offset`; the caller has checked that it can."""
        if self._in_sync.acknowledge(connection, offset):
            self._release()

    def leave(self, connection: SlaveConnection) -> None:
        """Forget a connection. Its acks count no more, but nobody is refused before its time: a slave may come back."""
        self._in_sync.leave(connection)
        self._changed()

    def members_changed(self, ips: Collection[str]) -> None:
        """Take the IPs of the registered slaves, one for each slave."""
        self._in_sync.members_changed(ips)
        self._changed()

    def is_registered(self, ip: str) -> bool:
        """Whether a slave with this IP may count."""
        return self._in_sync.registered_with(ip) > 0

    def registered_with(self, ip: str) -> int:
        """How many slaves with this IP may count."""
        return self._in_sync.registered_with(ip)

    async def run(self) -> None:
        """Refuse those who waited too long; when cancelled, all that still wait."""
        try:
            while True:
                deadline = self._waiters.next_deadline
                if deadline is None:
                    self._parked = True
                    await self._first_waiter.wait()
                else:
                    # Never too late for anyone who comes meanwhile: all wait equally long.
                    await trio.sleep_until(deadline)
                    self._refuse(self._waiters.expire(trio.current_time()), f"after {self.config.slave_timeout_ms} ms")
        finally:
            self._refuse(self._waiters.drain(), "this broker stops")

    def _changed(self) -> None:
        self._reason = None
        if not self._in_sync.counted and self._alone_since == 0:
            self._alone_since = time.time()
        elif self._in_sync.counted:
            self._alone_since = 0
        self._release()

    def _release(self) -> None:
        released = self._waiters.release(self._in_sync.push2_slave_max_offset)
        if len(released) == 1:  # The usual case of a lone producer.
            released[0].sink.answer([released[0].frame])
        else:
            for sink, frames in by_sink(released):
                sink.answer(frames)

    def _refuse(self, expired: Sequence[Waiter], why: str) -> None:
        if expired:
            reason = f"{why}, offset {expired[-1].end_offset} is not acknowledged. {self._describe()}"
            for sink, frames in by_sink(expired):
                sink.refuse(frames, PutStatus.FLUSH_SLAVE_TIMEOUT, reason)

    def _why_not_available(self) -> str:
        now = trio.current_time()
        if self._reason is None or now - self._reason.made_at > REASON_AGE_MAX:
            behind = f"all slaves are {self.config.slave_fallbehind_max} bytes or more behind. "
            self._reason = _Reason((behind if self._in_sync.counted else "") + self._describe(), now)
        return self._reason.text

    def _describe(self) -> str:
        """Say who is there, how far behind, and who is expected."""
        parts = []
        if not self._in_sync.counted:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._alone_since))
            parts.append(f"no slave connected since {since}")
        for slave in self._in_sync.slaves():
            behind = max(self._end_offset - slave.ack_offset, 0)
            why = "" if slave.counted else "; not counted" if slave.admitted else "; not registered, does not count"
            parts.append(f"slave {slave.address} has acknowledged {slave.ack_offset}, {behind} bytes behind{why}")
        parts.append(f"registered slaves: {', '.join(self._in_sync.registered) or 'none'}")
        return "; ".join(parts)
