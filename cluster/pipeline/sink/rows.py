"""Arrow batches of Spark into messages as they are sent. Pure.

A message is made in the form of a batch's item (see cluster/client/messages.py). What cannot be in a batch, or is too large for
one with others, is sent alone: delayed messages, and those that are larger than a batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from struct import Struct
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from attrs import define, field, frozen
from xxhash import xxh3_128_digest

from twinlog.cluster.client.messages import PROPERTIES_SIZE_MAX, UniqueIds
from twinlog.cluster.pipeline.sink.ids import PROPERTY, RowIds
from twinlog.cluster.pipeline.sink.options import SinkColumns, SinkOptions, WriteRefusedError
from twinlog.cluster.pipeline.sink.queues import Slots, slots_of
from twinlog.cluster.remoting.names import RETRY_PREFIX, topic_fault
from twinlog.store.record.properties import DELAY, KEYS, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, TAGS, UNIQ_KEY, WAIT

SHARDING_KEY = "__SHARDINGKEY"  # As RocketMQ 5's clients keep it.
# Names that RocketMQ and this sink keep for themselves. Source: MessageConst (RocketMQ 5.3.3).
RESERVED = frozenset(
    {
        KEYS,
        TAGS,
        WAIT,
        DELAY,
        UNIQ_KEY,
        SHARDING_KEY,
        PROPERTY,
        "RETRY_TOPIC",
        "REAL_TOPIC",
        "REAL_QID",
        "TRAN_MSG",
        "PGROUP",
    }
    | {"MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG"}
    | {"RECONSUME_TIME", "MSG_REGION", "TRACE_ON", "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME"}
    | {
        "POP_CK",
        "POP_CK_OFFSET",
        "1ST_POP_TIME",
        "INNER_NUM",
        "INNER_BASE",
        "DUP_INFO",
        "CLUSTER",
        "INSTANCE_ID",
        "MSG_TYPE",
    }
    | {"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CHECK_IMMUNITY_TIME_IN_SECONDS"}
    | {"TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "__transactionId__", "INNER_MULTI_DISPATCH"}
    | {"INNER_MULTI_QUEUE_OFFSET", "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT", "__BORNHOST", "BORN_TIMESTAMP"}
)
_RESERVED_PREFIXES = ("__RMQ.TRANSIENT.", "TIMER_")
_PART_ROWS, _PART_BYTES = 4096, 1 << 20  # Rows that are made into messages at a time.
_HEAD, _PROPERTIES_SIZE = Struct(">iiiii"), Struct(">h")
_ITEM_SIZE = _HEAD.size + _PROPERTIES_SIZE.size
_RECORD_OVERHEAD = 512  # Bytes of a record beside body and properties: its head, topic, hosts, and what brokers add.


@frozen
class Alone:
    """A message that is sent in a request of its own. `properties` are those of the request."""

    body: bytes
    properties: str
    flag: int
    is_delayed: bool


@frozen
class Rows:
    """Some rows as messages: in `alone` those by their row that no batch may contain, else in `items`."""

    items: list[bytes]
    alone: Mapping[int, Alone]
    slots: Slots
    topics: Sequence[str] | None  # None: the topic of the options.
    keys: Sequence[str | None] | None  # Sharding keys.


def in_parts(batch: pa.RecordBatch, value: int) -> Iterator[pa.RecordBatch]:
    """A batch cut into parts of about a MiB, so that what is made of them takes little memory."""
    if not batch.num_rows:
        return
    offsets, at = _offsets(batch.column(value)), 0
    while at < batch.num_rows:
        end = int(np.searchsorted(offsets, offsets[at] + _PART_BYTES, side="right")) - 1
        end = min(max(end, at + 1), at + _PART_ROWS, batch.num_rows)
        yield batch.slice(at, end - at)
        at = end


@define(eq=False)
class RowEncoder:
    """Makes messages of the rows of one task. Raises WriteRefusedError, naming the row, before it gives any of its part."""

    options: SinkOptions
    columns: SinkColumns
    ids: RowIds
    unique: UniqueIds = field(factory=UniqueIds)
    count: int = field(default=0, init=False)  # Rows so far.

    def encode(self, part: pa.RecordBatch) -> Rows:
        """Messages of these rows."""
        columns = self.columns
        values = part.column(columns.value)
        self._require_no_nulls(values, "value")
        self._check_problems(part)
        raw = _data(values)
        bodies = [raw[start:end] for start, end in pairwise(_offsets(values).tolist())]
        topics = self._topics(part)
        flags, delays = self._numbers(part, columns.flag, "flag"), self._delays(part)
        own, keys = self._properties(part)
        digests = _digests(bodies, own, topics or self.options.topic, flags, delays)
        joined = b"".join(digests)
        items, alone = list[bytes](), dict[int, Alone]()
        made = zip(bodies, own, self.ids.of(digests), self.unique.many(len(bodies)), strict=True)
        for row, (body, before, row_id, unique) in enumerate(made):
            properties = b"%b%b\x01%b\x02UNIQ_KEY\x01%b" % (before, _PROPERTY, row_id.encode(), unique.encode())
            size = _ITEM_SIZE + len(body) + len(properties)
            flag = flags[row] if flags else 0
            if size + _RECORD_OVERHEAD > self.options.message_size_max or len(properties) > PROPERTIES_SIZE_MAX - 256:
                self._refuse_size(row, len(body), len(properties))
            if (delays and delays[row]) or size > self.options.batch_size:
                alone[row] = _alone(body, properties, flag, delays[row] if delays else 0)
                items.append(b"")
            else:
                head = _HEAD.pack(size, 0, 0, flag, len(body))
                items.append(b"%b%b%b%b" % (head, body, _PROPERTIES_SIZE.pack(len(properties)), properties))
        self.count += part.num_rows
        return Rows(items, alone, slots_of(joined), topics, keys)

    # ---- Columns

    def _topics(self, part: pa.RecordBatch) -> list[str] | None:
        if self.columns.topic is None:
            return None
        column = part.column(self.columns.topic)
        self._require_no_nulls(column, "topic")
        topics: list[str] = column.to_pylist()
        for topic in set(topics):
            fault = topic_fault(topic)
            if topic.startswith(RETRY_PREFIX):
                fault = "it is a retry topic, to which only brokers write"
            if fault:
                self._refuse(topics.index(topic), f"its topic is {topic[:200]!r}: {fault}")
        return topics

    def _delays(self, part: pa.RecordBatch) -> list[int] | None:
        levels = self._numbers(part, self.columns.delay_level, "delayLevel")
        if levels is None or not any(levels):
            return None
        most = self.options.delay_level_max
        for row, level in enumerate(levels):
            if not 0 <= level <= most:
                self._refuse(
                    row,
                    f"its delayLevel is {level}: allowed are 0, no delay, to {most}. If the brokers have more levels "
                    "(messageDelayLevel), name their number in option maxDelayLevel",
                )
        return levels

    def _numbers(self, part: pa.RecordBatch, position: int | None, name: str) -> list[int] | None:
        """Integers of a column, 0 for null; None where all are 0."""
        if position is None:
            return None
        numbers: list[int] = [number or 0 for number in part.column(position).to_pylist()]
        for row, number in enumerate(numbers):
            if not -(1 << 31) <= number < 1 << 31:
                self._refuse(row, f"its {name} is {number}: allowed are 32 bits")
        return numbers if any(numbers) else None

    def _properties(self, part: pa.RecordBatch) -> tuple[list[bytes], Sequence[str | None] | None]:
        """Own properties of each message, each ended by a separator, and its sharding key."""
        columns, count = self.columns, part.num_rows
        tags = self._texts(part, columns.tags)
        keys = self._keys(part)
        sharding = self._texts(part, columns.sharding_key)
        others = _maps(part.column(columns.properties)) if columns.properties is not None else None
        if tags is None and keys is None and sharding is None and others is None:
            return [b""] * count, None
        own: list[bytes] = []
        found_keys: list[str | None] = []
        for row in range(count):
            properties = self._others(row, others[row]) if others is not None else {}
            for name, column in ((TAGS, tags), (KEYS, keys), (SHARDING_KEY, sharding)):
                if column is not None:
                    properties[name] = column[row]
            text = ""
            for name in sorted(properties):
                if value := properties[name]:
                    text += f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}"
            count_of = sum(map(bool, properties.values()))
            if text.count(NAME_VALUE_SEPARATOR) != count_of or text.count(PROPERTY_SEPARATOR) != count_of:
                self._refuse_separators(row, properties)
            own.append(text.encode())
            found_keys.append(properties.get(SHARDING_KEY) or None)
        return own, found_keys if any(found_keys) else None

    def _texts(self, part: pa.RecordBatch, position: int | None) -> list[str | None] | None:
        if position is None:
            return None
        column = part.column(position)
        texts: list[str | None] = column.to_pylist()
        return texts

    def _keys(self, part: pa.RecordBatch) -> list[str | None] | None:
        keys = self._texts(part, self.columns.keys)
        if keys is None or not any(isinstance(each, list) for each in keys):
            return keys
        joined: list[str | None] = []
        for row, each in enumerate(keys):
            parts: list[Any] = list(each or ())
            bad = next((key for key in parts if not key or " " in key), "")
            if bad or None in parts or "" in parts:
                self._refuse(
                    row, f"it has the key {bad!r}: keys of an array are neither null, nor empty, nor contain blanks"
                )
            joined.append(" ".join(parts))
        return joined

    def _others(self, row: int, pairs: Sequence[tuple[str, str | None]]) -> dict[str, str | None]:
        """Properties of column `properties`, checked."""
        found: dict[str, str | None] = {}
        for name, value in pairs:
            is_reserved = name in RESERVED or name.startswith(_RESERVED_PREFIXES)
            if is_reserved and not self.columns.is_read:
                self._refuse(
                    row,
                    f"its property {name} is reserved by RocketMQ or this sink: there are columns keys, tags, shardingKey and "
                    "delayLevel. Rename it",
                )
            if not name or not value:
                if self.columns.is_read:
                    continue
                self._refuse(
                    row, f"its property {name!r} has {'no value' if name else 'no name'}: RocketMQ would drop it"
                )
            if not is_reserved or name in (KEYS, TAGS, SHARDING_KEY):
                found[name] = value
        return found

    def _check_problems(self, part: pa.RecordBatch) -> None:
        position = self.columns.value_problem
        if position is None or part.column(position).null_count == part.num_rows:
            return
        for row, problem in enumerate(part.column(position).to_pylist()):
            if problem is not None:
                self._refuse(
                    row,
                    f"its value is not what its producer sent, as its valueProblem says: {problem}. Leave such rows out "
                    "(where valueProblem is null), or drop the column valueProblem to send them as they are",
                )

    # ---- Refusals

    def _require_no_nulls(self, column: pa.Array, name: str) -> None:
        if column.null_count:
            row = int(np.argmax(np.asarray(column.is_null())))
            self._refuse(row, f"its {name} is null: give each row a {name}, or leave the row out")

    def _refuse_size(self, row: int, body: int, properties: int) -> NoReturn:
        if properties > PROPERTIES_SIZE_MAX - 256:
            self._refuse(
                row, f"its keys, tags and properties have {properties} bytes: RocketMQ takes {PROPERTIES_SIZE_MAX}"
            )
        most = self.options.message_size_max
        self._refuse(
            row,
            f"its message has {body} bytes of value and {properties} of properties: with what the broker adds this is more than "
            f"{most}. If the brokers take larger ones (maxMessageSize), set option maxMessageSize to theirs",
        )

    def _refuse_separators(self, row: int, properties: Mapping[str, str | None]) -> NoReturn:
        signs = (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR)
        bad = next(name for name, value in properties.items() if any(sign in name + (value or "") for sign in signs))
        self._refuse(row, f"its property {bad!r:.100} contains U+0001 or U+0002, which separate properties")

    def _refuse(self, row: int, why: str) -> NoReturn:
        place = f"row {self.count + row} of partition {self.ids.partition}"
        raise WriteRefusedError(f"{place}: {why}. Rows before it may have been sent.")


_PROPERTY = PROPERTY.encode()


def _digests(
    bodies: list[bytes],
    own: list[bytes],
    topics: "Sequence[str] | str | None",
    flags: list[int] | None,
    delays: list[int] | None,
) -> list[bytes]:
    """Digests of what is sent: equal for equal messages only, so all parts but the last have a known length."""
    count = len(bodies)
    if isinstance(topics, str) and flags is None and delays is None:
        prefix = b"%b\x020\x020\x02" % topics.encode()
        return [
            xxh3_128_digest(b"%b%d\x02%b%b" % (prefix, len(each), each, body))
            for each, body in zip(own, bodies, strict=True)
        ]
    names = [topics] * count if isinstance(topics, str) else topics
    assert names is not None
    heads = (
        b"%b\x02%d\x02%d\x02" % (names[row].encode(), flags[row] if flags else 0, delays[row] if delays else 0)
        for row in range(count)
    )
    made = zip(heads, own, bodies, strict=True)
    return [xxh3_128_digest(b"%b%d\x02%b%b" % (head, len(each), each, body)) for head, each, body in made]


def _alone(body: bytes, properties: bytes, flag: int, delay: int) -> Alone:
    more = f"{PROPERTY_SEPARATOR}{WAIT}{NAME_VALUE_SEPARATOR}true"
    if delay:
        more += f"{PROPERTY_SEPARATOR}{DELAY}{NAME_VALUE_SEPARATOR}{delay}"
    return Alone(body, properties.decode() + more, flag, delay > 0)


# ---- Buffers of Arrow's arrays


def _offsets(array: pa.Array) -> Any:
    """Offsets at which the values begin in _data(array), and the end of the last one."""
    is_large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    kind = np.dtype(np.int64 if is_large else np.int32)
    offsets = np.frombuffer(array.buffers()[1], kind, len(array) + 1, array.offset * kind.itemsize)
    return offsets - offsets[0]


def _data(array: pa.Array) -> bytes:
    is_large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    kind = np.dtype(np.int64 if is_large else np.int32)
    offsets = np.frombuffer(array.buffers()[1], kind, len(array) + 1, array.offset * kind.itemsize)
    data = array.buffers()[2]
    return bytes(memoryview(data)[int(offsets[0]) : int(offsets[-1])]) if data is not None else b""


def _maps(column: pa.Array) -> list[Sequence[tuple[str, str | None]]]:
    """Pairs of a column of maps; a null has none."""
    return [each or () for each in column.to_pylist()]
