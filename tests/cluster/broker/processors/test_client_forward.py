"""Questions that consumers answer: what goes to them, what comes back, and what happens when nothing does."""

import pytest

from tests.cluster.broker.helpers import HOST, Client, FakeConnection, heartbeat, opened, put
from tests.cluster.broker.parts import make_parts
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.request import Reply
from twinlog.store.record.message import decode_message, message_id


@pytest.fixture
async def client(tmp_path):
    parts = make_parts(tmp_path)
    async with opened(parts.serve(parts.clients())) as client:
        yield client


def consumer(client: Client, client_id: str = "c1", version: int = 407, **answers: Reply) -> FakeConnection:
    """A member of group G; `answers` by r307 and so on."""
    connection = FakeConnection(answers={int(name[1:]): reply for name, reply in answers.items()})
    member = Client(client.broker, connection, version=version)
    member.ask(34, heartbeat("T1", client_id=client_id))
    connection.sent.clear()
    return connection


async def test_running_info_is_the_consumers_own(client):
    other = consumer(client, "c2")
    member = consumer(client, r307=Reply(0, None, {"x": "y"}, b'{"properties":{}}'))
    fields = {"consumerGroup": "G", "clientId": "c1", "jstackEnable": "true", "Signature": "s"}
    reply = await client.ask_async(307, **fields)
    assert (reply.code, reply.ext, reply.body) == (0, {"x": "y"}, b'{"properties":{}}')
    (asked,) = member.sent[-1:]
    assert (asked.code, asked.ext) == (307, fields), "the caller's own fields"
    assert 307 not in [command.code for command in other.sent]


async def test_a_consumer_consumes_one_message(client):
    result = put(client.broker)
    msg_id = message_id(HOST, result.phy_offset)
    member = consumer(client, r309=Reply(body=b'{"consumeResult":"CR_SUCCESS"}'))
    reply = await client.ask_async(309, consumerGroup="G", clientId="c1", msgId=msg_id)
    assert (reply.code, reply.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')
    asked = member.sent[-1]
    assert asked.ext["brokerName"] == "broker-a"
    assert decode_message(asked.body).body == b"hello"


@pytest.mark.parametrize("msg_id", [None, "", "x", "G" * 32, "0" * 31 + "1", "F" * 32, "0" * 32 + "F" * 24])
async def test_a_message_that_is_not_there(client, msg_id):
    put(client.broker)
    member = consumer(client, r309=Reply())
    fields = {} if msg_id is None else {"msgId": msg_id}
    reply = await client.ask_async(309, consumerGroup="G", clientId="c1", **fields)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert member.sent == []


@pytest.mark.parametrize(
    ("group", "client_id", "remark"),
    [
        ("G", "c9", "The Consumer <G> <c9> not online"),
        ("H", "c1", "The Consumer <H> <c1> not online"),
    ],
)
async def test_not_online(client, group, client_id, remark):
    consumer(client, r307=Reply())
    reply = await client.ask_async(307, consumerGroup=group, clientId=client_id)
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, remark)


async def test_too_old_to_be_asked(client):
    consumer(client, version=61, r307=Reply())
    reply = await client.ask_async(307, consumerGroup="G", clientId="c1")
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark == ("The Consumer <c1> Version <61> too low to finish, please upgrade it to V3_1_8_SNAPSHOT")


async def test_no_answer(client, autojump_clock):
    consumer(client)
    reply = await client.ask_async(307, consumerGroup="G", clientId="c1")
    assert reply.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert "no answer to request 307 within 10000 ms" in reply.remark
    assert client.table[307].function.__self__.client_calls.under_way == 0


async def test_of_two_connections_of_one_client_the_later_one_is_asked(client):
    """A client that has lost its connection is there twice until the old one is found dead."""
    clock = [0.0]
    client.broker.tables.consumers.now = lambda: clock[0]
    old = consumer(client, r307=Reply(body=b"old"))
    clock[0] = 1.0
    consumer(client, r307=Reply(body=b"new"))
    assert (await client.ask_async(307, consumerGroup="G", clientId="c1")).body == b"new"
    assert fastjson.loads(client.ask(38, consumerGroup="G").body) == {"consumerIdList": ["c1"]}
    assert not old.closed


def status(queue_id: int, offset: int) -> Reply:
    key = f'{{"brokerName":"broker-a","queueId":{queue_id},"topic":"T1"}}'
    return Reply(body=f'{{"messageQueueTable":{{{key}:{offset}}}}}'.encode())


def key(queue_id: int) -> str:
    return fastjson.ObjectKey.of({"brokerName": "broker-a", "queueId": queue_id, "topic": "T1"})


async def test_how_far_each_member_is(client, autojump_clock):
    """Those that are silent or answer nonsense are left out."""
    consumer(client, "c1", r221=status(0, 5))
    member = consumer(client, "c2", r221=status(1, 6))
    consumer(client, "silent")
    consumer(client, "odd", r221=Reply(body=b"[]"))
    consumer(client, "huge", r221=Reply(body=b" " * 300_000))
    consumer(client, "refusing", r221=Reply(1, "no"))
    reply = await client.ask_async(223, topic="T1", group="G")
    assert fastjson.loads(reply.body)["consumerTable"] == {"c1": {key(0): 5}, "c2": {key(1): 6}}
    (asked,) = [command for command in member.sent if command.code == 221]
    assert asked.ext == {"topic": "T1", "group": "G"}


async def test_one_member_alone_is_asked(client):
    other = consumer(client, "c1", r221=status(0, 5))
    consumer(client, "c2", r221=status(1, 6))
    reply = await client.ask_async(223, topic="T1", group="G", clientAddr="c2")
    assert fastjson.loads(reply.body)["consumerTable"] == {"c2": {key(1): 6}}
    assert 221 not in [command.code for command in other.sent]


async def test_queues_as_text(client):
    """Clients that write standard JSON quote the key."""
    text = fastjson.dumps({"messageQueueTable": {str(key(0)): 5}})
    consumer(client, r221=Reply(body=text))
    reply = await client.ask_async(223, topic="T1", group="G")
    assert fastjson.loads(reply.body)["consumerTable"] == {"c1": {key(0): 5}}


async def test_status_of_nobody_and_of_old_clients(client):
    reply = await client.ask_async(223, topic="T1", group="G")
    assert (reply.code, reply.remark) == (1, "No Any Consumer online in the consumer group: [G]")
    consumer(client, version=27)
    reply = await client.ask_async(223, topic="T1", group="G")
    assert (reply.code, reply.remark) == (1, "the client does not support this feature. version=27")
