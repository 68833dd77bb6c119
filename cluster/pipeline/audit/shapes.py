"""Describes how bytes differ from another copy of them: positions, bits, fields, misplaced records. Pure."""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from twinlog.store.record.message import BORN_HOST_V6, MAGIC_V2, RECORD_SIZE_MIN, SIZE_AND_MAGIC, STORE_HOST_V6
from twinlog.store.record.resync import is_record

HOLE_MIN = 32  # Fewer zeros are an ordinary change.
FIELD_MAX = 8  # Bytes of the longest field at a fixed position.
_MISPLACED_MAX = 64
_MAGIC_PREFIX = b"\xda\xa3\x20"
_PHY_OFFSET, _PHY_OFFSET_AT, _SYS_FLAG_AT = Struct(">q"), 28, 36
_I32, _U16 = Struct(">i"), Struct(">H")
_FIELDS = (
    ("length", 4),
    ("magic", 4),
    ("CRC", 4),
    ("queue id", 4),
    ("flag", 4),
    ("queue offset", 8),
    ("physical offset", 8),
    ("system flag", 4),
    ("born time", 8),
)


class ChangedSpan(NamedTuple):
    """Positions `first` to `end`: two copies are equal before and behind them."""

    first: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.first


def difference(one: bytes, other: bytes) -> ChangedSpan:
    """Positions in which two different byte strings of the same size differ."""
    assert len(one) == len(other)
    assert one != other
    first = _equal_prefix(one, other)
    return ChangedSpan(first, len(one) - _equal_prefix(one[:first:-1], other[:first:-1]))


def _equal_prefix(one: bytes, other: bytes) -> int:
    """Number of bytes that are equal at the start."""
    low, high = 0, len(one)
    mine, theirs = memoryview(one), memoryview(other)
    while low < high:
        middle = (low + high) // 2
        if mine[low : middle + 1] == theirs[low : middle + 1]:
            low = middle + 1
        else:
            high = middle
    return low


def changed_bits(one: bytes, other: bytes, where: ChangedSpan) -> int:
    """Number of bits that differ."""
    mine, theirs = one[where.first : where.end], other[where.first : where.end]
    return (int.from_bytes(mine) ^ int.from_bytes(theirs)).bit_count()


def hole(bad: bytes, where: ChangedSpan) -> ChangedSpan | None:
    """The zeros that make up the difference, extended to the edges of the bytes where they reach these; None: no hole."""
    if where.size < HOLE_MIN or bad.count(0, where.first, where.end) != where.size:
        return None
    first = 0 if bad.count(0, 0, where.first) == where.first else where.first
    end = len(bad) if bad.count(0, where.end) == len(bad) - where.end else where.end
    return ChangedSpan(first, end)


class Misplaced(NamedTuple):
    """A record that is sound except for its place: it lies at `offset`, and names `claimed`."""

    offset: int
    claimed: int


def misplaced(data: bytes, phy_offset: int, file_size: int) -> list[Misplaced]:
    """The first records of another offset in bytes that lie at `phy_offset` of the log."""
    found: list[Misplaced] = []
    at = 0
    while len(found) < _MISPLACED_MAX and (hit := data.find(_MAGIC_PREFIX, at + 4)) >= 0:
        at = hit - 4
        record = _record_of_any_place(data, at, file_size)
        if record is not None and record[1] != phy_offset + at:
            found.append(Misplaced(phy_offset + at, record[1]))
            at += record[0] - 4
        else:
            at += 1
    return found


def _record_of_any_place(data: bytes, at: int, file_size: int) -> tuple[int, int] | None:
    """Size and claimed offset of the record at a position."""
    if at + RECORD_SIZE_MIN > len(data):
        return None
    size, _ = SIZE_AND_MAGIC.unpack_from(data, at)
    (claimed,) = _PHY_OFFSET.unpack_from(data, at + _PHY_OFFSET_AT)
    if not RECORD_SIZE_MIN <= size <= len(data) - at or claimed < 0:
        return None
    return (size, claimed) if is_record(data[at : at + size], claimed, file_size) else None


def is_shift(records: list[Misplaced]) -> bool:
    """True if several consecutive records are off by the same distance."""
    return len(records) > 2 and len({record.claimed - record.offset for record in records}) == 1


def fields(record: bytes) -> Iterator[tuple[str, int, int]]:
    """Name, start and end of each field of a whole, sound record, in order."""
    (sys_flag,) = _I32.unpack_from(record, _SYS_FLAG_AT)
    hosts_and_more = (
        ("born host", 20 if sys_flag & BORN_HOST_V6 else 8),
        ("store time", 8),
        ("store host", 20 if sys_flag & STORE_HOST_V6 else 8),
        ("reconsume times", 4),
        ("prepared offset", 8),
    )
    at = 0
    for name, size in _FIELDS + hosts_and_more:
        yield name, at, at + size
        at += size
    body_end = at + 4 + _I32.unpack_from(record, at)[0]
    yield "body", at, body_end
    is_v2 = SIZE_AND_MAGIC.unpack_from(record)[1] == MAGIC_V2
    size = 2 + _U16.unpack_from(record, body_end)[0] if is_v2 else 1 + record[body_end]
    yield "topic", body_end, body_end + size
    yield "properties", body_end + size, len(record)


def fields_of(record: bytes, where: ChangedSpan) -> str:
    """Names of the fields that a span touches, as text."""
    names = [name for name, start, end in fields(record) if start < where.end and where.first < end]
    return f"{names[0]} to {names[-1]}" if len(names) > 2 else " and ".join(names)
