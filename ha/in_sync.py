"""Which connections count as slaves, and what they hold. Pure: told who joins, reports and leaves, it answers.

The model: the name server knows the slaves of this broker group by address. A connection counts when its IP is one of
theirs, and at most as many count for one IP as slaves are registered with it, the newest first: a slave that comes
back replaces the connection it lost, and a stranger can never add a voice. RocketMQ counts whoever connects, and keeps
the highest report for ever. Source: HAService.push2SlaveMaxOffset, connectionCount (RocketMQ 4.9.8).
"""

from collections import Counter
from collections.abc import Collection, Hashable

from attrs import define, field, frozen


@frozen
class Slave:
    """One connection that has made a valid request."""

    address: str  # IP:PORT
    ack_offset: int
    admitted: bool  # Its IP is registered.
    counted: bool  # It is one of as many as are registered with this IP.


@define
class _Seat:
    address: str
    ip: str
    ack_offset: int
    counted: bool = False


@define(eq=False)
class InSync:
    """The connections, oldest first, and the highest acknowledged offset of those that count."""

    push2_slave_max_offset: int = field(default=0, init=False)
    counted: int = field(default=0, init=False)  # How many connections count now.
    registered: tuple[str, ...] = field(default=(), init=False)  # One IP per registered slave.
    _entries: Counter[str] = field(factory=Counter, init=False)
    _seats: dict[Hashable, _Seat] = field(factory=dict, init=False)

    def members_changed(self, ips: Collection[str]) -> None:
        """Take the IPs of the registered slaves, one for each slave."""
        self.registered = tuple(ips)
        self._entries = Counter(self.registered)
        self._recount()

    def registered_with(self, ip: str) -> int:
        """How many slaves with this IP may count."""
        return self._entries[ip]

    def join(self, key: Hashable, address: str, ip: str, ack_offset: int) -> None:
        """Let a connection in that has made a valid request; what it holds is `ack_offset`."""
        self._seats[key] = _Seat(address, ip, ack_offset)
        self._recount()

    def acknowledge(self, key: Hashable, offset: int) -> bool:
        """Note a report of a connection that joined; True when push2_slave_max_offset rose."""
        seat = self._seats[key]
        seat.ack_offset = offset
        if seat.counted and offset > self.push2_slave_max_offset:
            self.push2_slave_max_offset = offset
            return True
        return False

    def leave(self, key: Hashable) -> None:
        """Forget a connection; one that never joined is no matter."""
        if self._seats.pop(key, None) is not None:
            self._recount()

    def is_counted(self, key: Hashable) -> bool:
        """Whether this connection counts now."""
        seat = self._seats.get(key)
        return seat is not None and seat.counted

    def slaves(self) -> tuple[Slave, ...]:
        """All connections that joined, oldest first."""
        return tuple(
            Slave(seat.address, seat.ack_offset, self.registered_with(seat.ip) > 0, seat.counted)
            for seat in self._seats.values()
        )

    def _recount(self) -> None:
        free = Counter(self._entries)
        counted = []
        for seat in reversed(self._seats.values()):
            seat.counted = free[seat.ip] > 0
            if seat.counted:
                free[seat.ip] -= 1
                counted.append(seat.ack_offset)
        self.counted = len(counted)
        self.push2_slave_max_offset = max(counted, default=0)
