"""The real push consumer with MessageSelector.bySql against `twinlog up`."""

import time
from collections.abc import Iterator

import pytest

from tests.support.clients.java_client import JavaClient, JavaError
from tests.support.clients.remoting import create_topic
from tests.support.process_group import twinlog
from tests.support.process_group.member import TEST_SETTINGS

SETTINGS = {**TEST_SETTINGS, "enablePropertyFilter": "true", "filterSupportRetry": "true"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[twinlog.Up]:
    with twinlog.Up(tmp_path_factory.mktemp("up"), slaves=0, sync=False, settings=SETTINGS) as up:
        yield up


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    with JavaClient(tmp_path_factory.mktemp("client")) as java:
        yield java


def test_a_group_gets_what_its_expression_lets_through(cluster: twinlog.Up, client: JavaClient) -> None:
    """Of single messages and of batches; those that come while it waits arrive at once, others do not end the wait."""
    create_topic(cluster.address(0), "sql", queues=2)
    producer = client.producer("sql", cluster.namesrv)
    producer.send("sql", 100, properties={"number": "{i}", "city": "München"}, tags=["odd", "even"])
    producer.send("sql", 100, first=100, batch_size=10, properties={"number": "{i}"})
    sql = "number BETWEEN 90 AND 109 AND (city = 'München' AND TAGS = 'odd' OR city IS NULL)"
    consumer = client.consumer("sql", cluster.namesrv, "sql", sql=sql)
    wanted = {*range(90, 100, 2), *range(100, 110)}
    assert {int(m.properties["number"]) for m in consumer.consumed(len(wanted))} == wanted
    time.sleep(1.5)  # Its pulls are held by now.
    producer.send("sql", 20, first=200, properties={"number": "{i}"})
    producer.send("sql", 1, first=100, properties={"number": "{i}"})
    assert len(consumer.consumed(len(wanted) + 1, timeout_s=2)) == len(wanted) + 1


def test_a_retried_message_is_still_filtered_by_its_first_topic(cluster: twinlog.Up, client: JavaClient) -> None:
    """It fails once, and comes again by the retry topic, where its own properties still fit."""
    create_topic(cluster.address(0), "again", queues=1)
    # Else the consumer's first heartbeat makes it, and it is read up to 50 s later: at the rebalance behind the next
    # question for routes.
    create_topic(cluster.address(0), "%RETRY%again", queues=1)
    producer = client.producer("again", cluster.namesrv)
    consumer = client.consumer("again", cluster.namesrv, "again", sql="colour = 'red'", failures=1)
    producer.send("again", 1, properties={"colour": "blue"})
    (sent,) = producer.send("again", 1, first=1, properties={"colour": "red"})
    first, second = consumer.consumed(2, timeout_s=40)
    assert [(m.msg_id, m.reconsume_times) for m in (first, second)] == [(sent.msg_id, 0), (sent.msg_id, 1)]


def test_what_is_no_expression_ends_the_consumers_start(cluster: twinlog.Up, client: JavaClient) -> None:
    create_topic(cluster.address(0), "wrong", queues=1)
    with pytest.raises(JavaError, match=r"(?s)CODE: 23 .*Invalid MessageSelector.*is unexpected"):
        client.consumer("wrong", cluster.namesrv, "wrong", sql="a = = 5")
