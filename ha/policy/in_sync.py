"""Slaves that count, the offsets that they hold, and those of them that are in sync. Pure: connections and times in, answers out.

The model: the name server knows the slaves of this broker group by address. A connection counts when its IP is one of
theirs, and at most as many count for one IP as slaves are registered with it, the newest first: a slave that reconnects
replaces its lost connection, and an untrusted peer never adds to the count. Where an IP has several slaves, a connection is
suspect from the moment another one of its IP joins, as it may be what that slave left behind: it does not count on its own
until it acknowledges bytes that were written later. RocketMQ counts every connection, and keeps the highest report for ever.
A twinlog member says on its connection who it is: it counts under its id, whatever its IP, and its newest connection is its own.

Sources: HAService.push2SlaveMaxOffset, connectionCount (RocketMQ 4.9.8), DefaultHAService.isInSyncSlave,
AutoSwitchHAService.maybeExpandInSyncStateSet (5.3.3).

A slave is in sync if it counts, is not suspended, lacks fewer bytes than `gap_max`, and has held the whole log within the last
`level_seconds_max`. Its lag changes with every message. So a mark is set at the log's end instead, and once its acks pass the
mark the slave had caught up at the time of the mark: nothing is done per message.
"""

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Hashable

from attrs import define, field, frozen

SUSPEND_AFTER = 3  # Deadlines missed in a row.
NOT_SUSPECT = -1


@frozen(kw_only=True)
class Limits:
    """Limits beyond which a slave is not in sync. Bytes and seconds."""

    gap_max: int = 256 * 1024 * 1024
    level_seconds_max: float = 15.0
    stalled_seconds: float = 10.0
    mark_seconds_max: float = 1.5  # A suspended slave must reach a mark that is no older.


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
    member: str = ""  # The id of a member that said who it is.
    counted: bool = False
    suspended: bool = False
    awaited: bool = True  # It has not caught up since it joined, or was suspended.
    missed: int = 0  # Deadlines in a row.
    progressed: bool = False  # Since the last tick.
    progressed_at: float = 0.0
    caught_up_at: float = -math.inf  # When it held the whole log.
    mark: int = 0  # Where the log ended at marked_at.
    marked_at: float = 0.0
    suspect_until: int = NOT_SUSPECT  # Where the log ended when another one of its IP joined.


@define(eq=False)
class InSync:
    """The connections, oldest first, and what those that count hold."""

    limits: Limits = field(factory=Limits)
    registered: tuple[str, ...] = field(default=(), init=False)  # One IP, or the id of a member, per registered slave.
    _entries: Counter[str] = field(factory=Counter, init=False)
    _seats: dict[Hashable, _Seat] = field(factory=dict, init=False)
    acks: list[int] = field(factory=list, init=False)  # Of those that count, lowest first.
    waited: list[int] = field(factory=list, init=False)  # Without the suspended ones; if there are none, the same list.
    _suspended_names: set[str] = field(factory=set, init=False)  # Of slaves that left so.
    _has_suspects: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.waited = self.acks

    @property
    def counted(self) -> int:
        """Number of connections that count now."""
        return len(self.acks)

    @property
    def eligible(self) -> int:
        """Number of them that producers would wait for, if they lack few enough bytes."""
        return len(self.waited)

    @property
    def push2_slave_max_offset(self) -> int:
        """The highest offset acknowledged by a slave that counts now; 0 without one."""
        return self.acks[-1] if self.acks else 0

    def held_by(self, slaves: int) -> int:
        """The highest offset that so many slaves, 1 or more, have acknowledged; 0 if there are fewer."""
        assert slaves >= 1
        return self.acks[-slaves] if slaves <= len(self.acks) else 0

    def reach(self, slaves: int) -> int:
        """A message that ends below this may wait for so many slaves; 0 if there are fewer."""
        return self.waited[-slaves] + self.limits.gap_max if slaves <= len(self.waited) else 0

    def members_changed(self, names: Collection[str]) -> None:
        """Take the IPs of the registered slaves, one for each slave, or its id for a member that says who it is."""
        self.registered = tuple(names)
        self._entries = Counter(self.registered)
        self._suspended_names &= self._entries.keys()
        self._recount()

    def name_of(self, ip: str, member: str) -> str:
        """By which a connection counts: its member's id where that is registered, else its IP."""
        return member if member in self._entries else ip

    def registered_with(self, name: str) -> int:
        """Number of slaves with this IP or id that may count."""
        return self._entries[name]

    def join(
        self, key: Hashable, address: str, ip: str, ack_offset: int, *, member: str = "", end: int = 0, now: float = 0.0
    ) -> None:
        """Let a connection in that has made a valid request; what it holds is `ack_offset`, the log ends at `end`.

        A slave that left suspended comes back suspended, unless it holds everything.
        """
        seat = _Seat(address, ip, ack_offset, member, progressed_at=now, mark=end, marked_at=now)
        if ack_offset >= end:
            _note_caught_up(seat, now)
        seat.suspended = seat.awaited and self.name_of(seat.ip, seat.member) in self._suspended_names
        self._suspended_names.discard(self.name_of(seat.ip, seat.member))
        for other in self._seats.values():
            if not other.member and not member and other.ip == ip:  # A member's newest connection is its own.
                other.suspect_until = end
        self._seats[key] = seat
        self._recount()

    def acknowledge(self, key: Hashable, offset: int) -> bool:
        """Note a report of a connection; True when it caught up for the first time since it joined or was suspended."""
        seat = self._seats[key]
        assert offset >= seat.ack_offset, "an acknowledgement falls"
        if self._has_suspects or seat.suspect_until != NOT_SUSPECT:
            seat.ack_offset = offset
            if offset > seat.suspect_until:
                seat.suspect_until = NOT_SUSPECT
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
        _note_caught_up(seat, seat.marked_at)
        self._recount()
        return True

    def leave(self, key: Hashable) -> None:
        """Forget a connection; one that never joined is no matter."""
        seat = self._seats.pop(key, None)
        if seat is not None:
            if seat.suspended:
                self._suspended_names.add(self.name_of(seat.ip, seat.member))
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
                _note_caught_up(seat, now if seat.ack_offset >= end else seat.marked_at)
            elif not seat.suspended or now - seat.marked_at <= self.limits.mark_seconds_max:
                continue
            seat.mark, seat.marked_at = end, now
        if came_level:
            self._recount()
        return came_level

    @property
    def suspended(self) -> frozenset[str]:
        """The addresses of the suspended ones."""
        return frozenset(seat.address for seat in self._seats.values() if seat.suspended)

    def in_sync(self, end: int, now: float) -> int:
        """Number of slaves that are in sync."""
        return sum(self._is_in_sync(seat, end, now) for seat in self._seats.values())

    def caught_up_at(self, end: int, now: float) -> dict[str, float]:
        """Time at which each connected member that said who it is held the whole log last; -inf: it has not yet."""
        return {
            seat.member: now if seat.ack_offset >= end else seat.caught_up_at
            for seat in self._seats.values()
            if seat.member
        }

    def slaves(self, end: int = 0, now: float = 0.0) -> dict[Hashable, Slave]:
        """All connections that joined, oldest first."""
        return {key: self._describe(seat, end, now) for key, seat in self._seats.items()}

    def _is_in_sync(self, seat: _Seat, end: int, now: float) -> bool:
        return (
            seat.counted
            and not seat.awaited
            and end - seat.ack_offset < self.limits.gap_max
            and (seat.ack_offset >= end or now - seat.caught_up_at <= self.limits.level_seconds_max)
        )

    def _describe(self, seat: _Seat, end: int, now: float) -> Slave:
        behind = end - seat.ack_offset
        quiet = now - max(seat.progressed_at, seat.caught_up_at)
        stalled = behind > 0 and not seat.progressed and quiet > self.limits.stalled_seconds
        return Slave(
            address=seat.address,
            ack_offset=seat.ack_offset,
            admitted=self.registered_with(self.name_of(seat.ip, seat.member)) > 0,
            counted=seat.counted,
            in_sync=self._is_in_sync(seat, end, now),
            suspended=seat.suspended,
            stalled=stalled,
            reason=self._reason(seat, behind, now, quiet if stalled else 0.0),
        )

    def _reason(self, seat: _Seat, behind: int, now: float, stalled_seconds: float) -> str:
        reasons = []
        if not self.registered_with(self.name_of(seat.ip, seat.member)):
            reasons.append("not registered, does not count")
        elif not seat.counted:
            reasons.append(f"not counted: a newer connection of this {'member' if seat.member else 'address'} is")
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
        elif behind > 0 and now - seat.caught_up_at > self.limits.level_seconds_max and not seat.suspended:
            reasons.append(f"has not been level for {now - seat.caught_up_at:.0f} s")
        return "; ".join(reasons)

    def _recount(self) -> None:
        free = Counter(self._entries)
        newest_first = list(self._seats.values())[::-1]
        newest_first.sort(key=lambda seat: seat.suspect_until != NOT_SUSPECT)
        for seat in newest_first:
            name = self.name_of(seat.ip, seat.member)
            seat.counted = free[name] > 0
            free[name] -= seat.counted
        counted = [seat for seat in self._seats.values() if seat.counted]
        suspect = [seat.ack_offset for seat in counted if seat.suspect_until != NOT_SUSPECT]
        self._has_suspects = bool(suspect)
        self.acks = sorted(seat.ack_offset for seat in counted if seat.suspect_until == NOT_SUSPECT)
        self.waited = self.acks
        if suspect or any(seat.suspended for seat in self._seats.values()):
            self.waited = sorted(seat.ack_offset for seat in counted if not seat.suspended)
        if suspect:  # Some slave holds what a suspect one has acknowledged; it may be one that is counted already.
            self.acks[-1:] = [max(*self.acks[-1:], *suspect)] if self.acks else [max(suspect)]
            self.acks[:0] = [0] * (len(counted) - len(self.acks))


def _note_caught_up(seat: _Seat, at: float) -> None:
    seat.caught_up_at = max(seat.caught_up_at, at)
    seat.awaited = seat.suspended = False
    seat.missed = 0
