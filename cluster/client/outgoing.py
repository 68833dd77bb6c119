"""Messages on their way out: what a person fills in, and what goes on the wire. Pure.

Sources: Message, MessageConst, MessageDecoder, MessageBatch, Validators (RocketMQ 4.9.8).
A batch's body, repeated: i32 size | i32 0 | i32 0 | i32 flag | i32 n, n bytes body | i16 m, m bytes properties
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct

from attrs import field, frozen

from twinlog.store.record.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, format_properties

BATCH_SIZE_MAX = 1024 * 1024  # Bytes of one request; brokers take 4 MiB, and a slave's transfer likes less.
TOPIC_LENGTH_MAX, PROPERTIES_SIZE_MAX = 127, 32_767
RETRY_PREFIX = "%RETRY%"
RESERVED_PROPERTIES = frozenset(
    {"UNIQ_KEY", "WAIT", "TAGS", "KEYS", "DELAY", "TRAN_MSG", "PGROUP"}
    | {"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "MSG_TYPE"}
)
_HEAD, _PROPERTIES_SIZE = Struct(">iiiii"), Struct(">h")
assert (_HEAD.size, _PROPERTIES_SIZE.size) == (20, 2)
_ITEM_SIZE = _HEAD.size + _PROPERTIES_SIZE.size


@frozen(kw_only=True)
class OutgoingMessage:
    """What a producer sends. `keys`: blanks between them; `delay_level`: 1 is 1 s, ... 18 is 2 h, 0 at once.

    Raises ValueError for properties that would not arrive, or that belong to RocketMQ.

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
                raise ValueError(f"the property {name} belongs to RocketMQ")
            if any(sign in name + value for sign in (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR)):
                raise ValueError(f"the property {name} contains a separator character (U+0001 or U+0002)")
            if not name or not value:
                raise ValueError("a property needs a name and a value")


def wire_properties(message: OutgoingMessage, message_id: str, extra: Mapping[str, str] | None = None) -> str:
    """The properties string of a request; `extra` are those that RocketMQ's clients set themselves."""
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
    """The body of request 320, of messages and their property strings."""
    parts: list[bytes] = []
    for message, properties in items:
        raw = properties.encode()
        size = _ITEM_SIZE + len(message.body) + len(raw)
        parts += (_HEAD.pack(size, 0, 0, message.flag, len(message.body)), message.body)
        parts += (_PROPERTIES_SIZE.pack(len(raw)), raw)
    return b"".join(parts)


def batch_size(message: OutgoingMessage) -> int:
    """At most how many bytes the message takes in a batch, with all that is added to its properties."""
    texts = (message.tags, message.keys, *message.properties, *message.properties.values())
    return _ITEM_SIZE + len(message.body) + sum(len(text.encode()) + 2 for text in texts) + 100


def split_batch(messages: Sequence[OutgoingMessage], size_max: int = BATCH_SIZE_MAX) -> Iterator[list[OutgoingMessage]]:
    """The messages in order, cut so that each part fits `size_max` bytes; one that is larger goes alone.

    Raises ValueError for what RocketMQ takes in no batch: more than one topic, delays, retry topics.

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
