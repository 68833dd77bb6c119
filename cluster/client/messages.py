"""Messages as a producer fills them in and as a consumer sees them, and their form on the wire. Pure.

A batch's body, repeated: i32 size | i32 0 | i32 0 | i32 flag | i32 n, n bytes body | i16 m, m bytes properties
Bits of sys_flag: 0: the body is compressed; 8 to 10: the algorithm. Clients before 4.9.4 wrote zlib without naming it (0).
Sources: Message, MessageConst, MessageDecoder, MessageBatch, MessageExt, PullAPIWrapper, CompressionType,
MessageClientIDSetter (RocketMQ 4.9.8).
"""

import itertools
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, fields, frozen

from twinlog.cluster.remoting.names import RETRY_PREFIX
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.store.record import compression
from twinlog.store.record.compression import COMPRESSED, ZLIB, CompressionError
from twinlog.store.record.message import Message, decode_message, host_text, message_id, split_plain
from twinlog.store.record.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    format_properties,
    parse_properties,
)

BATCH_SIZE_MAX = 1024 * 1024  # Bytes of one request; brokers take 4 MiB, and a slave's transfer likes less.
PROPERTIES_SIZE_MAX = 32_767
COMPRESS_FROM = 4096  # Bytes of a body, from which on it is compressed: RocketMQ's compressMsgBodyOverHowmuch.
COMPRESSION_LEVEL = 5
BODY_SIZE_MAX = 64 * 1024 * 1024  # Of a decompressed body: a compressed one of 4 MiB may claim gigabytes.
RESERVED_PROPERTIES = frozenset(
    {"UNIQ_KEY", "WAIT", "TAGS", "KEYS", "DELAY", "TRAN_MSG", "PGROUP"}
    | {"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "MSG_TYPE"}
)
_HEAD, _PROPERTIES_SIZE = Struct(">iiiii"), Struct(">h")
assert (_HEAD.size, _PROPERTIES_SIZE.size) == (20, 2)
_ITEM_SIZE = _HEAD.size + _PROPERTIES_SIZE.size
_QUEUE_OFFSET, _SYS_FLAG = 5, 7  # Places in RECORD_V4.
_new = object.__new__
_ID_PREFIX = Struct(">4sHi")
assert _ID_PREFIX.size == 10  # Behind it 4 and 2 bytes.


@frozen(kw_only=True)
class OutgoingMessage:
    """A message to send. `keys`: separated by blanks; `delay_level`: 1 is 1 s, ... 18 is 2 h, 0 is no delay.

    Raises ValueError for properties with separator characters or empty texts, and for names that RocketMQ reserves.

    >>> OutgoingMessage(topic="orders", body=b"hello", tags="paid", properties={"city": "Leeds"}).tags
    'paid'
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: str = ""
    delay_level: int = 0
    flag: int = 0
    properties: Mapping[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for name, value in self.properties.items():
            if name in RESERVED_PROPERTIES:
                raise ValueError(f"the property {name} is reserved by RocketMQ")
            if any(sign in name + value for sign in (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR)):
                raise ValueError(f"the property {name} contains a separator character (U+0001 or U+0002)")
            if not name or not value:
                raise ValueError("a property needs a name and a value")


def wire_properties(message: OutgoingMessage, message_id: str, extra: Mapping[str, str] | None = None) -> str:
    """The properties string of a request; `extra` are properties that RocketMQ's clients set themselves."""
    properties = dict(message.properties)
    if message.keys:
        properties["KEYS"] = message.keys
    properties["UNIQ_KEY"] = message_id
    properties["WAIT"] = "true"
    if message.tags:
        properties["TAGS"] = message.tags
    if message.delay_level:
        properties["DELAY"] = str(message.delay_level)
    properties.update(extra or {})
    return format_properties(properties)


def encode_batch(items: Iterable[tuple[OutgoingMessage, str]]) -> bytes:
    """The body of request 320, from messages and their property strings."""
    parts: list[bytes] = []
    for message, properties in items:
        raw = properties.encode()
        size = _ITEM_SIZE + len(message.body) + len(raw)
        parts += (_HEAD.pack(size, 0, 0, message.flag, len(message.body)), message.body)
        parts += (_PROPERTIES_SIZE.pack(len(raw)), raw)
    return b"".join(parts)


def batch_size(message: OutgoingMessage) -> int:
    """An upper bound for the bytes of the message in a batch, with all that is added to its properties."""
    texts = (message.tags, message.keys, *message.properties, *message.properties.values())
    return _ITEM_SIZE + len(message.body) + sum(len(text.encode()) + 2 for text in texts) + 100


def split_batch(messages: Sequence[OutgoingMessage], size_max: int = BATCH_SIZE_MAX) -> Iterator[list[OutgoingMessage]]:
    """Split messages, in order, into batches of at most `size_max` bytes; a larger message is a batch of its own.

    Raises ValueError for messages that RocketMQ accepts in no batch: of several topics, delayed, or for a retry topic.

    >>> half = OutgoingMessage(topic="T", body=bytes(600))
    >>> [len(part) for part in split_batch([half] * 5, 2000)]
    [2, 2, 1]
    """
    if len({message.topic for message in messages}) > 1:
        raise ValueError("the messages of a batch have one topic")
    if any(message.delay_level or message.topic.startswith(RETRY_PREFIX) for message in messages):
        raise ValueError("messages of a batch cannot be delayed, nor go to a retry topic")
    part: list[OutgoingMessage] = []
    size = 0
    for message in messages:
        more = batch_size(message)
        if part and size + more > size_max:
            yield part
            part, size = [], 0
        part.append(message)
        size += more
    if part:
        yield part


class _AsPulled:
    """The slot of a message for the record that it came in, until somebody asks for more than its body."""

    __slots__ = ("_record",)
    _record: tuple[tuple[Any, ...], bytes]  # Fields, as RECORD_V4 names them, and properties.


@frozen
class ReceivedMessage(_AsPulled):
    """A message that a consumer received. Times in ms since 1970.

    `message_id` was set by its producer; a duplicate has the same one.
    """

    queue: MessageQueue
    queue_offset: int
    message_id: str
    offset_message_id: str
    tags: str
    keys: str
    properties: dict[str, str]
    body: bytes = field(repr=lambda body: f"<{len(body)} bytes>")
    born_timestamp: int
    born_host: str
    store_timestamp: int
    reconsume_times: int
    phy_offset: int  # In the commit log of its broker group.
    flag: int = 0
    body_problem: str | None = None  # Why `body` could not be decompressed and is as stored; None: it is as sent.

    if not TYPE_CHECKING:  # Type checkers would take any name for an attribute.

        def __getattr__(self, name: str) -> Any:
            """Internal: decode the rest of a pulled message. Most handlers read the body and little else."""
            if name in _LATER:
                _fill(self)
                return getattr(self, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def place_in_time(self) -> tuple[int, int]:
        """The sort key of messages of several queues: the store time, within a millisecond the log's order."""
        return self.store_timestamp, self.phy_offset

    @property
    def topic(self) -> str:
        """The topic that it was sent to, also when it is delivered again through the group's retry topic."""
        if self.queue.topic.startswith(RETRY_PREFIX):
            return self.properties.get("RETRY_TOPIC", self.queue.topic)
        return self.queue.topic

    def again(self) -> "ReceivedMessage":
        """Internal: the same message with one more try counted."""
        return evolve(self, reconsume_times=self.reconsume_times + 1)


_SETTERS = {each.name: getattr(ReceivedMessage, each.name).__set__ for each in fields(ReceivedMessage)}
_set_queue, _set_queue_offset, _set_body = (_SETTERS.pop(name) for name in ("queue", "queue_offset", "body"))
_set_problem, _set_record = _SETTERS.pop("body_problem"), vars(_AsPulled)["_record"].__set__
_LATER = frozenset(_SETTERS)


def _fill(message: ReceivedMessage) -> None:
    record, raw = message._record
    _, _, _, _, flag, _, phy_offset, _, born, born_host, stored, store_host, reconsume_times, _, _ = record
    properties, place = parse_properties(raw.decode("utf-8", "replace")), message_id(store_host, phy_offset)
    values = {
        "message_id": properties.get("UNIQ_KEY", place),
        "offset_message_id": place,
        "tags": properties.get("TAGS", ""),
        "keys": properties.get("KEYS", ""),
        "properties": properties,
        "born_timestamp": born,
        "born_host": host_text(born_host),
        "store_timestamp": stored,
        "reconsume_times": reconsume_times,
        "phy_offset": phy_offset,
        "flag": flag,
    }
    for name, value in values.items():
        _SETTERS[name](message, value)


def received(
    records: bytes | memoryview, queue: MessageQueue, wanted: Callable[[str], bool] | None = None
) -> list[ReceivedMessage]:
    """Decode the records of a pull; returns the messages whose tags are wanted (None: all), oldest first.

    Raises MessageFormatError for bytes that are not records.
    """
    data, topic = bytes(records), queue.topic.encode()
    at, messages = 0, []
    while at < len(data):
        plain = split_plain(data, at, topic)
        if plain is None or plain[0][_SYS_FLAG] & COMPRESSED:
            record = decode_message(data, at)
            at += record.size
            message = as_received(record, queue)
        else:
            of_record, body, raw = plain
            at += of_record[0]
            message = _new(ReceivedMessage)
            _set_queue(message, queue)
            _set_queue_offset(message, of_record[_QUEUE_OFFSET])
            _set_body(message, body)
            _set_problem(message, None)
            _set_record(message, (of_record, raw))
        if wanted is None or wanted(message.tags):
            messages.append(message)
    return messages


def as_received(message: Message, queue: MessageQueue) -> ReceivedMessage:
    """Convert a record; its queue is given because records do not name their broker."""
    properties = message.properties
    body, place = message.body, message.message_id
    problem: str | None = None
    try:
        body = decompress(body, message.sys_flag)
    except CompressionError as error:  # One bad body must not block its queue.
        problem = str(error)
    return ReceivedMessage(
        queue=queue,
        queue_offset=message.queue_offset,
        message_id=properties.get("UNIQ_KEY", place),
        offset_message_id=place,
        tags=properties.get("TAGS", ""),
        keys=properties.get("KEYS", ""),
        properties=properties,
        body=body,
        born_timestamp=message.born_timestamp,
        born_host=host_text(message.born_host),
        store_timestamp=message.store_timestamp,
        reconsume_times=message.reconsume_times,
        phy_offset=message.phy_offset,
        flag=message.flag,
        body_problem=problem,
    )


def compress(body: bytes, *, at_least: int | None = COMPRESS_FROM) -> tuple[bytes, int]:
    """Compress a body; returns it with the bits for sys_flag, or unchanged with 0 when it is short or does not shrink."""
    if at_least is None or len(body) < at_least:
        return body, 0
    compressed = zlib.compress(body, COMPRESSION_LEVEL)
    return (compressed, COMPRESSED | ZLIB) if len(compressed) < len(body) else (body, 0)


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The body as sent by its producer. Raises CompressionError, also for one that is longer than 64 MiB."""
    return compression.decompress(body, sys_flag, size_max=BODY_SIZE_MAX)


def now_ms() -> int:
    """The current time as in messages and heartbeats."""
    return time.time_ns() // 1_000_000


class UniqueIds:
    """Message ids: ip 4 | pid u16 | number of this object i32 | ms since the month began i32 | counter u16, as hex."""

    def __init__(self, ip: bytes = b"\x7f\x00\x00\x01") -> None:
        self._prefix = (
            _ID_PREFIX.pack(ip, os.getpid() & 0xFFFF, int.from_bytes(os.urandom(4), signed=True)).hex().upper()
        )
        self._counter = itertools.count(int.from_bytes(os.urandom(2)))
        self._minute, self._month = (
            -1.0,
            0.0,
        )  # A minute, and the begin of its month, which takes longer to find than the rest.

    def __next__(self) -> str:
        return self.many(1)[0]

    def many(self, count: int) -> list[str]:
        """The next ids, up to 65,536 at once."""
        now = time.time()
        if now // 60 != self._minute:
            local = time.localtime(now)
            self._minute, self._month = now // 60, time.mktime((local.tm_year, local.tm_mon, 1, 0, 0, 0, 0, 0, -1))
        since_month = int((now - self._month) * 1000) & 0x7FFFFFFF
        before = f"{self._prefix}{since_month:08X}"
        return [f"{before}{number & 0xFFFF:04X}" for number in itertools.islice(self._counter, count)]
