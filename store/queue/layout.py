"""Formats of a consume queue. No I/O.

A unit is i64 physical offset | i32 size | i64 tags code. Units of one queue lie one behind the other in the log; a blank
(0, 0x7FFFFFFF, 0) stands for a message that the log does not have.

The manifest holds the state of every queue at one moment, so that a start need not read their files:

    u32 count, then for each queue:
    u16 n, n bytes topic | i32 queue id | i64 min offset | i64 max offset | i64 max phy offset | u64 fingerprint

Big endian. Offsets count messages, except the max phy offset: the end of the queue's last message in the log, bytes, or -1."""

from collections.abc import Iterable
from itertools import islice
from operator import add, le
from struct import Struct
from typing import NamedTuple

from twinlog.store.config import CONSUME_QUEUE_UNIT

UNIT = Struct(">qiq")
assert UNIT.size == CONSUME_QUEUE_UNIT
BLANK_SIZE = 0x7FFFFFFF  # The size in a blank: no record is as large as this.
BLANK = UNIT.pack(0, BLANK_SIZE, 0)
# Units wait for others before they are written: the longer, the more queues they went to the last time, so that writing, which
# takes 5 us a queue, does not exceed a hundredth of the time, and queues that grow slowly get several units at once.
_LATE_SECONDS, _LATE_SECONDS_MAX, _LATE_SECONDS_OF_QUEUE = 0.02, 5.0, 0.0005
_RUNS = tuple((count, Struct(">" + "qi8x" * count)) for count in (4096, 256, 16))


class Unit(NamedTuple):
    """One entry: bytes `phy_offset` to `phy_offset + size` of the log."""

    phy_offset: int
    size: int
    tags_code: int

    @property
    def is_blank(self) -> bool:
        """True for a unit that stands for a message that the log does not have."""
        return self.size == BLANK_SIZE and self.phy_offset == 0


def late_seconds(queues: int) -> float:
    """The time that units wait before a running broker writes them to the queues' files, when they go to so many queues."""
    return min(max(_LATE_SECONDS, queues * _LATE_SECONDS_OF_QUEUE), _LATE_SECONDS_MAX)


def sound_units(units: bytes, behind: int, end: int) -> tuple[int, int]:
    """The number of valid, consecutive units from the first on, and the end in the log of the last message among them.

    `behind` is the end of the message before, `end` that of the log. Written for speed: a start checks millions of units.
    """
    count, at = 0, 0
    for run, struct in _RUNS:
        while len(units) - at >= struct.size:
            fields = struct.unpack_from(units, at)
            phy_offsets, sizes = fields[::2], fields[1::2]
            ends = tuple(map(add, phy_offsets, sizes))
            if (
                min(sizes) <= 0
                or phy_offsets[0] < behind
                or ends[-1] > end
                or not all(map(le, ends, islice(phy_offsets, 1, None)))
            ):
                break
            behind = ends[-1]
            at += struct.size
            count += run
    for phy_offset, size, _ in UNIT.iter_unpack(memoryview(units)[at : len(units) - len(units) % CONSUME_QUEUE_UNIT]):
        if size == BLANK_SIZE and phy_offset == 0:
            count += 1
            continue
        if size <= 0 or phy_offset < behind or phy_offset + size > end:
            break
        behind = phy_offset + size
        count += 1
    return count, behind


_COUNT, _TOPIC_SIZE, _FIELDS = Struct(">I"), Struct(">H"), Struct(">iqqqQ")
assert _FIELDS.size == 36


class QueueEnds(NamedTuple):
    """The ends of one queue. `fingerprint` identifies its files and the times when they were last written."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    max_phy_offset: int
    fingerprint: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """Topic and queue id."""
        return self.topic, self.queue_id


def encode_queues(queues: Iterable[QueueEnds]) -> bytes:
    """The reverse of decode_queues."""
    pieces, count = [b""], 0
    for topic, *fields in queues:
        raw = topic.encode()
        pieces += (_TOPIC_SIZE.pack(len(raw)), raw, _FIELDS.pack(*fields))
        count += 1
    pieces[0] = _COUNT.pack(count)
    return b"".join(pieces)


def decode_queues(data: bytes, at: int = 0) -> tuple[list[QueueEnds], int]:
    """The queues that are described from `at` on, and where that ends. Raises struct.error, IndexError or ValueError."""
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    queues = []
    for _ in range(count):
        (size,) = _TOPIC_SIZE.unpack_from(data, at)
        at += _TOPIC_SIZE.size
        topic = data[at : at + size].decode()
        at += size
        queues.append(QueueEnds(topic, *_FIELDS.unpack_from(data, at)))
        at += _FIELDS.size
    return queues, at
