"""The recovery point, as bytes and as an object: up to where everything is known to be on the disk. No I/O.

    8 bytes magic | u32 version | u32 reserved
    i64 offset | i64 log start | i64 log file size | i64 consume queue file size
    i64 last record's offset | i64 last record's size | u64 its xxh3 | i64 its store time
    u32 n, then n times  i64 start | i64 end  of a damaged range
    the queue manifest (store/queue/layout.py)
    u64 xxh3 of all bytes before

Big endian; offsets in the log and sizes count bytes, times are ms. All records below `offset` are in the log and the
queues, durably; the queues are as the manifest says once what belongs to records at or behind `offset` is left out. The
last record ties the point to its log: a cut below it, or another log in its place, invalidates the point.
"""

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from attrs import frozen
from xxhash import xxh3_64_intdigest

from twinlog.store.errors import SideFileError
from twinlog.store.queue.layout import QueueEnds, decode_queues, encode_queues

MAGIC, VERSION = b"TWLPOINT", 1
_HEAD, _FIELDS = Struct(">8sII"), Struct(">qqqqqqQq")
_COUNT, _RANGE, _SUM = Struct(">I"), Struct(">qq"), Struct(">Q")
assert (_HEAD.size, _FIELDS.size) == (16, 64)


class PointRecord(NamedTuple):
    """The newest record below a recovery point: bytes `phy_offset` to `phy_offset + size` of the log. Size 0: none."""

    phy_offset: int = -1
    size: int = 0
    digest: int = 0
    store_timestamp: int = 0


@frozen(kw_only=True)
class RecoveryPoint:
    """Everything below `offset` is durable, in the log and in the queues."""

    offset: int
    log_start: int
    log_file_size: int
    queue_file_size: int
    last: PointRecord = PointRecord()
    damaged: tuple[tuple[int, int], ...] = ()
    queues: tuple[QueueEnds, ...] = ()


def encode_point(point: RecoveryPoint) -> bytes:
    """The reverse of decode_point."""
    sizes = point.log_file_size, point.queue_file_size
    pieces = (
        _HEAD.pack(MAGIC, VERSION, 0),
        _FIELDS.pack(point.offset, point.log_start, *sizes, *point.last),
        _COUNT.pack(len(point.damaged)),
        *(_RANGE.pack(*damaged) for damaged in point.damaged),
        encode_queues(point.queues),
    )
    data = b"".join(pieces)
    return data + _SUM.pack(xxh3_64_intdigest(data))


def decode_point(data: bytes) -> RecoveryPoint:
    """The point in a file. Raises SideFileError when the bytes are damaged, or of an unknown version."""
    try:
        magic, version, _ = _HEAD.unpack_from(data)
        (digest,) = _SUM.unpack_from(data, len(data) - _SUM.size)
        if magic != MAGIC or version != VERSION:
            raise SideFileError(f"{magic!r}, version {version}, is not known here")
        if digest != xxh3_64_intdigest(data[: -_SUM.size]):
            raise SideFileError("its checksum is wrong")
        return _decode(data)
    except (StructError, ValueError, IndexError) as error:
        raise SideFileError(f"it is not whole: {error}") from error


def _decode(data: bytes) -> RecoveryPoint:
    offset, log_start, log_file_size, queue_file_size, *last = _FIELDS.unpack_from(data, _HEAD.size)
    at = _HEAD.size + _FIELDS.size
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    damaged = tuple(_RANGE.unpack_from(data, at + n * _RANGE.size) for n in range(count))
    queues, at = decode_queues(data, at + count * _RANGE.size)
    if at != len(data) - _SUM.size:
        raise SideFileError(f"{len(data) - _SUM.size - at} bytes too many")
    return RecoveryPoint(
        offset=offset,
        log_start=log_start,
        log_file_size=log_file_size,
        queue_file_size=queue_file_size,
        last=PointRecord(*last),
        damaged=damaged,
        queues=tuple(queues),
    )
