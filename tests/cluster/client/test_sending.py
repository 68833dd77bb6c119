"""Batches, many at once, oneway, time limits and routes; over the broker in memory."""

import itertools

import pytest
import trio

from tests.cluster.client.helpers import BROKER, message
from twinlog.client import (
    MessageQueue,
    NoRouteError,
    SendResult,
    SendStatus,
    by_key,
)
from twinlog.cluster.broker.send.requests import split_batch as broker_split
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingError, RemotingTimeoutError, RequestError
from twinlog.store.record.properties import parse_properties

QUEUE = MessageQueue("T", "b", 0)


async def test_many_at_once_keep_their_order_and_use_one_task(broker, client, topic, autojump_clock):
    results = await client.producer("P").send_all(message(b"%d" % number) for number in range(600))
    assert all(isinstance(each, SendResult) for each in results)
    sent = {parse_properties(each.ext["i"])["UNIQ_KEY"]: bytes(each.body) for each in broker.codes(310)}
    assert [sent[each.message_id] for each in results] == [b"%d" % number for number in range(600)]


async def test_of_many_each_has_its_own_end(broker, client, topic, autojump_clock):
    """One is refused, one is retried, one gets no response at first."""
    broker.answers[310] = [RemotingCommand(13, remark="no"), RemotingCommand(14, remark="later"), None]
    refused, retried, late = await client.producer("P").send_all([message(b"1"), message(b"2"), message(b"3")])
    assert isinstance(refused, RequestError)
    assert isinstance(retried, SendResult)
    assert isinstance(late, SendResult)
    assert len(broker.codes(310)) == 5


async def test_of_many_only_what_has_no_answer_is_sent_again(broker, client, topic, autojump_clock):
    """Nine responses have arrived when the time limit of the first expires."""
    broker.answers[310] = [None]
    results = await client.producer("P").send_all([message(b"%d" % number) for number in range(10)])
    assert all(isinstance(each, SendResult) for each in results)
    assert len(broker.codes(310)) == 11


async def test_many_without_a_broker_are_all_errors(broker, client, topic, autojump_clock):
    broker.is_down = True
    results = await client.producer("P", tries_max=1).send_all([message()] * 3)
    assert [type(each) for each in results] == [RemotingConnectError] * 3


async def test_a_time_limit_holds_for_all_tries_together(broker, client, topic, autojump_clock):
    broker.answers[310] = [None] * 9
    with pytest.raises(RemotingTimeoutError, match="1000 ms"):
        await client.producer("P").send(message(), timeout_ms=1000)
    assert trio.current_time() == 1
    broker.answers[310].clear()


async def test_a_chosen_queue_is_tried_once(broker, client, topic, autojump_clock):
    """It may be stored after this answer; after 14 it is not, and its master may be another one."""
    broker.answers[310] = [RemotingCommand(14, remark="no lease"), RemotingCommand(1, remark="lost")]
    with pytest.raises(RequestError, match="lost"):
        await client.producer("P").send(message(), select=by_key("k"))
    assert len(broker.codes(310)) == 2
    assert len({request.ext["e"] for request in broker.asked if request.code == 310}) == 1


async def test_stored_but_not_safe_may_be_tried_again(broker, client, topic, autojump_clock):
    fields = {"msgId": "F" * 32, "queueId": "0", "queueOffset": "0"}
    broker.answers[310] = [RemotingCommand(11, ext=fields, remark="no slave")]
    result = await client.producer("P", retry_unsafe=True).send(message())
    assert result.status is SendStatus.SEND_OK
    assert len(broker.codes(310)) == 2


async def test_large_bodies_travel_packed(broker, client, topic, autojump_clock):
    await client.producer("P").send(message(bytes(10_000)))
    await client.producer("Q", compress_from=None).send(message(bytes(10_000)))
    packed, plain = broker.codes(310)
    assert (packed.ext["f"], plain.ext["f"]) == (str(0x301), "0")
    assert len(packed.body) < 100 < len(plain.body)


async def test_a_batch_is_as_many_requests_as_it_must_be(broker, client, topic, autojump_clock):
    broker.answers[320] = [RemotingCommand(0, ext={"msgId": "A,B", "queueId": "1", "queueOffset": "4"})] * 9
    results = await client.producer("P").send_batch([message(bytes(400))] * 5, size_max=1200)
    requests = broker.codes(320)
    assert [len(broker_split(each.body)) for each in requests] == [2, 2, 1]
    assert requests[0].ext["m"] == "true"
    assert [len(each.message_id.split(",")) for each in results] == [2, 2, 1]


async def test_oneway_asks_for_no_answer(broker, client, topic, autojump_clock):
    message_id = await client.producer("P").send_oneway(message(), queue=QUEUE)
    await trio.sleep(0.1)
    (sent,) = broker.codes(310)
    assert sent.is_oneway
    assert parse_properties(sent.ext["i"])["UNIQ_KEY"] == message_id


async def test_routes_are_asked_for_again_after_30_seconds(broker, client, topic, autojump_clock):
    producer = client.producer("P")
    assert len(await producer.queues("T")) == 2
    broker.topics["T"] = 5
    assert len(await producer.queues("T")) == 2
    await trio.sleep(31)
    assert len(await producer.queues("T")) == 5


async def test_old_routes_serve_when_no_name_server_answers(broker, client, topic, autojump_clock):
    producer = client.producer("P")
    await producer.send(message())
    broker.answers[105] = [None] * 99
    await trio.sleep(40)
    assert (await producer.send(message())).status is SendStatus.SEND_OK


async def test_a_chosen_queue_waits_for_its_master_without_a_loop(broker, client, topic, neighbour, autojump_clock):
    """Though the route has another broker that could be written."""
    broker.members_by_id = {"1": BROKER}
    began = trio.current_time()
    with pytest.raises(NoRouteError, match="the broker b has no master that takes messages now"):
        await client.producer("P").send(message(), queue=QUEUE)
    assert 3 <= trio.current_time() - began < 5
    assert len(broker.codes(105)) < 12


async def test_many_messages_to_a_broker_that_is_down_fail_together(broker, client, topic, autojump_clock):
    """One after the other they would take a time limit each: a quarter of an hour."""
    producer = client.producer("P")
    await producer.send(message())
    broker.is_down = True
    for connection in broker.connections:
        await connection.aclose()
    began = trio.current_time()
    outcomes = await producer.send_all([message() for _ in range(300)])
    assert all(isinstance(each, RemotingError) for each in outcomes)
    assert trio.current_time() - began < 40


async def test_of_many_only_those_for_a_broker_that_is_down_fail(broker, client, topic, neighbour, autojump_clock):
    """Their queues are selected, so that no other broker may have them; the others are sent."""
    neighbour.is_down = True
    producer = client.producer("P")
    turn = itertools.count()
    outcomes = await producer.send_all(
        [message() for _ in range(40)], select=lambda queues: queues[next(turn) % len(queues)]
    )
    assert {each.queue.broker_name for each in outcomes if isinstance(each, SendResult)} == {"b"}
    assert 10 <= sum(isinstance(each, SendResult) for each in outcomes) < 40
