"""Hand-over both ways: each broker serves, and goes on with, whatever the one before it left, however that ended."""

import hashlib

import pytest

from tests.handover.chain import (
    BATCH,
    DELAYED,
    KILL,
    LONG_DELAY_S,
    PLAIN,
    QUEUES,
    RETRIED,
    RETRY_GROUP,
    TAGS,
    TRAFFIC,
    TRANSACTION,
    TURNS,
    Chain,
    key,
)
from tests.interop.java_client import Consumed, body
from tests.interop.remoting import wait_for

LATE_S = 20  # How much later than due something may be: a start of RocketMQ's, and busy processors.


@pytest.fixture(
    scope="module",
    params=range(1, len(TURNS)),
    ids=lambda turn: f"{turn}-{TURNS[turn].broker}-after-{TURNS[turn - 1].broker}s-{TURNS[turn - 1].end}",
)
def opened(request: pytest.FixtureRequest, chain: Chain) -> Chain:
    """The broker of each turn but the first, with what the turns before left."""
    chain.advance_to(request.param)
    return chain


def assert_is(message: Consumed, topic: str, number: int) -> None:
    assert message.keys == key(topic, number)
    assert message.tags == ("transaction" if topic == TRANSACTION else TAGS[number % len(TAGS)])
    size = 200 if topic == TRANSACTION else 400
    assert message.body_sha1 == hashlib.sha1(body(topic, number, size)).hexdigest()


@pytest.mark.parametrize("topic", [PLAIN, BATCH, TRAFFIC, RETRIED])
def test_serves_each_message_where_its_producer_was_told(opened: Chain, topic: str) -> None:
    """Nothing acknowledged is lost, nothing is doubled, and queue numbers go on without a gap."""
    told = opened.told[topic]
    queues = opened.queues(topic)
    for queue in queues:
        assert queue.min_offset == 0
        assert [message.queue_offset for message in queue.messages] == list(range(queue.max_offset))
    for sent in told:
        if sent.ok:
            found = queues[sent.queue_id].messages[sent.queue_offset]
            assert (found.msg_id, found.commit_log_offset) == (sent.msg_id, sent.commit_log_offset)
            assert_is(found, topic, sent.number)
    ids = [message.msg_id for queue in queues for message in queue.messages]
    assert len(ids) == len(set(ids))
    assert set(ids) <= {sent.msg_id for sent in told}
    assert len(ids) >= 500 * opened.turn or topic not in (PLAIN, TRAFFIC)


def test_finds_offsets_by_time(opened: Chain) -> None:
    for queue_id, queue in enumerate(opened.queues(PLAIN)):
        messages = queue.messages
        for wanted in messages[:: len(messages) // 8]:
            offset = opened.reader.offset_by_time(PLAIN, queue_id, wanted.store_timestamp_ms)
            assert messages[offset].store_timestamp_ms == wanted.store_timestamp_ms
        assert opened.reader.offset_by_time(PLAIN, queue_id, messages[0].store_timestamp_ms - 10_000) == 0
        late = opened.reader.offset_by_time(PLAIN, queue_id, messages[-1].store_timestamp_ms + 10_000)
        assert messages[late].store_timestamp_ms == messages[-1].store_timestamp_ms


def test_knows_consumer_offsets(opened: Chain) -> None:
    """After a kill the last second of commits may be missing; what comes back is never an offset nobody committed."""
    for queue_id in range(QUEUES[PLAIN]):
        offset = opened.consumer_offset(queue_id)
        committed = [offsets[queue_id] for offsets in opened.committed]
        if opened.before.end == KILL:
            assert offset in committed
        else:
            assert offset == committed[-1]


def test_delayed_messages_fall_due(opened: Chain) -> None:
    """Not before their time, not long after; once, unless a broker died before it had saved how far it was."""
    wanted = {message.msg_id: message for message in opened.told[DELAYED]}

    def all_there() -> bool:
        return {message.msg_id for message in opened.messages(DELAYED)} >= wanted.keys()

    wait_for(all_there, "every delayed message", timeout_s=LONG_DELAY_S + LATE_S)
    deaths = sum(turn.end == KILL for turn in TURNS[: opened.turn])
    delivered = list(opened.messages(DELAYED))
    for msg_id, sent in wanted.items():
        copies = [message for message in delivered if message.msg_id == msg_id]
        assert 1 <= len(copies) <= 1 + deaths
        for message in copies:
            assert_is(message, DELAYED, sent.number)
        if msg_id in opened.delayed_at_ms:
            due_ms = opened.delayed_at_ms[msg_id] + LONG_DELAY_S * 1000
            assert copies[0].store_timestamp_ms >= due_ms - 1000  # It was stored a little before it was answered.
    assert {message.msg_id for message in delivered} == wanted.keys()


def test_retries_come_back(opened: Chain) -> None:
    """What a consumer refused in an earlier turn comes back to its group, one attempt older."""
    wanted = {message.msg_id for message in opened.told[RETRIED]}
    consumer = opened.client.consumer(RETRY_GROUP, opened.namesrv, RETRIED, failures=1)
    last = {message.msg_id for message in opened.told[RETRIED][-5:]}

    def all_there() -> bool:
        return last <= {message.msg_id for message in consumer.consumed(0) if message.reconsume_times == 1}

    wait_for(all_there, "the retries of the turn before", timeout_s=LONG_DELAY_S + LATE_S)
    assert {message.msg_id for message in consumer.consumed(0)} <= wanted
    consumer.shutdown()
