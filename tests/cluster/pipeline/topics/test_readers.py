"""Readers of format rocketmq against brokers in this process."""

import json
import math
from datetime import UTC, datetime

import pytest
import trio

from tests.cluster.broker.helpers import put
from tests.cluster.namesrv.registrations import registration
from tests.cluster.pipeline.topics.reading import Query, in_thread, known, rows, send
from tests.support.group.loopback import cluster as cluster
from tests.support.group.loopback import open_cluster, until
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.mqadmin.groups import consumer_progress
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.cluster.remoting.signing import Credentials, make_signer
from twinlog.store.config import BrokerRole

NAMES = [
    "topic",
    "broker",
    "queueId",
    "queueOffset",
    "keys",
    "tags",
    "value",
    "properties",
    "bornTimestamp",
    "storeTimestamp",
    "messageId",
    "flag",
    "sysFlag",
    "bornHost",
    "storeHost",
    "reconsumeTimes",
    "physicalOffset",
    "valueProblem",
]


async def test_rows_have_what_messages_have(cluster):
    broker, _ = await cluster.start("a")
    before = datetime.now(UTC)
    await send(cluster.namesrv, "orders", b"first", tags="a", keys="k1 k2", properties={"colour": "red"})
    await send(cluster.namesrv, "orders", b"x" * 10_000)
    found = sorted(await rows(cluster.namesrv, subscribe="orders"), key=lambda row: row["physicalOffset"])
    assert list(found[0]) == NAMES
    first, second = found
    assert first["value"] == b"first"
    assert (first["topic"], first["broker"], first["tags"], first["keys"]) == ("orders", "broker-a", "a", "k1 k2")
    assert first["properties"]["colour"] == "red"
    assert first["messageId"] == first["properties"]["UNIQ_KEY"]
    assert before.timestamp() - 1 < first["storeTimestamp"].timestamp() < datetime.now(UTC).timestamp() + 1
    assert first["storeHost"] == broker.address
    assert second["value"] == b"x" * 10_000
    assert second["sysFlag"] & 1
    assert second["valueProblem"] is None
    assert (second["tags"], second["keys"]) == (None, None)


def queue_json(topic: str, **offsets: int) -> str:
    """Offsets of broker-a's queues, q0=7 as the JSON of an option."""
    return json.dumps({topic: {"broker-a": {name[1:]: offset for name, offset in offsets.items()}}})


async def filled(cluster, count: int, *, topic: str = "T1", name: str = "a", **options):
    """A broker with so many messages in queue 0 of a topic with four queues."""
    broker, running = await cluster.start(name, **options)
    await cluster.send(broker, b"m0", topic=topic, properties="TAGS\x01even")
    for number in range(1, count):
        put(broker, topic, body=b"m%d" % number, tags="odd" if number % 2 else "even")
    await known(cluster.namesrv, topic, options.get("broker_name", "broker-a"))
    return broker, running


async def dead_broker(cluster, name: str) -> None:
    """Register a broker that is not there, with the topic T1."""
    fields = registration(address="127.0.0.1:1") | {"brokerName": name}
    body = fields.pop("body")
    texts = {key: str(value) for key, value in fields.items()}
    answer = await cluster.client.request(cluster.namesrv, RemotingCommand(103, ext=texts, body=body))
    assert answer.code == 0


async def slave_of(cluster, master) -> None:
    """Start a slave, and wait until it has all."""
    slave, _ = await cluster.start("slave", BrokerRole.SLAVE)
    await until(lambda: slave.store.max_offset == master.store.max_offset)
    slave.slave_sync.master_address = None
    slave.slave_sync.set_master(master.address)  # Now, not in ten seconds.
    await until(lambda: slave.tables.topics.select("T1"))
    slave.store.dispatch_pending()


async def registered(cluster, topic: str) -> None:
    """Wait until name servers know the topic."""
    with trio.fail_after(10):
        while topic not in await ClientApi(cluster.client, (cluster.namesrv,)).topics():
            await trio.sleep(0.02)


async def remove_first_file(broker) -> int:
    """What retention does; where queue 0 of T1 begins then."""
    retention, log = broker.store.retention, broker.store.commit_log
    assert retention._delete(log.files, log.files.files[0])
    await retention.clean_queues()
    return broker.store.queue("T1", 0).min_offset


async def test_ranges_are_read_as_asked(cluster):
    """Many pulls at once, with parts of a queue in parts of a task: each message once, in order."""
    await filled(cluster, 700)
    found = await rows(cluster.namesrv, subscribe="T1", minPartitions="3")
    assert [(row["queueOffset"], row["value"]) for row in found] == [(n, b"m%d" % n) for n in range(700)]
    some = await rows(
        cluster.namesrv,
        assign='{"T1": {"broker-a": [0]}}',
        startingOffsets=queue_json("T1", q0=5),
        endingOffsets=queue_json("T1", q0=9),
    )
    assert [row["queueOffset"] for row in some] == [5, 6, 7, 8]


async def test_the_broker_filters(cluster):
    """By hashes of tags, which collide: exactly the wanted tags come. SQL is refused where the broker does not filter by it."""
    broker, _ = await filled(cluster, 300)
    put(broker, "T1", body=b"no", tags="Aa")
    put(broker, "T1", body=b"yes", tags="BB")  # Java gives both one hash.
    found = await rows(cluster.namesrv, subscribe="T1", tags="odd || BB")
    assert [row["queueOffset"] for row in found] == [*range(1, 300, 2), 301]
    with pytest.raises(ReadRefusedError, match="enablePropertyFilter=true"):
        await rows(cluster.namesrv, subscribe="T1", sql="colour = 'red'")


async def test_sql_is_evaluated_by_the_broker(cluster):
    broker, _ = await filled(cluster, 1, enable_property_filter=True)
    for number in range(100):
        put(broker, "T1", properties={"price": str(number)})
    found = await rows(cluster.namesrv, subscribe="T1", sql="price BETWEEN 40 AND 49")
    assert [row["properties"]["price"] for row in found] == [str(number) for number in range(40, 50)]
    with pytest.raises(ReadRefusedError, match="correct it"):
        await rows(cluster.namesrv, subscribe="T1", sql="price BETWEEN")


async def test_a_stream_goes_on_where_it_was_whatever_restarts(cluster, capfd):
    """The reader, a new queue, the broker itself; what was planned is read again as it was."""
    broker, running = await filled(cluster, 100)
    query = Query(
        {"nameServer": cluster.namesrv, "subscribe": "T1", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    )
    seen = await in_thread(query.available)
    assert [row["queueOffset"] for row in seen] == list(range(100))
    assert len(query.planned) == 3
    for _ in range(10):
        put(broker, "T1")
    put(broker, "T1", queue_id=3, body=b"of queue 3")
    await in_thread(query.restart)
    assert await in_thread(query.plan)
    put(broker, "T1")  # After it was planned.
    await running.stop()
    await cluster.start("a")
    more = await in_thread(query.available)
    assert sorted((row["queueId"], row["queueOffset"]) for row in more) == [*((0, n) for n in range(100, 111)), (3, 0)]
    assert capfd.readouterr().err.count("twinlog:") == 0


async def test_what_is_new_begins_at_its_first_message(cluster):
    """Topics that match the pattern later, though the query began at the end."""
    broker, _ = await filled(cluster, 5, topic="a-1")
    query = Query({"nameServer": cluster.namesrv, "subscribePattern": "a-.*"})
    assert await in_thread(query.available) == []
    await cluster.send(broker, b"new", topic="a-2")
    await cluster.send(broker, b"other", topic="b-2")
    put(broker, "a-1", body=b"more")
    await registered(cluster, "a-2")
    assert sorted(row["value"] for row in await in_thread(query.available)) == [b"more", b"new"]


async def test_queues_that_vanish_stay_in_the_checkpoint(cluster, capfd):
    """With a warning; other topics are read on."""
    broker, _ = await filled(cluster, 5)
    await cluster.send(broker, b"stays", topic="T2")
    query = Query({"nameServer": cluster.namesrv, "subscribe": "T1,T2", "startingOffsets": "earliest"})
    assert len(await in_thread(query.available)) == 6
    await cluster.ask(broker, 215, topic="T1")
    answer = await cluster.client.request(cluster.namesrv, RemotingCommand(216, ext={"topic": "T1"}))
    assert answer.code == 0
    put(broker, "T2", body=b"more")
    assert [row["value"] for row in await in_thread(query.available)] == [b"more"]
    assert (
        "queue 0 of T1 on broker-a is not registered any more, or not asked for: it stays at 5"
        in capfd.readouterr().err
    )
    assert json.loads(query.planned[-1])["queues"]["T1"]["broker-a"]["0"] == 5
    with pytest.raises(ReadRefusedError, match="readable queue of the topic T1"):
        await rows(cluster.namesrv, subscribe="T1,T2")


async def test_dead_letters_are_read_by_name(cluster):
    broker, _ = await filled(cluster, 1)
    await cluster.ask(broker, 36, group="TOOLS_CONSUMER", offset=0, delayLevel=-1, originMsgId="", originTopic="T1")
    await registered(cluster, "%DLQ%TOOLS_CONSUMER")
    (found,) = await rows(cluster.namesrv, subscribe="%DLQ%TOOLS_CONSUMER")
    assert found["value"] == b"m0"
    assert len(await rows(cluster.namesrv, subscribePattern="(T1|.DLQ.*)")) == 1


async def test_progress_is_that_of_a_group_once_it_is_in_the_checkpoint(cluster):
    broker, _ = await filled(cluster, 10)
    query = Query(
        {
            "nameServer": cluster.namesrv,
            "subscribe": "T1",
            "consumerGroup": "spark",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "7",
        }
    )
    await in_thread(query.restart)
    assert await in_thread(query.plan)
    assert broker.tables.offsets.query("spark", "T1", 0) == 0
    assert query.reader.reportLatestOffset()["lag"]["messages"] == 3
    assert query.reader.reportLatestOffset()["lag"]["ms"] > 0
    assert len(await in_thread(query.batch)) == 7
    assert broker.tables.offsets.query("spark", "T1", 0) == 7
    assert await in_thread(query.plan)
    assert query.reader.reportLatestOffset()["lag"] == {"messages": 0, "ms": 0}
    await in_thread(query.reader.partitions, *map(json.loads, query.planned[1:3]))
    query.done += 1
    assert not await in_thread(query.plan)  # Spark does not commit the last batch of a query with AvailableNow.
    assert broker.tables.offsets.query("spark", "T1", 0) == 10


async def test_mqadmin_shows_the_progress_of_a_group(cluster):
    """From the first batch that is planned; the group is one without members."""
    await filled(cluster, 10)
    options = {"nameServer": cluster.namesrv, "subscribe": "T1", "startingOffsets": "earliest"}
    query = Query({**options, "consumerGroup": "spark", "maxOffsetsPerTrigger": "7"})
    await in_thread(query.restart)
    assert await in_thread(query.plan)
    await registered(cluster, "%RETRY%spark")
    assert len(await in_thread(query.batch)) == 7
    api = ClientApi(cluster.client, (cluster.namesrv,))
    rows_shown = [line.split() for line in (await consumer_progress(api, "spark", show_clients=False)).splitlines()]
    assert ["T1", "broker-a", "0", "10", "7", "3"] in [row[:6] for row in rows_shown]
    (listed,) = (await consumer_progress(api, None, show_clients=False)).splitlines()[1:]
    assert listed.split() == ["spark", "0", "OFFLINE", "0", "3"]


async def test_a_stream_waits_for_a_broker_and_a_read_fails(cluster, capfd):
    """Other brokers are read meanwhile."""
    broker, _ = await filled(cluster, 5)
    query = Query({"nameServer": cluster.namesrv, "subscribe": "T1", "startingOffsets": "earliest"})
    await in_thread(query.restart)
    await dead_broker(cluster, "broker-b")
    put(broker, "T1")
    assert await in_thread(query.plan)
    assert {row["broker"] for row in await in_thread(query.batch)} == {"broker-a"}
    assert "the broker broker-b does not answer, so its queues wait" in capfd.readouterr().err
    with pytest.raises(ReadRefusedError, match="the broker broker-b does not answer, and this read needs its queues"):
        await rows(cluster.namesrv, subscribe="T1")


async def test_a_slave_is_read_where_the_master_is_gone(cluster):
    broker, running = await filled(cluster, 50)
    await slave_of(cluster, broker)
    await running.stop()
    assert len(await rows(cluster.namesrv, subscribe="T1")) == 50


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"subscribe": "nothing"}, "readable queue of the topic nothing"),
        ({"assign": '{"T1": {"broker-a": [0, 9]}}'}, "queue 9 of T1 on broker-a"),
        ({"subscribe": "T1", "startingOffsets": '{"T1": {"broker-x": {"0": 0}}}'}, "queue 0 of T1 on broker-x"),
        ({"subscribe": "T1", "startingOffsets": '{"T1": {"broker-a": {"0": 3}}}'}, "3 is no offset of queue 0"),
    ],
)
async def test_what_is_not_there_is_told(cluster, options, word):
    await filled(cluster, 2)
    with pytest.raises(ReadRefusedError, match=word):
        await rows(cluster.namesrv, **options)
    with pytest.raises(ReadRefusedError, match=word):
        await in_thread(Query({"nameServer": cluster.namesrv} | options).restart)


async def test_name_servers_that_are_none(cluster):
    broker, _ = await filled(cluster, 1)
    with pytest.raises(ReadRefusedError, match="Check that option nameServer names name servers"):
        await rows(broker.address, subscribe="T1")
    with pytest.raises(ReadRefusedError, match=r"127\.0\.0\.1:1.*Connection refused.*Check that it runs"):
        await rows("127.0.0.1:1", subscribe="T1")


async def test_checkpoints_of_others_are_refused(cluster):
    """Of another cluster by name, and by what its queues had."""
    await filled(cluster, 3)
    options = {"nameServer": cluster.namesrv, "subscribe": "T1"}
    for cluster_name, offset, word in (
        ("Elsewhere", 1, "belongs to Elsewhere"),
        ("DefaultCluster", 99, "ends at 3 now"),
    ):
        place = {"cluster": {"broker-a": cluster_name}, "queues": {"T1": {"broker-a": {"0": offset}}}}
        query = Query(options, [json.dumps(place)])
        await in_thread(query.restart)
        query.reader._short_since[MessageQueue("T1", "broker-a", 0)] = -math.inf  # It was so for long.
        with pytest.raises(ReadRefusedError, match=word):
            await in_thread(query.plan)


async def test_another_cluster_with_the_same_names_is_noticed(cluster, tmp_path, capfd):
    """By a message: what was read last is another one there."""
    await filled(cluster, 5)
    other = await open_cluster(cluster.nursery, tmp_path / "other")
    await filled(other, 9)
    options = {"subscribe": "T1", "startingOffsets": "earliest"}
    query = Query({"nameServer": cluster.namesrv} | options)
    assert len(await in_thread(query.available)) == 5
    assert await in_thread(query.available) == []
    planned = list(query.planned)
    with pytest.raises(
        ReadRefusedError, match="message 4 of queue 0 of T1 on broker-a is another one than when it was read"
    ):
        await in_thread(Query({"nameServer": other.namesrv} | options, planned[-1:]).available)
    with pytest.raises(ReadRefusedError, match="of another cluster"):  # A batch that was planned only.
        await in_thread(
            Query({"nameServer": other.namesrv} | options, [planned[-1], replaced(planned[-1], 5, 6)]).available
        )
    query = Query({"nameServer": other.namesrv, "failOnDataLoss": "false"} | options, planned[-1:])
    assert len(await in_thread(query.available)) == 4
    assert "is another one" in capfd.readouterr().err


def replaced(planned: str, offset: int, by: int) -> str:
    """A checkpoint with another offset of queue 0."""
    return planned.replace(f'"0": {offset}', f'"0": {by}')


async def test_what_retention_removed_is_an_error_or_told(cluster, capfd):
    broker, _ = await filled(cluster, 40, file_size=4096)
    place = {"cluster": {}, "queues": {"T1": {"broker-a": {"0": 0}}}}
    removed = await remove_first_file(broker)
    assert 0 < removed < 40
    options = {"nameServer": cluster.namesrv, "subscribe": "T1"}
    with pytest.raises(ReadRefusedError, match=rf"messages 0 to {removed - 1} are gone"):
        await in_thread(Query(options, [json.dumps(place)]).available)
    found = await in_thread(Query(options | {"failOnDataLoss": "false"}, [json.dumps(place)]).available)
    assert [row["queueOffset"] for row in found] == list(range(removed, 40))
    assert f"messages 0 to {removed - 1} are gone" in capfd.readouterr().err


ACL = """
accounts:
- {accessKey: "writer12", secretKey: "12345678", admin: true}
- {accessKey: "reader12", secretKey: "12345678", defaultTopicPerm: DENY, topicPerms: ["T1=SUB"], groupPerms: ["spark=SUB"]}
- {accessKey: "nobody12", secretKey: "12345678", defaultTopicPerm: DENY, defaultGroupPerm: SUB}
"""


async def test_rights_and_tls(cluster, tmp_path, capfd):
    """Connections are TLS ones; an account needs SUB on the topic and on the group, and no more for the group's progress."""
    (tmp_path / "home" / "conf").mkdir(parents=True)
    (tmp_path / "home" / "conf" / "plain_acl.yml").write_text(ACL)
    broker, _ = await cluster.start("a", acl=AclConfig(enable=True, home=tmp_path / "home"))
    await send(cluster.namesrv, "T1", b"secret", sign=make_signer(Credentials("writer12", "12345678")))
    options = {
        "subscribe": "T1",
        "accessKey": "reader12",
        "secretKey": "12345678",
        "consumerGroup": "spark",
        "tls": "true",
    }
    assert [row["value"] for row in await rows(cluster.namesrv, **options)] == [b"secret"]
    query = Query({"nameServer": cluster.namesrv, "startingOffsets": "earliest"} | options)
    assert len(await in_thread(query.available)) == 1
    assert broker.tables.topics.select("%RETRY%spark")
    assert capfd.readouterr().err.count("twinlog:") == 0
    for wrong in ({"accessKey": "nobody12"}, {"consumerGroup": "other"}, {"secretKey": "87654321"}):
        with pytest.raises(ReadRefusedError, match="Check options accessKey and secretKey"):
            await rows(cluster.namesrv, **options | wrong)
    without = {name: value for name, value in options.items() if not name.endswith("Key")}
    with pytest.raises(ReadRefusedError, match="Check options accessKey and secretKey"):
        await rows(cluster.namesrv, **without)
