"""Topics: made, shown and removed by administrators."""

import pytest

from tests.cluster.broker.helpers import opened, put
from tests.cluster.broker.parts import make_parts
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting import fastjson
from twinlog.store.config import BrokerRole


@pytest.fixture
async def client(tmp_path):
    parts = make_parts(tmp_path)
    async with opened(parts.serve(parts.topic_admin())) as client:
        yield client


@pytest.fixture
async def slave(tmp_path):
    parts = make_parts(tmp_path, BrokerRole.SLAVE)
    async with opened(parts.serve(parts.topic_admin())) as client:
        yield client


TOPIC = {
    "topic": "T1",
    "defaultTopic": "TBW102",
    "readQueueNums": 4,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "order": True,
}


async def test_a_topic_is_made_shown_and_removed(client):
    assert (await client.ask_async(17, **TOPIC)).code == 0
    assert client.broker.tables.topics.select("T1") == TopicConfig("T1", 4, 2), "order is not set by 17"
    assert fastjson.loads(client.ask(351, topic="T1").body)["writeQueueNums"] == 2
    table = fastjson.loads(client.ask(21).body)
    assert table["topicConfigTable"]["T1"]["readQueueNums"] == 4
    assert table["dataVersion"]["counter"] == 1
    assert fastjson.loads(client.broker.tables.topics_writer.file.path.read_bytes()) == table, "saved before the answer"
    assert (await client.ask_async(215, topic="T1")).code == 0
    assert client.ask(351, topic="T1").code == 17
    assert (await client.ask_async(215, topic="T1")).code == 0


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"topic": "TBW102"}, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "broker-a"}, "conflict"),
        ({"topic": "a b"}, "illegal characters"),
        ({"readQueueNums": -1}, "-1 queues"),
        ({"writeQueueNums": 1_000_000}, "queues"),
    ],
)
async def test_topics_that_cannot_be_are_refused(client, change, remark):
    reply = await client.ask_async(17, **{**TOPIC, **change})
    assert reply.code == 1
    assert remark in reply.remark


async def test_a_slave_changes_no_topics(slave):
    for reply in (
        await slave.ask_async(17, **TOPIC),
        await slave.ask_async(215, topic="T1"),
        await slave.ask_async(18, {"topicConfigList": [plain_topic("A")]}),
    ):
        assert reply.code == 1
        assert "slave broker" in reply.remark


async def test_topic_statistics_in_the_dialect_of_fastjson(client):
    client.broker.tables.topics.update(TopicConfig("T1", 1, 1))
    stored = put(client.broker).store_timestamp
    assert client.ask(202, topic="T1").body == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T1"}:'
        b'{"lastUpdateTimestamp":%d,"maxOffset":1,"minOffset":0}}}' % stored
    )
    assert client.ask(202, topic="T2").code == 17


# Many at once


def plain_topic(name, **more):
    return {"topicName": name, "readQueueNums": 3, "writeQueueNums": 4, "perm": 6, "order": False, **more}


async def test_many_topics_are_made_at_once(client):
    body = {"topicConfigList": [plain_topic("A", attributes={}), plain_topic("B", topicFilterType="MULTI_TAG")]}
    assert (await client.ask_async(18, body)).code == 0
    assert client.broker.tables.topics.select("A") == TopicConfig("A", 3, 4)
    assert client.broker.tables.topics.select("B").filter_type == "MULTI_TAG"


@pytest.mark.parametrize(
    "bad",
    [
        plain_topic("a/b"),
        plain_topic(""),
        plain_topic("TBW102"),
        plain_topic("C", readQueueNums=-1),
        plain_topic("C", writeQueueNums=10**9),
        plain_topic("C", perm="x"),
        plain_topic("C", readQueueNums=[1]),
        {},
        7,
    ],
)
async def test_one_bad_topic_and_none_is_made(client, bad):
    reply = await client.ask_async(18, {"topicConfigList": [plain_topic("A"), bad]})
    assert reply.code == 1
    assert client.broker.tables.topics.select("A") is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{", {"topicConfigList": 7}])
async def test_lists_that_are_none(client, body):
    assert (await client.ask_async(18, body)).code == 1


async def test_lists_are_bounded(client):
    reply = await client.ask_async(18, {"topicConfigList": [{}] * 10_001})
    assert "10000 at most" in reply.remark
