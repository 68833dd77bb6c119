"""Moving groups: what consumers are told, and what is refused."""

import pytest
import trio

from tests.cluster.broker.helpers import Client, FakeConnection, heartbeat, opened, put
from tests.cluster.broker.parts import make_parts
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.store.config import BrokerRole

ANY_TIME = 1_000


@pytest.fixture
async def client(tmp_path):
    """A topic of two queues with three messages in the first; group G has consumed two of them."""
    parts = make_parts(tmp_path)
    async with opened(parts.serve(parts.clients(), parts.offset())) as client:
        broker = client.broker
        broker.tables.topics.table["T1"] = TopicConfig("T1", 2, 2)
        for _ in range(3):
            put(broker)
        broker.tables.offsets.commit("G", "T1", 0, 2)
        broker.tables.offsets.commit("G", "T1", 1, 0)
        yield client


class Acting(FakeConnection):
    """Does something when it is sent a command."""

    act = staticmethod(lambda: None)

    def send(self, command):
        super().send(command)
        self.act()


def consumer(client: Client, kind: type[FakeConnection] = FakeConnection, **options) -> FakeConnection:
    member = Client(client.broker, kind(), **options)
    member.ask(34, heartbeat("T1", client_id=f"c{len(client.broker.tables.consumers.groups)}"))
    member.connection.sent.clear()
    return member.connection


def resets(member: FakeConnection) -> list:
    """What it was told, but for news of the group."""
    return [command for command in member.sent if command.code == 220]


async def reset(client: Client, timestamp: int = -1, force: bool = True, topic: str = "T1", group: str = "G", **more):
    return await client.ask_async(222, topic=topic, group=group, timestamp=timestamp, isForce=force, **more)


def queue(number: int) -> str:
    return fastjson.ObjectKey.of({"brokerName": "broker-a", "queueId": number, "topic": "T1"})


async def test_every_member_is_told(client):
    members = [consumer(client), consumer(client)]
    reply = await reset(client)
    assert reply.code == 0
    assert fastjson.loads(reply.body) == {"offsetTable": {queue(0): 3, queue(1): 0}}
    for member in members:
        (told,) = resets(member)
        assert (told.code, told.is_oneway, bytes(told.body)) == (220, True, reply.body)
        assert told.ext == {"topic": "T1", "group": "G", "timestamp": "-1", "isForce": "false"}
    assert client.broker.tables.offsets.query("G", "T1", 0) == 2, "members commit it themselves"


@pytest.mark.parametrize("fields", [{}, {"queueId": -1, "offset": -1}])
async def test_others_go_on_while_queues_are_searched(client, nursery, fields):
    """A topic may have thousands of them."""
    client.broker.tables.topics.table["T1"] = TopicConfig("T1", 100, 100)
    for queue_id in range(100):
        client.broker.tables.offsets.commit("G", "T1", queue_id, 0)
    consumer(client)
    client.broker.tables.groups.find("G")
    ticks, answered = 0, []

    async def ask():
        answered.append(await reset(client, ANY_TIME, **fields))

    nursery.start_soon(ask)
    while not answered:
        await trio.lowlevel.checkpoint()
        ticks += 1
    assert answered[0].code == 0
    assert ticks >= 100


async def test_nobody_is_moved_forward_without_force(client):
    consumer(client)
    assert fastjson.loads((await reset(client, force=False)).body)["offsetTable"] == {queue(0): 2, queue(1): 0}
    assert fastjson.loads((await reset(client, ANY_TIME, force=False)).body)["offsetTable"] == {
        queue(0): 0,
        queue(1): 0,
    }


async def test_a_client_in_cpp_gets_a_list(client):
    member = consumer(client)
    await Client(client.broker, language="CPP").ask_async(222, topic="T1", group="G", timestamp=-1, isForce=True)
    (told,) = resets(member)
    assert fastjson.loads(told.body)["offsetTable"][0] == {
        "brokerName": "broker-a",
        "offset": 3,
        "queueId": 0,
        "topic": "T1",
    }


async def test_nobody_there(client):
    reply = await reset(client)
    assert reply.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert reply.remark == "Consumer not online, so can not reset offset, Group: G Topic: T1 Timestamp: -1"


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"topic": "T2"}, "[reset-offset] reset offset failed, no topic in this broker. topic=T2"),
        ({"group": "H"}, "THe consumer group <H> not exist"),
    ],
)
async def test_what_cannot_be_reset(client, fields, remark):
    consumer(client)
    reply = await reset(client, **fields)
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, remark)


async def test_a_client_too_old_to_be_reset(client):
    """Then nobody is told: half a group at the new place would consume twice what the other half has."""
    new, old = consumer(client), consumer(client, version=1)
    reply = await reset(client)
    assert (reply.code, reply.remark) == (1, "the client does not support this feature. version=1")
    assert resets(new) == resets(old) == []


async def test_5x_stores_the_offsets_here(client):
    """Nobody needs to be online, but who is there is told."""
    client.broker.tables.groups.find("G")
    reply = await reset(client, queueId=-1, offset=-1)
    assert fastjson.loads(reply.body)["offsetTable"] == {queue(0): 3, queue(1): 0}
    assert client.broker.tables.offsets.query("G", "T1", 0) == 3
    member = consumer(client)
    assert (await reset(client, timestamp=0, queueId=0, offset=1)).code == 0
    assert client.broker.tables.offsets.query("G", "T1", 0) == 1
    assert fastjson.loads(resets(member)[0].body)["offsetTable"] == {queue(0): 1}


async def test_5x_begins_with_what_is_not_older(client):
    """Its mqadmin sends the present time for "now": 4.9's nearest message would be the last one again."""
    client.broker.tables.groups.find("G")
    client.broker.tables.offsets.commit("G", "T1", 0, 0)
    now = client.broker.store.now_ms() + 60_000
    assert fastjson.loads((await reset(client, timestamp=now, queueId=-1, offset=-1)).body)["offsetTable"] == {
        queue(0): 3,
        queue(1): 0,
    }
    consumer(client)
    assert fastjson.loads((await reset(client, timestamp=now)).body)["offsetTable"] == {queue(0): 2, queue(1): 0}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"queueId": 2, "offset": 0}, ResponseCode.SYSTEM_ERROR),
        ({"queueId": 0, "offset": 4}, ResponseCode.SYSTEM_ERROR),
        ({"queueId": 0, "offset": 0, "group": "H"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
async def test_what_5x_cannot_reset(client, fields, code):
    client.broker.tables.groups.find("G")
    assert (await reset(client, **fields)).code == code
    assert client.broker.tables.offsets.query("G", "T1", 0) == 2


async def test_clone_of_all_topics_and_of_one(client):
    broker = client.broker
    broker.tables.topics.table["T2"] = TopicConfig("T2", 1, 1)
    broker.tables.offsets.commit("G", "T2", 0, 7)
    assert client.ask(314, srcGroup="G", destGroup="H", topic="T2").code == 0
    assert (broker.tables.offsets.query("H", "T1", 0), broker.tables.offsets.query("H", "T2", 0)) == (-1, 7)
    assert client.ask(314, srcGroup="G", destGroup="H").code == 0
    assert broker.tables.offsets.query("H", "T1", 0) == 2
    broker.tables.offsets.commit("H", "T1", 0, 3)
    assert broker.tables.offsets.query("G", "T1", 0) == 2, "a copy, not the same table"


@pytest.mark.parametrize(("offline", "cloned"), [(False, -1), (True, 7)])
async def test_topics_that_the_group_has_left_are_cloned_when_asked_for(client, offline, cloned):
    broker = client.broker
    broker.tables.topics.table["T2"] = TopicConfig("T2", 1, 1)
    broker.tables.offsets.commit("G", "T2", 0, 7)
    consumer(client)
    client.ask(314, srcGroup="G", destGroup="H", offline=offline)
    assert broker.tables.offsets.query("H", "T1", 0) == 2
    assert broker.tables.offsets.query("H", "T2", 0) == cloned


async def test_clone_to_an_impossible_group(client):
    assert client.ask(314, srcGroup="G", destGroup="../H").code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("code", [222, 314])
async def test_a_slave_moves_no_offsets(tmp_path, code):
    """Its offsets are its master's: it would take them back at its next look there. What the gate passes on still goes."""
    parts = make_parts(tmp_path, BrokerRole.SLAVE)
    async with opened(parts.serve(parts.clients(), parts.offset())) as client:
        broker = client.broker
        broker.tables.topics.table["T1"] = TopicConfig("T1", 1, 1)
        broker.tables.groups.find("G")
        broker.tables.offsets.table["T1@G"] = {0: 5}
        member = consumer(client)

        async def ask():
            if code == 222:
                return await reset(client, queueId=-1, offset=-1)
            return client.ask(314, srcGroup="G", destGroup="H")

        reply = await ask()
        assert (reply.code, "slave" in reply.remark) == (1, True)
        assert broker.tables.offsets.table == {"T1@G": {0: 5}}
        assert resets(member) == []
        broker.gate.close_for(trio.current_time() + 5)
        assert await ask() is None, "it is held, and may be passed on"
        broker.gate.open()
        assert client.connection.sent[-1].code == 1


async def test_a_member_that_leaves_while_it_is_told(client):
    """What it is told may be what closes its connection; the others are told, and the offsets are stored."""
    members = [consumer(client, Acting) for _ in range(3)]
    client.broker.tables.groups.find("G")
    members[0].act = lambda: client.broker.tables.consumers.connection_closed(members[0])
    assert (await reset(client, queueId=-1, offset=-1)).code == 0
    assert [len(resets(member)) for member in members] == [1, 1, 1]
    assert client.broker.tables.offsets.query("G", "T1", 0) == 3
    members[1].act = lambda: client.broker.tables.consumers.connection_closed(members[1])
    assert (await reset(client)).code == 0


async def test_offsets_are_stored_before_anybody_is_told(client):
    member, stored = consumer(client, Acting), []
    client.broker.tables.groups.find("G")
    member.act = lambda: stored.append(client.broker.tables.offsets.query("G", "T1", 0))
    await reset(client, queueId=-1, offset=-1)
    assert stored == [3]
