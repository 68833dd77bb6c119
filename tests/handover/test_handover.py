"""Hand-over both ways: each broker serves, and goes on with, whatever the one before it left, however that ended."""

import hashlib
from collections import Counter

import pytest

from tests.handover.chain import (
    BATCH,
    DELAYED,
    KILL,
    LONG_DELAY_S,
    OUTCOMES,
    PLAIN,
    QUEUES,
    RETRIED,
    RETRY_GROUP,
    ROCKETMQ,
    ROCKETMQ_5,
    STOP,
    TAGS,
    TRAFFIC,
    TRANSACTION,
    TWINLOG,
    Chain,
    Turn,
    key,
)
from tests.support.clients.java_client import Consumed, body
from tests.support.waiting import wait_for

LATE_S = 20  # How much later than due something may be: a start of RocketMQ's, and busy processors.


def assert_is(message: Consumed, topic: str, number: int) -> None:
    assert message.keys == key(topic, number)
    assert message.tags == ("transaction" if topic == TRANSACTION else TAGS[number % len(TAGS)])
    size = 200 if topic == TRANSACTION else 400
    assert message.body_sha1 == hashlib.sha1(body(topic, number, size)).hexdigest()


class Handover:
    """What holds after each turn of a chain but the first."""

    TURNS: tuple[Turn, ...]

    @pytest.mark.parametrize("topic", [PLAIN, BATCH, TRAFFIC, RETRIED])
    def test_serves_each_message_where_its_producer_was_told(self, opened: Chain, topic: str) -> None:
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

    @pytest.mark.parametrize("topic", [PLAIN, BATCH, TRAFFIC])
    def test_finds_messages_by_key_and_by_id(self, opened: Chain, topic: str) -> None:
        """After a death RocketMQ indexes the record at the index's endPhyOffset again, so that one is found twice."""
        acknowledged = [sent for sent in opened.told[topic] if sent.ok]
        for sent in acknowledged[:: len(acknowledged) // 12]:
            rows = opened.reader.by_key(topic, key(topic, sent.number))
            assert 1 <= len(rows) <= 1 + opened.deaths
            found = {(row.msg_id, row.queue_id, row.queue_offset) for row in rows}
            assert found == {(sent.msg_id, sent.queue_id, sent.queue_offset)}
            assert opened.reader.by_id(topic, sent.msg_id).commit_log_offset == sent.commit_log_offset
            assert opened.reader.by_id(topic, sent.offset_msg_id).keys == key(topic, sent.number)

    def test_finds_offsets_by_time(self, opened: Chain) -> None:
        """RocketMQ 4.9 looks for the file by its modification time, which is that of the last unit and a little late."""
        tolerance_ms = 0 if opened.now.broker == TWINLOG else 1000
        for queue_id, queue in enumerate(opened.queues(PLAIN)):
            times = [message.store_timestamp_ms for message in queue.messages]

            def found(timestamp_ms: int, queue_id: int = queue_id, times: list[int] = times) -> int:
                return times[opened.reader.offset_by_time(PLAIN, queue_id, timestamp_ms)]

            for wanted in times[:: len(times) // 12]:
                assert abs(found(wanted) - wanted) <= tolerance_ms
            assert found(times[0] - 10_000) == times[0]
            if opened.now.broker != ROCKETMQ_5:  # Which answers with the offset behind the last.
                assert found(times[-1] + 10_000) == times[-1]

    def test_knows_consumer_offsets(self, opened: Chain) -> None:
        """After a kill the last second of commits may be missing; what comes back is never an offset nobody committed."""
        for queue_id in range(QUEUES[PLAIN]):
            offset = opened.consumer_offset(queue_id)
            committed = [offsets[queue_id] for offsets in opened.committed]
            if opened.before.end == KILL:
                assert offset in committed
            else:
                assert offset == committed[-1]

    def test_transactions_end_as_they_should(self, opened: Chain) -> None:
        """Committed ones are there once, rolled back ones never; the broker asks about those that were left open.

        After a death it may ask again about those that were settled, for as much as it had not yet saved how far it was.
        """
        told = opened.told[TRANSACTION]
        settled = {message.number for message in told if OUTCOMES[message.number % 3] == "COMMIT_MESSAGE"}
        left_open = {message.number for message in told if OUTCOMES[message.number % 3] == "UNKNOW"}
        producer = opened.transaction_producer()
        wanted = {key(TRANSACTION, number) for number in settled | left_open}

        def all_there() -> bool:
            return {message.keys for message in opened.messages(TRANSACTION)} >= wanted

        wait_for(all_there, "every committed message")
        messages = list(opened.messages(TRANSACTION))
        for message in messages:
            assert_is(message, TRANSACTION, int(message.keys.rpartition("-")[2]))
        assert {message.keys for message in messages} == wanted
        copies = Counter(message.keys for message in messages)
        assert opened.deaths or max(copies.values()) == 1
        if ROCKETMQ_5 not in {turn.broker for turn in opened.turns}:  # Which loses what was settled in its last 3 s.
            assert {copies[key(TRANSACTION, number)] for number in settled} == {1}
        producer.shutdown()

    def test_delayed_messages_fall_due(self, opened: Chain) -> None:
        """Not before their time, not long after; once, unless a broker died before it had saved how far it was."""
        wanted = {message.msg_id: message for message in opened.told[DELAYED]}

        def all_there() -> bool:
            return {message.msg_id for message in opened.messages(DELAYED)} >= wanted.keys()

        wait_for(all_there, "every delayed message", timeout_s=LONG_DELAY_S + LATE_S)
        delivered = list(opened.messages(DELAYED))
        for msg_id, sent in wanted.items():
            copies = [message for message in delivered if message.msg_id == msg_id]
            assert 1 <= len(copies) <= 1 + opened.deaths
            for message in copies:
                assert_is(message, DELAYED, sent.number)
            if msg_id in opened.delayed_at_ms:
                due_ms = opened.delayed_at_ms[msg_id] + LONG_DELAY_S * 1000
                assert copies[0].store_timestamp_ms >= due_ms - 1000  # It was stored a little before it was answered.
        assert {message.msg_id for message in delivered} == wanted.keys()

    def test_retries_come_back(self, opened: Chain) -> None:
        """What a consumer refused in an earlier turn comes back to its group, one attempt older."""
        wanted = {message.msg_id for message in opened.told[RETRIED]}
        consumer = opened.client.consumer(RETRY_GROUP, opened.namesrv, RETRIED, failures=1)
        last = {message.msg_id for message in opened.told[RETRIED][-5:]}

        def all_there() -> bool:
            return last <= {message.msg_id for message in consumer.consumed(0) if message.reconsume_times == 1}

        wait_for(all_there, "the retries of the turn before", timeout_s=LONG_DELAY_S + LATE_S)
        assert {message.msg_id for message in consumer.consumed(0)} <= wanted
        consumer.shutdown()

    def test_the_directory_is_sound_in_the_end(self, chain: Chain) -> None:
        """After all those turns, and a clean stop of ours, every record, unit and index item fits."""
        chain.advance_to(len(chain.turns) - 1)
        chain.finish_turn()
        report = chain.verified()
        assert (report.errors, report.warnings, report.findings) == (0, 0, ())


class TestRocketMQ4(Handover):
    TURNS = (Turn(TWINLOG, STOP), Turn(ROCKETMQ, KILL), Turn(TWINLOG, KILL), Turn(ROCKETMQ, STOP), Turn(TWINLOG, STOP))


class TestRocketMQ5(Handover):
    """Fewer turns, because its start takes longer."""

    TURNS = (Turn(TWINLOG, STOP), Turn(ROCKETMQ_5, KILL), Turn(TWINLOG, STOP))
