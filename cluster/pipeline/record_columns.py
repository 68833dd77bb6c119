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

from cluster.pipeline.columns import records_schema
from cluster.pipeline.property_maps import cut_out, read_properties
from store.column_scan import Bools
from store.columns import Columns, Ints, rows
from store.message import BORN_HOST_V6, MAGIC_V2, STORE_HOST_V6, host_text

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
_HOST_V4, _HOST_V6 = _HOST.size, 20
assert (_HEAD.itemsize, _MIDDLE.itemsize) == (48, 16)


@frozen(eq=False)
class _Places:
    """Where the parts of variable place lie in the data."""

    store_host: Ints
    body: Ints
    body_end: Ints
    properties: Ints
    end: Ints


def record_batch(data: memoryview, offset: int, records: Columns, file_size: int, *, body: bool) -> pa.RecordBatch:
    """Some records, in the order of the log, which all lie in `data`, whose first byte is at `offset` of the log.

    The batch has columns.RECORDS as its schema, with bodies if they are wanted, and refers to nothing of `data`.
    """
    starts = records.phy_offset - offset
    heads = rows(data, _HEAD.itemsize, starts).view(_HEAD).ravel()
    born_v6, store_v6 = records.sys_flag & BORN_HOST_V6 != 0, records.sys_flag & STORE_HOST_V6 != 0
    store_host = starts + _HEAD.itemsize + np.where(born_v6, _HOST_V6, _HOST_V4) + 8
    middle_at = store_host + np.where(store_v6, _HOST_V6, _HOST_V4)
    middle = rows(data, _MIDDLE.itemsize, middle_at).view(_MIDDLE).ravel()
    body_at = middle_at + _MIDDLE.itemsize
    body_end = body_at + middle["body_size"]
    is_v2 = heads["magic"] == MAGIC_V2
    topic_size = _topic_sizes(np.frombuffer(data, np.uint8), body_end, is_v2)
    properties_at = body_end + 1 + is_v2 + topic_size + 2
    raw = cut_out(data, properties_at, starts + records.size)
    properties = read_properties(raw)
    columns: dict[str, Any] = {
        "offset": records.phy_offset,
        "size": records.size.astype(np.int32),
        "file": _file_names(records.phy_offset, file_size),
        "topic": pa.array(records.topics, pa.string()).take(pa.array(records.topic)),
        "queue_id": records.queue_id.astype(np.int32),
        "queue_offset": records.queue_offset,
        "tags": properties.values_of("TAGS"),
        "keys": properties.values_of("KEYS"),
        "unique_key": properties.values_of("UNIQ_KEY"),
        "tags_code": properties.tags_codes(raw),
        "born_ms": heads["born_ms"].astype(np.int64),
        "born_host": _hosts(data, starts + _HEAD.itemsize, born_v6),
        "stored_ms": records.store_timestamp,
        "store_host": _hosts(data, store_host, store_v6),
        "flag": heads["flag"].astype(np.int32),
        "sys_flag": records.sys_flag.astype(np.int32),
        "reconsume_times": middle["reconsume_times"].astype(np.int32),
        "prepared_offset": middle["prepared_offset"].astype(np.int64),
        "version": np.where(is_v2, 2, 1).astype(np.int8),
        "body_size": middle["body_size"].astype(np.int32),
        "body_crc": heads["crc"].astype(np.int32),
        "properties": properties.maps(),
    }
    if body:
        columns["body"] = cut_out(data, body_at, body_end)
    schema = records_schema(body=body)
    return pa.RecordBatch.from_arrays([_array(columns[field.name], field.type) for field in schema], schema=schema)


def _array(column: Any, kind: pa.DataType) -> pa.Array:
    return pa.array(column, kind) if isinstance(column, np.ndarray) else column


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
