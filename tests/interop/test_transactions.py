"""The real TransactionMQProducer against `twinlog up`."""

import time
from collections.abc import Iterator

import pytest

from tests.support.clients.java_client import JavaClient
from tests.support.clients.java_reader import TransactionProducer
from tests.support.clients.remoting import create_topic
from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group import twinlog
from tests.support.process_group.member import TEST_SETTINGS
from tests.support.waiting import wait_for

SETTINGS = {**TEST_SETTINGS, "transactionTimeOut": "1500", "transactionCheckInterval": "500"}
OUTCOMES = ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[twinlog.Up]:
    with twinlog.Up(tmp_path_factory.mktemp("up"), settings=SETTINGS) as up:
        yield up


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    with JavaClient(tmp_path_factory.mktemp("client")) as java:
        yield java


def test_consumers_see_what_was_committed(cluster: twinlog.Up, client: JavaClient) -> None:
    """Committed at once or when the broker asks; rolled back at once or when it asks: never."""
    topic = "Transactions"
    create_topic(cluster.address(0), topic, queues=2)
    probe = client.producer("probe", cluster.namesrv)
    probe.send_until_ok("probe")
    good = TransactionProducer(client, "good", cluster.namesrv, topic)
    bad = TransactionProducer(client, "bad", cluster.namesrv, topic)
    how = {"seed": "seed", "keys": "key-{i}"}
    sent = good.send(30, OUTCOMES, first=0, checked="COMMIT_MESSAGE", **how)
    refused = bad.send(3, ["UNKNOW"], first=100, checked="ROLLBACK_MESSAGE", **how)
    assert all(message.ok for message in sent + refused)
    wanted = {message.msg_id for message in sent if OUTCOMES[message.number % 3] != "ROLLBACK_MESSAGE"}
    consumer = client.consumer("readers", cluster.namesrv, topic)
    assert {message.msg_id for message in consumer.consumed(len(wanted))} == wanted
    wait_for(lambda: len(bad.checks()) == 3, "the broker's questions about the last three")
    time.sleep(3)  # Another round, and whatever else it would bring.
    consumed = consumer.consumed(0)
    assert len(consumed) == len(wanted) == 20, "each once"
    assert sorted(good.checks()) == sorted(message.msg_id for message in sent if message.number % 3 == 2)
    assert sorted(bad.checks()) == sorted(message.msg_id for message in refused)
    assert {message.properties["REAL_TOPIC"] for message in consumed} == {topic}
    wait_for_same_commitlog(cluster.commit_log(0), cluster.commit_log(1))
