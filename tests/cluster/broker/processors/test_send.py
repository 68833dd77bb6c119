"""Sends: what is stored, what is answered and when, and what is refused with which words."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.broker.sending import NOW_MS, Producer, inner_message, make_parts
from tests.store.java_map import JavaHashMap
from twinlog.cluster.broker.send import acks
from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig
from twinlog.cluster.remoting.command import ONEWAY, ROCKETMQ
from twinlog.store.config import BrokerRole, FlushDiskType
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.record.properties import parse_properties


@pytest.fixture
def producer(tmp_path):
    return Producer(make_parts(tmp_path))


def sync_master(root, **options):
    return Producer(make_parts(root, broker_role=BrokerRole.SYNC_MASTER, **options))


def codes(answers):
    return [(answer.opaque, answer.code) for answer in answers]


def test_a_message_is_stored_as_it_was_sent(producer):
    body = bytes(range(256))
    properties = "KEYS\x01k\x02TAGS\x01TagA\x02UNIQ_KEY\x01u\x02WAIT\x01true\x02größe\x01xl"
    (answer,) = producer.send(producer.command(body=body, properties=properties, e=2, f=1, g=NOW_MS - 5, h=-7, j=3))
    (message,) = producer.stored()
    assert (message.topic, message.queue_id, message.body, message.sys_flag) == ("T1", 2, body, 1)
    assert (message.flag, message.reconsume_times, message.born_timestamp) == (-7, 3, NOW_MS - 5)
    assert (message.store_timestamp, message.queue_offset, message.phy_offset) == (NOW_MS, 0, 0)
    read = parse_properties(properties)
    assert message.properties == {"CLUSTER": "C1", **{name: read[name] for name in read if name != "WAIT"}}
    assert message.born_host == producer.wire.remote_host
    assert answer.ext == {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "msgId": message.message_id,
        "queueId": "2",
        "queueOffset": "0",
    }
    assert (answer.code, answer.flag, answer.remark) == (0, 1, None)


def test_all_sends_of_one_read_are_answered_in_one_write(producer):
    answers = producer.send(*(producer.command(e=n % 2) for n in range(10)))
    assert producer.wire.writes == 1
    assert [answer.ext["queueOffset"] for answer in answers] == [str(n // 2) for n in range(10)]
    assert [m.message_id for m in producer.stored()] == [answer.ext["msgId"] for answer in answers]


@pytest.mark.parametrize("serialize_type", [0, ROCKETMQ])
@pytest.mark.parametrize("region", ["DefaultRegion", "Zürich @id %s", ""])
def test_answers_are_frames_of_the_right_size(tmp_path, region, serialize_type):
    producer = Producer(make_parts(tmp_path, broker={"region_id": region}))
    answers = producer.send(*(producer.command(serialize_type=serialize_type) for _ in range(3)))
    assert codes(answers) == [(1, 0), (2, 0), (3, 0)]
    assert {answer.ext["MSG_REGION"] for answer in answers} == {region}
    assert {answer.serialize_type for answer in answers} == {serialize_type}


@pytest.mark.parametrize("more", [{}, {"j": 1}, {"b": ""}, {"e": 99}])
def test_oneway_gets_no_answer(producer, more):
    assert producer.send(producer.command(flag=ONEWAY, **more)) == []


def test_long_names_mean_the_same(producer):
    """10, as Go and Python clients send it."""
    ext = {
        "producerGroup": "p",
        "topic": "T1",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "1",
        "sysFlag": "0",
        "bornTimestamp": "5",
        "flag": "0",
        "properties": "TAGS\x01a\x02",
        "reconsumeTimes": "",
    }
    command = attrs.evolve(producer.command(), code=10, ext=ext)
    (answer,) = producer.send(command)
    assert (answer.code, answer.ext["queueId"]) == (0, "1")
    assert producer.stored()[0].properties == {"TAGS": "a", "CLUSTER": "C1"}


plain_fields = st.fixed_dictionaries(
    {},
    optional={
        "e": st.integers(-1, 9),
        "f": st.sampled_from([0, 1, 4, 8, 0x301, 5000, -1]),
        "g": st.sampled_from([0, 1, NOW_MS, -1, 1 << 62, "x", "", "٣"]),
        "h": st.sampled_from([0, 1, -1, "x"]),
        "j": st.sampled_from([0, 1, "", "x"]),
        "k": st.sampled_from(["true", "false"]),
        "m": st.sampled_from(["false", "", "x"]),
        "properties": st.sampled_from(["", "TAGS\x01a", "WAIT\x01false", "A\x01", "A\x01b\x02"]),
        "topic": st.sampled_from(["T1", "TBW102", "BenchmarkTest"]),
    },
)


@settings(max_examples=150)
@given(plain_fields)
def test_the_quick_way_does_what_the_careful_one_does(tmp_path_factory, fields):
    """Byte for byte, for every header that the quick way takes."""
    producer = Producer(make_parts(tmp_path_factory.mktemp("s"), now_ms=lambda: NOW_MS))
    producer.send(producer.command())  # Creates the topic.
    command, requests = producer.command(**fields), producer.processor.requests
    quick = requests.read_plain(producer.wire, command)
    if quick is not None:
        assert quick == requests.read(producer.wire, command)
    producer.parts.store._release()


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"b": ""}, 1, "The specified topic is blank."),
        ({"b": "a b"}, 1, "illegal characters"),
        ({"b": "../x"}, 1, "illegal characters"),
        ({"b": "t" * 128}, 1, "longer than"),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
        ({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16, "forbidden"),
        ({"b": "T9", "c": "none"}, 17, "topic[T9] not exist"),
        ({"e": 8}, 1, "request queueId[8] is illegal"),
        ({"e": "x"}, 1, "the custom field <e> is not a number"),
        ({"g": "9" * 30}, 1, "the custom field <g> is not a number"),
        ({"properties": "DELAY\x01soon"}, 13, "DELAY"),
    ],
)
def test_refusals(producer, fields, code, remark):
    producer.send(producer.command(d=8))
    answer, good = producer.send(producer.command(**fields), producer.command())
    assert (answer.code, good.code) == (code, 0)
    assert remark in answer.remark
    assert answer.ext.keys() == {"MSG_REGION", "TRACE_ON"}  # The Java client reads it without looking.
    assert len(producer.stored()) == 2


@pytest.mark.parametrize("text", ["1024", "09999", "٣", "x", "-1", "1" * 10])
def test_queues_far_behind_go_the_quick_way_too(tmp_path, text):
    producer = Producer(make_parts(tmp_path, now_ms=lambda: NOW_MS))
    producer.send(producer.command())
    topics = producer.processor.requests.topics
    topics.table["T1"] = attrs.evolve(topics.table["T1"], write_queues=10_000, read_queues=10_000)
    command, requests = producer.command(e=text), producer.processor.requests
    quick = requests.read_plain(producer.wire, command)
    assert (quick is not None) == (text in ("1024", "09999"))
    if quick is not None:
        assert quick == requests.read(producer.wire, command)
        assert quick.queue_id == int(text)


def test_transactions_can_be_refused(tmp_path):
    producer = Producer(make_parts(tmp_path, broker={"reject_transaction_message": True, "broker_ip1": "10.0.0.1"}))
    refused, good = producer.send(producer.command(properties="TRAN_MSG\x01True", f=4), producer.command())
    assert (refused.code, good.code) == (16, 0)
    assert refused.remark == "the broker[10.0.0.1] sending transaction message is forbidden"
    assert len(producer.stored()) == 1


def test_a_half_message_lies_in_the_half_queue(producer):
    """The answer names the queue that was asked for, and the place in the half queue. A delay is kept for the commit."""
    properties = "TRAN_MSG\x01true\x02PGROUP\x01P\x02TAGS\x01TagA\x02DELAY\x013\x02WAIT\x01true"
    _, second = producer.send(*(producer.command(properties=properties, e=3, f=0x305) for _ in range(2)))
    assert (second.ext["queueId"], second.ext["queueOffset"]) == ("3", "1")
    message = producer.stored()[1]
    assert (message.topic, message.queue_id, message.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0x301)
    added = {"CLUSTER": "C1", "REAL_TOPIC": "T1", "REAL_QID": "3"}
    assert message.properties == {**parse_properties(properties), **added}
    assert second.ext["msgId"] == message.message_id
    producer.parts.store.dispatch_pending()
    assert producer.parts.store.queue("RMQ_SYS_TRANS_HALF_TOPIC", 0).unit(1).tags_code == 2598919


def test_a_retry_of_an_old_client_begins_no_transaction(producer):
    """Clients before 4.6.1 leave TRAN_MSG on what they send back by hand: it must reach its consumers."""
    producer.send(producer.command(properties="TRAN_MSG\x01true\x02DELAY\x011", f=4, j=1))
    (message,) = producer.stored()
    assert (message.topic, message.sys_flag) == ("SCHEDULE_TOPIC_XXXX", 0)


def test_a_missing_field_is_named(producer):
    command = producer.command()
    del command.ext["g"]
    (answer,) = producer.send(command)
    assert (answer.code, answer.remark) == (1, "the custom field <g> is null")
    (answer,) = producer.send(attrs.evolve(command, ext=None))
    assert answer.remark == "the custom field <a> is null"


def test_no_topics_without_auto_creation(tmp_path):
    producer = Producer(make_parts(tmp_path, broker={"auto_create_topic_enable": False}))
    assert codes(producer.send(producer.command())) == [(1, 17)]


def test_queue_minus_one_is_any(producer):
    answers = producer.send(*(producer.command(e=-1) for _ in range(100)))
    assert {answer.ext["queueId"] for answer in answers} == {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("body", "properties", "remark"),
    [
        (4 << 20, "", "illegal"),
        (5, "a\x01" + "b" * 33_000, "32767"),
    ],
)
def test_what_the_store_does_not_take(producer, body, properties, remark):
    answers = producer.send(producer.command(), producer.command(body=bytes(body + 1), properties=properties))
    assert sorted(codes(answers)) == [(1, 0), (2, 13)]
    assert remark in next(answer.remark for answer in answers if answer.code)


def test_a_slave_sends_producers_away(tmp_path):
    producer = Producer(make_parts(tmp_path, broker_role=BrokerRole.SLAVE))
    (answer,) = producer.send(producer.command())
    assert answer.code == 14
    assert "slave" in answer.remark


def test_a_broken_store_says_why(producer):
    producer.parts.store.fail("fdatasync of the commit log failed: EIO")
    (answer,) = producer.send(producer.command())
    assert answer.code == 14
    assert "EIO" in answer.remark


def test_a_sync_master_answers_when_replicas_have_it(tmp_path):
    """Those with WAIT=false do not wait; the others are released together."""
    producer = sync_master(tmp_path)
    answers = producer.send(
        producer.command(), producer.command(properties="WAIT\x01false"), producer.command(properties="WAIT\x01true")
    )
    assert codes(answers) == [(2, 0)]
    transfer = producer.parts.transfer
    assert [held[0] for held in transfer.held] == [
        producer.stored()[n].phy_offset + producer.stored()[n].size for n in (0, 2)
    ]
    transfer.release()
    assert codes(producer.wire.answers) == [(2, 0), (1, 0), (3, 0)]


def test_a_sync_master_says_what_replicas_lack(tmp_path):
    producer = sync_master(tmp_path)
    producer.send(producer.command())
    producer.parts.transfer.refuse(PutStatus.SLAVE_NOT_AVAILABLE, "no slave is connected")
    (answer,) = producer.wire.answers
    assert (answer.code, answer.remark) == (11, "no slave is connected")
    assert answer.ext["msgId"] == producer.stored()[0].message_id


@pytest.mark.parametrize(("role", "stored"), [(BrokerRole.SYNC_MASTER, 1), (BrokerRole.ASYNC_MASTER, 2)])
def test_too_few_in_sync_are_refused_before_the_append(tmp_path, role, stored):
    """Code 1 with the reason, and not a byte in the log. Who asked not to wait is not refused, nor who asks an ASYNC_MASTER."""
    producer = Producer(make_parts(tmp_path, broker_role=role))
    producer.parts.transfer.refusal = "in-sync replicas not enough: 1 of 2"
    answers = producer.send(producer.command(), producer.command(properties="WAIT\x01false"))
    if role is BrokerRole.SYNC_MASTER:
        assert (answers[0].code, answers[0].remark) == (1, "in-sync replicas not enough: 1 of 2")
    assert codes(answers)[-1] == (2, 0)
    assert len(producer.stored()) == stored


def test_a_batch_is_refused_as_a_whole_before_the_append(tmp_path):
    producer = sync_master(tmp_path)
    producer.parts.transfer.refusal = "in-sync replicas not enough: 1 of 2"
    (answer,) = producer.send(producer.command(code=320, body=batch((b"1", b""), (b"2", b""))))
    assert (answer.code, answer.remark) == (1, "in-sync replicas not enough: 1 of 2")
    assert producer.parts.store.max_offset == 0


def test_when_too_many_wait_more_are_refused_before_the_append(tmp_path, monkeypatch):
    """As busy, in RocketMQ's words; who asked not to wait is served."""
    monkeypatch.setattr(acks, "WAITING_MAX", 2)
    producer = sync_master(tmp_path)
    assert producer.send(producer.command(), producer.command()) == []
    end = producer.parts.store.max_offset
    answers = producer.send(producer.command(), producer.command(code=320, body=batch((b"1", b""))))
    remark = "[OVERLOAD]system busy, start flow control for a while"
    assert [(answer.code, answer.remark) for answer in answers] == [(2, remark)] * 2
    assert producer.parts.store.max_offset == end
    (answer,) = producer.send(producer.command(properties="WAIT\x01false"))
    assert answer.code == 0
    producer.parts.transfer.release()
    assert producer.send(producer.command()) == []


def test_a_disk_that_is_busy_is_answered_as_rocketmq_does(producer, monkeypatch):
    """Its net layer refuses sends in these words while the page cache is busy."""
    putter = producer.parts.store._putter
    monkeypatch.setattr(putter, "busy_until", putter.hooks.clock() + 60)
    (answer,) = producer.send(producer.command())
    assert (answer.code, answer.remark) == (2, "[REJECTREQUEST]system busy, start flow control for a while")


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER])
async def test_synchronous_flush_holds_the_answer(tmp_path, role, mock_clock):
    producer = Producer(make_parts(tmp_path, broker_role=role, flush_disk_type=FlushDiskType.SYNC_FLUSH))
    assert producer.send(producer.command()) == []
    await producer.parts.store.flusher.flush()
    if role is BrokerRole.SYNC_MASTER:
        assert producer.wire.answers == []
        producer.parts.transfer.release()
    assert codes(producer.wire.answers) == [(1, 0)]
    await producer.parts.store.close()


def test_delayed_messages_go_to_the_schedule_topic(producer):
    """WAIT is put back behind CLUSTER, then come REAL_TOPIC and REAL_QID; the answer names the queue that was asked for."""
    (answer,) = producer.send(
        producer.command(e=3, properties="DELAY\x012\x02WAIT\x01true\x02UNIQ_KEY\x01u\x02TAGS\x01a")
    )
    (message,) = producer.stored()
    assert (message.topic, message.queue_id, answer.ext["queueId"]) == ("SCHEDULE_TOPIC_XXXX", 1, "3")
    java = JavaHashMap()
    for name, value in [
        ("DELAY", "2"),
        ("UNIQ_KEY", "u"),
        ("TAGS", "a"),
        ("CLUSTER", "C1"),
        ("WAIT", "true"),
        ("REAL_TOPIC", "T1"),
        ("REAL_QID", "3"),
    ]:
        java.put(name, value)
    assert message.properties_raw.decode() == "\x02".join(f"{name}\x01{value}" for name, value in java.items())
    told = []
    producer.parts.store.on_arrival.append(lambda *arrival: told.append(arrival))
    producer.parts.store.dispatch_pending()
    assert told == [("SCHEDULE_TOPIC_XXXX", 1, 1, [NOW_MS + 5000])]


@pytest.mark.parametrize(("delay", "level"), [("0", None), ("-1", None), ("1", 0), ("18", 17), ("99", 17)])
def test_delay_levels(producer, delay, level):
    producer.send(producer.command(properties=f"DELAY\x01{delay}"))
    (message,) = producer.stored()
    assert (message.topic, message.queue_id) == (("T1", 0) if level is None else ("SCHEDULE_TOPIC_XXXX", level))


def test_multi_tag_topics_mark_their_messages(producer):
    producer.send(producer.command())
    topics = producer.parts.topics
    topics.table["T1"] = attrs.evolve(topics.table["T1"], filter_type="MULTI_TAG")
    producer.send(producer.command(f=1))
    assert [message.sys_flag for message in producer.stored()] == [0, 3]


@pytest.mark.parametrize(
    ("fields", "topic"),
    [
        ({"j": 1}, "%RETRY%g1"),
        ({"j": 15}, "%RETRY%g1"),
        ({"j": 16}, "%DLQ%g1"),
        ({"j": 2, "l": 2}, "%DLQ%g1"),
        ({"j": 2, "l": 2, "version": 100}, "%RETRY%g1"),
    ],
)
def test_retried_too_often_is_a_dead_letter(producer, fields, topic):
    producer.parts.groups.table["g1"] = SubscriptionGroupConfig(name="g1")
    producer.parts.topics.create_in_send_back("%RETRY%g1", 1)
    (answer,) = producer.send(producer.command("%RETRY%g1", **fields))
    assert answer.code == 0
    assert [message.topic for message in producer.stored()] == [topic]
    assert producer.stored()[0].reconsume_times == fields["j"]


def batch(*items, flag=0):
    return b"".join(inner_message(flag, body, properties) for body, properties in items)


def test_a_batch_is_a_record_for_each_message(producer):
    body = batch((b"one", b"TAGS\x01a\x02UNIQ_KEY\x011"), (b"", b"UNIQ_KEY\x012\x02"), (b"three", b""), flag=9)
    (answer,) = producer.send(producer.command(body=body, code=320, properties="WAIT\x01true", m="true"))
    messages = producer.stored()
    shared = b"CLUSTER\x01C1\x02WAIT\x01true"
    assert sorted(shared.split(b"\x02")) == sorted(messages[2].properties_raw.split(b"\x02"))
    shared = messages[2].properties_raw
    assert [m.properties_raw for m in messages] == [
        b"TAGS\x01a\x02UNIQ_KEY\x011\x02" + shared,
        b"UNIQ_KEY\x012\x02" + shared,
        shared,
    ]
    assert [(m.body, m.queue_offset, m.flag) for m in messages] == [(b"one", 0, 9), (b"", 1, 9), (b"three", 2, 9)]
    assert answer.ext["msgId"] == ",".join(m.message_id for m in messages)
    assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("0", "0")


def test_a_batch_is_known_by_its_flag_too(producer):
    """Some clients send batches under 310; the flag m decides, as in RocketMQ."""
    (answer,) = producer.send(producer.command(body=batch((b"one", b""), (b"two", b"")), m="true"))
    assert answer.code == 0
    assert [m.body for m in producer.stored()] == [b"one", b"two"]


def test_order_is_kept_between_plain_messages_and_batches(producer):
    answers = producer.send(
        producer.command(),
        producer.command(code=320, body=batch((b"1", b""), (b"2", b""))),
        producer.command(),
    )
    assert [answer.ext["queueOffset"] for answer in answers] == ["0", "1", "3"]


@pytest.mark.parametrize(
    ("fields", "body", "remark"),
    [
        ({}, b"", "without messages"),
        ({}, batch((b"one", b""))[:-1], "batch"),
        ({"properties": "DELAY\x011"}, batch((b"one", b"")), "delayed"),
        ({"f": 4}, batch((b"one", b"")), "transaction"),
        ({"topic": "%RETRY%g1"}, batch((b"one", b"")), "batch request does not support retry group %RETRY%g1"),
        ({}, batch((bytes(4 << 20), b"")), "illegal"),
    ],
)
def test_batches_that_are_refused(producer, fields, body, remark):
    producer.parts.topics.create_in_send_back("%RETRY%g1", 1)
    (answer,) = producer.send(producer.command(code=320, body=body, **fields))
    assert answer.code == 13
    assert remark in answer.remark
    assert producer.stored() == []


def test_a_batch_waits_for_replicas_as_a_whole(tmp_path):
    producer = sync_master(tmp_path)
    body = batch((b"1", b"WAIT\x01true"), (b"2", b"WAIT\x01true"))
    assert producer.send(producer.command(code=320, body=body)) == []
    ((end, _, _),) = producer.parts.transfer.held
    assert end == producer.parts.store.max_offset
    assert codes(producer.send(producer.command(code=320, body=body, properties="WAIT\x01false"))) == [(2, 0)]


def test_a_broker_may_be_told_not_to_take_anything_yet(tmp_path):
    producer = Producer(make_parts(tmp_path, broker={"start_accept_send_request_timestamp": NOW_MS + 1}))
    (answer,) = producer.send(producer.command())
    assert answer.code == 1
    assert "unable to service" in answer.remark
