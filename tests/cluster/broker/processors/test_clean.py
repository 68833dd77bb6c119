"""Old files on request, as mqadmin asks for it, and what consumers hear whose messages are gone."""

import os
import time

import attrs
import pytest

from tests.cluster.broker.helpers import heartbeat, make_broker, opened, put
from twinlog.cluster.broker import wiring
from twinlog.cluster.broker.tables.topics import TopicConfig

PULL, DELETE_EXPIRED_COMMITLOG, CLEAN_EXPIRED_CONSUMEQUEUE = 11, 329, 306
OFFSET_MOVED = 21


def small(broker):
    """The same broker with files for a few messages."""
    store = attrs.evolve(
        broker.store.config, mapped_file_size_commit_log=1 << 14, file_reserved_time_hours=1, delete_when=""
    )
    return wiring.make_broker(broker.config, store)


@pytest.fixture
async def client(tmp_path):
    """Ten messages in five files, of which four are two hours old."""
    async with opened(small(make_broker(tmp_path))) as client:
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
