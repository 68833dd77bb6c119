"""Requests of administrators about connected clients and the progress of groups."""

import pytest

from tests.cluster.broker.helpers import heartbeat, make_broker, opened, put
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting import fastjson


@pytest.fixture
async def client(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        yield client


async def test_members_are_shown_with_their_subscriptions(client):
    client.ask(34, {**heartbeat("T1"), "producerDataSet": [{"groupName": "P"}]})
    connection = {"clientAddr": "127.0.0.1:5000", "clientId": "c1", "language": "JAVA", "version": 409}
    shown = fastjson.loads(client.ask(203, consumerGroup="G").body)
    assert shown["connectionSet"] == [connection]
    assert shown["messageModel"] == "CLUSTERING"
    assert shown["subscriptionTable"]["T1"]["subString"] == "*"
    assert fastjson.loads(client.ask(204, producerGroup="P").body) == {"connectionSet": [connection]}
    assert client.ask(203, consumerGroup="H").code == 206
    assert client.ask(204, producerGroup="Q").code == 1


async def test_progress_of_a_group(client):
    client.broker.tables.topics.update(TopicConfig("T1", 1, 1))
    stored = put(client.broker).store_timestamp
    put(client.broker)
    client.broker.tables.offsets.commit("G", "T1", 0, 1)
    assert client.ask(208, consumerGroup="G").body == (
        b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T1"}:'
        b'{"brokerOffset":2,"consumerOffset":1,"lastTimestamp":%d}}}' % stored
    )
    client.ask(34, heartbeat("T2"))
    assert client.ask(208, consumerGroup="G", topic="T1").body == b'{"consumeTps":0.0,"offsetTable":{}}'
    assert fastjson.loads(client.ask(300, topic="T1").body) == {"groupList": ["G"]}
    assert fastjson.loads(client.ask(300, topic="T2").body) == {"groupList": ["G"]}


async def test_system_topics_are_listed(client):
    topics = fastjson.loads(client.ask(305).body)["topicList"]
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "DefaultCluster"} <= set(topics)
