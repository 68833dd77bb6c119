"""Rows into messages."""

import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.pipeline.sink.encoding import Sent, batch_of, encoder_for, sent
from twinlog.cluster.pipeline.sink.options import WriteRefusedError
from twinlog.cluster.pipeline.sink.rows import in_parts

TEXTS = pa.map_(pa.string(), pa.string())


def one(**columns: Any) -> Sent:
    """The message of a row."""
    options = columns.pop("options", {})
    (message,) = sent(batch_of(**{name: _column(name, value) for name, value in columns.items()}), **options)
    return message


def _column(name: str, value: Any) -> Any:
    if name == "properties":
        return pa.array([None if value is None else list(value.items())], TEXTS)
    return pa.array([value], pa.string()) if value is None else [value]


def refusal(**columns: Any) -> str:
    with pytest.raises(WriteRefusedError) as caught:
        one(**columns)
    return str(caught.value)


def test_a_message_has_all_that_its_row_says():
    message = one(value="Grüße", keys="a b", tags="paid", properties={"city": "Köln"}, flag=7, shardingKey="k")
    assert message.body == "Grüße".encode()
    assert message.given == {"KEYS": "a b", "TAGS": "paid", "city": "Köln", "__SHARDINGKEY": "k"}
    assert (message.flag, message.key, message.is_alone) == (7, "k", False)
    assert re.fullmatch(r"q/7/3/[0-9a-f]{24}", message.row_id)
    assert re.fullmatch("[0-9A-F]{32}", message.properties["UNIQ_KEY"])


def test_nulls_are_what_is_not_there():
    assert one(value=b"", keys=None, tags=None, properties=None, shardingKey=None).given == {}


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
@given(values=st.lists(st.text(max_size=5), min_size=1, max_size=20), data=st.data())
def test_values_come_out_as_they_went_in(kind, values, data):
    """Of all types, and of a slice of a batch, as Spark gives them."""
    raw = [value.encode() if "binary" in str(kind) else value for value in values]
    start = data.draw(st.integers(0, len(raw) - 1))
    batch = pa.RecordBatch.from_arrays([pa.array(raw, kind)], ["value"]).slice(start)
    assert [message.body.decode() for message in sent(batch)] == values[start:]


def test_large_batches_are_cut_into_parts():
    batch = batch_of(value=[b"x" * 300_000] * 5 + [b"x" * 3_000_000] + [b"y"] * 5000)
    parts = [part.num_rows for part in in_parts(batch, 0)]
    assert parts == [3, 2, 1, 4096, 904]
    assert list(in_parts(batch.slice(0, 0), 0)) == []


def test_keys_of_an_array():
    batch = batch_of(value=["v", "v"], keys=[["a", "b"], None])
    assert [message.given for message in sent(batch)] == [{"KEYS": "a b"}, {}]
    for bad in (["a b"], [""], [None, "a"]):
        with pytest.raises(WriteRefusedError, match="keys of an array are neither null, nor empty, nor contain blanks"):
            sent(batch_of(value=["v"], keys=pa.array([bad], pa.list_(pa.string()))))


def test_delayed_and_large_messages_are_sent_alone():
    late = one(value="v", delayLevel=3)
    assert (late.is_alone, late.properties["DELAY"], late.properties["WAIT"]) == (True, "3", "true")
    assert not one(value="v", delayLevel=0).is_alone
    large = one(value="v" * 2000, options={"batchSize": "1000"})
    assert (large.is_alone, "DELAY" in large.properties) == (True, False)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": None}, "row 0 of partition 3: its value is null"),
        ({"value": "v", "delayLevel": 19}, "its delayLevel is 19: allowed are 0, no delay, to 18"),
        ({"value": "v", "delayLevel": -1}, "its delayLevel is -1"),
        ({"value": "v", "flag": 1 << 31}, "its flag is 2147483648: allowed are 32 bits"),
        ({"value": "v", "properties": {"UNIQ_KEY": "x"}}, "its property UNIQ_KEY is reserved"),
        ({"value": "v", "properties": {"TIMER_OUT_MS": "x"}}, "its property TIMER_OUT_MS is reserved"),
        ({"value": "v", "properties": {"SPARK_ROW_ID": "x"}}, "its property SPARK_ROW_ID is reserved"),
        ({"value": "v", "properties": {"a": None}}, "its property 'a' has no value"),
        ({"value": "v", "properties": {"": "x"}}, "its property '' has no name"),
        ({"value": "v", "properties": {"a": "x\x01y"}}, "its property 'a' contains U.0001 or U.0002"),
        ({"value": "v", "properties": {"a\x02": "x"}}, "contains U.0001 or U.0002"),
        ({"value": "v", "tags": "\x02"}, "its property 'TAGS' contains"),
        ({"value": "v", "keys": "k" * 33_000}, "its keys, tags and properties have 33"),
        ({"value": "v" * (4 << 20)}, "4194304 bytes of value .* more than 4194304"),
    ],
)
def test_rows_that_cannot_be_sent(columns, said):
    assert re.search(said, refusal(**columns))


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        (None, "its topic is null"),
        ("a b", "its topic is 'a b'"),
        ("%RETRY%G", "its topic is '%RETRY%G': it is a retry topic"),
        ("", "its topic is ''"),
    ],
)
def test_topics_of_a_column(topic, said):
    batch = batch_of(value=["v", "v"], topic=pa.array(["T", topic], pa.string()))
    with pytest.raises(WriteRefusedError, match=f"row 1 of partition 3: {said}"):
        sent(batch, topic="")


def test_rows_are_counted_over_all_parts():
    encoder = encoder_for(batch_of(value=["v"]))
    encoder.encode(batch_of(value=["v"] * 10))
    with pytest.raises(WriteRefusedError, match="row 11 of"):
        encoder.encode(batch_of(value=["v", None]))


def test_messages_that_were_read_can_be_written_as_they_are():
    """What RocketMQ keeps for itself is left out; the sharding key goes on to count."""
    stored = {
        "KEYS": "k",
        "TAGS": "t",
        "UNIQ_KEY": "A" * 32,
        "CLUSTER": "C",
        "WAIT": "true",
        "SPARK_ROW_ID": "old/1/2/3",
    }
    stored |= {"__SHARDINGKEY": "s", "city": "Leeds", "DELAY": "3", "REAL_TOPIC": "T"}
    message = one(value=b"v", messageId="A" * 32, keys="k", tags="t", properties=stored, flag=1, valueProblem=None)
    assert message.given == {"KEYS": "k", "TAGS": "t", "__SHARDINGKEY": "s", "city": "Leeds"}
    assert message.properties["UNIQ_KEY"] != "A" * 32
    assert message.row_id.startswith("q/7/3/")
    assert (message.key, message.is_alone) == ("s", False)
    without = one(value=b"v", messageId="A" * 32, properties=stored)
    assert without.given == message.given
    changed = one(value=b"v", messageId="A" * 32, properties=stored, tags="new")
    assert changed.given["TAGS"] == "new"


def test_a_body_that_did_not_inflate_is_not_sent_as_if_it_were_the_value():
    said = refusal(value=b"v", messageId="A", valueProblem="zlib: bad")
    assert "as its valueProblem says: zlib: bad" in said
