"""The real Java client against `twinlog up`: what it sends comes back unchanged, consumers work as with RocketMQ."""

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.java_client import Consumed, JavaClient, Sent, body
from tests.support.clients.remoting import create_topic
from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group import twinlog
from tests.support.process_group.member import TEST_SETTINGS
from tests.support.waiting import wait_for

TAGS = ["rot", "grün"]
BODY_SIZE = 700


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[twinlog.Up]:
    """A SYNC_MASTER with one slave, for all tests of this file."""
    with twinlog.Up(tmp_path_factory.mktemp("up"), settings=TEST_SETTINGS) as up:
        yield up


@pytest.fixture(scope="module", params=[False, True], ids=["json", "binary"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    """The Java client, once with JSON headers and once with -Drocketmq.serialize.type=ROCKETMQ."""
    with JavaClient(tmp_path_factory.mktemp("client"), binary_headers=request.param) as java:
        yield java


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: twinlog.Up, client: JavaClient) -> str:
    """A fresh topic of 4 queues, named after the test; the cluster takes messages when the test begins."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    create_topic(cluster.address(0), name, queues=4)
    producer = client.producer(f"probe-{name}", cluster.namesrv)
    producer.send_until_ok("probe")
    producer.shutdown()
    return name


def test_5000_messages_arrive_whole(cluster: twinlog.Up, client: JavaClient, topic: str) -> None:
    """Sent sync, async and oneway, each is consumed with body, keys, tags, properties; the slave has the same log."""
    producer = client.producer(topic, cluster.namesrv)
    sent = [
        message
        for first, count, mode in ((0, 2000, "sync"), (2000, 2000, "async"), (4000, 1000, "oneway"))
        for message in producer.send(
            topic,
            count,
            first=first,
            mode=mode,
            threads=4,
            body_size=BODY_SIZE,
            keys="schlüssel-{i} second-{i}",
            tags=TAGS,
            properties={"city": "München", "日本": "値-{i}"},
        )
    ]
    assert [message for message in sent[:4000] if not message.ok] == []
    assert [message for message in sent[4000:] if message.error] == []
    consumed = {m.msg_id: m for m in client.consumer(topic, cluster.namesrv, topic).consumed(5000, timeout_s=60)}
    assert consumed.keys() == {message.msg_id for message in sent}
    for message in sent:
        assert_unchanged(message, consumed[message.msg_id])
    start, _ = wait_for_same_commitlog(cluster.commit_log(0), cluster.commit_log(1))
    assert start == 0


def assert_unchanged(sent: Sent, got: Consumed) -> None:
    assert got.body_sha1 == hashlib.sha1(body("seed", sent.number, BODY_SIZE)).hexdigest()
    assert got.keys == f"schlüssel-{sent.number} second-{sent.number}"
    assert got.tags == TAGS[sent.number % 2]
    assert got.properties["city"] == "München"
    assert got.properties["日本"] == f"値-{sent.number}"
    assert got.reconsume_times == 0
    if sent.offset_msg_id is not None:  # Not oneway: then the answer told where the broker put it.
        assert (got.queue_id, got.queue_offset) == (sent.queue_id, sent.queue_offset)
        assert got.offset_msg_id == sent.offset_msg_id
        assert got.commit_log_offset == sent.commit_log_offset


def test_tags_filter_on_the_broker(cluster: twinlog.Up, client: JavaClient, topic: str) -> None:
    """A consumer of one tag gets the messages of that tag and no other."""
    sent = client.producer(topic, cluster.namesrv).send(topic, 100, tags=["a", "bé", "c", "d"])
    consumer = client.consumer(topic, cluster.namesrv, topic, expression="bé || d")
    wanted = {message.msg_id for message in sent if message.number % 2}
    assert {message.msg_id for message in consumer.consumed(len(wanted))} == wanted
    time.sleep(0.5)  # Whatever else it would be given.
    assert len(consumer.consumed(0)) == len(wanted)


def test_long_poll_ends_with_the_message(cluster: twinlog.Up, client: JavaClient, topic: str) -> None:
    """A consumer that waits gets a new message at once, not at the next scan of held pulls (5 s)."""
    producer = client.producer(topic, cluster.namesrv)
    producer.send(topic, 4)  # One for each queue: all of them are pulled when these have arrived.
    consumer = client.consumer(topic, cluster.namesrv, topic)
    assert len(consumer.consumed(4)) == 4
    time.sleep(1.5)
    for count in range(5, 9):
        producer.send(topic, 1, first=count)
        assert len(consumer.consumed(count, timeout_s=1)) == count


def test_offsets_stay_on_the_broker(cluster: twinlog.Up, client: JavaClient, topic: str) -> None:
    """A group that comes back goes on where it left."""
    producer = client.producer(topic, cluster.namesrv)
    producer.send(topic, 40)
    consumer = client.consumer(topic, cluster.namesrv, topic)
    assert len(consumer.consumed(40)) == 40
    consumer.shutdown()
    later = {message.msg_id for message in producer.send(topic, 20, first=40)}
    again = client.consumer(topic, cluster.namesrv, topic)
    assert {message.msg_id for message in again.consumed(20)} == later


def test_two_consumers_share_the_queues(cluster: twinlog.Up, client: JavaClient, topic: str) -> None:
    """When a second consumer joins the group, the queues are split; together they get everything."""
    producer = client.producer(topic, cluster.namesrv)
    consumers = [client.consumer(topic, cluster.namesrv, topic) for _ in range(2)]
    sent: set[str] = set()

    def both_have_some() -> bool:
        sent.update(message.msg_id for message in producer.send(topic, 8, first=len(sent)))
        return all(consumer.consumed(0) for consumer in consumers)

    wait_for(both_have_some, "messages at both consumers")
    marker = {message.msg_id: message for message in producer.send(topic, 80, first=len(sent))}
    wanted = sent | marker.keys()

    def all_arrived() -> bool:
        return {m.msg_id for consumer in consumers for m in consumer.consumed(0)} >= wanted

    wait_for(all_arrived, "every message at one of the two")
    queues = [{m.queue_id for m in consumer.consumed(0) if m.msg_id in marker} for consumer in consumers]
    assert queues[0].isdisjoint(queues[1])
    assert queues[0] | queues[1] == {0, 1, 2, 3}


def test_failed_message_comes_again(cluster: twinlog.Up, client: JavaClient, topic: str) -> None:
    """RECONSUME_LATER sends a message back to the broker; it returns 10 s later, counted, by the retry topic.

    10 s, or 20 when the client asks for the route of its retry topic before the broker has made that: it looks again
    at its next rebalance. The real broker loses that race as often.
    """
    (sent,) = client.producer(topic, cluster.namesrv).send(topic, 1)
    first, second = client.consumer(topic, cluster.namesrv, topic, failures=1).consumed(2, timeout_s=40)
    assert (first.msg_id, first.reconsume_times) == (sent.msg_id, 0)
    assert (second.msg_id, second.reconsume_times, second.topic) == (sent.msg_id, 1, topic)


def test_fast_port_takes_messages(cluster: twinlog.Up, client: JavaClient, topic: str) -> None:
    """A producer with the VIP channel on sends to the port two below."""
    sent = client.producer(topic, cluster.namesrv, vip_channel=True).send(topic, 10)
    assert all(message.ok for message in sent)


def test_unknown_topic_is_made(cluster: twinlog.Up, client: JavaClient, tmp_path: Path) -> None:
    """With autoCreateTopicEnable the first message makes its topic, from TBW102's 4 queues of the producer."""
    name = f"made-{tmp_path.name}"
    sent = client.producer(name, cluster.namesrv).send(name, 8)
    assert all(message.ok for message in sent)
    assert {message.queue_id for message in sent} == {0, 1, 2, 3}
