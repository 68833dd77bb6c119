"""Options of the source: what they mean, and what is refused."""

import pickle

import pytest

from twinlog.cluster.client.subscription import Sql
from twinlog.cluster.pipeline.sink import options as sink_options
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.tables.texts import check_spelling
from twinlog.cluster.pipeline.topics import connection, options
from twinlog.cluster.pipeline.topics.offsets import EARLIEST, LATEST
from twinlog.cluster.pipeline.topics.options import Chosen, Place, read_options
from twinlog.cluster.remoting.route import MessageQueue

HERE = {"nameServer": "127.0.0.1:9876"}
ORDERS = HERE | {"subscribe": "orders"}
QUEUE = MessageQueue("orders", "broker-a", 0)


def test_defaults_are_those_of_kafkas_source():
    once, stream = read_options(ORDERS, is_stream=False), read_options(ORDERS, is_stream=True)
    assert (once.start.otherwise, once.end and once.end.otherwise) == (EARLIEST, LATEST)
    assert (stream.start.otherwise, stream.end) == (LATEST, None)
    assert once.chosen == Chosen(topics=("orders",))
    assert once.fail_on_data_loss
    assert (once.most, once.parts_min, once.group, once.wanted, once.is_filtered) == (None, None, None, "*", False)
    assert pickle.loads(pickle.dumps(once)) == once


def test_all_options():
    found = read_options(
        HERE
        | {
            "ASSIGN": '{"orders": {"broker-a": [0]}}',
            "startingOffsets": '{"orders": {"broker-a": {"0": 7}}}',
            "endingTimestamp": "1000",
            "maxOffsetsPerTrigger": "10",
            "minPartitions": "3",
            "sql": "a > 1",
            "failOnDataLoss": "false",
            "consumerGroup": "readers",
        },
        is_stream=False,
    )
    assert found.chosen == Chosen(queues=frozenset({QUEUE}))
    assert found.chosen.named == ("orders",)
    assert found.start == Place("startingOffsets", EARLIEST, {QUEUE: 7})
    assert found.end == Place("endingTimestamp", 1000, is_time=True)
    assert (found.most, found.parts_min, found.wanted, found.group) == (10, 3, Sql("a > 1"), "readers")
    assert found.subscription("orders").kind == "SQL92"
    assert not found.fail_on_data_loss


def test_other_options_of_spark_and_of_the_sink_are_passed_over():
    """A program may have one set of options for all, and Spark passes some of its own."""
    known = dict.fromkeys((*connection.OPTIONS, *options.OPTIONS, *sink_options.OPTIONS))
    check_spelling(known, (*connection.OPTIONS, *options.OPTIONS))
    check_spelling(known, (*connection.OPTIONS, *sink_options.OPTIONS))
    read_options(ORDERS | {"path": "/x", "__partition_columns": "[]", "kafka.bootstrap.servers": "h"}, is_stream=True)


def test_patterns_take_no_system_topics_and_retries_only_by_name():
    topics = ("%DLQ%g", "%RETRY%g", "a-1", "a-2", "b", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_x")
    assert Chosen(pattern="a-.*").matching(topics) == ("a-1", "a-2")
    assert Chosen(pattern=".*").matching(topics) == ("a-1", "a-2", "b")
    assert Chosen(pattern="%DLQ%.*").matching(topics) == ("%DLQ%g",)


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"subscribe": ""}, "exactly one"),
        ({"subscribePattern": "a.*"}, "exactly one"),
        ({"subscribe": ","}, "names no topic"),
        ({"subscribe": "a b"}, "illegal"),
        ({"subscribe": "", "subscribePattern": "("}, "regular expression"),
        ({"subscribe": "", "assign": "{}"}, "names no queue"),
        ({"subscribe": "", "assign": '{"t": {"b": {"0": 1}}}'}, "list of queues"),
        ({"subscribe": "", "assign": '{"t": {"b": [-1]}}'}, "number of a queue"),
        ({"startingOffsets": "{"}, "no JSON"),
        ({"startingOffsets": "[]"}, "no object"),
        ({"startingOffsets": "7"}, "no object"),
        ({"startingOffsets": '{"t": {"b": {"0": "7"}}}'}, "no number"),
        ({"startingOffsets": '{"t": {"b": {"0": -3}}}'}, "no number"),
        ({"startingOffsets": '{"t": {"b": 7}}'}, "object with queues"),
        ({"startingOffsets": "latest"}, "would read nothing"),
        ({"endingOffsets": "earliest"}, "nothing would be read"),
        ({"endingOffsets": '{"t": {"b": {"0": -2}}}'}, "nothing would be read"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "both set"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp"),
        ({"startingTimestamp": '{"t": {"b": {"0": -1}}}'}, "no number"),
        ({"tags": "a", "sql": "b"}, "tags and sql"),
        ({"tags": "||"}, "no tag"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"minPartitions": "many"}, "minPartitions"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"consumerGroup": "a b"}, "consumerGroup"),
        ({"startingOffset": "earliest"}, "startingOffset is not known: did you mean startingOffsets"),
        ({"MINPARTITION": "2"}, "MINPARTITION is not known: did you mean minPartitions"),
        ({"secretKeys": "x"}, "did you mean secretKey"),
    ],
)
def test_what_is_refused_names_the_option(more, word):
    with pytest.raises(ReadRefusedError, match=word):
        read_options(ORDERS | more, is_stream=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp"])
def test_a_stream_has_no_end(name):
    with pytest.raises(ReadRefusedError, match="has no end"):
        read_options(ORDERS | {name: "1"}, is_stream=True)
