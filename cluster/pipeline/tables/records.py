"""Sound records as Arrow columns: numpy gathers their fields, texts and maps become Arrow buffers. No I/O.

Values of variable length are cut out of the data together: an Arrow array whose items alternate between the wanted bytes and
those in between, of which every other item is taken.

Properties become a map by the rules of store/record/properties.py: a pair without a name or a value does not count, and of two
pairs with the same name the last one does.
"""

from functools import lru_cache
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from twinlog.cluster.pipeline.tables.schemas import RECORD_COLUMNS, RECORD_COLUMNS_WITH_BODY
from twinlog.store.record.column_scan import Bools
from twinlog.store.record.columns import Columns, Ints, rows
from twinlog.store.record.message import BORN_HOST_V6, MAGIC_V2, STORE_HOST_V6, host_text
from twinlog.store.record.properties import tags_code
from twinlog.store.record.scan import properties_tags_code

_NAME_END, _PAIR_END = 1, 2
_MASK_BITS = 62


def cut_out(data: memoryview, begins: Ints, ends: Ints) -> pa.Array:
    """Copy bytes `begins` to `ends` of the data, ascending and disjoint, into a binary array."""
    if not len(begins):
        return pa.array([], pa.binary())
    bounds = np.empty(2 * len(begins), np.int32)
    bounds[0::2], bounds[1::2] = begins, ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    return pieces.take(pa.array(np.arange(0, len(bounds), 2)))


@frozen(eq=False)
class Properties:
    """Property pairs of all records: `names` as indexes into `vocabulary`, `values`, and the `record` of each pair."""

    record: Ints
    vocabulary: pa.Array
    names: Ints
    values: pa.Array
    records: int  # Number of records.
    odd: Ints  # Records with pairs that do not count.

    def maps(self) -> pa.Array:
        """A map for each record."""
        offsets = np.searchsorted(self.record, np.arange(self.records + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(offsets), self.vocabulary.take(pa.array(self.names)), self.values)

    def values_of(self, name: str) -> pa.Array:
        """Value of one property for each record; null if it has none."""
        number = self.vocabulary.index(name).as_py()
        found = np.flatnonzero(self.names == number)
        which, is_missing = np.zeros(self.records, np.int64), np.ones(self.records, np.bool_)
        which[self.record[found]] = found
        is_missing[self.record[found]] = False
        return self.values.take(pa.array(which, mask=is_missing))

    def tags_codes(self, raw: pa.Array) -> Ints:
        """Hashes of the tags in `raw`, as consume queues keep them."""
        encoded = self.values_of("TAGS").dictionary_encode()
        codes = np.array([*map(tags_code, encoded.dictionary.to_pylist()), 0], np.int64)
        found: Ints = codes[encoded.indices.fill_null(len(codes) - 1).to_numpy()]
        for number in self.odd.tolist():
            found[number] = properties_tags_code(raw[number].as_py())
        return found


def read_properties(raw: pa.Array) -> Properties:
    """Parse properties strings, a binary array without nulls."""
    raw = _as_java_reads_them(raw)
    bounds, data = _strings_in(raw)
    octets = np.frombuffer(data, np.uint8)
    begins, ends, record = _segments(octets, bounds)
    name_ends, are_pairs = _name_ends(octets, begins, ends)
    odd = np.unique(record[~are_pairs & (begins < ends)])
    begins, ends, name_ends, record = begins[are_pairs], ends[are_pairs], name_ends[are_pairs], record[are_pairs]
    encoded = _texts(cut_out(data, begins, name_ends)).dictionary_encode()
    names: Ints = encoded.indices.to_numpy().astype(np.int64)
    kept = _last_ones(record, names, len(encoded.dictionary))
    if kept is not None:
        odd = np.union1d(odd, np.delete(record, kept))
        record, names, name_ends, ends = record[kept], names[kept], name_ends[kept], ends[kept]
    values = _texts(cut_out(data, name_ends + 1, ends))
    return Properties(record, encoded.dictionary, names, values, len(raw), odd)


def _strings_in(raw: pa.Array) -> tuple[Ints, memoryview]:
    """Bounds of the strings in the bytes of all of them."""
    _, bounds, data = raw.buffers()
    if bounds is None or not len(raw):
        return np.zeros(1, np.int64), memoryview(b"")
    numbers = np.frombuffer(bounds, np.int32)[raw.offset : raw.offset + len(raw) + 1].astype(np.int64)
    return numbers - numbers[0], memoryview(data if data is not None else b"")[int(numbers[0]) : int(numbers[-1])]


def _as_java_reads_them(raw: pa.Array) -> pa.Array:
    """The array with invalid UTF-8 replaced."""
    bounds, data = _strings_in(raw)
    octets = np.frombuffer(data, np.uint8)
    if not (octets & 0x80).any():
        return raw
    starts = bounds[:-1][bounds[:-1] < bounds[1:]]
    try:
        str(data, "utf-8")
        if not (octets[starts] & 0xC0 == 0x80).any():  # No piece begins within a character.
            return raw
    except UnicodeDecodeError:
        pass
    return pa.array([text.decode("utf-8", "replace").encode() for text in raw.to_pylist()], pa.binary())


def _texts(raw: pa.Array) -> pa.Array:
    """A binary array of valid UTF-8, as strings."""
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def _segments(octets: "np.typing.NDArray[np.uint8]", bounds: Ints) -> tuple[Ints, Ints, Ints]:
    """Segments between the ends of pairs: begin, end, and the index of the string."""
    cuts = np.flatnonzero(octets == _PAIR_END)
    begins = np.sort(np.concatenate([bounds[:-1], cuts + 1]), kind="stable")
    ends = np.sort(np.concatenate([bounds[1:], cuts]), kind="stable")
    counts = 1 + np.diff(np.searchsorted(cuts, bounds))
    return begins, ends, np.repeat(np.arange(len(counts)), counts)


def _name_ends(octets: "np.typing.NDArray[np.uint8]", begins: Ints, ends: Ints) -> tuple[Ints, Bools]:
    """End of the name in each segment, and which segments have both a name and a value."""
    marks = np.flatnonzero(octets == _NAME_END)
    if len(marks) == len(begins) and bool(((marks > begins) & (marks < ends - 1)).all()):
        return marks, np.ones(len(marks), np.bool_)
    found = np.append(marks, len(octets))[np.searchsorted(marks, begins)]
    return found, (found > begins) & (found < ends - 1)


def _last_ones(record: Ints, names: Ints, count: int) -> Ints | None:
    """Mask of the pairs that remain among those of the same record and name; None: all of them."""
    if not len(record):
        return None
    if count <= _MASK_BITS:  # Distinct powers of two have distinct sums.
        starts = np.flatnonzero(np.diff(record, prepend=-1))
        masks = np.left_shift(1, names)
        if (np.add.reduceat(masks, starts) == np.bitwise_or.reduceat(masks, starts)).all():
            return None
    which = (record * count + names)[::-1]
    _, last = np.unique(which, return_index=True)
    return np.sort(len(which) - 1 - last) if len(last) < len(which) else None


_HEAD = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">i4"),
        ("crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("phy_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_ms", ">i8"),
    ]
)
_MIDDLE = np.dtype([("reconsume_times", ">i4"), ("prepared_offset", ">i8"), ("body_size", ">i4")])
_HOST = Struct(">4BI")
_HOST_V4, _HOST_V6, _STORE_TIME_SIZE = _HOST.size, 20, 8
assert (_HEAD.itemsize, _MIDDLE.itemsize) == (48, 16)


@frozen(eq=False)
class Fields:
    """Fields of sound records in some data, and where those of variable length lie in it."""

    heads: Any
    middle: Any
    born_host: Ints
    store_host: Ints
    born_v6: Bools
    store_v6: Bools
    body: Ints
    body_end: Ints
    is_v2: Bools
    properties: Ints


def read_fields(data: memoryview, starts: Ints) -> Fields:
    """The fields of the records that begin at these places."""
    heads = rows(data, _HEAD.itemsize, starts).view(_HEAD).ravel()
    born_v6, store_v6 = heads["sys_flag"] & BORN_HOST_V6 != 0, heads["sys_flag"] & STORE_HOST_V6 != 0
    born_host = starts + _HEAD.itemsize
    store_host = born_host + np.where(born_v6, _HOST_V6, _HOST_V4) + _STORE_TIME_SIZE
    middle_at = store_host + np.where(store_v6, _HOST_V6, _HOST_V4)
    middle = rows(data, _MIDDLE.itemsize, middle_at).view(_MIDDLE).ravel()
    body = middle_at + _MIDDLE.itemsize
    body_end = body + middle["body_size"]
    is_v2 = heads["magic"] == MAGIC_V2
    topic_size = _topic_sizes(np.frombuffer(data, np.uint8), body_end, is_v2)
    properties = body_end + 1 + is_v2 + topic_size + 2
    return Fields(heads, middle, born_host, store_host, born_v6, store_v6, body, body_end, is_v2, properties)


def record_batch(data: memoryview, offset: int, records: Columns, file_size: int, *, body: bool) -> pa.RecordBatch:
    """Batch of some records in log order, which all lie in `data`, whose first byte is at `offset` of the log.

    It has schemas.RECORD_COLUMNS as its schema, with bodies if requested, and does not refer to `data`.
    """
    starts = records.phy_offset - offset
    fields = read_fields(data, starts)
    heads, middle = fields.heads, fields.middle
    raw = cut_out(data, fields.properties, starts + records.size)
    properties = read_properties(raw)
    columns: dict[str, Any] = {
        "offset": records.phy_offset,
        "size": records.size,
        "file": _file_names(records.phy_offset, file_size),
        "topic": pa.array(records.topics, pa.string()).take(pa.array(records.topic)),
        "queue_id": records.queue_id,
        "queue_offset": records.queue_offset,
        "tags": properties.values_of("TAGS"),
        "keys": properties.values_of("KEYS"),
        "unique_key": properties.values_of("UNIQ_KEY"),
        "tags_code": properties.tags_codes(raw),
        "born_ms": heads["born_ms"],
        "born_host": hosts(data, fields.born_host, fields.born_v6),
        "stored_ms": records.store_timestamp,
        "store_host": hosts(data, fields.store_host, fields.store_v6),
        "flag": heads["flag"],
        "sys_flag": records.sys_flag,
        "reconsume_times": middle["reconsume_times"],
        "prepared_offset": middle["prepared_offset"],
        "version": np.where(fields.is_v2, 2, 1),
        "body_size": middle["body_size"],
        "body_crc": heads["crc"],
        "properties": properties.maps(),
    }
    if body:
        columns["body"] = cut_out(data, fields.body, fields.body_end)
    schema = RECORD_COLUMNS_WITH_BODY if body else RECORD_COLUMNS
    return pa.RecordBatch.from_arrays([_array(columns[field.name], field.type) for field in schema], schema=schema)


def _array(column: Any, kind: pa.DataType) -> pa.Array:
    """A column in native byte order and the width of the schema."""
    return pa.array(column.astype(kind.to_pandas_dtype()), kind) if isinstance(column, np.ndarray) else column


def _topic_sizes(octets: Any, at: Ints, is_v2: Bools) -> Ints:
    sizes: Ints = octets[at].astype(np.int64)
    if is_v2.any():
        sizes[is_v2] = sizes[is_v2] << 8 | octets[at[is_v2] + 1]
    return sizes


def _file_names(offsets: Ints, file_size: int) -> pa.Array:
    """Names of the files of the records."""
    starts = offsets // file_size * file_size
    if starts[0] == starts[-1]:
        return pa.array([f"{int(starts[0]):020d}"], pa.string()).take(pa.array(np.zeros(len(starts), np.int64)))
    return pa.array([f"{start:020d}" for start in starts.tolist()], pa.string())


def hosts(data: memoryview, at: Ints, is_v6: Bools) -> pa.Array:
    """ADDRESS:PORT; there are few different ones."""
    texts: list[str] = []
    numbers = np.empty(len(at), np.int64)
    for width, chosen in ((_HOST_V4, ~is_v6), (_HOST_V6, is_v6)):
        if chosen.any():
            # As a number, or a text without trailing zeros: equality is preserved.
            raw = rows(data, width, at[chosen]).view(np.uint64 if width == _HOST_V4 else f"S{width}").ravel()
            different, which = np.unique(raw, return_inverse=True) if (raw != raw[0]).any() else (raw[:1], 0)
            numbers[chosen] = which + len(texts)
            texts += [_host_text(host.tobytes().ljust(width, b"\0")) for host in different]
    return pa.array(texts, pa.string()).take(pa.array(numbers))


@lru_cache(maxsize=65_536)
def _host_text(host: bytes) -> str:
    return "{}.{}.{}.{}:{}".format(*_HOST.unpack(host)) if len(host) == _HOST_V4 else host_text(host)
