"""Pulled records as Arrow batches, in the columns of format rocketmq; many records at once, by the decoder of the tables. No I/O.

A broker answers a pull with records as its log has them, one behind the other. They are checked as its own readers check them:
lengths that add up, and the CRC of the body.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as StructError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field
from zlib_ng.zlib_ng import crc32

from twinlog.cluster.pipeline.tables.bodies import InflateLimits, inflated_batches
from twinlog.cluster.pipeline.tables.records import Fields, cut_out, hosts, read_fields, read_properties
from twinlog.cluster.pipeline.topics.offsets import text_of
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.store.record.column_scan import Bools
from twinlog.store.record.columns import Ints
from twinlog.store.record.message import RECORD_SIZE_MIN, message_id

_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = pa.map_(pa.string(), pa.string())
_HOST_SIZE, _HOST_V6_SIZE = 8, 20


def _field(name: str, kind: pa.DataType, may_be_null: bool, doc: str) -> pa.Field:
    return pa.field(name, kind, nullable=may_be_null, metadata={"doc": doc})


SCHEMA = pa.schema(
    [
        _field("topic", pa.string(), False, "topic"),
        _field("broker", pa.string(), False, "name of the broker, which all members of its group share"),
        _field("queueId", pa.int32(), False, "queue of the topic on that broker"),
        _field("queueOffset", pa.int64(), False, "number of the message in its queue"),
        _field("keys", pa.string(), True, "property KEYS, several divided by spaces; null: none"),
        _field("tags", pa.string(), True, "property TAGS; null: none"),
        _field("value", pa.binary(), False, "the body as its producer gave it, inflated"),
        _field("properties", _TEXTS, False, "all properties by name"),
        _field("bornTimestamp", _TIME, False, "when the client made the message"),
        _field("storeTimestamp", _TIME, False, "when the master stored it"),
        _field(
            "messageId",
            pa.string(),
            False,
            "property UNIQ_KEY, the id that the client gave; else the offset message id",
        ),
        _field("flag", pa.int32(), False, "the application's flag"),
        _field("sysFlag", pa.int32(), False, "RocketMQ's flags, as stored: compression 0x1, 0x700, transaction 0xC"),
        _field("bornHost", pa.string(), False, "ADDRESS:PORT of the client"),
        _field("storeHost", pa.string(), False, "ADDRESS:PORT of the master that stored it"),
        _field("reconsumeTimes", pa.int32(), False, "how often consumers sent it back"),
        _field("physicalOffset", pa.int64(), False, "where its record begins in the log"),
        _field("valueProblem", pa.string(), True, "why `value` is as it is stored, though compressed; null: it is not"),
    ]
)
_HEAD = Struct(">i16xq")  # Size and queue offset of a record.
assert _HEAD.size == 28


class NoRecordsError(Exception):
    """Pulled bytes are no records: the broker, or what stands between, is none of RocketMQ's kind."""


@define(eq=False)
class Pulled:
    """Records that a pull was answered with: where each begins in `data`, and its queue offset."""

    data: memoryview
    starts: list[int] = field(factory=list)
    offsets: list[int] = field(factory=list)

    @classmethod
    def of(cls, data: bytes | memoryview, low: int, high: int) -> "Pulled":
        """The records with queue offsets `low` to `high`. Raises NoRecordsError."""
        view = memoryview(data)
        starts, offsets = list[int](), list[int]()
        at, end, before, unpack = 0, len(view), low - 1, _HEAD.unpack_from
        while at < end:  # For each message: it is kept short.
            try:
                size, offset = unpack(view, at)
            except StructError:
                raise NoRecordsError(f"{end - at} bytes behind the last record") from None
            if size < RECORD_SIZE_MIN or at + size > end:
                raise NoRecordsError(f"a record of {size} bytes where {end - at} are left")
            if offset <= before:
                raise NoRecordsError(f"message {offset} behind message {before}")
            if offset >= high:
                break
            starts.append(at)
            offsets.append(offset)
            at, before = at + size, offset
        return cls(view[:at], starts, offsets)

    def gaps(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Offsets from `low` to `high` that no record has."""
        if len(self.offsets) == high - low:
            return
        for each in (*self.offsets, high):
            if each > low:
                yield low, each
            low = each + 1


@define(eq=False)
class RowMaker:
    """Makes batches of one queue's records."""

    queue: MessageQueue
    schema: pa.Schema  # As Spark wants it: SCHEMA by other means.
    bounds: InflateLimits
    tags: tuple[str, ...] = ()  # Exactly these; the broker compares only their hashes.

    def batches(self, pieces: Sequence[Pulled]) -> Iterator[tuple[pa.RecordBatch, list[str]]]:
        """Batches of these pieces together, and why records were left out."""
        data = memoryview(b"".join(piece.data for piece in pieces))
        firsts = np.cumsum([0, *(len(piece.data) for piece in pieces[:-1])])
        arrays = [np.array(piece.starts, np.int64) + first for piece, first in zip(pieces, firsts, strict=True)]
        starts = np.concatenate(arrays)
        if not len(starts):
            return
        ends = np.append(starts[1:], len(data))
        fields, bad = self._sound(data, starts, ends)
        problems = [f"message {offset} of {text_of(self.queue)} {why}" for offset, why in bad.values()]
        if bad:
            kept = np.delete(np.arange(len(starts)), list(bad))
            starts, ends = starts[kept], ends[kept]
            fields = read_fields(data, starts) if len(starts) else None
        if fields is None:
            yield pa.RecordBatch.from_pylist([], self.schema), problems
            return
        for batch in self._inflated(data, starts, ends, fields):
            yield batch, problems
            problems = []

    def _sound(self, data: memoryview, starts: Ints, ends: Ints) -> tuple[Fields | None, dict[int, tuple[int, str]]]:
        """The fields of the records, and those that are not sound, by number: queue offset and reason."""
        try:
            fields = read_fields(data, starts)
            is_sound = _adds_up(data, fields, starts, ends)
        except IndexError:  # One has lengths that lead outside.
            fields, is_sound = None, np.array([_is_sound_alone(data, *pair) for pair in zip(starts, ends, strict=True)])
        bad = {number: (_offset(data, starts, number), "has lengths that do not add up") for number in _no(is_sound)}
        if fields is None or bad:
            return fields, bad
        crcs = fields.heads["crc"]
        pairs = zip(fields.body.tolist(), fields.body_end.tolist(), strict=True)
        found = np.array([crc32(data[begin:end]) for begin, end in pairs], np.uint32) & np.uint32(0x7FFFFFFF)
        matches = (found == crcs) | (fields.body == fields.body_end)
        return fields, {
            number: (_offset(data, starts, number), "has a body that does not match its CRC") for number in _no(matches)
        }

    def _inflated(self, data: memoryview, starts: Ints, ends: Ints, fields: Fields) -> Iterator[pa.RecordBatch]:
        stored = self._stored(data, starts, ends, fields)
        if self.tags:
            stored = stored.filter(pc.is_in(stored.column("tags"), pa.array(self.tags)))
        for batch in inflated_batches(stored, self.bounds):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            columns["value"], columns["valueProblem"] = columns["body"], columns["body_problem"]
            columns["sysFlag"] = columns["sys_flag"]
            yield pa.RecordBatch.from_arrays([columns[each.name] for each in self.schema], schema=self.schema)

    def _stored(self, data: memoryview, starts: Ints, ends: Ints, fields: Fields) -> pa.RecordBatch:
        """All columns, bodies as they are stored."""
        heads, count = fields.heads, len(starts)
        properties = read_properties(cut_out(data, fields.properties, ends))
        columns = {
            "topic": pa.repeat(self.queue.topic, count),
            "broker": pa.repeat(self.queue.broker_name, count),
            "queueId": _ints(heads["queue_id"]),
            "queueOffset": _longs(heads["queue_offset"]),
            "keys": properties.values_of("KEYS"),
            "tags": properties.values_of("TAGS"),
            "body": cut_out(data, fields.body, fields.body_end),
            "properties": properties.maps(),
            "bornTimestamp": _times(heads["born_ms"]),
            "storeTimestamp": _times(_store_times(data, fields)),
            "messageId": _message_ids(data, fields, properties.values_of("UNIQ_KEY")),
            "flag": _ints(heads["flag"]),
            "sys_flag": _ints(heads["sys_flag"]),
            "bornHost": hosts(data, fields.born_host, fields.born_v6),
            "storeHost": hosts(data, fields.store_host, fields.store_v6),
            "reconsumeTimes": _ints(fields.middle["reconsume_times"]),
            "physicalOffset": _longs(heads["phy_offset"]),
        }
        return pa.RecordBatch.from_pydict(columns)


def _store_times(data: memoryview, fields: Fields) -> Ints:
    numbers = np.ndarray((len(data) - 7,), ">i8", data, strides=(1,))
    found: Ints = numbers[fields.store_host - 8]
    return found


def _offset(data: memoryview, starts: Ints, number: int) -> int:
    return int(_HEAD.unpack_from(data, int(starts[number]))[1])


def _no(mask: Bools) -> list[int]:
    return [int(number) for number in np.flatnonzero(~mask)]


def _adds_up(data: memoryview, fields: Fields, starts: Ints, ends: Ints) -> Bools:
    """True for records whose parts fill them exactly. Raises IndexError when one leads out of the data."""
    octets = np.frombuffer(data, np.uint8)
    said = octets[fields.properties - 2].astype(np.int64) << 8 | octets[fields.properties - 1]
    is_sound: Bools = (
        (fields.middle["body_size"] >= 0)
        & (fields.body_end >= starts)
        & (fields.properties <= ends)
        & (fields.properties + said == ends)
    )
    return is_sound


def _is_sound_alone(data: memoryview, start: int, end: int) -> bool:
    record, first = data[start:end], np.zeros(1, np.int64)
    try:
        return bool(_adds_up(record, read_fields(record, first), first, first + len(record))[0])
    except IndexError:
        return False


def _message_ids(data: memoryview, fields: Fields, given: pa.Array) -> pa.Array:
    """Ids that clients gave, and offset message ids for messages without one."""
    if not given.null_count:
        return given
    found = given.to_pylist()
    for number in np.flatnonzero(np.asarray(given.is_null())).tolist():
        at, is_v6 = int(fields.store_host[number]), bool(fields.store_v6[number])
        host = bytes(data[at : at + (_HOST_V6_SIZE if is_v6 else _HOST_SIZE)])
        found[number] = message_id(host, int(fields.heads["phy_offset"][number]))
    return pa.array(found, pa.string())


def _ints(column: "np.typing.NDArray[np.int32]") -> pa.Array:
    return pa.array(column.astype(np.int32))


def _longs(column: "np.typing.NDArray[np.int64]") -> pa.Array:
    return pa.array(column.astype(np.int64))


def _times(column: "np.typing.NDArray[np.int64]") -> pa.Array:
    """Timestamps of ms. Those that no timestamp of us can hold are the nearest one that can."""
    limit = (1 << 63) // 1000 - 1
    return pa.array(np.clip(column.astype(np.int64), -limit, limit) * 1000).cast(_TIME)
