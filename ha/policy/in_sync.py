"""Which connections count as slaves, what they hold, and which of them are in sync. Pure: told who joins, reports and
leaves, and what time it is, it answers.

The model: the name server knows the slaves of this broker group by address. A connection counts when its IP is one of
theirs, and at most as many count for one IP as slaves are registered with it, the newest first: a slave that comes
back replaces the connection it lost, and a stranger can never add a voice. Where an IP has several slaves, a connection
is doubted from the moment another one of its IP joins, for it may be what that slave has left behind: it is no voice of
its own until it acknowledges bytes that were written later. RocketMQ counts whoever connects, and keeps
the highest report for ever. Sources: HAService.push2SlaveMaxOffset, connectionCount (RocketMQ 4.9.8), DefaultHAService
.isInSyncSlave, AutoSwitchHAService.maybeExpandInSyncStateSet (5.3.3).

In sync is who counts, is not suspended, lacks fewer bytes than `gap_max`, and has held the whole log within the last
`level_seconds_max`. What a slave lacks changes with every message, so a mark is set instead, at the log's end, and the
slave was level when it was set once its acks have passed it: nothing is to be done for a message.
"""

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Hashable

from attrs import define, field, frozen

SUSPEND_AFTER = 3  # Deadlines missed in a row.
NO_DOUBT = -1


@frozen(kw_only=True)
class Limits:
    """When a slave is in sync no more. Bytes and seconds."""

    gap_max: int = 256 * 1024 * 1024
    level_seconds_max: float = 15.0
    stalled_seconds: float = 10.0
    mark_seconds_max: float = 1.5  # A suspended slave must get level with a mark that is no older.


@frozen(kw_only=True)
class Slave:
    """One connection that has made a valid request."""

    address: str  # IP:PORT
    ack_offset: int
    admitted: bool  # Its IP is registered.
    counted: bool  # It is one of as many as are registered with this IP.
    in_sync: bool
    suspended: bool  # Producers do not wait for it; what it holds counts nevertheless.
    stalled: bool  # It lacks bytes, and has acknowledged none for a while.
    reason: str  # Why it is not in sync, or else not as it should be; empty: all is well.


@define
class _Seat:
    address: str
    ip: str
    ack_offset: int
    counted: bool = False
    suspended: bool = False
    awaited: bool = True  # It has not been level since it joined, or was suspended.
    missed: int = 0  # Deadlines in a row.
    progressed: bool = False  # Since the last tick.
    progressed_at: float = 0.0
    level_at: float = -math.inf  # When it held the whole log.
    mark: int = 0  # Where the log ended at marked_at.
    marked_at: float = 0.0
    doubted_until: int = NO_DOUBT  # Where the log ended when another one of its IP joined.


@define(eq=False)
class InSync:
    """The connections, oldest first, and what those that count hold."""

    limits: Limits = field(factory=Limits)
    registered: tuple[str, ...] = field(default=(), init=False)  # One IP per registered slave.
    _entries: Counter[str] = field(factory=Counter, init=False)
    _seats: dict[Hashable, _Seat] = field(factory=dict, init=False)
    acks: list[int] = field(factory=list, init=False)  # Of those that count, lowest first.
    waited: list[int] = field(factory=list, init=False)  # Without the suspended ones; if there are none, the same list.
    _suspended_ips: set[str] = field(factory=set, init=False)  # Of slaves that left so.
    _has_doubts: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.waited = self.acks

    @property
    def counted(self) -> int:
        """How many connections count now."""
        return len(self.acks)

    @property
    def eligible(self) -> int:
        """For how many of them producers would wait, if they lack few enough bytes."""
        return len(self.waited)

    @property
    def push2_slave_max_offset(self) -> int:
        """The highest offset acknowledged by a slave that counts now; 0 without one."""
        return self.acks[-1] if self.acks else 0

    def held_by(self, slaves: int) -> int:
        """The highest offset that so many slaves, 1 or more, have acknowledged; 0 if there are fewer."""
        return self.acks[-slaves] if slaves <= len(self.acks) else 0

    def reach(self, slaves: int) -> int:
        """A message that ends below this may wait for so many slaves; 0 if there are fewer."""
        return self.waited[-slaves] + self.limits.gap_max if slaves <= len(self.waited) else 0

    def members_changed(self, ips: Collection[str]) -> None:
        """Take the IPs of the registered slaves, one for each slave."""
        self.registered = tuple(ips)
        self._entries = Counter(self.registered)
        self._suspended_ips &= self._entries.keys()
        self._recount()

    def registered_with(self, ip: str) -> int:
        """How many slaves with this IP may count."""
        return self._entries[ip]

    def join(self, key: Hashable, address: str, ip: str, ack_offset: int, *, end: int = 0, now: float = 0.0) -> None:
        """Let a connection in that has made a valid request; what it holds is `ack_offset`, the log ends at `end`.

        A slave that left suspended comes back suspended, unless it holds everything.
        """
        seat = _Seat(address, ip, ack_offset, progressed_at=now, mark=end, marked_at=now)
        if ack_offset >= end:
            _make_level(seat, now)
        seat.suspended = seat.awaited and ip in self._suspended_ips
        self._suspended_ips.discard(ip)
        for other in self._seats.values():
            if other.ip == ip:
                other.doubted_until = end
        self._seats[key] = seat
        self._recount()

    def acknowledge(self, key: Hashable, offset: int) -> bool:
        """Note a report of a connection that joined; True when it got level that was not since it joined or was suspended."""
        seat = self._seats[key]
        if self._has_doubts or seat.doubted_until != NO_DOUBT:
            seat.ack_offset = offset
            if offset > seat.doubted_until:
                seat.doubted_until = NO_DOUBT
            self._recount()
        elif seat.counted:
            acks = self.acks
            if len(acks) == 1:  # The usual case.
                acks[0] = offset
            else:
                del acks[bisect_left(acks, seat.ack_offset)]
                insort(acks, offset)
            if self.waited is not acks and not seat.suspended:
                del self.waited[bisect_left(self.waited, seat.ack_offset)]
                insort(self.waited, offset)
        seat.ack_offset = offset
        seat.progressed = True
        if not seat.awaited or offset < seat.mark:
            return False
        _make_level(seat, seat.marked_at)
        self._recount()
        return True

    def leave(self, key: Hashable) -> None:
        """Forget a connection; one that never joined is no matter."""
        seat = self._seats.pop(key, None)
        if seat is not None:
            if seat.suspended:
                self._suspended_ips.add(seat.ip)
            self._recount()

    def missed(self, end_offset: int, *, end: int, now: float) -> bool:
        """A message that ends at `end_offset` was not acknowledged in time; True when a slave was suspended for it."""
        suspended = False
        for seat in self._seats.values():
            if not seat.counted or seat.suspended:
                continue
            seat.missed = seat.missed + 1 if seat.ack_offset < end_offset else 0
            if seat.missed >= SUSPEND_AFTER:
                seat.suspended = seat.awaited = True
                seat.mark, seat.marked_at = end, now
                suspended = True
        if suspended:
            self._recount()
        return suspended

    def tick(self, end: int, now: float) -> bool:
        """Look at all of them, once a second; True when one got level that was not since it joined or was suspended."""
        came_level = False
        for seat in self._seats.values():
            if seat.progressed:
                seat.progressed, seat.progressed_at = False, now
            if seat.ack_offset >= min(seat.mark, end):
                came_level |= seat.awaited
                _make_level(seat, now if seat.ack_offset >= end else seat.marked_at)
            elif not seat.suspended or now - seat.marked_at <= self.limits.mark_seconds_max:
                continue
            seat.mark, seat.marked_at = end, now
        if came_level:
            self._recount()
        return came_level

    def is_counted(self, key: Hashable) -> bool:
        """Whether this connection counts now."""
        seat = self._seats.get(key)
        return seat is not None and seat.counted

    @property
    def suspended(self) -> frozenset[str]:
        """The addresses of the suspended ones."""
        return frozenset(seat.address for seat in self._seats.values() if seat.suspended)

    def in_sync(self, end: int, now: float) -> int:
        """How many slaves are in sync."""
        return sum(self._is_in_sync(seat, end, now) for seat in self._seats.values())

    def slaves(self, end: int = 0, now: float = 0.0) -> dict[Hashable, Slave]:
        """All connections that joined, oldest first."""
        return {key: self._describe(seat, end, now) for key, seat in self._seats.items()}

    def _is_in_sync(self, seat: _Seat, end: int, now: float) -> bool:
        return (
            seat.counted
            and not seat.awaited
            and end - seat.ack_offset < self.limits.gap_max
            and (seat.ack_offset >= end or now - seat.level_at <= self.limits.level_seconds_max)
        )

    def _describe(self, seat: _Seat, end: int, now: float) -> Slave:
        behind = end - seat.ack_offset
        quiet = now - max(seat.progressed_at, seat.level_at)
        stalled = behind > 0 and not seat.progressed and quiet > self.limits.stalled_seconds
        return Slave(
            address=seat.address,
            ack_offset=seat.ack_offset,
            admitted=self.registered_with(seat.ip) > 0,
            counted=seat.counted,
            in_sync=self._is_in_sync(seat, end, now),
            suspended=seat.suspended,
            stalled=stalled,
            reason=self._reason(seat, behind, now, quiet if stalled else 0.0),
        )

    def _reason(self, seat: _Seat, behind: int, now: float, stalled_seconds: float) -> str:
        reasons = []
        if not self.registered_with(seat.ip):
            reasons.append("not registered, does not count")
        elif not seat.counted:
            reasons.append("not counted: a newer connection of this address is")
        if seat.suspended:
            reasons.append(
                f"suspended: it missed {SUSPEND_AFTER} deadlines in a row, and counts again once it is level"
            )
        if stalled_seconds:
            reasons.append(f"stalled: {behind} bytes to go, and no acknowledgement for {stalled_seconds:.0f} s")
        elif behind >= self.limits.gap_max:
            reasons.append(f"{self.limits.gap_max} bytes or more behind")
        elif behind > 0 and seat.awaited and not seat.suspended:
            reasons.append("has not been level since it connected")
        elif behind > 0 and now - seat.level_at > self.limits.level_seconds_max and not seat.suspended:
            reasons.append(f"has not been level for {now - seat.level_at:.0f} s")
        return "; ".join(reasons)

    def _recount(self) -> None:
        free = Counter(self._entries)
        newest_first = list(self._seats.values())[::-1]
        newest_first.sort(key=lambda seat: seat.doubted_until != NO_DOUBT)
        for seat in newest_first:
            seat.counted = free[seat.ip] > 0
            free[seat.ip] -= seat.counted
        counted = [seat for seat in self._seats.values() if seat.counted]
        doubted = [seat.ack_offset for seat in counted if seat.doubted_until != NO_DOUBT]
        self._has_doubts = bool(doubted)
        self.acks = sorted(seat.ack_offset for seat in counted if seat.doubted_until == NO_DOUBT)
        self.waited = self.acks
        if doubted or any(seat.suspended for seat in self._seats.values()):
            self.waited = sorted(seat.ack_offset for seat in counted if not seat.suspended)
        if doubted:  # Somebody holds what a doubted one has acknowledged; it may be one who is counted already.
            self.acks[-1:] = [max(*self.acks[-1:], *doubted)] if self.acks else [max(doubted)]
            self.acks[:0] = [0] * (len(counted) - len(self.acks))


def _make_level(seat: _Seat, at: float) -> None:
    seat.level_at = max(seat.level_at, at)
    seat.awaited = seat.suspended = False
    seat.missed = 0
