"""Options and columns of the sink: what cannot be written is said before anything is sent."""

import pyarrow as pa
import pytest

from tests.cluster.pipeline.sink.encoding import NAMESRV
from twinlog.cluster.pipeline.sink.options import NotSafe, sink_columns, sink_options
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError

GIVEN = {"nameServer": NAMESRV, "topic": "T"}
TEXT = pa.string()


def refusal(**options: str) -> str:
    with pytest.raises(ReadRefusedError) as caught:
        sink_options(GIVEN | options)
    return str(caught.value)


def test_names_of_options_have_no_case():
    options = sink_options({"NAMESERVER": NAMESRV, "Topic": "T", "ONNOTSAFE": "FAIL", "batchsize": "1000"})
    assert (options.topic, options.on_not_safe, options.batch_size) == ("T", NotSafe.FAIL, 1000)
    assert sink_options(GIVEN).on_not_safe is NotSafe.RETRY


def test_a_batch_stays_within_what_a_broker_takes():
    assert sink_options(GIVEN | {"batchSize": "10000", "maxMessageSize": "8000"}).batch_size == 4000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "no topic"}, "option topic is 'no topic': .*illegal characters"),
        ({"producerGroup": "a b"}, "option producerGroup is 'a b'"),
        ({"onNotSafe": "ignore"}, "option onNotSafe is 'ignore': allowed are fail and retry"),
        ({"batchSize": "0"}, "option batchSize"),
        ({"maxMessageSize": "4 MiB"}, "option maxMessageSize"),
        ({"writeId": "a/b"}, "option writeId is 'a/b'"),
        ({"nameServer": ""}, "option nameServer is missing"),
        ({"onNotSave": "fail"}, "did you mean onNotSafe"),
    ],
)
def test_options_that_cannot_be(options, said):
    import re

    assert re.search(said, refusal(**options))


def columns(options: dict[str, str] | None = None, **kinds: pa.DataType):
    return sink_columns(pa.schema(list(kinds.items())), sink_options(GIVEN if options is None else options))


def column_refusal(options: dict[str, str] | None = None, **kinds: pa.DataType) -> str:
    with pytest.raises(ReadRefusedError) as caught:
        columns(options, **kinds)
    return str(caught.value)


def test_columns_are_found_by_name_without_case():
    found = columns({"nameServer": NAMESRV}, VALUE=pa.binary(), Topic=TEXT, shardingkey=TEXT)
    assert (found.value, found.topic, found.sharding_key, found.keys) == (0, 1, 2, None)


def test_the_topic_of_the_options_comes_first():
    assert columns(value=TEXT, topic=TEXT).topic is None


@pytest.mark.parametrize(
    "kinds",
    [
        {"value": pa.large_string(), "keys": pa.list_(TEXT), "delayLevel": pa.int64()},
        {"value": pa.large_binary(), "keys": TEXT, "properties": pa.map_(TEXT, TEXT), "flag": pa.int8()},
    ],
)
def test_types_that_are_taken(kinds):
    columns(**kinds)


@pytest.mark.parametrize(
    ("name", "kind", "wanted"),
    [
        ("value", pa.int32(), "STRING or BINARY. Make it one with to_json"),
        ("keys", pa.list_(pa.int32()), "STRING or ARRAY<STRING>"),
        ("properties", pa.map_(TEXT, pa.int32()), "MAP<STRING,STRING>"),
        ("tags", pa.binary(), "STRING"),
        ("delayLevel", TEXT, "INT"),
    ],
)
def test_columns_of_other_types(name, kind, wanted):
    said = column_refusal(**({"value": TEXT} | {name: kind}))
    assert said.startswith(f"column {name} is ")
    assert f"it has to be {wanted}" in said


def test_frames_that_lack_something():
    assert "no column value" in column_refusal(body=TEXT) or "columns body" in column_refusal(body=TEXT)
    assert "no column value" in column_refusal(tags=TEXT)
    assert "set option topic" in column_refusal({"nameServer": NAMESRV}, value=TEXT)
    assert "two columns value" in column_refusal(value=TEXT, VALUE=TEXT)


def test_unknown_columns_are_refused_unless_they_are_named():
    said = column_refusal(value=TEXT, customer=TEXT, queueId=pa.int32())
    assert said.startswith("columns customer, queueId are none that the sink knows")
    columns(GIVEN | {"ignoreColumns": "Customer, queueId"}, value=TEXT, customer=TEXT, queueId=pa.int32())


def test_columns_of_the_source_are_taken_together():
    found = columns(value=pa.binary(), queueId=pa.int32(), messageId=TEXT, storeTimestamp=pa.timestamp("us"))
    assert found.is_read
