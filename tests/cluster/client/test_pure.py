"""Filters, compression, batches, retries and offsets: decisions without I/O."""

import copy
import pickle
import zlib

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.client.helpers import received_message
from tests.store.records import messages as record_messages
from twinlog.cluster.broker.send.requests import split_batch as broker_split
from twinlog.cluster.client import messages
from twinlog.cluster.client.client import own_address
from twinlog.cluster.client.consume import retry
from twinlog.cluster.client.consume.offsets import OffsetTable, dump_offsets, load_offsets, read_offset_file
from twinlog.cluster.client.consume.retry import Failed
from twinlog.cluster.client.messages import OutgoingMessage, batch_size, encode_batch, split_batch, wire_properties
from twinlog.cluster.client.producer import by_key
from twinlog.cluster.client.subscription import From, FromTime, Sql, Subscription, as_heartbeat
from twinlog.cluster.remoting.names import SQL92
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.store.record import compression as packing
from twinlog.store.record.message import Message, body_crc, decode_message, encode_message
from twinlog.store.record.properties import parse_properties

QUEUE, OTHER = MessageQueue("T1", "broker-a", 0), MessageQueue("T1", "broker-a", 1)


# ---- Pulled messages


@given(st.lists(record_messages(), max_size=4))
def test_a_pulled_message_is_what_its_record_says(records):
    """Whether its record is read the short way or not, and whatever of it is asked for first."""
    records = [attrs.evolve(record, topic="T1", size=0) for record in records]
    raw = [encode_message(attrs.evolve(each, size=len(encode_message(each)))) for each in records]
    expected = [messages.as_received(decode_message(each), QUEUE) for each in raw]
    names = [each.name for each in attrs.fields(messages.ReceivedMessage)]
    for first in names:
        found = messages.received(b"".join(raw), QUEUE)
        assert [getattr(each, first) for each in found] == [getattr(each, first) for each in expected]
        assert found == expected
        assert [repr(each) for each in found] == [repr(each) for each in expected]


def test_a_pulled_message_is_copied_and_has_no_other_attributes():
    raw = encode_message(Message("T1", 0, b"x", b"TAGS\x01a", body_crc=body_crc(b"x")))
    (found,) = messages.received(raw, QUEUE)
    assert pickle.loads(pickle.dumps(found)) == copy.copy(found) == found
    (found,) = messages.received(raw, QUEUE)
    assert found.again() == attrs.evolve(found, reconsume_times=1)
    with pytest.raises(AttributeError, match="no attribute 'tag'"):
        _ = found.tag


# ---- Filters


def test_a_subscription_as_a_heartbeat_of_java_has_it():
    """Captured from a 4.9.7 consumer."""
    assert Subscription.of("T1", "TagA || TagC", 1795264882690).to_json() == {
        "classFilterMode": False,
        "codeSet": [2598919, 2598921],
        "expressionType": "TAG",
        "subString": "TagA || TagC",
        "subVersion": 1795264882690,
        "tagsSet": ["TagA", "TagC"],
        "topic": "T1",
    }


def test_words_are_compared_not_hashes():
    """Aa and BB have the same hash in Java: the broker delivers both."""
    subscription = Subscription.of("T", "Aa", 1)
    assert subscription.matches("Aa")
    assert not subscription.matches("BB")
    assert Subscription.of("T", "*", 1).matches("BB")


def test_sql_is_the_brokers_business():
    subscription = Subscription.of("T", Sql("a > 1"), 1)
    assert (subscription.kind, subscription.matches("anything")) == (SQL92, True)


def test_a_filter_without_a_tag_is_refused():
    with pytest.raises(ValueError, match="names no tag"):
        Subscription.of("T", " || ", 1)


# ---- Packed bodies


@given(st.binary(max_size=20_000))
def test_a_packed_body_unpacks_to_itself(body):
    packed, flag = messages.compress(body)
    assert messages.decompress(packed, flag) == body
    assert len(packed) <= len(body)


def test_older_clients_do_not_name_zlib():
    assert messages.decompress(zlib.compress(b"old"), packing.COMPRESSED) == b"old"


@pytest.mark.parametrize("flag", [0x1, 0x301, 0x501])
def test_what_is_not_packed_as_it_says_is_an_error(flag):
    with pytest.raises(packing.CompressionError):
        messages.decompress(b"nonsense", flag)


@pytest.mark.parametrize("flag", [0x101, 0x201])
def test_a_missing_library_is_named(flag):
    with pytest.raises(packing.CompressionError):
        messages.decompress(b"nonsense", flag)


def test_a_bomb_is_not_unpacked(monkeypatch):
    monkeypatch.setattr(messages, "BODY_SIZE_MAX", 1000)
    with pytest.raises(packing.CompressionError, match="longer"):
        messages.decompress(zlib.compress(bytes(5000)), 0x301)


def test_a_body_that_ends_early_is_an_error():
    with pytest.raises(packing.CompressionError, match="early"):
        messages.decompress(zlib.compress(bytes(5000))[:-6], 0x301)


# ---- Batches

MESSAGES = st.lists(
    st.builds(
        OutgoingMessage,
        topic=st.just("T"),
        body=st.binary(max_size=300),
        tags=st.sampled_from(["", "a", "ü"]),
        flag=st.integers(0, 5),
    ),
    max_size=30,
)


@given(MESSAGES, st.integers(100, 1000))
def test_a_split_batch_is_whole_in_order_and_fits(messages, size_max):
    parts = list(split_batch(messages, size_max))
    assert [message for part in parts for message in part] == messages
    for part in parts:
        size = len(encode_batch((each, wire_properties(each, "F" * 32)) for each in part))
        assert size <= sum(map(batch_size, part))
        assert size <= size_max or len(part) == 1


def test_the_broker_reads_what_we_write():
    messages = [OutgoingMessage(topic="T", body=b"one", flag=3), OutgoingMessage(topic="T", body=b"", tags="x")]
    body = encode_batch((each, wire_properties(each, "ID")) for each in messages)
    read = broker_split(body)
    assert [(each.flag, bytes(each.body)) for each in read] == [(3, b"one"), (0, b"")]
    assert parse_properties(read[1].properties.decode()) == {"UNIQ_KEY": "ID", "WAIT": "true", "TAGS": "x"}


@pytest.mark.parametrize(
    "messages",
    [
        [OutgoingMessage(topic="T", body=b""), OutgoingMessage(topic="U", body=b"")],
        [OutgoingMessage(topic="T", body=b"", delay_level=1)],
        [OutgoingMessage(topic="%RETRY%G", body=b"")],
    ],
)
def test_what_no_batch_may_hold(messages):
    with pytest.raises(ValueError):
        list(split_batch(messages))


# ---- Queues by key


def test_a_key_chooses_the_queue_that_java_chooses():
    queues = [MessageQueue("T", "b", number) for number in range(7)]
    assert by_key("TagA")(queues).queue_id == 2598919 % 7  # "TagA".hashCode(), as heartbeats of Java have it.


# ---- Retries


@pytest.mark.parametrize(
    ("times", "ordered", "broadcasting", "expected"),
    [
        (0, False, False, Failed.SEND_BACK),
        (99, False, False, Failed.SEND_BACK),  # The broker counts, and lays it down as dead.
        (0, False, True, Failed.DROP),
        (2, True, False, Failed.HERE_AGAIN),
        (3, True, False, Failed.SEND_BACK),
        (3, True, True, Failed.HERE_AGAIN),
    ],
)
def test_what_becomes_of_a_failure(times, ordered, broadcasting, expected):
    message = received_message(0, reconsume_times=times)
    assert retry.after_failure(message, 3, ordered=ordered, broadcasting=broadcasting) is expected


def test_how_often():
    assert retry.retries(5, ordered=True) == 5
    assert retry.retries(-1, ordered=False) == 16
    assert retry.retries(-1, ordered=True) > 1_000_000


def test_a_copy_for_the_retry_topic_remembers_its_origin():
    message = received_message(0, reconsume_times=2, properties={"KEYS": "k", "TRAN_MSG": "true", "CLUSTER": "C"})
    assert retry.retry_properties(message) == {
        "KEYS": "k",
        "ORIGIN_MESSAGE_ID": message.message_id,
        "RETRY_TOPIC": "T",
        "DELAY": "5",
    }


# ---- Offsets


def test_an_offset_only_rises_unless_it_is_reset():
    table = OffsetTable()
    table.begin(QUEUE, 5)
    table.update(QUEUE, 3)
    assert (table.offsets, table.changed()) == ({QUEUE: 5}, {})
    table.update(QUEUE, 3, only_up=False)
    assert table.changed() == {QUEUE: 3}
    table.note_stored({QUEUE: 3})
    assert table.changed() == {}
    table.store_all_again()
    assert table.changed() == {QUEUE: 3}


def test_where_a_new_group_begins_is_stored():
    """Otherwise a restart before the first message might begin at the other end of the queue."""
    table = OffsetTable()
    table.begin(QUEUE, 7, is_stored=False)
    assert table.changed() == {QUEUE: 7}


def test_offsets_as_rocketmq_writes_them():
    text = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T1"}:5}}'
    assert dump_offsets({QUEUE: 5}) == text
    assert load_offsets(text) == {QUEUE: 5}
    listed = b'{"offsetTable":[{"brokerName":"broker-a","offset":6,"queueId":1,"topic":"T1"}]}'
    assert load_offsets(listed) == {OTHER: 6}


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"offsetTable":5}', b'{"offsetTable":{"a":1}}', b"\xff"])
def test_what_is_no_table_of_offsets(text):
    with pytest.raises(ValueError):
        load_offsets(text)


def test_a_damaged_file_has_a_backup(tmp_path):
    path = tmp_path / "offsets.json"
    assert read_offset_file(path) == {}
    path.write_bytes(b'{"offsetTable":{{"brok')
    path.with_name("offsets.json.bak").write_bytes(dump_offsets({QUEUE: 4}))
    assert read_offset_file(path) == {QUEUE: 4}


def test_where_to_begin_in_rocketmqs_words():
    assert as_heartbeat(From.FIRST) == "CONSUME_FROM_FIRST_OFFSET"
    assert as_heartbeat(FromTime(5)) == "CONSUME_FROM_TIMESTAMP"


def test_own_address_where_the_name_server_has_a_host_name():
    """Not loopback, if this machine has another: clients in containers would all be the same one."""
    assert own_address("localhost:9876") == own_address("192.0.2.1:9876")
    assert own_address("127.0.0.1:9876") == "127.0.0.1"
