"""Request messages and their replies."""

import pytest
import trio

from tests.cluster.client.helpers import message, received_message, request
from twinlog.client import (
    Requester,
    reply,
)
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingTimeoutError
from twinlog.store.record.properties import format_properties, parse_properties


async def test_a_reply_finds_its_question(broker, client, topic, autojump_clock):
    requester = Requester(client, "P")
    replies = []

    async def ask(text):
        replies.append(await requester.request(message(text), timeout_ms=5000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, b"1")
        nursery.start_soon(ask, b"2")
        await trio.sleep(1)
        for asked in reversed(broker.codes(310)):
            properties = parse_properties(asked.ext["i"])
            assert (properties["REPLY_TO_CLIENT"], properties["TTL"]) == (client.client_id, "5000")
            text = format_properties({"CORRELATION_ID": properties["CORRELATION_ID"], "own": "y"})
            push = request(326, b"re: " + bytes(asked.body), opaque=8, properties=text, sysFlag="0")
            await broker.tell("P", client.client_id, push)
    await trio.sleep(1)
    assert {each.body for each in replies} == {b"re: 1", b"re: 2"}
    assert replies[0].properties["own"] == "y"
    assert [each.code for each in broker.told] == [0, 0]


async def test_a_question_nobody_answers_ends_in_time(broker, client, topic, autojump_clock):
    with pytest.raises(RemotingTimeoutError, match="2000 ms"):
        await Requester(client, "P").request(message(), timeout_ms=2000)
    assert trio.current_time() == 2


async def test_a_late_reply_is_taken_and_dropped(broker, client, topic, autojump_clock):
    requester = Requester(client, "P")
    with pytest.raises(RemotingTimeoutError):
        await requester.request(message(), timeout_ms=100)
    await broker.tell("P", client.client_id, request(326, b"late", properties="CORRELATION_ID\x01gone"))
    await trio.sleep(1)
    assert [each.code for each in broker.told] == [0]


async def test_a_reply_goes_to_the_askers_cluster(broker, client, topic, autojump_clock):
    broker.topics["C_REPLY_TOPIC"] = 1
    broker.answers[325] = [RemotingCommand(0, ext={"msgId": "0", "queueId": "0", "queueOffset": "0"})]
    asked = {"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "them", "TTL": "5", "CLUSTER": "C"}
    await reply(client.producer("P"), received_message(0, properties=asked), b"here", own="y")
    (sent,) = broker.codes(325)
    assert (sent.ext["b"], bytes(sent.body)) == ("C_REPLY_TOPIC", b"here")
    properties = parse_properties(sent.ext["i"])
    assert {
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "c",
        "REPLY_TO_CLIENT": "them",
        "own": "y",
    }.items() <= properties.items()


async def test_what_asks_for_no_reply_gets_none(client, autojump_clock):
    with pytest.raises(ValueError, match="is no request"):
        await reply(client.producer("P"), received_message(0), b"")
