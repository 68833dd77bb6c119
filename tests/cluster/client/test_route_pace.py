"""Time until a producer learns of a new master, and the number of its requests; fake servers, virtual time."""

from functools import partial

import pytest
import trio
import trio.testing
from attrs import define, field

from tests.cluster.client.helpers import FakeAnswer
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.client.messages import OutgoingMessage
from twinlog.cluster.client.producer import Producer
from twinlog.cluster.client.routes import LOOK_SECONDS, PAUSE_SECONDS_MAX, Backoff, NoRouteError
from twinlog.cluster.client.tasks import every
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingError

NAMESRV = "ns:9876"


@define
class FakeServers:
    """A name server, and masters by group; None: the group has no master, only its slave is registered."""

    masters: dict[str, str | None]
    dead: set[str] = field(factory=set)
    asked: list[float] = field(factory=list)  # When the name server was.
    sent_to: list[str] = field(factory=list)
    namesrv_is_dead: bool = False
    hanging: set[str] = field(factory=set)

    async def begin(self, address, command, *, timeout_ms=3000):
        return FakeAnswer(partial(self.request, address, command))

    async def request(self, address: str, command: RemotingCommand, *, timeout_ms: float = 3000) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            self.asked.append(trio.current_time())
            if self.namesrv_is_dead:
                raise RemotingConnectError(address, "refused")
            return self._route(command)
        self.sent_to.append(address)
        if address in self.dead:
            raise RemotingConnectError(address, "refused")
        if address in self.hanging:
            await trio.sleep_forever()
        assert command.ext is not None
        return RemotingCommand(0, ext={"msgId": "F00D", "queueId": command.ext["e"], "queueOffset": "7"})

    def _route(self, command: RemotingCommand) -> RemotingCommand:
        if not self.masters:
            return RemotingCommand(ResponseCode.TOPIC_NOT_EXIST, remark="no route")
        brokers = []
        for name, master in self.masters.items():
            members = {"1": f"{name}-slave:1"} | ({"0": master} if master else {})
            brokers.append({"brokerName": name, "cluster": "C", "brokerAddrs": members})
        counts = {"perm": 6, "readQueueNums": 2, "writeQueueNums": 2}
        queues = [{"brokerName": name, **counts} for name in self.masters]
        return RemotingCommand(0, body=fastjson.dumps({"brokerDatas": brokers, "queueDatas": queues}))


def producer(servers: FakeServers) -> Producer:
    return Producer(ClientApi(servers, (NAMESRV,)))


async def until_sent(sender: Producer) -> None:
    """Send like an application: again, until the message is stored."""
    while True:
        try:
            await sender.send(OutgoingMessage(topic="T", body=b"x"))
        except RemotingError:
            continue
        return


async def test_a_new_master_is_found_within_a_second(autojump_clock):
    """During a failover a group has no master; producers stop for that time and a moment."""
    servers = FakeServers({"a": "a-0:1"})
    sender = producer(servers)
    await until_sent(sender)

    async def fail_over():
        servers.masters, servers.dead = {"a": None}, {"a-0:1"}
        await trio.sleep(4)
        servers.masters = {"a": "a-1:1"}

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail_over)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(4 + PAUSE_SECONDS_MAX + 0.01):
            await until_sent(sender)


async def test_one_send_goes_on_at_the_new_master_within_its_time_limit(autojump_clock):
    """Also to a queue that was chosen: it is the same one at another member."""
    servers = FakeServers({"a": "a-0:1"})
    sender = producer(servers)
    queue = (await sender.queues("T"))[1]
    for chosen in (None, queue):
        servers.masters, servers.dead = {"a": None if chosen else "a-0:1"}, {"a-0:1"}
        async with trio.open_nursery() as nursery:
            results = []
            nursery.start_soon(_send, sender, chosen, results)
            await trio.sleep(1.8)
            servers.masters = {"a": "a-1:1"}
        assert [result.status.name for result in results] == ["SEND_OK"]


async def _send(sender, queue, results):
    results.append(await sender.send(OutgoingMessage(topic="T", body=b"x"), queue=queue))


async def test_a_send_fails_when_nobody_takes_it_within_its_time_limit(autojump_clock):
    servers = FakeServers({"a": "a-0:1"})
    sender = producer(servers)
    await until_sent(sender)
    servers.masters, servers.dead = {}, {"a-0:1"}
    began = trio.current_time()
    with pytest.raises(NoRouteError):
        await sender.send(OutgoingMessage(topic="T", body=b"x"))
    assert 3 <= trio.current_time() - began <= 3 + PAUSE_SECONDS_MAX


async def test_a_master_that_hangs_is_left_when_another_is_known(autojump_clock):
    """Sends under way at it are tried at the new one, soon after it is registered, in whatever way they wait."""
    servers = FakeServers({"a": "a-0:1"})
    sender = Producer(ClientApi(servers, (NAMESRV,), timeout_ms=30_000))
    await until_sent(sender)
    servers.hanging = {"a-0:1"}
    messages = [OutgoingMessage(topic="T", body=b"x")] * 3
    results, many = [], []

    async def send_all():
        many.extend(await sender.send_all(messages))

    async with trio.open_nursery() as looking:
        looking.start_soon(every, LOOK_SECONDS, sender.routes.look)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send, sender, None, results)
            nursery.start_soon(send_all)
            await trio.sleep(7)
            servers.masters, servers.asked = {"a": "a-1:1"}, []
            with trio.fail_after(PAUSE_SECONDS_MAX + LOOK_SECONDS):
                while len(results + many) < 4:
                    await trio.sleep(0.01)
        assert {result.status.name for result in results + many} == {"SEND_OK"}
        assert not sender.routes.under_way
        looking.cancel_scope.cancel()


async def test_nobody_asks_for_the_route_of_sends_that_were_given_up(autojump_clock):
    """A caller's time limit ends its sends, also those of send_all that it did not wait for yet."""
    servers = FakeServers({"a": "a-0:1"})
    sender = Producer(ClientApi(servers, (NAMESRV,), timeout_ms=30_000))
    await until_sent(sender)
    servers.hanging = {"a-0:1"}
    for call in (sender.send, lambda message: sender.send_all([message] * 3)):
        with trio.move_on_after(5) as scope:
            await call(OutgoingMessage(topic="T", body=b"x"))
        assert scope.cancelled_caught
        assert not sender.routes.under_way


async def test_the_name_server_is_not_hammered_meanwhile(autojump_clock):
    """A hundred tasks of one client that try without a pause cause as many requests as one: about one a second."""
    servers = FakeServers({"a": "a-0:1"})
    sender = producer(servers)
    await until_sent(sender)
    servers.masters, servers.dead, servers.asked = {"a": None}, {"a-0:1"}, []
    with trio.move_on_after(20):
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(partial(until_sent, sender))
    assert 20 <= len(servers.asked) <= 50
    gaps = {round(after - before, 3) for before, after in zip(servers.asked, servers.asked[1:], strict=False)}
    assert len(gaps) > 10, "a thousand clients would ask at the same moment"


async def test_a_dead_master_that_is_still_registered_is_asked_for_at_the_same_pace(autojump_clock):
    """Until the name server notices, which takes two minutes with a partition."""
    servers = FakeServers({"a": "a-0:1"}, dead={"a-0:1"})
    with trio.move_on_after(20):
        await until_sent(producer(servers))
    assert 20 <= len(servers.asked) <= 50


async def test_another_group_takes_the_messages_without_waiting(autojump_clock):
    """With one of two masters down, each message goes to the other at once, and the route is requested now and then."""
    servers = FakeServers({"a": "a-0:1", "b": "b-0:1"}, dead={"a-0:1"})
    sender = producer(servers)
    for _ in range(1000):
        await until_sent(sender)
    assert servers.sent_to.count("b-0:1") == 1000
    assert trio.current_time() == 0
    assert len(servers.asked) <= 2


async def test_whoever_waits_gets_the_same_answer(autojump_clock):
    """A missing route is a result, too: the tenth task does not wait ten times as long for it."""
    servers = FakeServers({})
    sender = producer(servers)
    with pytest.raises(NoRouteError):
        await sender.send(OutgoingMessage(topic="T", body=b"x"))
    assert trio.current_time() == 0, "the first answer needs no pause"

    async def fails():
        with pytest.raises(NoRouteError):
            await sender.send(OutgoingMessage(topic="T", body=b"x"))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(fails)
    assert 0 < trio.current_time() <= PAUSE_SECONDS_MAX


async def test_without_name_server_the_old_master_is_tried_still(autojump_clock):
    servers = FakeServers({"a": "a-0:1"}, dead={"a-0:1"})
    sender = producer(servers)
    with pytest.raises(RemotingConnectError):
        await sender.send(OutgoingMessage(topic="T", body=b"x"))
    servers.namesrv_is_dead = True
    with pytest.raises(RemotingConnectError):
        await sender.send(OutgoingMessage(topic="T", body=b"x"))
    servers.dead = set()
    with trio.fail_after(PAUSE_SECONDS_MAX):
        await until_sent(sender)


async def test_what_a_consumer_learnt_is_not_enough_to_give_up(autojump_clock):
    """A slave is enough for readers; a producer requests the route again before it reports that no broker takes messages."""
    servers = FakeServers({"a": None})
    sender = producer(servers)
    await sender.routes.find("T")
    servers.masters = {"a": "a-1:1"}
    await sender.send(OutgoingMessage(topic="T", body=b"x"))
    assert trio.current_time() == 0


def test_the_pace_slows_down_and_recovers():
    pace = Backoff(jitter=lambda: 1.0)
    gaps, now = [], 100.0
    for _ in range(6):
        pace.asked(now)
        gaps.append(round(pace.due - now, 3))
        now = pace.due
    assert gaps == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    pace.asked(now + 3)
    assert round(pace.due - now - 3, 3) == 0.1
