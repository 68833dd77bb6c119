"""A message as shown by `consume`, `tail` and `peek`; apart from messages.py, which takes longer to import."""

from base64 import b64encode
from collections.abc import Mapping

from attrs import field, frozen

from twinlog.cluster.client.messages import ReceivedMessage

# Properties that clients and brokers keep for themselves. Source: MessageConst (4.9.8).
SYSTEM_PROPERTIES = frozenset(
    {"UNIQ_KEY", "WAIT", "TAGS", "KEYS", "CLUSTER", "MSG_REGION", "TRACE_ON", "MIN_OFFSET", "MAX_OFFSET", "BORN_HOST"}
)


ID_LENGTHS = (32, 56)  # Hex digits of a message id, with an IPv4 address or an IPv6 one.
_HEX = frozenset("0123456789abcdefABCDEF")


@frozen(kw_only=True)
class MessageView:
    """One message. Times in ms since 1970; `properties` are the producer's, without those that RocketMQ adds."""

    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    message_id: str
    offset_message_id: str
    tags: str | None
    keys: str | None
    properties: Mapping[str, str]
    born_ms: int
    born_host: str
    stored_ms: int
    reconsume_times: int
    body: str | None = field(metadata={"doc": "where it is UTF-8"})
    body_base64: str | None = field(metadata={"doc": "where it is not, or has a body_problem"})
    body_size: int = field(metadata={"doc": "bytes"})
    body_problem: str | None = field(
        default=None, metadata={"doc": "why the body is given as it is stored, although it is compressed"}
    )


@frozen(kw_only=True)
class ReaderOf:
    """Progress of one group with a message.

    `state`: consumed, filtered (the group subscribes to other tags), not yet, broadcast (each client keeps its own offsets, which
    the broker does not know), or unknown (the group never committed an offset).
    """

    group: str
    state: str
    committed_offset: int | None
    clients: int


@frozen(kw_only=True)
class PeekedMessage:
    """A message and the groups that have consumed it; null where nobody was asked."""

    message: MessageView
    consumed_by: tuple[ReaderOf, ...] | None


def is_message_id(text: str) -> bool:
    """True for text in the form of a message id of either kind."""
    return len(text) in ID_LENGTHS and set(text) <= _HEX


def text_of(body: bytes) -> str | None:
    """The body as text; None when it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def view_of(message: ReceivedMessage) -> MessageView:
    """The fields of a message that was received."""
    text = text_of(message.body) if message.body_problem is None else None
    return MessageView(
        topic=message.queue.topic,
        broker=message.queue.broker_name,
        queue_id=message.queue.queue_id,
        queue_offset=message.queue_offset,
        message_id=message.message_id,
        offset_message_id=message.offset_message_id,
        tags=message.tags or None,
        keys=message.keys or None,
        properties=own_properties(message),
        born_ms=message.born_timestamp,
        born_host=message.born_host,
        stored_ms=message.store_timestamp,
        reconsume_times=message.reconsume_times,
        body=text,
        body_base64=b64encode(message.body).decode() if text is None else None,
        body_size=len(message.body),
        body_problem=message.body_problem,
    )


def own_properties(message: ReceivedMessage) -> dict[str, str]:
    """The producer's properties, without those that RocketMQ adds."""
    return {name: value for name, value in message.properties.items() if name not in SYSTEM_PROPERTIES}
