"""Requests 12 and 33: messages by key or offset."""

from contextlib import asynccontextmanager

import pytest

from tests.cluster.broker.helpers import opened, put
from tests.cluster.broker.parts import make_parts
from tests.store.indexes import until_caught_up
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
    parts = make_parts(tmp_path)
    async with indexing(parts.serve(parts.query()), nursery) as client:
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
