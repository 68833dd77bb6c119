"""Options and columns of the sink, checked before anything is sent. Pure.

A frame that was read from a cluster can be written as it is: it has the column `messageId`. Then the columns that say where a
message lay are left out, and so are the properties that RocketMQ keeps for itself; the new message gets its own.
"""

from collections.abc import Callable, Mapping
from enum import Enum

import pyarrow as pa
from attrs import frozen

from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.tables.texts import check_spelling, list_of, lowered, number_of
from twinlog.cluster.pipeline.topics.connection import OPTIONS as CONNECTION_OPTIONS
from twinlog.cluster.pipeline.topics.connection import Connection, read_connection
from twinlog.cluster.remoting.names import group_fault, topic_fault

OPTIONS = (
    "topic",
    "producerGroup",
    "batchSize",
    "maxMessageSize",
    "maxDelayLevel",
    "onNotSafe",
    "deliveryTimeoutMs",
    "ignoreColumns",
    "writeId",
)
PRODUCER_GROUP = "SPARK_PRODUCER"
BATCH_SIZE, MESSAGE_SIZE_MAX = 256 << 10, 4 << 20
DELIVERY_TIMEOUT_MS = 120_000
DELAY_LEVEL_MAX = 18
READ_MARK = "messageId"
# Columns of the source that say where and when a message was stored.
PLACE_COLUMNS = frozenset(
    {"broker", "queueId", "queueOffset", "bornTimestamp", "storeTimestamp", READ_MARK, "sysFlag", "bornHost"}
    | {"storeHost", "reconsumeTimes", "physicalOffset"}
)


class WriteRefusedError(ReadRefusedError):
    """Rows cannot be written, or not in the requested way. The message has cause, reason and next step."""


class NotSafe(Enum):
    """Action when a broker stored messages, but not as safely as it is configured to: its answer is not SEND_OK."""

    FAIL = "fail"
    RETRY = "retry"


@frozen(kw_only=True)
class SinkOptions:
    """Options of a writer; docs/reference/spark.md describes each. Sizes in bytes."""

    connection: Connection
    topic: str | None = None
    producer_group: str = PRODUCER_GROUP
    batch_size: int = BATCH_SIZE
    message_size_max: int = MESSAGE_SIZE_MAX
    delay_level_max: int = DELAY_LEVEL_MAX
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS
    on_not_safe: NotSafe = NotSafe.RETRY
    write_id: str | None = None
    ignored: frozenset[str] = frozenset()


def sink_options(texts: Mapping[str, str]) -> SinkOptions:
    """Parse the options; names are case-insensitive. Raises ReadRefusedError, naming the option."""
    check_spelling(texts, (*OPTIONS, *CONNECTION_OPTIONS))
    options = lowered(texts)
    topic = options.get("topic", "").strip() or None
    if topic is not None and (fault := topic_fault(topic)):
        raise WriteRefusedError(f"option topic is {topic!r}: {fault}")
    group = options.get("producergroup", PRODUCER_GROUP).strip()
    if fault := group_fault(group):
        raise WriteRefusedError(f"option producerGroup is {group!r}: {fault}")
    message_size_max = number_of(options, "maxMessageSize", MESSAGE_SIZE_MAX)
    return SinkOptions(
        connection=read_connection(options),
        topic=topic,
        producer_group=group,
        batch_size=min(
            number_of(options, "batchSize", BATCH_SIZE), message_size_max // 2
        ),  # Records are larger than items.
        message_size_max=message_size_max,
        delay_level_max=number_of(options, "maxDelayLevel", DELAY_LEVEL_MAX),
        delivery_timeout_ms=number_of(options, "deliveryTimeoutMs", DELIVERY_TIMEOUT_MS),
        on_not_safe=_not_safe(options.get("onnotsafe", NotSafe.RETRY.value)),
        write_id=_write_id(options.get("writeid", "")),
        ignored=frozenset(map(str.lower, list_of(options.get("ignorecolumns", "")))),
    )


def _not_safe(text: str) -> NotSafe:
    try:
        return NotSafe(text.strip().lower())
    except ValueError:
        raise WriteRefusedError(f"option onNotSafe is {text!r}: allowed are fail and retry") from None


def _write_id(text: str) -> str | None:
    text = text.strip()
    if not text:
        return None
    is_plain = text.isascii() and text.isprintable() and "/" not in text and " " not in text
    if not is_plain or len(text) > 64:
        raise WriteRefusedError(
            f"option writeId is {text!r}: allowed are up to 64 printable characters without blanks and slashes"
        )
    return text


@frozen(kw_only=True)
class SinkColumns:
    """Positions of the columns in a frame; None for one that it lacks. `is_read`: its rows are messages that were read."""

    value: int
    topic: int | None
    keys: int | None
    tags: int | None
    properties: int | None
    sharding_key: int | None
    delay_level: int | None
    flag: int | None
    value_problem: int | None
    is_read: bool


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_value(kind: pa.DataType) -> bool:
    return _is_text(kind) or bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_keys(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return _is_text(kind) or bool(is_list and _is_text(kind.value_type))


def _is_texts(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type))


_KINDS: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "value": (_is_value, "STRING or BINARY"),
    "topic": (_is_text, "STRING"),
    "keys": (_is_keys, "STRING or ARRAY<STRING>"),
    "tags": (_is_text, "STRING"),
    "properties": (_is_texts, "MAP<STRING,STRING>"),
    "shardingKey": (_is_text, "STRING"),
    "delayLevel": (lambda kind: bool(pa.types.is_integer(kind)), "INT"),
    "flag": (lambda kind: bool(pa.types.is_integer(kind)), "INT"),
    "valueProblem": (_is_text, "STRING"),
}


def sink_columns(schema: pa.Schema, options: SinkOptions) -> SinkColumns:
    """Find the columns of a frame. Raises WriteRefusedError for missing and unknown ones, and for other types."""
    found: dict[str, int] = {}
    names = {name.lower(): name for name in (*_KINDS, *PLACE_COLUMNS)}
    is_read = any(name.lower() == READ_MARK.lower() for name in schema.names)
    unknown: list[str] = []
    for position, column in enumerate(schema):
        name = names.get(column.name.lower())
        if column.name.lower() in options.ignored:
            continue
        if name is None or (name in PLACE_COLUMNS and not is_read):
            unknown.append(column.name)
        elif name in found:
            raise WriteRefusedError(f"the frame has two columns {name}: rename one, or drop it")
        elif name in _KINDS:
            fits, wanted = _KINDS[name]
            if not fits(column.type):
                raise WriteRefusedError(f"column {name} is {column.type}: it has to be {wanted}. {_hint(name)}")
            found[name] = position
    if unknown:
        raise WriteRefusedError(
            f"columns {', '.join(unknown)} are none that the sink knows, and would be lost: it takes {', '.join(_KINDS)}. "
            f"Drop them, or name them in option ignoreColumns, separated by commas."
        )
    if "value" not in found:
        raise WriteRefusedError(
            "the frame has no column value, the body of the messages: name a column so, such as with "
            "selectExpr('to_json(struct(*)) AS value')"
        )
    if options.topic is None and "topic" not in found:
        raise WriteRefusedError("no topic is given: set option topic, or give the frame a column topic")
    return SinkColumns(
        value=found["value"],
        topic=found.get("topic") if options.topic is None else None,
        keys=found.get("keys"),
        tags=found.get("tags"),
        properties=found.get("properties"),
        sharding_key=found.get("shardingKey"),
        delay_level=found.get("delayLevel"),
        flag=found.get("flag"),
        value_problem=found.get("valueProblem"),
        is_read=is_read,
    )


def _hint(name: str) -> str:
    if name == "value":
        return "Make it one with to_json() or CAST."
    return "Convert it, or rename the column and name it in option ignoreColumns."
