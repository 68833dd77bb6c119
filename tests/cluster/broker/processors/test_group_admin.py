"""Groups: made, shown and removed by administrators; their members, offsets and progress."""

import pytest

from tests.cluster.broker.helpers import heartbeat, opened, put, read
from tests.cluster.broker.parts import Parts, make_parts
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting import fastjson
from twinlog.store.config import BrokerRole


def serving(parts: Parts) -> Parts:
    return parts.serve(parts.clients(), parts.group_admin(), parts.topic_admin())


@pytest.fixture
async def client(tmp_path):
    async with opened(serving(make_parts(tmp_path / "broker-a-0"))) as client:
        yield client


@pytest.fixture
async def slave(tmp_path):
    async with opened(serving(make_parts(tmp_path / "broker-a-1", BrokerRole.SLAVE))) as client:
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


async def test_a_group_goes_with_its_offsets_where_that_is_asked(client, slave):
    client.broker.tables.offsets.commit("G", "T1", 0, 1)
    await client.ask_async(200, {"groupName": "G"})
    assert fastjson.loads(client.ask(352, group="G").body)["retryMaxTimes"] == 16
    assert (await client.ask_async(207, groupName="G")).code == 0
    assert client.broker.tables.offsets.query("G", "T1", 0) == 1
    await client.ask_async(207, groupName="G", cleanOffset=True)
    assert client.broker.tables.offsets.query("G", "T1", 0) == -1
    assert client.ask(352, group="G").code == 26
    assert (await slave.ask_async(207, groupName="G")).code == 1


async def test_a_topic_that_is_named_twice_counts_once(client):
    client.broker.tables.topics.update(TopicConfig("T1", 2, 2))
    client.broker.stats.sample(0.0)
    put(client.broker)
    client.broker.tables.offsets.commit("G", "T1", 0, 1)
    for queue_id in range(2):
        client.broker.stats.group_get("G", "T1", queue_id, 5, 500, 1)
    client.broker.stats.sample(10.0)
    once, twice = (client.ask(208, consumerGroup="G", topicList=";".join(["T1"] * count)) for count in (1, 2))
    assert read(once)["consumeTps"] == 1.0
    assert read(twice) == read(once)


async def test_topics_that_are_named_have_an_end(client):
    reply = client.ask(208, consumerGroup="G", topicList=";".join(f"T{n}" for n in range(1001)))
    assert (reply.code, reply.remark) == (1, "topicList has 1001 topics; at most 1000 are allowed in one request")


async def test_a_group_is_made_and_all_tables_are_shown(client):
    assert (await client.ask_async(200, {"groupName": "G", "retryMaxTimes": 3})).code == 0
    groups = fastjson.loads(client.ask(201).body)["subscriptionGroupTable"]
    assert groups["G"]["retryMaxTimes"] == 3
    assert (await client.ask_async(200, {"groupName": "a/b"})).code == 1
    client.broker.tables.offsets.commit("G", "T1", 2, 7)
    client.broker.schedule.table[3] = 4
    assert client.ask(43).body == b'{"offsetTable":{"T1@G":{2:7}}}'
    assert client.ask(45).body == b'{"offsetTable":{3:4}}'


async def test_many_groups_are_made_at_once(client):
    body = {"groupConfigList": [{"groupName": "A", "retryMaxTimes": 3}, {"groupName": "B"}]}
    assert (await client.ask_async(225, body)).code == 0
    assert client.broker.tables.groups.table["A"].retry_times_max == 3
    reply = await client.ask_async(225, {"groupConfigList": [{"groupName": "C"}, {"groupName": "a b"}]})
    assert reply.code == 1
    assert "C" not in client.broker.tables.groups.table


async def test_a_slave_changes_no_groups(slave):
    for reply in (
        await slave.ask_async(200, {"groupName": "G"}),
        await slave.ask_async(225, {"groupConfigList": [{"groupName": "C"}]}),
    ):
        assert reply.code == 1
        assert "slave broker" in reply.remark


@pytest.mark.parametrize("body", [b"", b"[]", b"{", {"groupConfigList": 7}])
async def test_lists_that_are_none(client, body):
    assert (await client.ask_async(225, body)).code == 1


async def test_lists_are_bounded(client):
    reply = await client.ask_async(225, {"groupConfigList": [{}] * 10_001})
    assert "10000 at most" in reply.remark
