"""Columns say of records what the codec says of each; maps of properties are those of the parser."""

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.pipeline.logs import message, records, traffic
from tests.store.records import messages
from twinlog.cluster.pipeline.tables import schemas
from twinlog.cluster.pipeline.tables.records import cut_out, read_properties, record_batch
from twinlog.store.record.column_scan import scan_columns
from twinlog.store.record.message import Message, body_crc, host_text
from twinlog.store.record.properties import parse_properties, tags_code
from twinlog.store.record.scan import properties_tags_code

FILE_SIZE = 16 << 10


def row(each: Message) -> dict[str, object]:
    """A message as the table shows it."""
    properties = each.properties
    return {
        "offset": each.phy_offset,
        "size": each.size,
        "file": f"{each.phy_offset // FILE_SIZE * FILE_SIZE:020d}",
        "topic": each.topic,
        "queue_id": each.queue_id,
        "queue_offset": each.queue_offset,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "unique_key": properties.get("UNIQ_KEY"),
        "born_ms": each.born_timestamp,
        "born_host": host_text(each.born_host),
        "stored_ms": each.store_timestamp,
        "store_host": host_text(each.store_host),
        "flag": each.flag,
        "sys_flag": each.sys_flag,
        "reconsume_times": each.reconsume_times,
        "prepared_offset": each.prepared_transaction_offset,
        "version": 2 if each.magic == -626843477 else 1,
        "body_size": len(each.body),
        "body_crc": each.body_crc,
        "properties": properties,
        "body": each.body,
    }


def rows(batch: pa.RecordBatch) -> list[dict[str, object]]:
    found = batch.to_pylist()
    for each in found:
        assert len({name for name, _ in each["properties"]}) == len(each["properties"])
        each["properties"] = dict(each["properties"])
        each.pop("tags_code")
    return found


def decoded(data: bytes, start: int, *, body: bool = True) -> pa.RecordBatch:
    scan = scan_columns(data, start, FILE_SIZE, check_crc=True)
    assert scan.error is None
    batch = record_batch(memoryview(data), start, scan.entries, FILE_SIZE, body=body)
    batch.validate(full=True)
    return batch


@settings(max_examples=40)
@given(st.lists(messages(), min_size=1, max_size=8), st.sampled_from([0, FILE_SIZE * 3 - 200]))
def test_any_records(given_: list[Message], start: int):
    data, placed = records(given_, start, FILE_SIZE)
    assert rows(decoded(data, start)) == [row(each) for each in placed]


@pytest.mark.parametrize("seed", range(5))
def test_traffic(seed: int):
    data, placed = records(traffic(300, seed), 0, FILE_SIZE)
    batch = decoded(data, 0)
    assert rows(batch) == [row(each) for each in placed]
    assert batch.column("tags_code").to_pylist() == [tags_code(each.properties.get("TAGS", "")) for each in placed]


def test_without_bodies_the_schema_has_none():
    data, _ = records([message(1)], 0, FILE_SIZE)
    assert decoded(data, 0, body=False).schema.equals(schemas.RECORD_COLUMNS, check_metadata=True)
    assert decoded(data, 0).schema.equals(schemas.RECORD_COLUMNS_WITH_BODY, check_metadata=True)


def test_a_batch_refers_to_nothing_of_the_data():
    data, placed = records([message(number, b"body %d" % number) for number in range(20)], 0, FILE_SIZE)
    buffer = bytearray(data)
    scan = scan_columns(buffer, 0, FILE_SIZE, check_crc=True)
    batch = record_batch(memoryview(buffer), 0, scan.entries, FILE_SIZE, body=True)
    buffer[:] = bytes(len(buffer))
    assert rows(batch) == [row(each) for each in placed]


pieces = st.lists(
    st.sampled_from(
        [b"a", b"TAGS", b"KEYS", b"\x01", b"\x01", b"\x02", b"\x02", b"\xc3", b"\xa9", b"\xff", b"\0", b" "]
    ),
    max_size=14,
).map(b"".join)


@settings(max_examples=200)
@given(st.lists(pieces, max_size=8))
def test_properties_are_parsed_as_one_by_one(raw: list[bytes]):
    found = read_properties(pa.array(raw, pa.binary()))
    maps = found.maps()
    maps.validate(full=True)
    expected = [parse_properties(text.decode("utf-8", "replace")) for text in raw]
    assert [dict(pairs) for pairs in maps.to_pylist()] == expected
    assert all(len(dict(pairs)) == len(pairs) for pairs in maps.to_pylist())
    assert found.tags_codes(pa.array(raw, pa.binary())).tolist() == [properties_tags_code(text) for text in raw]
    for name in ("TAGS", "KEYS", "none"):
        assert found.values_of(name).to_pylist() == [each.get(name) for each in expected]


def test_more_names_than_bits():
    raw = [
        b"\x02".join(b"n%d\x01%d" % (name, row_) for name in range(row_ % 90)) + b"\x02n1\x01last"
        for row_ in range(200)
    ]
    found = read_properties(pa.array(raw, pa.binary()))
    assert [dict(pairs) for pairs in found.maps().to_pylist()] == [parse_properties(text.decode()) for text in raw]


def test_a_slice_of_strings():
    raw = pa.array([b"a\x01b", b"c\x01d", b"", b"e\x01f"], pa.binary()).slice(1, 2)
    assert read_properties(raw).maps().to_pylist() == [[("c", "d")], []]


def test_what_is_cut_out():
    data = memoryview(b"0123456789")
    assert cut_out(data, np.array([1, 4, 9]), np.array([3, 4, 10])).to_pylist() == [b"12", b"", b"9"]
    assert cut_out(data, np.array([], np.int64), np.array([], np.int64)).to_pylist() == []


@pytest.mark.parametrize(
    "schema", [schemas.RECORD_COLUMNS, schemas.BLOCK_COLUMNS, schemas.UNIT_COLUMNS, schemas.ITEM_COLUMNS]
)
def test_tables_describe_themselves(schema: pa.Schema):
    assert schema.metadata == {b"twinlog.version": schemas.VERSION.encode()}
    assert all(field.metadata and field.metadata[b"doc"] for field in schema)


def test_empty_properties_of_all_records():
    plain = [attrs.evolve(message(number), properties_raw=b"", body=b"", body_crc=body_crc(b"")) for number in range(3)]
    data, placed = records(plain, 0, FILE_SIZE)
    assert rows(decoded(data, 0)) == [row(each) for each in placed]
