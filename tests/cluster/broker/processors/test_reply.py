"""Request and reply: the answer finds the producer that asked, and is kept."""

from pathlib import Path

import pytest

from tests.cluster.broker.helpers import Client, FakeConnection, opened
from tests.cluster.broker.parts import make_parts
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.request import Reply
from twinlog.store.config import BrokerRole
from twinlog.store.record.message import decode_message
from twinlog.store.record.properties import parse_properties

TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = "CORRELATION_ID\x01id-1\x02REPLY_TO_CLIENT\x01p1\x02MSG_TYPE\x01reply\x02TAGS\x01a"


def serving(root: Path, role: BrokerRole = BrokerRole.ASYNC_MASTER, **options: object):
    """A client of the processor of replies, with that of heartbeats."""
    parts = make_parts(root, role, **options)
    return opened(parts.serve(parts.clients(), parts.reply()))


@pytest.fixture
async def client(tmp_path):
    async with serving(tmp_path) as client:
        yield client


def producer(client: Client, client_id: str = "p1", answer: Reply | None = None) -> FakeConnection:
    connection = FakeConnection("127.0.0.1:6000", answers={} if answer is None else {326: answer})
    beat = {"clientID": client_id, "consumerDataSet": [], "producerDataSet": [{"groupName": "P"}]}
    Client(client.broker, connection).ask(34, beat)
    return connection


def short(properties: str = PROPERTIES, **more: object) -> dict[str, object]:
    fields = {"a": "C", "b": TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 7, "i": properties, "j": 0}
    return fields | more


def stored(client: Client) -> list:
    broker = client.broker
    broker.store.dispatch_pending()
    queue = broker.store.queue(TOPIC, 0)
    return [
        decode_message(broker.store.message_at(queue.unit(offset).phy_offset))
        for offset in range(queue.min_offset, queue.max_offset)
    ]


async def test_the_reply_reaches_the_producer_and_is_kept(client):
    asker = producer(client, answer=Reply())
    reply = await client.ask_async(325, b"pong", **short())
    assert reply.code == 0
    assert (reply.ext["queueId"], reply.ext["queueOffset"]) == ("0", "0")
    assert (reply.ext["MSG_REGION"], reply.ext["TRACE_ON"]) == ("DefaultRegion", "true")
    (pushed,) = asker.sent
    assert (pushed.code, pushed.body) == (326, b"pong")
    assert pushed.ext["bornHost"] == "127.0.0.1:5000"
    assert pushed.ext["storeHost"] == "127.0.0.1:10911"
    assert (pushed.ext["topic"], pushed.ext["flag"], pushed.ext["producerGroup"]) == (TOPIC, "7", "C")
    properties = parse_properties(pushed.ext["properties"])
    assert int(properties.pop("PUSH_REPLY_TIME")) > 1_600_000_000_000
    assert properties == parse_properties(PROPERTIES)
    (message,) = stored(client)
    assert (message.body, message.topic, message.flag) == (b"pong", TOPIC, 7)
    assert message.message_id == reply.ext["msgId"]
    assert message.properties == parse_properties(PROPERTIES)


async def test_long_names_are_understood_too(client):
    """Go sends 324."""
    asker = producer(client, answer=Reply())
    names = ["producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp"]
    names += ["flag", "properties", "reconsumeTimes"]
    fields = dict(zip(names, short().values(), strict=True))
    assert (await client.ask_async(324, b"pong", **fields, bname="", maxReconsumeTimes="")).code == 0
    assert asker.sent[0].body == b"pong"


async def test_nothing_is_kept_when_that_is_off(tmp_path):
    async with serving(tmp_path, store_reply_message_enable=False) as client:
        producer(client, answer=Reply())
        reply = await client.ask_async(325, b"pong", **short())
        assert (reply.code, reply.ext["msgId"], reply.ext["queueOffset"]) == (0, "0", "0")
        assert client.broker.store.max_offset == 0


async def test_a_slave_pushes_and_keeps_nothing(tmp_path):
    async with serving(tmp_path, BrokerRole.SLAVE) as client:
        asker = producer(client, answer=Reply())
        assert (await client.ask_async(325, b"pong", **short())).code == 0
        assert len(asker.sent) == 1
        assert client.broker.store.max_offset == 0


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ("", "reply message properties[REPLY_TO_CLIENT] is null"),
        ("REPLY_TO_CLIENT\x01p9", "push reply message fail, channel of <p9> not found."),
    ],
)
async def test_nobody_to_give_it_to(client, properties, remark):
    """It is kept all the same, as RocketMQ does: the consumer has done its work."""
    producer(client, answer=Reply())
    reply = await client.ask_async(325, b"pong", **short(properties))
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert reply.ext["TRACE_ON"] == "true"
    assert len(stored(client)) == 1


async def test_a_producer_that_refuses_or_is_silent(client, autojump_clock):
    producer(client, "p1", Reply(1, "no such request"))
    reply = await client.ask_async(325, b"pong", **short())
    assert (reply.code, reply.remark) == (1, "push reply message to p1 fail: no such request")
    producer(client, "p2")
    reply = await client.ask_async(325, b"pong", **short("REPLY_TO_CLIENT\x01p2"))
    assert reply.code == 1
    assert client.table[324].function.__self__.client_calls.under_way == 0


async def test_who_has_left_is_not_asked(client):
    producer(client, answer=Reply()).close()
    assert "not found" in (await client.ask_async(325, b"pong", **short())).remark


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"b": "../T"}, ResponseCode.SYSTEM_ERROR),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"b": "unknown", "c": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"e": 1}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_what_no_message_may_be(client, fields, code):
    asker = producer(client, answer=Reply())
    reply = await client.ask_async(325, b"pong", **short(**fields))
    assert (reply.code, reply.ext) == (code, {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"})
    assert asker.sent == []
    assert client.broker.store.max_offset == 0
