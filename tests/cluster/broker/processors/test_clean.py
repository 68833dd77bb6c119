"""Old files and leftover statistics on request, as mqadmin asks for it, and what consumers hear whose messages are gone."""

import os
import time

import pytest

from tests.cluster.broker.helpers import heartbeat, opened, put
from tests.cluster.broker.parts import Parts, make_parts
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting import names

PULL, DELETE_EXPIRED_COMMITLOG, CLEAN_EXPIRED_CONSUMEQUEUE = 11, 329, 306
OFFSET_MOVED = 21


def serving(parts: Parts) -> Parts:
    return parts.serve(parts.broker_admin(), parts.clients(), parts.pull())


@pytest.fixture
async def client(tmp_path):
    """Ten messages in five files, of which four are two hours old."""
    small = {"mapped_file_size_commit_log": 1 << 14, "file_reserved_time_hours": 1, "delete_when": ""}
    async with opened(serving(make_parts(tmp_path, store=small))) as client:
        store = client.broker.store
        for _ in range(10):
            put(client.broker, body=bytes(7000))
        await store.flusher.flush()
        await store._parts.queue_flusher.flush(thorough=True)
        for file in store.commit_log.files.files[:-1]:
            os.utime(file.path, (time.time() - 7200, time.time() - 7200))
        yield client


async def test_what_is_old_enough_goes_on_request(client):
    store = client.broker.store
    await store.retention.clean()
    assert store.min_offset == 0
    assert client.ask(DELETE_EXPIRED_COMMITLOG).code == 0
    await store.retention.clean()
    assert len(store.commit_log.files.files) == 1
    assert store.queue("T1", 0).min_offset == 8


async def test_a_consumer_below_the_first_message_is_told_where_to_go_on(client):
    """Also one that waits: it does so at the end of the queue, which stays where it is."""
    client.ask(DELETE_EXPIRED_COMMITLOG)
    await client.broker.store.retention.clean()
    fields = {
        "consumerGroup": "G",
        "topic": "T1",
        "queueId": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    client.broker.tables.topics.update(TopicConfig("T1", 1, 1))
    client.ask(34, heartbeat("T1"))
    answer = client.ask(PULL, **fields, queueOffset=3)
    assert (answer.code, answer.ext["nextBeginOffset"], answer.ext["minOffset"]) == (OFFSET_MOVED, "8", "8")


async def test_cleaning_queues_keeps_their_numbers(client):
    store = client.broker.store
    client.ask(DELETE_EXPIRED_COMMITLOG)
    await store.retention.clean()
    answer = await client.ask_async(CLEAN_EXPIRED_CONSUMEQUEUE)
    assert answer.code == 0
    assert put(client.broker).queue_offset == 10


async def test_statistics_of_topics_that_are_gone_are_cleaned(client):
    stats = client.broker.stats
    client.broker.tables.topics.update(TopicConfig("T1", 2, 2))
    stats.sample(0.0)
    for topic in ("T1", "gone", names.SCHEDULE_TOPIC):
        put(client.broker, topic)
    stats.sample(10.0)
    assert "gone" in stats.topics()
    assert (await client.ask_async(316)).code == 0
    assert stats.topics() == {"T1", names.SCHEDULE_TOPIC}
    assert client.broker.queues.end("gone", 0) == 1  # What is still in the log keeps its number.


@pytest.mark.parametrize("code", [306, 316])
async def test_cleaning_is_answered_without_a_body(client, code):
    reply = await client.ask_async(code)
    assert (reply.code, reply.body, reply.ext) == (0, b"", None)
