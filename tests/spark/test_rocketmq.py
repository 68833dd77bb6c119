"""Strangers as judges: brokers of RocketMQ 4.9.7 and 5.3.3, to which Java's client sends, and from which it reads.

Both are in one cluster, so most topics lie on both. Most tests read and write as tasks do, without Spark.
"""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from tests.cluster.remoting.certificates import Authority
from tests.spark.reading import Row
from tests.spark.running import TopicQuery, topic_rows, write_rows
from tests.support.clients.java_client import JavaClient, Producer, Sent, body
from tests.support.clients.java_reader import Tool, TransactionProducer
from tests.support.clients.remoting import create_topic, request, runtime_info
from tests.support.process_group import jars, rocketmq, twinlog
from tests.support.process_group.member import TEST_SETTINGS
from tests.support.waiting import at_once, wait_for
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError

pytestmark = pytest.mark.timeout(240)  # A handful of JVMs on two cores.

SETTINGS = {**TEST_SETTINGS, "enablePropertyFilter": "true", "transactionTimeOut": "60000"}
RULES = """
accounts:
  - accessKey: shop-user
    secretKey: shop-secret
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms: [ guarded=PUB|SUB ]
"""
GUARDED_TOPICS = """{"topicConfigTable": {"guarded": {"order": false, "perm": 6, "readQueueNums": 2, "topicName": "guarded",
"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "writeQueueNums": 2}}}"""
SHOP = {"accessKey": "shop-user", "secretKey": "shop-secret"}
QUEUES = 2
UPDATE_BROKER_CONFIG, QUERY_CONSUMER_OFFSET = 25, 14


@define(eq=False)
class Cluster:
    """Masters of 4.9.7 and 5.3.3, a slave of the first, and one of 4.9.7 with ACL, SYNC_MASTER without a slave."""

    namesrv: str
    four: rocketmq.Broker
    slave: rocketmq.Broker
    five: rocketmq.Broker
    guarded: rocketmq.Broker
    java: JavaClient
    authority: Path

    def topic(self, name: str, *, queues: int = QUEUES) -> str:
        """A new topic on both releases."""
        for broker in (self.four, self.five):
            create_topic(broker.address, name, queues=queues)
        return name

    def producer(self, group: str, **how: Any) -> Producer:
        return self.java.producer(group, self.namesrv, **how)

    def rows(self, topic: str, **options: str) -> list[Row]:
        """All that a batch query reads."""
        return topic_rows(nameServer=self.namesrv, subscribe=topic, **options)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("rocketmq")
    authority = Authority(root)
    certificate, key = authority.issue("server")
    tls = {"test.mode.enable": "false", "server.certPath": certificate, "server.keyPath": key}
    heap = (*rocketmq.SMALL_HEAP, *(f"-Dtls.{name}={value}" for name, value in tls.items()))
    for path, text in (("conf/plain_acl.yml", RULES), ("store/config/topics.json", GUARDED_TOPICS)):
        (root / "guarded" / path).parent.mkdir(parents=True)
        (root / "guarded" / path).write_text(text)
    with ExitStack() as stack:
        namesrv = stack.enter_context(rocketmq.NameServer(root / "namesrv", heap=heap)).address

        def broker(name: str, directory: str, **options: Any) -> rocketmq.Broker:
            options = {"settings": SETTINGS, "heap": heap} | options
            made = rocketmq.Broker(root / directory, namesrv, broker_name=name, **options)
            stack.callback(made.__exit__, None, None, None)
            return made

        four = broker("broker-4", "four")
        slave = broker("broker-4", "slave", role="SLAVE", settings={**SETTINGS, "haSendHeartbeatInterval": "300"})
        five = broker("broker-5", "five", version=jars.VERSION_5)
        guarded = broker("guarded", "guarded", role="SYNC_MASTER", settings={**SETTINGS, "aclEnable": "true"})
        java = JavaClient(root / "java", version=jars.VERSION_5, poll_ms=1000)
        stack.callback(java.close)
        at_once([four.start, five.start, slave.start, guarded.start, java.__enter__])
        yield Cluster(namesrv, four, slave, five, guarded, java, authority.certificate)
    shutil.rmtree(root, ignore_errors=True)


def check(rows: Sequence[Row], sent: Sequence[Sent], *, size: int = 100) -> None:
    """The rows are what was sent: each message once, where its broker says, as it was."""
    assert all(each.status is not None for each in sent)
    places = {(row["broker"], row["queueId"], row["queueOffset"]): row for row in rows}
    assert len(places) == len(rows) == len(sent)
    for each in sent:
        row = places[each.broker_name, each.queue_id, each.queue_offset]
        assert row["physicalOffset"] == each.commit_log_offset
        assert row["value"] == body("seed", each.number, size)
        assert row["valueProblem"] is None


# ---- Source


def test_what_java_sends(cluster: Cluster) -> None:
    """Single messages and batches, with keys, tags and properties, on both releases."""
    topic = cluster.topic("Sent")
    how: dict[str, Any] = {"keys": "order-{i} k{i}", "tags": ["red", "blau-ü"], "properties": {"city": "Zürich {i}"}}
    producer = cluster.producer("sent")
    single = producer.send(topic, 40, **how)
    sent = single + producer.send(topic, 40, first=40, batch_size=10, **how)
    rows = cluster.rows(topic)
    check(rows, sent)
    assert {each.msg_id for each in single} <= {row["messageId"] for row in rows}  # 5.3.3's client tells no others.
    assert {row["broker"] for row in rows} == {"broker-4", "broker-5"}
    by_key = {row["keys"]: row for row in rows}
    for number in range(80):
        row = by_key[f"order-{number} k{number}"]
        assert (row["topic"], row["tags"]) == (topic, how["tags"][number % 2])
        assert row["properties"]["city"] == f"Zürich {number}"
        assert row["reconsumeTimes"] == 0
        assert row["storeHost"] in (cluster.four.address, cluster.five.address)
    later = cluster.rows(topic, startingOffsets=json.dumps({topic: {"broker-4": {"0": 5}, "broker-5": {"1": -2}}}))
    assert len(later) == 75
    assert min(row["queueOffset"] for row in later if (row["broker"], row["queueId"]) == ("broker-4", 0)) == 5


def test_compressed_bodies(cluster: Cluster) -> None:
    topic, sent = cluster.topic("Compressed"), []
    for number, compression in enumerate(("ZLIB", "LZ4", "ZSTD")):
        producer = cluster.producer(f"compressed-{compression}", compression=compression)
        sent += producer.send(topic, 10, first=number * 10, body_size=6000)
    rows = cluster.rows(topic)
    check(rows, sent, size=6000)
    assert all(row["sysFlag"] & 1 for row in rows)
    assert {row["sysFlag"] >> 8 & 7 for row in rows} == {1, 2, 3}


def test_delayed_messages_come_once_and_in_their_topic(cluster: Cluster) -> None:
    """A pattern does not take the topic in which they wait."""
    topic = cluster.topic("Delayed")
    sent = cluster.producer("delayed").send(topic, 10, delay_level=1)
    pattern = {"nameServer": cluster.namesrv, "subscribePattern": "(Delayed|SCHEDULE_TOPIC).*"}
    wait_for(lambda: len(topic_rows(**pattern)) == 10, "the delayed messages", timeout_s=20)
    rows = topic_rows(**pattern)
    assert {row["topic"] for row in rows} == {topic}
    assert {row["messageId"] for row in rows} == {each.msg_id for each in sent}
    assert all((row["storeTimestamp"] - row["bornTimestamp"]).total_seconds() >= 0.9 for row in rows)


def test_transactions(cluster: Cluster) -> None:
    """Committed ones come once; what was rolled back, and what is open, does not."""
    topic = cluster.topic("Transactions")
    producer = TransactionProducer(cluster.java, "transactions", cluster.namesrv, topic)
    outcomes = ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"]
    sent = producer.send(30, outcomes, first=0, seed="seed", checked="UNKNOW", keys="k{i}")
    committed = {each.msg_id for each in sent if each.number % 3 == 0}
    pattern = {"nameServer": cluster.namesrv, "subscribePattern": "Transactions|RMQ_SYS_TRANS.*"}
    wait_for(lambda: len(topic_rows(**pattern)) >= 10, "the committed messages")  # Commits are oneway.
    rows = topic_rows(**pattern)
    assert {row["topic"] for row in rows} == {topic}
    assert sorted(row["messageId"] for row in rows) == sorted(committed)
    producer.shutdown()


def test_the_broker_filters(cluster: Cluster) -> None:
    topic = cluster.topic("Filtered")
    how: dict[str, Any] = {"tags": ["red", "green", "blue"], "properties": {"number": "{i}"}}
    sent = cluster.producer("filtered").send(topic, 60, **how)
    check(cluster.rows(topic, tags="red || blue"), [each for each in sent if each.number % 3 != 1])
    check(cluster.rows(topic, sql="number BETWEEN 10 AND 19"), [each for each in sent if 10 <= each.number <= 19])
    assert cluster.rows(topic, tags="yellow") == []
    with pytest.raises(ReadRefusedError, match=r"(?s)Encountered.*The filter of option sql"):
        cluster.rows(topic, sql="number = = 5")


def test_the_longest_topic_that_rocketmq_takes(cluster: Cluster) -> None:
    topic = cluster.topic("T" * 127)
    sent = cluster.producer("long").send(topic, 8)
    check(cluster.rows(topic), sent)


def test_access_keys(cluster: Cluster) -> None:
    """plain_acl.yml of 4.9.7."""
    client = cluster.java.new("AclClient", {"namesrv": cluster.namesrv, "key": "shop-user", "secret": "shop-secret"})
    told = {cluster.java.call(client, "send", topic="guarded", body=f"b{number}") for number in range(5)}
    assert told == {"SLAVE_NOT_AVAILABLE"}  # It is a SYNC_MASTER: stored, and not on a slave.
    assert sorted(row["value"] for row in cluster.rows("guarded", **SHOP)) == [b"b0", b"b1", b"b2", b"b3", b"b4"]
    with pytest.raises(ReadRefusedError, match=r"Check signature failed"):
        cluster.rows("guarded", accessKey="shop-user", secretKey="another-secret")
    with pytest.raises(ReadRefusedError, match=r"No accessKey is configured"):
        cluster.rows("guarded")


def test_tls(cluster: Cluster, tmp_path: Path) -> None:
    """Name server and brokers take TLS connections, too; the authority counts."""
    topic = cluster.topic("Encrypted")
    sent = cluster.producer("encrypted").send(topic, 8)
    check(cluster.rows(topic, tls="true", tlsCa=str(cluster.authority)), sent)
    check(cluster.rows(topic, tls="true"), sent)
    with pytest.raises(ReadRefusedError, match=r"(?i)certificate"):
        cluster.rows(topic, tls="true", tlsCa=str(Authority(tmp_path, "other").certificate))


def test_progress_is_told_to_the_brokers(cluster: Cluster) -> None:
    topic = cluster.topic("Progress")
    cluster.producer("progress").send(topic, 40)
    options = {"nameServer": cluster.namesrv, "subscribe": topic, "startingOffsets": "earliest"}
    query = TopicQuery({**options, "consumerGroup": "progress-of-spark"})
    assert len(query.everything()) == 40

    def told() -> int:
        fields = {"consumerGroup": "progress-of-spark", "topic": topic}
        answers = [
            request(broker.address, QUERY_CONSUMER_OFFSET, {**fields, "queueId": str(queue)})[0]
            for broker in (cluster.four, cluster.five)
            for queue in range(QUEUES)
        ]
        return sum(int(answer.get("extFields", {}).get("offset", 0)) for answer in answers if answer["code"] == 0)

    wait_for(lambda: told() == 40, "the brokers know the progress")


def test_mqadmin_shows_the_progress_of_a_query(cluster: Cluster, tmp_path: Path) -> None:
    """That of 4.9.7 on both releases, and on ours; that of 5.3.3, which asks more of brokers, on its own release and on ours."""
    on_both, on_five = cluster.topic("Shown"), "ShownOn5"
    create_topic(cluster.five.address, on_five, queues=QUEUES)
    with ExitStack() as stack:
        ours = stack.enter_context(twinlog.NameServer(tmp_path / "namesrv")).address
        broker = stack.enter_context(twinlog.Broker(tmp_path / "broker", ours, settings=TEST_SETTINGS))
        create_topic(broker.address, on_both, queues=QUEUES)
        home = tmp_path / "java"
        rocketmq.make_home(home)  # mqadmin of 4.9.7 does not run without its logback file.
        java = stack.enter_context(JavaClient(home, jvm_options=(f"-Drocketmq.home.dir={home}",)))
        four = Tool(java, cluster.namesrv)
        five = Tool(cluster.java, cluster.namesrv)
        for namesrv, topic, tools in (
            (cluster.namesrv, on_both, [four]),
            (cluster.namesrv, on_five, [five]),
            (ours, on_both, [four, five]),
        ):
            cluster.java.producer(f"shown-{topic}-{namesrv.rpartition(':')[2]}", namesrv).send(topic, 40)
            group = f"{topic}-of-spark"
            options = {"nameServer": namesrv, "subscribe": topic, "startingOffsets": "earliest"}
            query = TopicQuery({**options, "consumerGroup": group, "maxOffsetsPerTrigger": "30"})
            assert len(query.batch()) == 30
            for tool in tools:
                _wait_shown(tool, namesrv, group, topic, read=30, lag=10)
                assert group in _mqadmin(tool, namesrv, "consumerProgress")
            assert len(query.everything()) == 10
            for tool in tools:
                _wait_shown(tool, namesrv, group, topic, read=40, lag=0)


def _wait_shown(tool: Tool, namesrv: str, group: str, topic: str, *, read: int, lag: int) -> None:
    """Until consumerProgress shows so many messages of the topic as read, and so many that are not."""

    def is_shown() -> bool:
        printed = _mqadmin(tool, namesrv, "consumerProgress", "-g", group)
        rows = [line.split() for line in printed.splitlines() if line.startswith(f"{topic} ")]
        return sum(int(row[4]) for row in rows) == read and f"Diff Total: {lag}\n" in printed

    wait_for(is_shown, f"mqadmin shows the progress of {group}")


def _mqadmin(tool: Tool, namesrv: str, *arguments: str) -> str:
    return tool.run(arguments[0], "-n", namesrv, *arguments[1:])


def _has_topic(broker: rocketmq.Broker, topic: str) -> bool:
    with suppress(FileNotFoundError):  # RocketMQ removes the file, then renames the new one.
        return topic in (broker.store / "config" / "topics.json").read_text()
    return False


def test_a_suggested_slave_is_read(cluster: Cluster) -> None:
    """RocketMQ's master suggests it for old messages; without it the master serves."""
    topic = "Suggested"
    create_topic(cluster.four.address, topic, queues=1)
    sent = cluster.producer("suggested").send(topic, 200)
    end = max(each.commit_log_offset for each in sent)
    wait_for(lambda: int(runtime_info(cluster.slave.address)["commitLogMaxOffset"]) > end, "the slave has them")
    wait_for(lambda: _has_topic(cluster.slave, topic), "the slave has the topic", timeout_s=90)
    body = b"slaveReadEnable=true\naccessMessageInMemoryMaxRatio=0\n"  # Everything is old.
    assert request(cluster.four.address, UPDATE_BROKER_CONFIG, body=body)[0]["code"] == 0

    def read_from_slave() -> bool:
        before = int(runtime_info(cluster.slave.address)["msgGetTotalTodayNow"])
        check(cluster.rows(topic), sent)
        return int(runtime_info(cluster.slave.address)["msgGetTotalTodayNow"]) - before >= 100

    wait_for(read_from_slave, "most of a query is read from the slave")  # One that answers late is avoided for a while.
    cluster.slave.kill()
    check(cluster.rows(topic), sent)
    assert request(cluster.four.address, UPDATE_BROKER_CONFIG, body=b"slaveReadEnable=false\n")[0]["code"] == 0


# ---- Sink


def test_java_reads_what_tasks_write(cluster: Cluster) -> None:
    """With keys, tags, properties and an id for each row; a task that is repeated gives the same ids."""
    topic = cluster.topic("Written")
    rows = [
        {
            "value": f"value {n}".encode(),
            "keys": f"k{n} all",
            "tags": "red",
            "properties": {"number": str(n), "city": "Zürich"},
        }
        for n in range(300)
    ]
    options = {"nameServer": cluster.namesrv, "topic": topic}
    write_rows(rows, **options)
    write_rows(rows, **options)
    got = cluster.java.consumer("written", cluster.namesrv, topic).consumed(600, timeout_s=40)
    assert len(got) == 600
    assert {each.properties["number"] for each in got} == {str(n) for n in range(300)}
    assert {(each.tags, each.properties["city"], each.keys.endswith(" all")) for each in got} == {
        ("red", "Zürich", True)
    }
    assert len({each.properties["SPARK_ROW_ID"] for each in got}) == 300
    assert len(cluster.rows(topic)) == 600
    assert len(cluster.rows(topic, dropRepetitions="true")) == 300


def test_rows_that_a_batch_cannot_hold(cluster: Cluster) -> None:
    """Delayed ones, rows with a key of their queue, and large ones."""
    topic = cluster.topic("Single")
    rows = [{"value": b"late", "delayLevel": 1}] + [{"value": b"%d" % n, "shardingKey": f"s{n % 2}"} for n in range(20)]
    rows.append({"value": b"x" * 1_000_000})
    write_rows(rows, nameServer=cluster.namesrv, topic=topic)
    wait_for(lambda: len(cluster.rows(topic)) == 22, "the delayed message", timeout_s=20)
    found = cluster.rows(topic)
    assert sorted(row["value"] for row in found) == sorted(row["value"] for row in rows)
    (late,) = [row for row in found if row["value"] == b"late"]
    assert (late["storeTimestamp"] - late["bornTimestamp"]).total_seconds() >= 0.9
    for key in range(2):
        mine = [row for row in found if row["value"].isdigit() and int(row["value"]) % 2 == key]
        assert len({(row["broker"], row["queueId"]) for row in mine}) == 1
        assert [int(row["value"]) for row in sorted(mine, key=lambda row: row["queueOffset"])] == list(
            range(key, 20, 2)
        )


def test_a_sync_master_without_a_slave(cluster: Cluster) -> None:
    """Stored is not safe: the task fails, and says what the broker said. Rights are asked for before."""
    options = {"nameServer": cluster.namesrv, "topic": "guarded", "onNotSafe": "fail"}
    with pytest.raises(ReadRefusedError, match=r"SLAVE_NOT_AVAILABLE"):
        write_rows([{"value": b"x"}], **options, **SHOP)
    with pytest.raises(ReadRefusedError, match=r"No accessKey is configured"):
        write_rows([{"value": b"x"}], **options)


# ---- A restart, and a session


def test_a_restart_and_retention_in_the_middle_of_a_stream(cluster: Cluster) -> None:
    """While the broker is away the stream waits. What retention removed meanwhile is an error, unless it may be lost."""
    topic = "Kept"
    create_topic(cluster.five.address, topic, queues=1)
    producer = cluster.producer("kept")
    sent = producer.send(topic, 40, body_size=1000)
    options = {"nameServer": cluster.namesrv, "subscribe": topic, "startingOffsets": "earliest", "brokerWaitMs": "1000"}
    query = TopicQuery(options)
    check(query.everything(), sent, size=1000)
    unread = producer.send(topic, 3000, first=40, body_size=1000, threads=4)
    cluster.five.kill()
    assert query.batch() == []
    *removed, first = sorted(cluster.five.commit_log.iterdir())[:3]
    for file in removed:
        file.unlink()
    cluster.five.start()
    kept = [each for each in unread if each.commit_log_offset >= int(first.name)]
    assert 0 < len(kept) < len(unread)
    with pytest.raises(ReadRefusedError, match=r"gone.*failOnDataLoss=false"):
        query.batch()
    with pytest.raises(ReadRefusedError, match="are gone"):
        query.again(tags="rare").batch()
    check(query.again(failOnDataLoss="false").everything(), kept, size=1000)


def test_from_java_through_spark_to_java(cluster: Cluster, spark: Any, tmp_path: Path) -> None:
    """A stream from topic to topic, ended and started again: each message once, as it was."""
    source, sink = cluster.topic("Through"), cluster.topic("Out")
    producer = cluster.producer("through")

    def run() -> None:
        options = {"nameServer": cluster.namesrv, "subscribe": source, "startingOffsets": "earliest"}
        table = spark.readStream.format("rocketmq").options(**options, maxOffsetsPerTrigger="30").load()
        rows = table.selectExpr("value", "keys", "tags", "map('from', messageId) as properties")
        writer = rows.writeStream.format("rocketmq").options(nameServer=cluster.namesrv, topic=sink)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(100)

    sent = []
    for first in (0, 40):
        sent += producer.send(source, 40, first=first, keys="k{i}", tags=["red"])
        run()
    got = cluster.java.consumer("out", cluster.namesrv, sink).consumed(80, timeout_s=30)
    time.sleep(0.5)
    assert sorted(each.properties["from"] for each in got) == sorted(each.msg_id for each in sent)
    assert len({each.properties["SPARK_ROW_ID"] for each in got}) == 80
    assert {(each.keys, each.tags) for each in got} == {(f"k{number}", "red") for number in range(80)}
    plain = spark.read.format("rocketmq").options(nameServer=cluster.namesrv, subscribe=source).load()
    assert plain.groupBy("broker").count().count() == 2
    assert plain.count() == 80
