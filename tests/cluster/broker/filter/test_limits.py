"""What requests can make a broker or a name server remember has bounds, and whoever meets one is told which."""

import pytest
import trio

from tests.cluster.broker.helpers import (
    HOST,
    Client,
    FakeConnection,
    FakeForwarder,
    heartbeat,
    make_broker,
    opened,
    put,
    sql,
)
from twinlog.cluster.broker.filter import consumer_filters
from twinlog.cluster.broker.filter.tags import SubscriptionData, SubscriptionError, build_subscription
from twinlog.cluster.broker.tables import clients as consumer_manager
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.namesrv import kv_config
from twinlog.cluster.namesrv.kv_config import KVConfigManager
from twinlog.cluster.remoting import names
from twinlog.cluster.remoting.errors import RequestError
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.log.offset_waiters import PutStatus

TOPIC = {
    "defaultTopic": "TBW102",
    "readQueueNums": 1,
    "writeQueueNums": 1,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "order": False,
}


async def test_topics(tmp_path, monkeypatch):
    async with opened(make_broker(tmp_path)) as client:
        monkeypatch.setattr(names, "TOPICS_MAX", len(client.broker.tables.topics.table))
        with pytest.raises(RequestError, match="topics, no more than"):
            client.broker.tables.topics.create_in_send("New", "TBW102", 4)
        reply = await client.ask_async(17, topic="New", **TOPIC)
        assert "delete some" in reply.remark
        assert (await client.ask_async(17, topic="BenchmarkTest2", **TOPIC)).code == 1
        known = client.broker.tables.topics.table["BenchmarkTest"]
        assert client.broker.tables.topics.update(known) == known


async def test_groups(tmp_path, monkeypatch):
    client = Client(make_broker(tmp_path))
    monkeypatch.setattr(names, "GROUPS_MAX", len(client.broker.tables.groups.table))
    reply = await client.ask_async(200, body={"groupName": "New"})
    assert "consumer groups, no more than" in reply.remark
    assert "consumer groups, no more than" in client.ask(34, heartbeat("T1", group="New")).remark


def test_offsets(tmp_path, monkeypatch):
    client = Client(make_broker(tmp_path))
    monkeypatch.setattr(names, "OFFSETS_MAX", 1)
    first = {"consumerGroup": "G", "topic": "T1", "commitOffset": 5}
    assert client.ask(15, **first, queueId=0).code == 0
    assert client.ask(15, **first, queueId=65_535).code == 0
    assert "numbers up to 65535" in client.ask(15, **first, queueId=65_536).remark
    assert "offsets in topics" in client.ask(15, **first | {"topic": "T2"}, queueId=0).remark
    assert list(client.broker.tables.offsets.table) == ["T1@G"]


def test_offsets_of_a_clone(tmp_path, monkeypatch):
    client = Client(make_broker(tmp_path))
    monkeypatch.setattr(names, "OFFSETS_MAX", 2)
    for topic in ("T1", "T2"):
        client.broker.tables.topics.table[topic] = TopicConfig(topic, 1, 1)
        client.broker.tables.offsets.commit("G", topic, 0, 5)
    assert "offsets in topics" in client.ask(314, srcGroup="G", destGroup="H").remark
    assert list(client.broker.tables.offsets.table) == ["T1@G", "T2@G"]


async def test_offsets_that_are_passed_on(tmp_path, monkeypatch):
    """What the new master has taken is kept here, too, but no more than if it had stayed here."""
    client = Client(make_broker(tmp_path))
    monkeypatch.setattr(names, "OFFSETS_MAX", 1)
    gate = client.broker.gate
    forwarder = gate.forwarder = FakeForwarder()
    gate.close_for(trio.current_time() + 5)
    for topic, queue_id, offset in (("T1", 0, 5), ("T1", 0, 4), ("T1", 65_536, 5), ("T2", 0, 5)):
        client.ask(15, consumerGroup="G", topic=topic, commitOffset=offset, queueId=queue_id)
    gate.forward_to("127.0.0.1:1", 5)
    for taken in forwarder.taken:
        taken()
    assert client.broker.tables.offsets.table == {"T1@G": {0: 5}}


async def test_producer_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(consumer_manager, "PRODUCER_GROUPS_PER_CONNECTION_MAX", 2)
    broker = make_broker(tmp_path)
    one, other = Client(broker), Client(broker, FakeConnection())

    def beat(client, *groups):
        return client.ask(34, {"clientID": "p", "producerDataSet": [{"groupName": group} for group in groups]})

    assert beat(one, "A", "B").code == 0
    assert "producer groups of one connection" in beat(one, "A", "B", "C").remark
    assert beat(one, "A", "B").code == 0
    assert one.ask(35, clientID="p", producerGroup="A").code == 0
    assert beat(one, "C").code == 0
    monkeypatch.setattr(names, "GROUPS_MAX", 2)
    assert "producer groups, no more than 2" in beat(other, "D").remark
    assert beat(other, "B").code == 0
    one.connection.close()
    assert beat(other, "D").code == 0
    assert set(broker.tables.producers.groups) == {"B", "D"}


def test_filters(tmp_path, monkeypatch):
    """Consumers hear that there is no filter for them (27)."""
    monkeypatch.setattr(consumer_filters, "FILTERS_MAX", 1)
    broker = make_broker(tmp_path, enable_property_filter=True)
    broker.tables.filters.register("G", [sql("a = 1", 1)])
    broker.tables.filters.register("H", [sql("a = 1", 1)])
    assert (broker.tables.filters.get("T", "G") is None, broker.tables.filters.get("T", "H") is None) == (False, True)
    broker.tables.filters.register("G", [sql("a = 2", 2)])
    assert broker.tables.filters.get("T", "G").filter.text == "a = 2"


@pytest.mark.parametrize(("topic", "group"), [("../x", "G"), ("T1", "../x"), ("T1", ""), ("x" * 128, "G")])
def test_tables_take_no_name_that_is_none(tmp_path, topic, group):
    """Whoever forgets to check meets the table."""
    broker = make_broker(tmp_path)
    with pytest.raises(RequestError):
        broker.tables.offsets.commit(group, topic, 0, 1)
    assert not broker.tables.offsets.table


def test_heartbeats(tmp_path):
    client = Client(make_broker(tmp_path))
    beat = heartbeat("T1", client_id="x" * names.HEARTBEAT_BYTES_MAX)
    assert "at most 1048576" in client.ask(34, beat).remark
    assert not client.broker.tables.consumers.groups


def test_expressions():
    long = "a" * (names.EXPRESSION_LENGTH_MAX + 1)
    with pytest.raises(SubscriptionError, match="32768 characters"):
        build_subscription("T1", long)
    with pytest.raises(ValueError, match="32768 characters"):
        SubscriptionData.read({"topic": "T1", "subString": long})
    assert build_subscription("T1", long[1:]).tags == (long[1:],)


async def test_bodies_and_properties(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        store = client.broker.store
        assert put(client.broker).status is PutStatus.PUT_OK
        for body, properties in ((bytes(store.config.max_message_size + 1), b""), (b"x", b"p" * 32_768)):
            (result,) = store.put([PutMessage("T1", 0, body, properties, 0, 0, 1, HOST, HOST, 0, 0, 0)])
            assert result.status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


async def test_settings_at_a_name_server(monkeypatch):
    kv = KVConfigManager()
    await kv.put("n", "k", "v" * kv_config.VALUE_LENGTH_MAX)
    for entry in (("n" * 1025, "k", "v"), ("n", "k" * 1025, "v"), ("n", "k", "v" * 65_537)):
        with pytest.raises(RequestError, match="at most"):
            await kv.put(*entry)
    monkeypatch.setattr(kv_config, "ENTRIES_MAX", 1)
    await kv.put("n", "k", "other")
    with pytest.raises(RequestError, match="delete some"):
        await kv.put("n", "k2", "v")


@pytest.mark.parametrize(
    ("name", "component"),
    [
        ("broker-a", "broker-a"),
        ("../../x", "_.._x"),
        ("..", "_"),
        ("", "_"),
        ("/etc/x", "_etc_x"),
        ("a\x00b", "a_b"),
        ("%DLQ%G", "%DLQ%G"),
    ],
)
def test_the_names_of_others_as_parts_of_paths(name, component):
    assert names.as_component(name) == component
    assert len(names.as_component(name * 1000)) <= 255
