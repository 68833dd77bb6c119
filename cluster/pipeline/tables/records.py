"""Records that are known to be sound as Arrow columns: their fields gathered by numpy, texts and maps as Arrow buffers. No I/O.

What has a variable length is cut out of the data together: an Arrow array whose pieces are by turns what is wanted and what lies
between is taken every other piece of.
"""

from functools import lru_cache
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from twinlog.cluster.pipeline.tables.columns import records_schema
from twinlog.cluster.pipeline.tables.property_maps import cut_out, read_properties
from twinlog.store.record.column_scan import Bools
from twinlog.store.record.columns import Columns, Ints, rows
from twinlog.store.record.message import BORN_HOST_V6, MAGIC_V2, STORE_HOST_V6, host_text

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
class _Parts:
    """What lies where in the data, for each record."""

    heads: Any  # Arrays of _HEAD and _MIDDLE.
    middle: Any
    born_host: Ints
    born_v6: Bools
    store_host: Ints
    store_v6: Bools
    body: Ints
    body_end: Ints
    is_v2: Bools
    properties: Ints
    end: Ints


def _parts(data: memoryview, offset: int, records: Columns) -> _Parts:
    starts = records.phy_offset - offset
    heads = rows(data, _HEAD.itemsize, starts).view(_HEAD).ravel()
    born_v6, store_v6 = records.sys_flag & BORN_HOST_V6 != 0, records.sys_flag & STORE_HOST_V6 != 0
    born_host = starts + _HEAD.itemsize
    store_host = born_host + np.where(born_v6, _HOST_V6, _HOST_V4) + _STORE_TIME_SIZE
    middle_at = store_host + np.where(store_v6, _HOST_V6, _HOST_V4)
    middle = rows(data, _MIDDLE.itemsize, middle_at).view(_MIDDLE).ravel()
    body = middle_at + _MIDDLE.itemsize
    body_end = body + middle["body_size"]
    is_v2 = heads["magic"] == MAGIC_V2
    topic_size = _topic_sizes(np.frombuffer(data, np.uint8), body_end, is_v2)
    properties = body_end + 1 + is_v2 + topic_size + 2
    return _Parts(
        heads,
        middle,
        born_host,
        born_v6,
        store_host,
        store_v6,
        body,
        body_end,
        is_v2,
        properties,
        starts + records.size,
    )


def record_batch(data: memoryview, offset: int, records: Columns, file_size: int, *, body: bool) -> pa.RecordBatch:
    """Some records, in the order of the log, which all lie in `data`, whose first byte is at `offset` of the log.

    The batch has columns.RECORDS as its schema, with bodies if they are wanted, and refers to nothing of `data`.
    """
    parts = _parts(data, offset, records)
    raw = cut_out(data, parts.properties, parts.end)
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
        "born_ms": parts.heads["born_ms"],
        "born_host": _hosts(data, parts.born_host, parts.born_v6),
        "stored_ms": records.store_timestamp,
        "store_host": _hosts(data, parts.store_host, parts.store_v6),
        "flag": parts.heads["flag"],
        "sys_flag": records.sys_flag,
        "reconsume_times": parts.middle["reconsume_times"],
        "prepared_offset": parts.middle["prepared_offset"],
        "version": np.where(parts.is_v2, 2, 1),
        "body_size": parts.middle["body_size"],
        "body_crc": parts.heads["crc"],
        "properties": properties.maps(),
    }
    if body:
        columns["body"] = cut_out(data, parts.body, parts.body_end)
    schema = records_schema(body=body)
    return pa.RecordBatch.from_arrays([_array(columns[field.name], field.type) for field in schema], schema=schema)


def _array(column: Any, kind: pa.DataType) -> pa.Array:
    """A column in the bytes of this machine and the width of the schema."""
    return pa.array(column.astype(kind.to_pandas_dtype()), kind) if isinstance(column, np.ndarray) else column


def _topic_sizes(octets: Any, at: Ints, is_v2: Bools) -> Ints:
    sizes: Ints = octets[at].astype(np.int64)
    if is_v2.any():
        sizes[is_v2] = sizes[is_v2] << 8 | octets[at[is_v2] + 1]
    return sizes


def _file_names(offsets: Ints, file_size: int) -> pa.Array:
    """The names of the files that records lie in."""
    starts = offsets // file_size * file_size
    if starts[0] == starts[-1]:
        return pa.array([f"{int(starts[0]):020d}"], pa.string()).take(pa.array(np.zeros(len(starts), np.int64)))
    return pa.array([f"{start:020d}" for start in starts.tolist()], pa.string())


def _hosts(data: memoryview, at: Ints, is_v6: Bools) -> pa.Array:
    """ADDRESS:PORT; there are few different ones."""
    texts: list[str] = []
    numbers = np.empty(len(at), np.int64)
    for width, chosen in ((_HOST_V4, ~is_v6), (_HOST_V6, is_v6)):
        if chosen.any():
            # As a number, or a text that loses zeros at its end: what is equal stays so.
            hosts = rows(data, width, at[chosen]).view(np.uint64 if width == _HOST_V4 else f"S{width}").ravel()
            different, which = np.unique(hosts, return_inverse=True) if (hosts != hosts[0]).any() else (hosts[:1], 0)
            numbers[chosen] = which + len(texts)
            texts += [_host_text(host.tobytes().ljust(width, b"\0")) for host in different]
    return pa.array(texts, pa.string()).take(pa.array(numbers))


@lru_cache(maxsize=65_536)
def _host_text(host: bytes) -> str:
    return "{}.{}.{}.{}:{}".format(*_HOST.unpack(host)) if len(host) == _HOST_V4 else host_text(host)
