"""Requests about offsets of consumer groups and of queues."""

import pytest

from tests.cluster.broker.helpers import opened, put, read
from tests.cluster.broker.parts import make_parts
from twinlog.cluster.broker.tables.topics import TopicConfig


@pytest.fixture
async def client(tmp_path):
    parts = make_parts(tmp_path)
    async with opened(parts.serve(parts.offset())) as client:
        yield client


async def test_offsets_are_kept_per_group_and_queue(client):
    where = {"consumerGroup": "G", "topic": "T1", "queueId": 0}
    assert client.ask(15, **where, commitOffset=5).ext == {}
    assert client.ask(14, **where).ext == {"offset": "5"}


@pytest.mark.parametrize("bad", [{"topic": "../x"}, {"consumerGroup": "a@b"}, {"queueId": -1}, {"commitOffset": -1}])
async def test_offsets_that_cannot_be_are_refused(client, bad):
    fields = {"consumerGroup": "G", "topic": "T1", "queueId": 0, "commitOffset": 5, **bad}
    assert client.ask(15, **fields).code == 1
    assert client.broker.tables.offsets.table == {}


async def test_a_new_group_starts_at_the_head_of_a_young_queue(client):
    """0 while the first message is in memory; RocketMQ 5 clients may decline (setZeroIfNotFound)."""
    client.broker.tables.topics.update(TopicConfig("T1", 1, 1))
    where = {"consumerGroup": "G", "topic": "T1", "queueId": 0}
    put(client.broker)
    assert client.ask(14, **where).ext == {"offset": "0"}
    assert client.ask(14, **where, setZeroIfNotFound=False).code == 22
    client.broker.store.queue("T1", 0).min_offset = 1
    assert client.ask(14, **where).code == 22


async def test_bounds_of_a_queue(client):
    client.broker.tables.topics.update(TopicConfig("T1", 2, 2))
    put(client.broker)
    put(client.broker)
    where = {"topic": "T1", "queueId": 0}
    assert client.ask(30, **where).ext == {"offset": "2"}
    assert client.ask(31, **where).ext == {"offset": "0"}
    stored = int(client.ask(32, **where).ext["timestamp"])
    assert client.ask(29, **where, timestamp=stored - 5).ext == {"offset": "0"}
    assert client.ask(29, **where, timestamp=stored + 100_000).ext == {"offset": "1"}


async def test_questions_about_unknown_queues_leave_nothing_behind(client):
    before = len(list(client.broker.store.queues()))
    for topic, queue_id in (("T1", 5), ("../x", 0), ("BenchmarkTest", 70000)):
        where = {"topic": topic, "queueId": queue_id}
        assert client.ask(30, **where).ext == {"offset": "0"}
        assert client.ask(31, **where).ext == {"offset": "0"}
        assert client.ask(29, **where, timestamp=1).ext == {"offset": "0"}
        assert client.ask(32, **where).ext == {"timestamp": "-1"}
    assert len(list(client.broker.store.queues())) == before


async def test_the_slowest_group_in_each_queue(client):
    for queue_id in (0, 0, 0, 1):
        put(client.broker, queue_id=queue_id)
    for group, queue_id, offset in (("A", 0, 3), ("B", 0, 2), ("C", 0, 1), ("A", 1, 1)):
        client.ask(15, consumerGroup=group, topic="T1", queueId=queue_id, commitOffset=offset)
    assert client.ask(308, compareGroup="A", topic="T1").body == b'{"correctionOffsets":{0:1,1:1}}'
    assert read(client.ask(308, compareGroup="A", topic="T1", filterGroups="C,D")) == {
        "correctionOffsets": {"0": 2, "1": 1}
    }
    assert client.broker.tables.offsets.query("C", "T1", 0) == 1  # RocketMQ would have forgotten it.
    assert read(client.ask(308, compareGroup="C", topic="T1", filterGroups="C"))["correctionOffsets"]["0"] == 2**63 - 1
    assert read(client.ask(308, compareGroup="A", topic="none")) == {"correctionOffsets": {}}
