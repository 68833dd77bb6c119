"""Scans the records in a stretch of log, for recovery, dispatch and a slave's verification. No I/O.

Source of the rules: CommitLog.checkMessageAndReturnSize, RocketMQ 4.9.8. Stricter than RocketMQ in one point: a record must
name the offset where it lies.
"""

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from attrs import frozen
from zlib_ng.zlib_ng import crc32

from twinlog.store.errors import MessageFormatError
from twinlog.store.record.message import (
    ANY_V6,
    FIXED_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    RECORD_V4,
    SIZE_AND_MAGIC,
    decode_message,
)
from twinlog.store.record.properties import DELAY, parse_properties, tags_code

if TYPE_CHECKING:
    from twinlog.store.record.columns import Columns, KeyColumns

# Many records at once come as columns of numpy, whose import takes 0.1 s and 20 MB: only modules that hold columns import it at
# run time, and functions that need these modules import them when there is much to do.
EntryColumns: TypeAlias = "Columns"
IndexKeyColumns: TypeAlias = "KeyColumns"
Entries: TypeAlias = "list[DispatchEntry] | Columns"

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_BODY_AT, _STORE_TIME_AT = RECORD_V4.size, 10  # A byte offset; a field index.


class DispatchEntry(NamedTuple):
    """The fields of a record that consume queues and index need. Offsets and size in bytes; `queue_offset` counts messages.

    `properties` is the raw string, as stored.
    """

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    sys_flag: int
    properties: bytes = b""


@frozen
class Scan:
    """The result: `consumed` bytes hold whole, sound records (and blanks), whose entries are `entries`.

    `error` describes the bytes at `consumed`; None when the data just ends there. `needed` is the size of an unfinished record,
    once known.
    """

    consumed: int
    entries: list[DispatchEntry]
    error: str | None = None
    needed: int = 0


def scan_records(
    data: bytes | bytearray | memoryview,
    phy_offset: int,
    file_size: int,
    *,
    check_crc: bool,
    delays_ms: tuple[int, ...] = (),
) -> Scan:
    """Walk the records in `data`, whose first byte lies at `phy_offset` of a log with files of `file_size` bytes.

    `delays_ms` are the delays of levels 1, 2, ...: entries of the schedule topic carry their time of delivery.
    """
    if not isinstance(data, bytes):
        data = bytes(data)  # One copy makes each of the slices below cheap.
    end, at = len(data), 0
    entries: list[DispatchEntry] = []
    error, needed = None, 0
    while True:
        at = _plain_records(data, at, phy_offset, file_size, check_crc, entries)
        if end - at < 8:
            break
        size, magic = SIZE_AND_MAGIC.unpack_from(data, at)
        room = file_size - (phy_offset + at) % file_size
        if magic == MAGIC_BLANK:
            if size != room:
                error = f"a blank of {size} bytes where the file has {room} left"
            elif end - at < room:
                needed = room
            else:
                at += room
                continue
            break
        if magic not in (MAGIC_V1, MAGIC_V2):
            error = f"magic {magic & 0xFFFFFFFF:#010x} is no message's"
            break
        if not RECORD_SIZE_MIN <= size <= room:
            error = f"a record of {size} bytes where the file has {room} left"
            break
        if end - at < size:
            needed = size
            break
        fields = RECORD_V4.unpack_from(data, at)
        if fields[7] & ANY_V6 or magic == MAGIC_V2:
            found = _entry_by_field(data[at : at + size], phy_offset + at, check_crc, delays_ms)
        else:
            found = _entry(data, at, fields, phy_offset + at, check_crc, delays_ms)
        if isinstance(found, str):
            error = found
            break
        entries.append(found)
        at += size
    return Scan(at, entries, error, needed)


def _plain_records(
    data: bytes, at: int, phy_offset: int, file_size: int, check_crc: bool, entries: list[DispatchEntry]
) -> int:
    """Scan plain records, nearly all of them, in one loop without calls of our functions. Returns the position behind.

    Records that are not whole, sound and plain, or have a topic never seen before, are left to the slow path.
    """
    unpack, topics, codes, new, append = RECORD_V4.unpack_from, _topics, _codes, tuple.__new__, entries.append
    file_end = at + file_size - (phy_offset + at) % file_size
    limit = min(len(data), file_end)
    while limit - at >= RECORD_SIZE_MIN:
        size, magic, crc, queue_id, _, queue_offset, says, sys_flag, _, _, timestamp, _, _, _, body_size = unpack(
            data, at
        )
        record_end, body_end = at + size, at + _BODY_AT + body_size
        if magic != MAGIC_V1 or sys_flag & ANY_V6 or record_end > limit or not 0 <= body_size <= size - FIXED_SIZE:
            break
        properties_at = body_end + 3 + data[body_end]
        if (
            properties_at > record_end
            or properties_at + (data[properties_at - 2] << 8 | data[properties_at - 1]) != record_end
            or says != phy_offset + at
            or (check_crc and body_size and crc32(data[at + _BODY_AT : body_end]) & 0x7FFFFFFF != crc)
        ):
            break
        topic = topics.get(data[body_end + 1 : properties_at - 2])
        if topic is None or topic == SCHEDULE_TOPIC:
            break
        properties = data[properties_at:record_end]
        tags_at = properties.rfind(b"\x02TAGS\x01") + 6
        if tags_at == 5 and not properties.startswith(b"TAGS\x01"):
            code = 0
        else:
            tags_end = properties.find(b"\x02", tags_at)
            tags = properties[tags_at:] if tags_end < 0 else properties[tags_at:tags_end]
            code = codes[tags] if tags in codes else _tags_code(tags)
        entry = (topic, queue_id, queue_offset, phy_offset + at, size, code, timestamp, sys_flag, properties)
        append(new(DispatchEntry, entry))
        at = record_end
    return at


def _entry(
    data: bytes, at: int, fields: tuple[int, ...], phy_offset: int, check_crc: bool, delays_ms: tuple[int, ...]
) -> DispatchEntry | str:
    """The entry of the IPv4 record at `at`, whose first fields are unpacked; a text when the record is not sound."""
    size, body_size = fields[0], fields[14]
    body_end = at + _BODY_AT + body_size
    if body_size < 0 or size - FIXED_SIZE < body_size:
        return f"a body of {body_size} bytes in a record of {size}"
    topic_end = body_end + 1 + data[body_end]
    properties_size = data[topic_end] << 8 | data[topic_end + 1] if topic_end + 2 <= at + size else -1
    if topic_end + 2 + properties_size != at + size:
        return f"the fields of a record of {size} bytes do not add up"
    if fields[6] != phy_offset:
        return f"a record that says it lies at {fields[6]}"
    if check_crc and body_size and crc32(data[at + _BODY_AT : body_end]) & 0x7FFFFFFF != fields[2]:
        return "its body does not match its CRC"
    try:
        topic = topic_name(data[body_end + 1 : topic_end])
    except ValueError as damage:
        return f"its topic is none: {damage}"
    properties = data[topic_end + 2 : at + size]
    code = properties_tags_code(properties)
    if topic == SCHEDULE_TOPIC:
        code = delivery_time(properties, fields[_STORE_TIME_AT], delays_ms, code)
    timestamp = fields[_STORE_TIME_AT]
    return DispatchEntry(topic, fields[3], fields[5], phy_offset, size, code, timestamp, fields[7], properties)


def _entry_by_field(record: bytes, phy_offset: int, check_crc: bool, delays_ms: tuple[int, ...]) -> DispatchEntry | str:
    """Slow path for rarer layouts, field by field."""
    try:
        message = decode_message(record, check_crc=check_crc)
        topic = topic_name(message.topic.encode())
    except (MessageFormatError, ValueError) as damage:
        return str(damage)
    code = properties_tags_code(message.properties_raw)
    if message.phy_offset != phy_offset:
        return f"a record that says it lies at {message.phy_offset}"
    if topic == SCHEDULE_TOPIC:
        code = delivery_time(message.properties_raw, message.store_timestamp, delays_ms, code)
    return DispatchEntry(
        topic,
        message.queue_id,
        message.queue_offset,
        phy_offset,
        message.size,
        code,
        message.store_timestamp,
        message.sys_flag,
        message.properties_raw,
    )


def may_be_topic(name: str) -> bool:
    """True when a topic can name a directory of consume queues; a crash can leave zeros in it."""
    return bool(name) and "/" not in name and "\0" not in name and name not in (".", "..")


_topics: dict[bytes, str] = {}


def topic_name(raw: bytes) -> str:
    """The topic of a record. Raises ValueError for one that can have no queues."""
    topic = _topics.get(raw)
    if topic is None:
        topic = raw.decode()
        if not may_be_topic(topic):
            raise ValueError(f"{topic!r:.80} names no directory")
        if len(_topics) < 100_000:
            _topics[raw] = topic
    return topic


_codes: dict[bytes, int] = {}


def _tags_code(raw: bytes) -> int:
    code = tags_code(raw.decode("utf-8", "replace"))  # As Java reads them.
    if len(_codes) < 10_000 and len(raw) <= 256:
        _codes[raw] = code
    return code


def properties_tags_code(properties: bytes) -> int:
    """The hash of the (last) TAGS property in a raw properties string; 0 for none."""
    return stored_tags_code(properties, 0, len(properties))


def stored_tags_code(data: bytes, start: int, end: int) -> int:
    """Like properties_tags_code(), for the properties in bytes `start` to `end`."""
    at = data.rfind(b"\x02TAGS\x01", start, end) + 6
    if at == 5:
        if not data.startswith(b"TAGS\x01", start, end):
            return 0
        at = start + 5
    tags_end = data.find(b"\x02", at, end)
    tags = data[at : end if tags_end < 0 else tags_end]
    code = _codes.get(tags)
    return code if code is not None else _tags_code(tags)


def delivery_time(properties: bytes, store_timestamp: int, delays_ms: tuple[int, ...], otherwise: int) -> int:
    """The delivery time of a delayed message, ms. Source: DefaultMessageStore's dispatch of the schedule topic."""
    delay = parse_properties(properties.decode("utf-8", "replace")).get(DELAY, "0")
    level = min(int(delay), len(delays_ms)) if delay.isdecimal() else 0
    return store_timestamp + delays_ms[level - 1] if level > 0 else otherwise
