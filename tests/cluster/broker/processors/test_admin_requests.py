"""What administrators ask of a broker: statistics, spans of time, consume queues, lists of topics and groups."""

import time

import pytest

from tests.cluster.broker.helpers import Client, FakeConnection, heartbeat, make_broker, opened, put
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting import fastjson, names
from twinlog.store.config import BrokerRole
from twinlog.store.record.message import decode_message


@pytest.fixture
async def client(tmp_path):
    broker = make_broker(tmp_path / "broker-a-0")
    broker.tables.topics.update(TopicConfig("T1", 2, 2))
    async with opened(broker) as client:
        broker.stats.sample(0.0)
        yield client


@pytest.fixture
async def slave(tmp_path):
    async with opened(make_broker(tmp_path / "broker-a-1", role=BrokerRole.SLAVE)) as client:
        yield client


def read(reply):
    assert reply.code == 0, reply.remark
    return fastjson.loads(reply.body)


# 315


async def test_statistics_are_shown_over_minute_hour_and_day(client):
    client.broker.stats.send_back("G", "T1", 20)
    client.broker.stats.sample(10.0)
    reply = client.ask(315, statsName="SNDBCK_PUT_NUMS", statsKey="T1@G")
    # As fastjson writes BrokerStatsData: keys sorted, doubles with a point.
    assert reply.body == (
        b'{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},'
        b'"statsHour":{"avgpt":0.0,"sum":0,"tps":0.0},'
        b'"statsMinute":{"avgpt":20.0,"sum":20,"tps":2.0}}'
    )


async def test_what_is_put_is_shown(client):
    for queue_id in (0, 0, 1):
        put(client.broker, queue_id=queue_id)
    client.broker.stats.sample(10.0)
    numbers = read(client.ask(315, statsName="TOPIC_PUT_NUMS", statsKey="T1"))["statsMinute"]
    assert numbers == {"avgpt": 1.0, "sum": 3, "tps": 0.3}
    sizes = read(client.ask(315, statsName="TOPIC_PUT_SIZE", statsKey="T1"))["statsMinute"]
    assert sizes["sum"] == client.broker.store.max_offset
    assert read(client.ask(315, statsName="QUEUE_PUT_NUMS", statsKey="T1@1"))["statsMinute"]["sum"] == 1
    cluster = client.broker.config.broker_cluster_name
    assert read(client.ask(315, statsName="BROKER_PUT_NUMS", statsKey=cluster))["statsMinute"]["sum"] == 3


async def test_what_was_never_counted_is_told(client):
    reply = client.ask(315, statsName="TOPIC_PUT_NUMS", statsKey="nobody")
    assert (reply.code, reply.remark) == (1, "The stats <TOPIC_PUT_NUMS> <nobody> not exist")
    reply = client.ask(315, statsName="X" * 100_000, statsKey="Y" * 100_000)
    assert reply.code == 1
    assert len(reply.remark) < 1000


@pytest.mark.parametrize("ext", [{}, {"statsName": "TOPIC_PUT_NUMS"}, {"statsKey": "T1"}])
async def test_statistics_need_name_and_key(client, ext):
    assert client.ask(315, **ext).remark.endswith("> is null")


async def test_a_pull_is_counted_and_shows_in_consume_stats(client):
    put(client.broker)
    put(client.broker)
    client.ask(34, heartbeat("T1"))
    fields = {"consumerGroup": "G", "topic": "T1", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 0}
    reply = client.ask(11, **fields, commitOffset=0, suspendTimeoutMillis=0, subVersion=0)
    assert reply.code == 0
    client.broker.stats.sample(10.0)
    shown = read(client.ask(315, statsName="GROUP_GET_NUMS", statsKey="T1@G"))
    assert shown["statsMinute"] == {"avgpt": 2.0, "sum": 2, "tps": 0.2}
    size = read(client.ask(315, statsName="GROUP_GET_SIZE", statsKey="T1@G"))["statsMinute"]["sum"]
    assert size == client.broker.store.max_offset
    assert read(client.ask(315, statsName="GROUP_GET_LATENCY", statsKey="0@T1@G"))["statsMinute"]["sum"] >= 0
    assert read(client.ask(208, consumerGroup="G", topic="T1"))["consumeTps"] == 0.2


async def test_a_topic_that_is_named_twice_counts_once(client):
    put(client.broker)
    client.broker.tables.offsets.commit("G", "T1", 0, 1)
    for queue_id in range(2):
        client.broker.stats.group_get("G", "T1", queue_id, 5, 500, 1)
    client.broker.stats.sample(10.0)
    once, twice = (client.ask(208, consumerGroup="G", topicList=";".join(["T1"] * count)) for count in (1, 2))
    assert read(once)["consumeTps"] == 1.0
    assert read(twice) == read(once)


async def test_topics_that_are_named_have_an_end(client):
    reply = client.ask(208, consumerGroup="G", topicList=";".join(f"T{n}" for n in range(1001)))
    assert (reply.code, reply.remark) == (1, "topicList has 1001 topics; at most 1000 are allowed in one request")


async def test_a_pull_that_finds_nothing_is_not_counted(client):
    client.ask(34, heartbeat("T1"))
    fields = {"consumerGroup": "G", "topic": "T1", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 0}
    assert client.ask(11, **fields, commitOffset=0, suspendTimeoutMillis=0, subVersion=0).code == 19
    assert client.broker.stats.gets == {}


async def test_what_is_sent_back_is_counted_under_its_first_topic(client):
    client.ask(34, heartbeat("T1", "%RETRY%G"))
    put(client.broker)
    assert client.ask(36, offset=0, group="G", delayLevel=0).code == 0
    assert client.broker.stats.send_backs["T1", "G"].nums == 1
    client.broker.store.dispatch_pending()
    assert read(client.ask(315, statsName="QUEUE_PUT_NUMS", statsKey=f"{names.SCHEDULE_TOPIC}@2"))


async def test_statistics_go_with_their_topic_and_group(client):
    stats = client.broker.stats
    stats.group_get("H", "T1", 0, 1, 1, 0)
    stats.group_get("G", "T2", 0, 1, 1, 0)
    assert (await client.ask_async(215, topic="T1")).code == 0
    assert (await client.ask_async(207, groupName="G")).code == 0
    assert stats.gets == {}


# 317


async def test_the_progress_of_all_groups(client):
    for queue_id in (0, 1, 1):
        put(client.broker, queue_id=queue_id)
    client.broker.tables.groups.find("G")
    client.ask(15, consumerGroup="G", topic="T1", queueId=1, commitOffset=1)
    body = read(await client.ask_async(317, isOrder=False))
    assert body["brokerAddr"] == "127.0.0.1:10911"
    assert body["totalDiff"] == 2
    groups = {group: stats for entry in body["consumeStatsList"] for group, stats in entry.items()}
    assert groups["SELF_TEST_C_GROUP"] == []
    (stats,) = groups["G"]
    queues = {fastjson.loads(key)["queueId"]: value for key, value in stats["offsetTable"].items()}
    assert (queues[0]["brokerOffset"], queues[0]["consumerOffset"]) == (1, 0)
    assert (queues[1]["brokerOffset"], queues[1]["consumerOffset"]) == (2, 1)
    assert stats["consumeTps"] == 0.0


async def test_only_ordered_topics_where_that_is_asked_for(client):
    client.broker.tables.groups.find("G")
    client.ask(15, consumerGroup="G", topic="T1", queueId=0, commitOffset=0)
    body = read(await client.ask_async(317, isOrder=True))
    assert {"G": []} in body["consumeStatsList"]
    client.broker.tables.topics.set_order(["T1"])
    body = read(await client.ask_async(317, isOrder=True))
    assert {"G": []} not in body["consumeStatsList"]


async def test_a_topic_that_the_group_left_is_left_out(client):
    client.ask(34, heartbeat("T2"))
    client.ask(15, consumerGroup="G", topic="T1", queueId=0, commitOffset=0)
    assert {"G": []} in read(await client.ask_async(317, isOrder=False))["consumeStatsList"]


async def test_all_groups_need_is_order(client):
    assert client.ask(317).remark == "the custom field <isOrder> is null"


# 303


async def test_the_span_of_time_of_each_queue(client):
    for _ in range(3):
        put(client.broker)
    client.ask(15, consumerGroup="G", topic="T1", queueId=0, commitOffset=2)
    first, empty = read(client.ask(303, topic="T1", group="G"))["consumeTimeSpanSet"]
    times = [client.broker.store.store_timestamp("T1", 0, offset) for offset in range(3)]
    assert list(first) == sorted(first)
    assert first["messageQueue"] == {"brokerName": "broker-a", "queueId": 0, "topic": "T1"}
    assert (first["minTimeStamp"], first["consumeTimeStamp"], first["maxTimeStamp"]) == tuple(times)
    assert 0 <= first["delayTime"] < 60_000
    assert first["minTimeStampStr"].startswith(time.strftime("%Y-%m-%d#%H:%M:", time.localtime(times[0] / 1000)))
    assert (empty["minTimeStamp"], empty["maxTimeStamp"], empty["consumeTimeStamp"]) == (-1, -1, -1)
    assert empty["delayTime"] == 0


async def test_a_group_that_consumed_all_is_not_late(client):
    put(client.broker)
    client.ask(15, consumerGroup="G", topic="T1", queueId=0, commitOffset=1)
    assert read(client.ask(303, topic="T1", group="G"))["consumeTimeSpanSet"][0]["delayTime"] == 0


async def test_a_group_that_consumed_nothing_is_as_late_as_the_first_message(client):
    put(client.broker)
    span = read(client.ask(303, topic="T1", group="nobody"))["consumeTimeSpanSet"][0]
    assert span["consumeTimeStamp"] == span["minTimeStamp"]
    assert 0 <= span["delayTime"] < 60_000


async def test_no_spans_of_an_unknown_topic(client):
    reply = client.ask(303, topic="U" * 10_000, group="G")
    assert (reply.code, len(reply.remark) < 300) == (17, True)


# 308


async def test_the_slowest_group_in_each_queue(client):
    for queue_id in (0, 0, 0, 1):
        put(client.broker, queue_id=queue_id)
    for group, queue_id, offset in (("A", 0, 3), ("B", 0, 2), ("C", 0, 1), ("A", 1, 1)):
        client.ask(15, consumerGroup=group, topic="T1", queueId=queue_id, commitOffset=offset)
    assert client.ask(308, compareGroup="A", topic="T1").body == b'{"correctionOffsets":{0:1,1:1}}'
    assert read(client.ask(308, compareGroup="A", topic="T1", filterGroups="C,D")) == {
        "correctionOffsets": {"0": 2, "1": 1}
    }
    assert client.broker.tables.offsets.query("C", "T1", 0) == 1  # RocketMQ would have forgotten it.
    assert read(client.ask(308, compareGroup="C", topic="T1", filterGroups="C"))["correctionOffsets"]["0"] == 2**63 - 1
    assert read(client.ask(308, compareGroup="A", topic="none")) == {"correctionOffsets": {}}


# 321


async def test_the_units_of_a_consume_queue(client):
    results = [put(client.broker, tags="TagA") for _ in range(3)]
    reply = client.ask(321, topic="T1", queueId=0, index=1, count=2)
    body = read(reply)
    assert list(body) == ["maxQueueIndex", "minQueueIndex", "queueData"]
    assert (body["maxQueueIndex"], body["minQueueIndex"]) == (3, 0)
    assert body["queueData"] == [
        {"eval": False, "physicOffset": each.phy_offset, "physicSize": each.size, "tagsCode": 2598919}
        for each in results[1:]
    ]


async def test_with_a_group_its_subscription_is_shown(client):
    put(client.broker, tags="TagA")
    body = read(client.ask(321, topic="T1", queueId=0, index=0, count=1, consumerGroup="G"))
    assert body["filterData"] == "G@T1 is not online!"
    assert "subscriptionData" not in body
    client.ask(34, heartbeat("T1", expression="TagA"))
    body = read(client.ask(321, topic="T1", queueId=0, index=0, count=1, consumerGroup="G"))
    assert body["filterData"] == "null"
    assert body["subscriptionData"]["subString"] == "TagA"


async def test_an_sql_filter_is_shown(client):
    put(client.broker)
    assert (await client.ask_async(25, b"enablePropertyFilter=true")).code == 0
    beat = heartbeat("T1", expression="a > 5")
    beat["consumerDataSet"][0]["subscriptionDataSet"][0]["expressionType"] = "SQL92"
    client.ask(34, beat)
    body = read(client.ask(321, topic="T1", queueId=0, index=0, count=1, consumerGroup="G"))
    assert '"expression":"a > 5"' in body["filterData"]


@pytest.mark.parametrize("index", [-1, 3, 10**18])
async def test_an_index_outside_is_told_without_units(client, index):
    for _ in range(3):
        put(client.broker)
    reply = client.ask(321, topic="T1", queueId=0, index=index, count=1)
    assert reply.remark == f"Index {index} of 0@T1 is not exist!"
    assert read(reply) == {"maxQueueIndex": 3, "minQueueIndex": 0}


@pytest.mark.parametrize(("topic", "queue_id"), [("T1", 1), ("T1", 99), ("T1", -1), ("none", 0), ("", 0)])
async def test_no_units_of_a_queue_that_is_not_there(client, topic, queue_id):
    put(client.broker)
    reply = client.ask(321, topic=topic, queueId=queue_id, index=0, count=1)
    assert (reply.code, reply.remark) == (1, f"{queue_id}@{topic} is not exist!")


async def test_a_view_of_a_queue_is_bounded(client):
    for _ in range(3):
        put(client.broker)
    assert len(read(client.ask(321, topic="T1", queueId=0, index=0, count=2**31 - 1))["queueData"]) == 3
    assert read(client.ask(321, topic="T1", queueId=0, index=0, count=-5))["queueData"] == []


# 328


async def test_all_producers(client):
    other = Client(client.broker, FakeConnection(remote_address="127.0.0.1:7000"))
    for each, name in ((client, "c1"), (other, "c2")):
        each.ask(34, {"clientID": name, "consumerDataSet": [], "producerDataSet": [{"groupName": "P"}]})
    (first, second) = read(client.ask(328))["data"]["P"]
    assert list(first) == ["clientId", "language", "lastUpdateTimestamp", "remoteIP", "version"]
    assert (first["clientId"], second["remoteIP"]) == ("c1", "/127.0.0.1:7000")
    assert abs(first["lastUpdateTimestamp"] - time.time() * 1000) < 60_000


async def test_no_producers(client):
    assert client.ask(328).body == b'{"data":{}}'


# 18 and 225


def plain_topic(name, **more):
    return {"topicName": name, "readQueueNums": 3, "writeQueueNums": 4, "perm": 6, "order": False, **more}


async def test_many_topics_are_made_at_once(client):
    body = {"topicConfigList": [plain_topic("A", attributes={}), plain_topic("B", topicFilterType="MULTI_TAG")]}
    assert (await client.ask_async(18, body)).code == 0
    assert client.broker.tables.topics.select("A") == TopicConfig("A", 3, 4)
    assert client.broker.tables.topics.select("B").filter_type == "MULTI_TAG"


@pytest.mark.parametrize(
    "bad",
    [
        plain_topic("a/b"),
        plain_topic(""),
        plain_topic("TBW102"),
        plain_topic("C", readQueueNums=-1),
        plain_topic("C", writeQueueNums=10**9),
        plain_topic("C", perm="x"),
        plain_topic("C", readQueueNums=[1]),
        {},
        7,
    ],
)
async def test_one_bad_topic_and_none_is_made(client, bad):
    reply = await client.ask_async(18, {"topicConfigList": [plain_topic("A"), bad]})
    assert reply.code == 1
    assert client.broker.tables.topics.select("A") is None


async def test_many_groups_are_made_at_once(client):
    body = {"groupConfigList": [{"groupName": "A", "retryMaxTimes": 3}, {"groupName": "B"}]}
    assert (await client.ask_async(225, body)).code == 0
    assert client.broker.tables.groups.table["A"].retry_times_max == 3
    reply = await client.ask_async(225, {"groupConfigList": [{"groupName": "C"}, {"groupName": "a b"}]})
    assert reply.code == 1
    assert "C" not in client.broker.tables.groups.table


@pytest.mark.parametrize("code", [18, 225])
@pytest.mark.parametrize("body", [b"", b"[]", b"{", {"topicConfigList": 7, "groupConfigList": 7}])
async def test_lists_that_are_none(client, code, body):
    reply = await client.ask_async(code, body)
    assert reply.code == 1


@pytest.mark.parametrize(("code", "key"), [(18, "topicConfigList"), (225, "groupConfigList")])
async def test_lists_are_bounded(client, code, key):
    reply = await client.ask_async(code, {key: [{}] * 10_001})
    assert "10000 at most" in reply.remark


async def test_a_slave_makes_nothing(slave):
    assert (await slave.ask_async(225, {"groupConfigList": [{"groupName": "C"}]})).code == 1
    assert (await slave.ask_async(18, {"topicConfigList": [plain_topic("A")]})).code == 1


# 306, 316, 329


async def test_statistics_of_topics_that_are_gone_are_cleaned(client):
    stats = client.broker.stats
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


async def test_old_files_go_on_demand(client):
    assert client.ask(329).code == 0


# 323


def half(broker, topic=names.CHECK_MAX_TIME_TOPIC, **properties):
    properties = {"REAL_TOPIC": "T1", "REAL_QID": "0", "TRANSACTION_CHECK_TIMES": "15", **properties}
    result = put(broker, topic, properties=properties)
    return f"7F00000100002A9F{result.phy_offset:016X}"


@pytest.mark.parametrize("topic", [names.CHECK_MAX_TIME_TOPIC, names.HALF_TOPIC])
async def test_a_transaction_is_asked_about_again(client, topic):
    message_id = half(client.broker, topic)
    assert client.ask(323, msgId=message_id).code == 0
    client.broker.store.dispatch_pending()
    queue = client.broker.store.queue(names.HALF_TOPIC, 0)
    message = decode_message(client.broker.store.message_of(names.HALF_TOPIC, 0, queue.max_offset - 1))
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "0"
    assert message.properties["REAL_TOPIC"] == "T1"
    assert message.body == b"hello"


async def test_other_messages_do_not_become_half_ones(client):
    result = put(client.broker)
    reply = client.ask(323, msgId=f"7F00000100002A9F{result.phy_offset:016X}")
    assert (reply.code, "not a half message" in reply.remark) == (1, True)
    assert client.broker.store.queue(names.HALF_TOPIC, 0).max_offset == 0


@pytest.mark.parametrize(
    "message_id",
    ["", "x", "7F00000100002A9F" + "F" * 16, "7F00000100002A9F" + "0" * 16, "Z" * 32, "²" * 32, "0x" * 16, "A" * 10**6],
)
async def test_half_messages_that_are_not_there(client, message_id):
    assert client.ask(323, msgId=message_id).code == 1
    assert client.ask(323).code == 1


async def test_a_slave_asks_about_no_transaction(slave):
    assert slave.ask(323, msgId="7F00000100002A9F" + "0" * 16).code == 1
