"""Requests of brokers to a consumer: resets, offsets, and the consumption of one message that a person chose."""

import orjson
import pytest

from tests.cluster.client.helpers import ONE, bodies, idle, request
from twinlog.client import From, PushConsumer
from twinlog.cluster.remoting import fastjson


async def test_offsets_are_reset(broker, client, topic, autojump_clock):
    broker.store("T", 0, *[b"%d" % number for number in range(5)])
    async with PushConsumer(client, "G", ONE, start=From.FIRST) as consumer:
        await bodies(consumer, 5)
        key = fastjson.ObjectKey.of({"brokerName": "b", "queueId": 0, "topic": "T"})
        body = {"offsetTable": {key: 2}}
        await broker.tell("G", client.client_id, request(220, body, oneway=True, group="G", topic="T", timestamp="0"))
        assert await bodies(consumer, 3) == [b"2", b"3", b"4"]
    assert broker.offsets["G", "T", 0] == 5


async def test_it_tells_how_far_it_is_and_how_it_does(broker, client, topic, autojump_clock):
    broker.store("T", 0, b"1", b"2")
    async with PushConsumer(client, "G", ONE, start=From.FIRST) as consumer:
        await bodies(consumer, 1)
        await broker.tell("G", client.client_id, request(221, opaque=3, group="G", topic="T"))
        await broker.tell("G", client.client_id, request(307, opaque=4, consumerGroup="G", clientId=client.client_id))
        await idle(1)
    status, info = [fastjson.loads(bytes(each.body)) for each in sorted(broker.told, key=lambda each: each.opaque)]
    assert {orjson.loads(key.encode())["queueId"]: at for key, at in status["messageQueueTable"].items()} == {
        0: 1,
        1: 0,
    }
    assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    tables = {orjson.loads(key.encode())["topic"]: value for key, value in info["mqTable"].items()}
    assert tables.keys() == {"T", "%RETRY%G"}
    assert {each["topic"] for each in info["subscriptionSet"]} == {"T", "%RETRY%G"}


@pytest.mark.parametrize(("fails", "result"), [(False, "CR_SUCCESS"), (True, "CR_LATER")])
async def test_a_person_has_one_message_consumed(broker, client, topic, autojump_clock, fails, result):
    """Nothing is committed, nothing sent back."""
    broker.store("T", 0, b"1")
    record = broker.records["T", 0][0]

    async def handle(batch):
        if fails:
            raise ValueError("no")

    async with PushConsumer(client, "G", ONE, start=From.LAST, handler=handle):
        await idle(1)
        asked = request(309, record, opaque=9, consumerGroup="G", clientId=client.client_id, brokerName="b")
        await broker.tell("G", client.client_id, asked)
        await idle(1)
    (answer,) = broker.told
    assert (answer.opaque, fastjson.loads(bytes(answer.body))["consumeResult"]) == (9, result)
    assert not broker.codes(36)


@pytest.mark.parametrize("code", [220, 309])
async def test_nonsense_of_a_broker_is_refused_and_forgotten(broker, client, topic, autojump_clock, code):
    async with PushConsumer(client, "G", ONE):
        await broker.tell("G", client.client_id, request(code, b"{", opaque=5, group="G", consumerGroup="G"))
        await idle(1)
        assert [each.code for each in broker.told] == [1]
