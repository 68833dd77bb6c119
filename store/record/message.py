"""One message record of the commit log, as bytes and as an object. No I/O.

    i32 total size | i32 magic | i32 body CRC | i32 queue id | i32 flag | i64 queue offset | i64 physical offset
    i32 sys flag | i64 born time | born host | i64 store time | store host | i32 reconsume times | i64 prepared offset
    i32 n, n bytes body | i8 n (version 2: i16), n bytes topic | i16 n, n bytes properties

Big endian, signed; times are ms; a host is an address of 4 or 16 bytes and an i32 port. At the end of a file stands a blank:
i32 bytes to the end of the file | i32 BLANK_MAGIC. Sources: CommitLog, MessageExtEncoder, MessageDecoder; RocketMQ 4.9.8, 5.3.3.
"""

from functools import lru_cache
from ipaddress import ip_address
from struct import Struct
from struct import error as StructError
from typing import Any

from attrs import frozen
from zlib_ng.zlib_ng import crc32

from twinlog.store.errors import MessageFormatError
from twinlog.store.record.properties import parse_properties

MAGIC_V1, MAGIC_V2, MAGIC_BLANK = 0xDAA320A7 - (1 << 32), 0xDAA320AB - (1 << 32), 0xCBD43194 - (1 << 32)
BORN_HOST_V6, STORE_HOST_V6 = 0x10, 0x20  # sys_flag bits.
ANY_V6 = BORN_HOST_V6 | STORE_HOST_V6
TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK = 0xC, 0x4, 0x8, 0xC
QUEUELESS = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)  # Records of these kinds enter no consume queue.

SIZE_AND_MAGIC = Struct(">ii")
# A record with two IPv4 hosts up to its body: nearly all of them.
RECORD_V4 = Struct(">iiiiiqqiq8sq8siqi")
assert (SIZE_AND_MAGIC.size, RECORD_V4.size) == (8, 88)
FIXED_SIZE = RECORD_V4.size + 1 + 2  # 91 bytes around body, topic and properties.
RECORD_SIZE_MIN = FIXED_SIZE
END_OF_FILE_RESERVE = 8  # A record leaves room for the blank behind it.

_TO_BORN_HOST = Struct(">iiiiiqqiq")
_STORE_TIME = Struct(">q")
_TO_BODY = Struct(">iqi")
_V4_TO_BODY = Struct(">8sq8siqi")  # From the born host on, of two IPv4 hosts.
assert _TO_BORN_HOST.size + _V4_TO_BODY.size == RECORD_V4.size
_I16 = Struct(">h")
_HOST_V4_SIZE, _HOST_V6_SIZE = 8, 20
STORED_MS_END = _TO_BORN_HOST.size + _HOST_V6_SIZE + _STORE_TIME.size  # The latest end of a record's store time.


@frozen
class Message:
    """A record taken apart. Offsets and sizes in bytes, except `queue_offset`, which counts messages of its queue."""

    topic: str
    queue_id: int
    body: bytes
    properties_raw: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    queue_offset: int = 0
    phy_offset: int = 0
    born_timestamp: int = 0
    born_host: bytes = b"\x7f\0\0\1\0\0\0\0"
    store_timestamp: int = 0
    store_host: bytes = b"\x7f\0\0\1\0\0\0\0"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int = 0
    size: int = 0
    magic: int = MAGIC_V1

    @property
    def properties(self) -> dict[str, str]:
        """The properties by name."""
        return parse_properties(self.properties_raw.decode("utf-8", "replace"))

    @property
    def message_id(self) -> str:
        """The offsetMsgId: where the record lies, in hex."""
        return message_id(self.store_host, self.phy_offset)


def body_crc(body: bytes | memoryview) -> int:
    """CRC-32 of the stored body without its sign bit; 0 for none."""
    return crc32(body) & 0x7FFFFFFF


def message_id(store_host: bytes, phy_offset: int) -> str:
    """The offsetMsgId of the record at `phy_offset`: 32 hex digits, 56 with an IPv6 host."""
    return f"{store_host.hex().upper()}{phy_offset:016X}"


def host_bytes(address: str) -> bytes:
    """`1.2.3.4:10911` or `[::1]:10911` as records keep it: 8 bytes, or 20 for IPv6."""
    host, _, port = address.rpartition(":")
    return ip_address(host.strip("[]")).packed + int(port).to_bytes(4)


@lru_cache(maxsize=256)
def host_text(host: bytes) -> str:
    """The reverse of host_bytes."""
    address, port = ip_address(host[:-4]), int.from_bytes(host[-4:])
    return f"{address}:{port}" if len(host) == 8 else f"[{address}]:{port}"


def record_stored_ms(head: bytes, phy_offset: int) -> int | None:
    """The store time of a record, ms since 1970, from its first STORED_MS_END bytes; None when it names another offset."""
    says, sys_flag = _TO_BORN_HOST.unpack_from(head)[6:8]
    if says != phy_offset:
        return None
    at = _TO_BORN_HOST.size + (_HOST_V6_SIZE if sys_flag & BORN_HOST_V6 else _HOST_V4_SIZE)
    timestamp: int = _STORE_TIME.unpack_from(head, at)[0]
    return timestamp


def decode_message(buffer: bytes | memoryview, at: int = 0, *, check_crc: bool = True) -> Message:
    """The record that starts at `at`. Raises MessageFormatError when there is no whole, sound record."""
    try:
        return _decode(memoryview(buffer)[at:], check_crc)
    except (StructError, ValueError, IndexError) as error:
        raise MessageFormatError(f"no whole record: {error}") from error


def _decode(data: memoryview, check_crc: bool) -> Message:
    fields = _TO_BORN_HOST.unpack_from(data)
    size, magic, crc, queue_id, flag, queue_offset, phy_offset, sys_flag, born_timestamp = fields
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise MessageFormatError(f"magic {magic & 0xFFFFFFFF:#010x} is no message's")
    if not RECORD_SIZE_MIN <= size <= len(data):
        raise MessageFormatError(f"size {size}, but {len(data)} bytes are there")
    at = _TO_BORN_HOST.size
    if not sys_flag & ANY_V6:
        rest = _V4_TO_BODY.unpack_from(data, at)
        born_host, store_timestamp, store_host, reconsume_times, prepared, body_size = rest
        at = RECORD_V4.size
    else:
        born_host, at = _take(data, at, _HOST_V6_SIZE if sys_flag & BORN_HOST_V6 else _HOST_V4_SIZE)
        (store_timestamp,) = _STORE_TIME.unpack_from(data, at)
        store_host, at = _take(data, at + 8, _HOST_V6_SIZE if sys_flag & STORE_HOST_V6 else _HOST_V4_SIZE)
        reconsume_times, prepared, body_size = _TO_BODY.unpack_from(data, at)
        at += _TO_BODY.size
    body, at = _take(data, at, body_size)
    if magic == MAGIC_V1:
        topic, at = _take(data, at + 1, data[at])
    else:
        topic, at = _take(data, at + 2, _I16.unpack_from(data, at)[0])
    properties, at = _take(data, at + 2, _I16.unpack_from(data, at)[0])
    if at != size:
        raise MessageFormatError(f"size {size}, but its fields take {at}")
    if check_crc and body_size and body_crc(body) != crc:
        raise MessageFormatError(f"body CRC {body_crc(body)}, the record says {crc}")
    return Message(
        topic=topic.decode(),
        queue_id=queue_id,
        body=body,
        properties_raw=properties,
        flag=flag,
        sys_flag=sys_flag,
        queue_offset=queue_offset,
        phy_offset=phy_offset,
        born_timestamp=born_timestamp,
        born_host=born_host,
        store_timestamp=store_timestamp,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
        body_crc=crc,
        size=size,
        magic=magic,
    )


def split_plain(data: bytes, at: int, topic: bytes) -> tuple[tuple[Any, ...], bytes, bytes] | None:
    """Fields (as RECORD_V4 names them), body and properties of a sound record of version 1 with IPv4 hosts and that topic.

    None for all others: decode_message reads them, or says what is wrong. A quarter of its time, for consumers.
    """
    if len(data) - at < RECORD_SIZE_MIN:
        return None
    fields = RECORD_V4.unpack_from(data, at)
    end, body_at = at + fields[0], at + RECORD_V4.size
    body_end = body_at + fields[14]
    if fields[1] != MAGIC_V1 or fields[7] & ANY_V6 or not body_at <= body_end < end <= len(data):
        return None
    properties_at = body_end + 1 + len(topic) + 2
    if data[body_end] != len(topic) or not data.startswith(topic, body_end + 1) or properties_at > end:
        return None
    properties = data[properties_at:end]
    if _I16.unpack_from(data, properties_at - 2)[0] != len(properties):
        return None
    body = data[body_at:body_end]
    if body and crc32(body) & 0x7FFFFFFF != fields[2]:
        return None
    return fields, body, properties


def _take(data: memoryview, at: int, size: int) -> tuple[bytes, int]:
    if size < 0 or at + size > len(data):
        raise MessageFormatError(f"a field of {size} bytes at {at} of {len(data)}")
    return bytes(data[at : at + size]), at + size


def encode_message(message: Message) -> bytes:
    """The record; the exact reverse of decode_message. `size` is computed."""
    topic = message.topic.encode()
    topic_size = bytes([len(topic)]) if message.magic == MAGIC_V1 else _I16.pack(len(topic))
    tail = b"".join(
        (
            message.born_host,
            _STORE_TIME.pack(message.store_timestamp),
            message.store_host,
            _TO_BODY.pack(message.reconsume_times, message.prepared_transaction_offset, len(message.body)),
            message.body,
            topic_size,
            topic,
            _I16.pack(len(message.properties_raw)),
            message.properties_raw,
        )
    )
    head = _TO_BORN_HOST.pack(
        _TO_BORN_HOST.size + len(tail),
        message.magic,
        message.body_crc,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.phy_offset,
        message.sys_flag,
        message.born_timestamp,
    )
    return head + tail
