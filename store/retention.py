"""Decisions of retention, pure; store/services/retention_service.py carries them out.

As RocketMQ 4.9.8 (DefaultMessageStore.CleanCommitLogService, MappedFileQueue.deleteExpiredFileByTime): the oldest file first,
`fileReservedTime` hours after its last write, or at once when the disk is too full; never the last one; a few per round.

Unlike there, a file that a replica still needs stays, and the wall clock is not trusted blindly: RocketMQ wipes the log when
the clock jumps ahead. Retention has a clock of its own, which never passes the wall clock and never runs more than twice as
fast as monotonic time. So a file stays for at least half of its time, whatever the clock does. After a rightful leap (a broker
that was down for long, a clock that was corrected) both clocks agree again after as long as the leap.
"""

import sys
from collections.abc import Sequence
from struct import Struct

from attrs import define, frozen
from xxhash import xxh3_64_intdigest

NO_FLOOR = sys.maxsize
ABSENCE_MAX = 3600.0  # Seconds of a stop that count as time in which files grew older.
_SPEED_MAX = 2.0
_MAGIC, _VERSION = b"TWLCLOCK", 1
_LAYOUT, _SUM = Struct(">8sIIq"), Struct(">Q")
assert _LAYOUT.size == 24


@frozen
class FileAge:
    """A file whose bytes end before offset `end` of the log, last written at `modified_s`."""

    end: int
    modified_s: float


def count_to_delete(
    files: Sequence[FileAge], *, now_s: float, reserved_s: float, floor: int, forced: bool, count_max: int
) -> int:
    """The number of the oldest files to delete. `floor`: the lowest byte of the log that is still needed."""
    count = 0
    for file in files[:-1][:count_max]:
        if file.end > floor or (not forced and file.modified_s + reserved_s > now_s):
            break
        count += 1
    assert count < max(len(files), 1), "the last file stays"
    return count


def parse_hours(delete_when: str) -> frozenset[int]:
    """The hours of `deleteWhen`, split by `;`. Raises ValueError."""
    hours = frozenset(int(part) for part in delete_when.split(";") if part.strip())
    if not hours <= frozenset(range(24)):
        raise ValueError(f"not an hour of the day: {delete_when}")
    return hours


@define(eq=False)
class RetentionClock:
    """Trusted seconds since 1970. `monotonic` is a clock that nobody sets."""

    now_s: float
    _monotonic: float

    @classmethod
    def start(cls, *, wall_s: float, monotonic: float, last_s: float | None) -> "RetentionClock":
        """After a stop at `last_s`; None: nothing is known of an earlier time."""
        return cls(wall_s if last_s is None else min(wall_s, last_s + ABSENCE_MAX), monotonic)

    def read(self, *, wall_s: float, monotonic: float) -> float:
        """The time now."""
        passed = max(0.0, monotonic - self._monotonic)
        self._monotonic = monotonic
        self.now_s = min(wall_s, self.now_s + passed * _SPEED_MAX)
        return self.now_s


def encode_clock(now_s: float) -> bytes:
    """twinlog/clock: 8 bytes magic | u32 version | u32 reserved | i64 ms since 1970 | u64 xxh3 of all before; big endian."""
    data = _LAYOUT.pack(_MAGIC, _VERSION, 0, int(now_s * 1000))
    return data + _SUM.pack(xxh3_64_intdigest(data))


def decode_clock(data: bytes) -> float | None:
    """The time in a clock file, in seconds; None for any other file."""
    if len(data) != _LAYOUT.size + _SUM.size or _SUM.unpack_from(data, _LAYOUT.size)[0] != xxh3_64_intdigest(
        data[: -_SUM.size]
    ):
        return None
    magic, version, _, now_ms = _LAYOUT.unpack_from(data)
    return now_ms / 1000 if (magic, version) == (_MAGIC, _VERSION) else None
