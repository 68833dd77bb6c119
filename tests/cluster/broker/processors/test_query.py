"""Requests 12, 33 and 321: messages by key or offset, and units of queues."""

from contextlib import asynccontextmanager

import pytest

from tests.cluster.broker.helpers import heartbeat, opened, put, read
from tests.cluster.broker.parts import make_parts
from tests.store.indexes import until_caught_up
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.store.record.message import decode_message

EVER = {"beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}


@asynccontextmanager
async def indexing(broker, nursery):
    """The broker's handlers, with its index at work."""
    async with opened(broker) as client:
        nursery.start_soon(broker.store.index.run)
        await until_caught_up(broker.store.index)
        yield client


@pytest.fixture
async def client(tmp_path, nursery):
    parts = make_parts(tmp_path, enable_property_filter=True)
    parts.tables.topics.update(TopicConfig("T1", 2, 2))
    async with indexing(parts.serve(parts.query(), parts.clients()), nursery) as client:
        yield client


def bodies(reply):
    return [decode_message(record).body for record in reply.body]


async def test_messages_are_found_by_key_and_by_unique_key_alike(client):
    for number in range(3):
        put(client.broker, body=b"%d" % number, properties={"UNIQ_KEY": f"id-{number}", "KEYS": f"all number-{number}"})
    last = put(client.broker, topic="T2", properties={"UNIQ_KEY": "id-1", "KEYS": "all"})
    assert bodies(await client.ask_async(12, topic="T1", key="all", maxNum=10, **EVER)) == [b"0", b"1", b"2"]
    assert bodies(await client.ask_async(12, topic="T1", key="number-1", maxNum=10, **EVER)) == [b"1"]
    reply = await client.ask_async(12, topic="T1", key="id-1", maxNum=10, **EVER, _UNIQUE_KEY_QUERY="true")
    assert bodies(reply) == [b"1"]
    assert (reply.code, reply.remark) == (0, None)
    assert reply.ext["indexLastUpdatePhyoffset"] == str(last.phy_offset)
    assert reply.ext["indexLastUpdateTimestamp"] == str(last.store_timestamp)


async def test_nothing_found_is_code_22(client):
    put(client.broker, properties={"KEYS": "a"})
    reply = await client.ask_async(12, topic="T1", key="b", maxNum=32, **EVER)
    assert (reply.code, reply.remark) == (22, "can not find message, maybe time range not correct")
    assert reply.ext == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}


@pytest.mark.parametrize(("unique", "asked", "found"), [("true", 1, 32), ("false", 5, 5), ("false", 1000, 64)])
async def test_an_answer_has_the_newest_messages_up_to_a_limit(client, unique, asked, found):
    """Whoever asks by unique key cannot say how many; nobody gets more than 64."""
    for number in range(70):
        put(client.broker, body=b"%d" % number, properties={"KEYS": "k"})
    reply = await client.ask_async(12, topic="T1", key="k", maxNum=asked, **EVER, _UNIQUE_KEY_QUERY=unique)
    assert bodies(reply) == [b"%d" % number for number in range(70 - found, 70)]


async def test_a_message_is_found_by_its_place(client):
    result = put(client.broker)
    (record,) = client.ask(33, offset=result.phy_offset).body
    assert decode_message(record).body == b"hello"
    reply = client.ask(33, offset=5)
    assert (reply.code, reply.remark) == (1, "can not find message by the offset, 5")


async def test_the_units_of_a_consume_queue(client):
    results = [put(client.broker, tags="TagA") for _ in range(3)]
    reply = client.ask(321, topic="T1", queueId=0, index=1, count=2)
    body = read(reply)
    assert list(body) == ["maxQueueIndex", "minQueueIndex", "queueData"]
    assert (body["maxQueueIndex"], body["minQueueIndex"]) == (3, 0)
    assert body["queueData"] == [
        {"eval": False, "physicOffset": each.phy_offset, "physicSize": each.size, "tagsCode": 2598919}
        for each in results[1:]
    ]


async def test_with_a_group_its_subscription_is_shown(client):
    put(client.broker, tags="TagA")
    body = read(client.ask(321, topic="T1", queueId=0, index=0, count=1, consumerGroup="G"))
    assert body["filterData"] == "G@T1 is not online!"
    assert "subscriptionData" not in body
    client.ask(34, heartbeat("T1", expression="TagA"))
    body = read(client.ask(321, topic="T1", queueId=0, index=0, count=1, consumerGroup="G"))
    assert body["filterData"] == "null"
    assert body["subscriptionData"]["subString"] == "TagA"


async def test_an_sql_filter_is_shown(client):
    put(client.broker)
    beat = heartbeat("T1", expression="a > 5")
    beat["consumerDataSet"][0]["subscriptionDataSet"][0]["expressionType"] = "SQL92"
    client.ask(34, beat)
    body = read(client.ask(321, topic="T1", queueId=0, index=0, count=1, consumerGroup="G"))
    assert '"expression":"a > 5"' in body["filterData"]


@pytest.mark.parametrize("index", [-1, 3, 10**18])
async def test_an_index_outside_is_told_without_units(client, index):
    for _ in range(3):
        put(client.broker)
    reply = client.ask(321, topic="T1", queueId=0, index=index, count=1)
    assert reply.remark == f"Index {index} of 0@T1 is not exist!"
    assert read(reply) == {"maxQueueIndex": 3, "minQueueIndex": 0}


@pytest.mark.parametrize(("topic", "queue_id"), [("T1", 1), ("T1", 99), ("T1", -1), ("none", 0), ("", 0)])
async def test_no_units_of_a_queue_that_is_not_there(client, topic, queue_id):
    put(client.broker)
    reply = client.ask(321, topic=topic, queueId=queue_id, index=0, count=1)
    assert (reply.code, reply.remark) == (1, f"{queue_id}@{topic} is not exist!")


async def test_a_view_of_a_queue_is_bounded(client):
    for _ in range(3):
        put(client.broker)
    assert len(read(client.ask(321, topic="T1", queueId=0, index=0, count=2**31 - 1))["queueData"]) == 3
    assert read(client.ask(321, topic="T1", queueId=0, index=0, count=-5))["queueData"] == []
