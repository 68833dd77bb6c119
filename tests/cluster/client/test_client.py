"""Client: heartbeats, groups, and a complete end."""

import orjson
import pytest
import trio

from tests.cluster.client.helpers import BROKER, NAMESRV, request
from twinlog.client import Client, NoRouteError, OutgoingMessage, PushConsumer
from twinlog.cluster.client.service import Service


async def sent(client: Client, group: str = "P"):
    return await client.producer(group).send(OutgoingMessage(topic="T", body=b"x"))


async def test_heartbeats_name_the_groups_every_30_seconds(broker, client, autojump_clock):
    broker.topics["T"] = 1
    await sent(client)
    await trio.sleep(95)
    beats = [orjson.loads(bytes(each.body)) for each in broker.codes(34)]
    assert len(beats) == 3
    assert beats[0] == {
        "clientID": client.client_id,
        "consumerDataSet": [],
        "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}, {"groupName": "P"}],
    }


async def test_leaving_tells_the_brokers_and_closes_every_connection(broker, autojump_clock):
    broker.topics["T"] = 1
    async with Client(NAMESRV, connect=broker.connect) as client:
        await sent(client)
        await client.introduce()
        assert client.remoting.addresses == {NAMESRV, BROKER}
    assert [each.ext["producerGroup"] for each in broker.codes(35)] == ["P"]
    assert client.remoting.addresses == set()


async def test_cancelled_from_outside_it_still_takes_leave(broker, autojump_clock):
    """A consumer inside closes first: its offsets are sent over the connections of the client."""
    broker.topics["T"] = 1
    broker.store("T", 0, b"1", b"2", b"3")
    seen = []

    async def handle(batch):
        seen.extend(batch)

    with trio.move_on_after(2) as scope:
        async with Client(NAMESRV, connect=broker.connect) as client:
            broker.offsets["G", "T", 0] = 1
            async with PushConsumer(client, "G", {"T": "*"}, handler=handle):
                await trio.sleep_forever()
    assert scope.cancelled_caught
    assert [each.body for each in seen] == [b"2", b"3"]
    assert broker.offsets["G", "T", 0] == 3
    assert broker.members["G"] == {}
    assert client.remoting.addresses == set()


async def test_what_was_sent_oneway_leaves_before_the_connections_close(broker, autojump_clock):
    broker.topics["T"] = 1
    async with Client(NAMESRV, connect=broker.connect) as client:
        producer = client.producer("P")
        for number in range(50):
            await producer.send_oneway(OutgoingMessage(topic="T", body=b"%d" % number))
    await trio.testing.wait_all_tasks_blocked()
    assert len(broker.codes(310)) == 50


async def test_a_broker_that_is_dead_does_not_hold_up_the_end(broker, autojump_clock):
    broker.topics["T"] = 1
    async with Client(NAMESRV, connect=broker.connect) as client:
        await sent(client)
        await client.introduce()
        broker.answers[35] = [None] * 5
        begun = trio.current_time()
    assert trio.current_time() - begun <= 3.1


async def test_a_new_broker_hears_of_the_client_with_the_next_refresh(broker, client, autojump_clock):
    """A broker with a new connection gets it again."""
    broker.topics["T"] = 1
    await sent(client)
    await client.introduce()
    await client.introduce()
    assert len(broker.codes(34)) == 1
    await broker.connections[-1].aclose()
    await trio.testing.wait_all_tasks_blocked()
    await client.introduce()
    await client.introduce()
    assert len(broker.codes(34)) == 2


async def test_a_client_has_one_consumer_of_a_group(broker, client, autojump_clock):
    broker.topics["T"] = 1
    async with PushConsumer(client, "G", {"T": "*"}):
        with pytest.raises(ValueError, match="already"):
            async with PushConsumer(client, "G", {"T": "*"}):
                pass
        assert "G" in client.consumers


async def test_requests_about_nobody_here_are_refused(broker, client, autojump_clock):
    broker.topics["T"] = 1
    await sent(client)
    await client.introduce()
    await broker.tell("P", client.client_id, request(307, consumerGroup="other", clientId=client.client_id, opaque=4))
    await trio.sleep(1)
    assert [(each.opaque, each.code) for each in broker.told] == [(4, 1)]


async def test_no_route_is_told_as_it_is(client, broker, autojump_clock):
    broker.topics.clear()
    with pytest.raises(NoRouteError, match="creates topics"):
        await sent(client)


def test_no_name_server_is_a_mistake_that_shows_at_once():
    with pytest.raises(ValueError, match="HOST:PORT"):
        Client("")


# ---- `async with` of a service


class Sleeper(Service):
    def __init__(self, error=None, after=0.0, early=False):
        super().__init__()
        self.error, self.after, self.early, self.log = error, after, early, []

    async def run(self, *, task_status=trio.TASK_STATUS_IGNORED):
        if self.early:
            raise self.error
        task_status.started()
        try:
            await trio.sleep(self.after if self.error else 1e9)
            raise self.error
        finally:
            self.log.append("over")


async def test_an_error_of_the_block_leaves_as_it_is(autojump_clock):
    service = Sleeper()
    with pytest.raises(KeyError):
        async with service:
            raise KeyError("mine")
    assert service.log == ["over"]


async def test_an_error_of_the_service_ends_the_block(autojump_clock):
    with pytest.raises(LookupError, match="broken"):
        async with Sleeper(LookupError("broken"), after=3):
            await trio.sleep_forever()
    assert trio.current_time() == 3


async def test_a_service_that_cannot_start_says_why(autojump_clock):
    with pytest.raises(LookupError, match="broken"):
        async with Sleeper(LookupError("broken"), early=True):
            raise AssertionError("not reached")


async def test_cancellation_passes_through(autojump_clock):
    service = Sleeper()
    with trio.move_on_after(1) as scope:
        async with service:
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert service.log == ["over"]
