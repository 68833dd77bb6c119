"""Slaves that this log has had, and the offset of each, so that retention keeps what disconnected ones lack. No I/O.

A slave is known by its IP, or by its id if it says who it is; those that share an IP are distinguished by their offsets. Each is
connected or away. For one that is away the log is kept up to a number of bytes; one that lacks more, or loses bytes because the
disk needs room, is given up: it needs a full copy.

    8 bytes magic | u32 version | u32 count, then for each slave:
    u16 n, n bytes IP or id | i64 offset | i64 away since, ms
    u64 xxh3 of all bytes before                                     twinlog/replicas; big endian
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from struct import Struct
from struct import error as StructError

from attrs import define, evolve, field, frozen
from xxhash import xxh3_64_intdigest

from twinlog.store.retention import NO_FLOOR

MAGIC, VERSION = b"TWLREPLI", 1
_HEAD, _IP_SIZE, _FIELDS, _SUM = Struct(">8sII"), Struct(">H"), Struct(">qq"), Struct(">Q")
KNOWN_MAX = 256  # The one away for longest goes first.
Ack = tuple[str, int] | tuple[str, int, str]  # IP or id, acknowledged offset, and for one with an id its IP.
EVERYBODY = 1 << 31  # More slaves than there are.


@frozen
class KnownSlave:
    """It holds all below `offset`. `away_since` is ms since 1970, 0 while it is connected."""

    ip: str  # Or its id.
    offset: int
    away_since: int = 0
    given_up: bool = False


@define
class KnownSlaves:
    """All of them. Call update() with who is connected, by something that stays the same for a connection."""

    connected: dict[Hashable, KnownSlave] = field(factory=dict)
    away: list[KnownSlave] = field(factory=list)

    def update(
        self,
        acks: Mapping[Hashable, Ack],
        now_ms: int,
        registered_with: Callable[[str], int] = lambda _ip: EVERYBODY,
    ) -> bool:
        """Take name and acknowledged offset of each connection; whether anybody came, left or got on.

        A connection that goes while as many of its IP are there as slaves are registered with it was lost by a slave that has
        another one: nobody is away.
        """
        before = (dict(self.connected), list(self.away))
        there = Counter(ack[0] for key, ack in acks.items() if key in self.connected)
        for key in [key for key in self.connected if key not in acks]:
            gone = self.connected.pop(key)
            if there[gone.ip] < max(registered_with(gone.ip), 1):
                self.away.append(evolve(gone, away_since=now_ms))
        for key, (name, offset, *ip) in acks.items():
            if key not in self.connected:
                self._came_back({name, *ip}, offset)
            self.connected[key] = KnownSlave(name, offset)
        del self.away[: max(0, len(self.away) - KNOWN_MAX)]
        return before != (self.connected, self.away)

    def _came_back(self, names: Collection[str], offset: int) -> None:
        """Of those away under one of these names the one that was about so far."""
        mine = [slave for slave in self.away if slave.ip in names]
        if mine:
            self.away.remove(min(mine, key=lambda slave: (abs(slave.offset - offset), slave.given_up)))

    def lowest(self, max_offset: int, bytes_max: int) -> KnownSlave | None:
        """The slave with the lowest offset of those that are away and lack at most `bytes_max`."""
        waiting = [slave for slave in self.away if not slave.given_up and max_offset - slave.offset <= bytes_max]
        return min(waiting, key=lambda slave: slave.offset, default=None)

    def floor(self, max_offset: int, bytes_max: int) -> int:
        """The lowest byte that one of these needs."""
        slave = self.lowest(max_offset, bytes_max)
        return slave.offset if slave is not None else NO_FLOOR

    def shortened(self, min_offset: int) -> list[KnownSlave]:
        """Slaves that lack bytes for good, as the log begins here now; each is returned once."""
        lost = [slave for slave in self.away if slave.offset < min_offset and not slave.given_up]
        self.away = [evolve(slave, given_up=True) if slave in lost else slave for slave in self.away]
        return lost


def encode_slaves(slaves: KnownSlaves, now_ms: int) -> bytes:
    """The reverse of decode_slaves; whoever is connected is away from now on, for who reads it later."""
    found = [slave for slave in slaves.away if not slave.given_up]
    found += (evolve(slave, away_since=now_ms) for slave in slaves.connected.values())
    pieces = [_HEAD.pack(MAGIC, VERSION, len(found))]
    for slave in found:
        ip = slave.ip.encode()
        pieces += (_IP_SIZE.pack(len(ip)), ip, _FIELDS.pack(slave.offset, slave.away_since))
    data = b"".join(pieces)
    return data + _SUM.pack(xxh3_64_intdigest(data))


def decode_slaves(raw: bytes) -> KnownSlaves | None:
    """Contents of a file; None when it is no such file, damaged, or of another version."""
    data = raw[: -_SUM.size]
    try:
        magic, version, count = _HEAD.unpack_from(data)
        if (magic, version) != (MAGIC, VERSION) or _SUM.pack(xxh3_64_intdigest(data)) != raw[-_SUM.size :]:
            return None
        at, away = _HEAD.size, []
        for _ in range(count):
            (size,) = _IP_SIZE.unpack_from(data, at)
            at += _IP_SIZE.size + size
            away.append(KnownSlave(data[at - size : at].decode(), *_FIELDS.unpack_from(data, at)))
            at += _FIELDS.size
    except (StructError, ValueError):
        return None
    return KnownSlaves(away=away)
