"""The real Java client's consumers: where they begin, are moved to and give up; request and reply; a slave that is all there is.

What RocketMQ's own integration suite shows (scripts/peer-suite) is not shown again here.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.java_client import JavaClient
from tests.support.clients.remoting import create_topic, request
from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group import twinlog
from tests.support.process_group.member import TEST_SETTINGS
from tests.support.waiting import wait_for

# No queue is young: then a new group is not simply put to the head of it.
SETTINGS = TEST_SETTINGS | {"accessMessageInMemoryMaxRatio": "0"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[twinlog.Up]:
    with twinlog.Up(tmp_path_factory.mktemp("up"), slaves=0, sync=False, settings=SETTINGS) as up:
        yield up


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    with JavaClient(tmp_path_factory.mktemp("client")) as java:
        yield java


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: twinlog.Up) -> str:
    """A fresh topic of one queue, named after the test."""
    create_topic(cluster.address(0), request.node.name, queues=1)
    return str(request.node.name)


def test_where_a_new_group_begins(cluster: twinlog.Up, client: JavaClient, topic: str) -> None:
    """At the first message, at the last one, or at a time."""
    producer = client.producer(topic, cluster.namesrv)
    early = {message.msg_id for message in producer.send(topic, 10)}
    time.sleep(3)
    between = time.localtime()  # Nearer to the later ones.
    time.sleep(1)
    late = {message.msg_id for message in producer.send(topic, 10, first=10)}
    first = client.consumer("first", cluster.namesrv, topic)
    last = client.consumer("last", cluster.namesrv, topic, from_first=False)
    timed = client.consumer("timed", cluster.namesrv, topic, from_time=between)
    assert {message.msg_id for message in first.consumed(20)} == early | late
    assert {message.msg_id for message in timed.consumed(10)} == late
    newest: set[str] = set()

    def last_has_begun() -> bool:
        newest.update(message.msg_id for message in producer.send(topic, 1, first=20 + len(newest)))
        return bool(last.consumed(0))

    wait_for(last_has_begun, "a message at the consumer that began last")
    assert {message.msg_id for message in last.consumed(0)} <= newest
    assert {message.msg_id for message in timed.consumed(10 + len(newest))} == late | newest


def test_a_running_group_is_moved_back(cluster: twinlog.Up, client: JavaClient, topic: str) -> None:
    """mqadmin resetOffsetByTime sends 222; the consumer stops, waits 10 s, commits what it was told and goes on from there."""
    sent = client.producer(topic, cluster.namesrv).send(topic, 20)
    consumer = client.consumer("moved", cluster.namesrv, topic)
    assert len(consumer.consumed(20)) == 20
    commit(cluster, "moved", topic, 20)  # As it would itself, some seconds later.
    fields = {"topic": topic, "group": "moved", "timestamp": "0", "isForce": "true"}
    header, body = request(cluster.address(0), 222, fields)
    assert header["code"] == 0, header
    assert body.endswith(b":0}}")
    again = consumer.consumed(40)
    assert {message.msg_id for message in again[20:]} == {message.msg_id for message in sent}


def commit(cluster: twinlog.Up, group: str, topic: str, offset: int) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)}
    assert request(cluster.address(0), 15, fields)[0]["code"] == 0


def test_who_is_not_there_cannot_be_moved_by_222(cluster: twinlog.Up, client: JavaClient, topic: str) -> None:
    client.producer(topic, cluster.namesrv).send(topic, 1)
    consumer = client.consumer("gone", cluster.namesrv, topic)
    assert len(consumer.consumed(1)) == 1
    consumer.shutdown()
    fields = {"topic": topic, "group": "gone", "timestamp": "-1", "isForce": "true"}
    assert request(cluster.address(0), 222, fields)[0]["code"] == 206


def test_what_fails_too_often_goes_to_the_dead_letters(cluster: twinlog.Up, client: JavaClient, topic: str) -> None:
    (sent,) = client.producer(topic, cluster.namesrv).send(topic, 1, keys="k")
    consumer = client.consumer("failing", cluster.namesrv, topic, failures=99, retries_max=0)
    assert len(consumer.consumed(1)) == 1
    wait_for(lambda: has_route(cluster, "%DLQ%failing"), "the topic of dead letters")
    (dead,) = client.consumer("undertaker", cluster.namesrv, "%DLQ%failing").consumed(1)
    assert (dead.msg_id, dead.keys, dead.reconsume_times) == (sent.msg_id, "k", 1)
    assert dead.properties["ORIGIN_MESSAGE_ID"] == sent.offset_msg_id
    assert len(consumer.consumed(0)) == 1, "it does not come again"


def has_route(cluster: twinlog.Up, topic: str) -> bool:
    return request(cluster.namesrv, 105, {"topic": topic})[0]["code"] == 0  # type: ignore[no-any-return]


def test_questions_are_answered(cluster: twinlog.Up, client: JavaClient, topic: str) -> None:
    """DefaultMQProducer.request: the reply comes over the producer's own connection, and is kept in the reply topic."""
    asker = client.new("Questions", {"group": "asking", "namesrv": cluster.namesrv, "answer": "false"})
    answerer = {"group": "answering", "namesrv": cluster.namesrv, "topic": topic, "answer": "true"}
    questions = [asker, client.new("Questions", answerer)]
    for text in ("Wie spät?", "und jetzt?"):
        assert client.call(asker, "ask", topic=topic, text=text) == f"re: {text}"

    def kept() -> str:
        header, _ = request(cluster.address(0), 30, {"topic": "DefaultCluster_REPLY_TOPIC", "queueId": "0"})
        return str(header["extFields"]["offset"])

    wait_for(lambda: kept() == "2", "both replies in the reply topic")  # They go to the producer first.
    for each in questions:
        client.call(each, "shutdown")


def test_messages_are_traced(cluster: twinlog.Up, client: JavaClient, topic: str) -> None:
    """The client makes the trace topic by its first trace, as any other topic."""
    producer = client.producer("traced", cluster.namesrv, trace=True)
    (sent,) = producer.send(topic, 1)
    wait_for(lambda: has_route(cluster, "RMQ_SYS_TRACE_TOPIC"), "the trace topic")
    traces = client.consumer("traces", cluster.namesrv, "RMQ_SYS_TRACE_TOPIC").consumed(1)
    assert [trace.keys for trace in traces if trace.keys and sent.msg_id in trace.keys]


def test_the_queues_of_a_killed_consumer_go_to_the_others(
    cluster: twinlog.Up, client: JavaClient, tmp_path: Path
) -> None:
    """At once, not at the next rebalance 20 s later: its connection ends, and the broker tells the group."""
    create_topic(cluster.address(0), "inherited", queues=4)
    producer = client.producer("inherited", cluster.namesrv)
    heir = client.consumer("heirs", cluster.namesrv, "inherited")
    with JavaClient(tmp_path / "doomed") as other:
        doomed = other.consumer("heirs", cluster.namesrv, "inherited")
        sent: set[str] = set()

        def both_have_some() -> bool:
            sent.update(message.msg_id for message in producer.send("inherited", 4, first=len(sent)))
            return bool(heir.consumed(0)) and bool(doomed.consumed(0))

        wait_for(both_have_some, "messages at both consumers")
    late = {message.msg_id for message in producer.send("inherited", 40, first=len(sent))}
    wait_for(
        lambda: late <= {message.msg_id for message in heir.consumed(0)}, "all messages at the other", timeout_s=12
    )


def test_a_slave_serves_when_its_master_is_gone(root: Path, client: JavaClient) -> None:
    """A consumer that finds no master pulls from the slave, and asks it for its group and its offsets."""
    with (
        twinlog.NameServer(root / "namesrv") as namesrv,
        twinlog.Broker(root / "master", namesrv.address, role="SYNC_MASTER") as master,
        twinlog.Broker(root / "slave", namesrv.address, role="SLAVE") as slave,
    ):
        create_topic(master.address, "left-alone")
        producer = client.producer("leaver", namesrv.address)
        producer.send_until_ok("probe")
        sent = {message.msg_id for message in producer.send("left-alone", 100)}
        wait_for_same_commitlog(master.commit_log, slave.commit_log)
        wait_for(lambda: b"left-alone" in request(slave.address, 21)[1], "the topic on the slave", timeout_s=20)
        master.kill()
        consumer = client.consumer("reader", namesrv.address, "left-alone")
        assert {message.msg_id for message in consumer.consumed(100)} == sent
