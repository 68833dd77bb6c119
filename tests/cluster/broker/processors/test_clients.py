"""Heartbeats, members of groups, checks of filters, locks of queues, and the producers that are connected."""

import time

import pytest

from tests.cluster.broker.helpers import Client, FakeConnection, heartbeat, opened, read
from tests.cluster.broker.parts import make_parts
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting import fastjson
from twinlog.store.config import BrokerRole


@pytest.fixture
async def client(tmp_path):
    parts = make_parts(tmp_path)
    async with opened(parts.serve(parts.clients())) as client:
        yield client


@pytest.fixture
async def slave(tmp_path):
    parts = make_parts(tmp_path, BrokerRole.SLAVE)
    async with opened(parts.serve(parts.clients())) as client:
        yield client


async def test_a_heartbeat_makes_a_member_and_its_retry_topic(client):
    other = Client(client.broker, FakeConnection())
    reply = client.ask(34, heartbeat("T1", "%RETRY%G"))
    assert (reply.code, reply.ext, reply.body) == (0, None, b"")
    assert client.broker.tables.topics.select("%RETRY%G") == TopicConfig("%RETRY%G", 1, 1)
    other.ask(34, heartbeat("T1", "%RETRY%G", client_id="c2"))
    assert [command.code for command in client.connection.sent] == [40, 40]
    assert client.connection.sent[-1].is_oneway
    assert client.connection.sent[-1].ext == {"consumerGroup": "G"}
    assert fastjson.loads(client.ask(38, consumerGroup="G").body) == {"consumerIdList": ["c1", "c2"]}


async def test_who_leaves_or_is_cut_off_is_a_member_no_more(client):
    other = Client(client.broker, FakeConnection())
    client.ask(34, heartbeat("T1"))
    other.ask(34, heartbeat("T1", client_id="c2"))
    client.connection.sent.clear()
    other.connection.close()
    assert [command.code for command in client.connection.sent] == [40]
    assert client.ask(35, clientID="c1", consumerGroup="G").code == 0
    reply = client.ask(38, consumerGroup="G")
    assert (reply.code, reply.remark) == (1, "no consumer for this group, G")


async def test_producers_are_remembered_until_they_leave(client):
    client.ask(34, {"clientID": "c1", "consumerDataSet": [], "producerDataSet": [{"groupName": "P"}]})
    assert client.broker.tables.producers.has(client.connection)
    client.ask(35, clientID="c1", producerGroup="P")
    assert not client.broker.tables.producers.has(client.connection)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        {"clientID": "c1", "consumerDataSet": 5},
        {"consumerDataSet": []},
        heartbeat("T1", group="a/b"),
        heartbeat("../T1"),
        heartbeat("T1", version="x"),
        {"clientID": "c1", "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [{}]}]},
    ],
)
async def test_a_heartbeat_that_makes_no_sense_changes_nothing(client, body):
    assert client.ask(34, body).code == 1
    assert client.broker.tables.consumers.groups == {}


async def test_a_slave_does_not_make_topics_of_its_own(slave):
    assert slave.ask(34, heartbeat("T1")).code == 0
    assert slave.broker.tables.topics.select("%RETRY%G") is None


@pytest.mark.parametrize(("kind", "code"), [("TAG", 0), ("SQL92", 1)])
async def test_only_tags_are_understood_as_filters(client, kind, code):
    body = {"clientId": "c1", "group": "G", "subscriptionData": {"topic": "T1", "expressionType": kind}}
    assert client.ask(46, body).code == code


async def test_queues_are_locked_for_one_client(client):
    def request(client_id):
        queue = {"brokerName": "broker-a", "queueId": 0, "topic": "T1"}
        return {"clientId": client_id, "consumerGroup": "G", "mqSet": [queue]}

    granted = fastjson.loads(client.ask(41, request("c1")).body)
    assert granted == {"lockOKMQSet": [{"brokerName": "broker-a", "queueId": 0, "topic": "T1"}]}
    assert fastjson.loads(client.ask(41, request("c2")).body) == {"lockOKMQSet": []}
    assert client.ask(42, request("c1")).body == b""
    assert fastjson.loads(client.ask(41, request("c2")).body) == granted
    assert client.ask(41, {"clientId": "c1", "consumerGroup": "a/b", "mqSet": []}).code == 1


async def test_all_producers(client):
    other = Client(client.broker, FakeConnection(remote_address="127.0.0.1:7000"))
    for each, name in ((client, "c1"), (other, "c2")):
        each.ask(34, {"clientID": name, "consumerDataSet": [], "producerDataSet": [{"groupName": "P"}]})
    (first, second) = read(client.ask(328))["data"]["P"]
    assert list(first) == ["clientId", "language", "lastUpdateTimestamp", "remoteIP", "version"]
    assert (first["clientId"], second["remoteIP"]) == ("c1", "/127.0.0.1:7000")
    assert abs(first["lastUpdateTimestamp"] - time.time() * 1000) < 60_000


async def test_no_producers(client):
    assert client.ask(328).body == b'{"data":{}}'
