"""What is known of every consume queue at one moment, so that a start need not look at their files. No I/O.

    u32 count, then for each queue:
    u16 n, n bytes topic | i32 queue id | i64 min offset | i64 max offset | i64 max phy offset | u64 fingerprint

Big endian. Offsets count messages, except the max phy offset: the end of the queue's last message in the log, bytes, or -1.
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

_COUNT, _TOPIC_SIZE, _FIELDS = Struct(">I"), Struct(">H"), Struct(">iqqqQ")
assert _FIELDS.size == 36


class QueueState(NamedTuple):
    """One queue. `fingerprint` stands for its files as they were: which there are, and when each was written last."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    max_phy_offset: int
    fingerprint: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """How the queue is found."""
        return self.topic, self.queue_id


def encode_queues(queues: Iterable[QueueState]) -> bytes:
    """The reverse of decode_queues."""
    pieces, count = [b""], 0
    for topic, *fields in queues:
        raw = topic.encode()
        pieces += (_TOPIC_SIZE.pack(len(raw)), raw, _FIELDS.pack(*fields))
        count += 1
    pieces[0] = _COUNT.pack(count)
    return b"".join(pieces)


def decode_queues(data: bytes, at: int = 0) -> tuple[list[QueueState], int]:
    """The queues that are described from `at` on, and where that ends. Raises struct.error, IndexError or ValueError."""
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    queues = []
    for _ in range(count):
        (size,) = _TOPIC_SIZE.unpack_from(data, at)
        at += _TOPIC_SIZE.size
        topic = data[at : at + size].decode()
        at += size
        queues.append(QueueState(topic, *_FIELDS.unpack_from(data, at)))
        at += _FIELDS.size
    return queues, at
