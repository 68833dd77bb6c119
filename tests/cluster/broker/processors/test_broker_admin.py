"""Statistics, progress of groups, and the status of a broker."""

import time

import pytest
import trio
from trio.testing import memory_stream_pair

from tests.cluster.broker.helpers import heartbeat, opened, put, read
from tests.cluster.broker.parts import Parts, make_parts
from tests.support.stream_transport import StreamTransport
from twinlog.cluster.broker.peers.slave_peers import SlaveKind
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting import fastjson, names
from twinlog.ha.master.connection import HAConnection
from twinlog.store.config import BrokerRole
from twinlog.store.log.offset_waiters import Waiter


def serving(parts: Parts) -> Parts:
    """Parts with the requests about status, and those of clients whose work shows in it."""
    return parts.serve(
        parts.broker_admin(),
        parts.clients(),
        parts.pull(),
        parts.offset(),
        parts.send_back(),
        parts.group_admin(),
        parts.topic_admin(),
    )


@pytest.fixture
async def client(tmp_path):
    parts = make_parts(tmp_path / "broker-a-0")
    parts.tables.topics.update(TopicConfig("T1", 2, 2))
    async with opened(serving(parts)) as client:
        parts.stats.sample(0.0)
        yield client


@pytest.fixture
async def slave(tmp_path):
    async with opened(serving(make_parts(tmp_path / "broker-a-1", BrokerRole.SLAVE))) as client:
        yield client


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
    cluster = client.broker.settings.config.broker_cluster_name
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


# 28, 907, 20001


async def test_runtime_information_has_every_key_that_mqadmin_reads(client):
    put(client.broker)
    client.broker.schedule.table[1] = 0
    table = fastjson.loads(client.ask(28).body)["table"]
    assert all(isinstance(value, str) for value in table.values())
    assert table["brokerVersionDesc"] == "V4_9_8"
    assert table["putMessageTimesTotal"] == table["msgPutTotalTodayNow"] == "1"
    assert table["scheduleMessageOffset_1"] == "0,0"
    assert 0 < int(table["earliestMessageTimeStamp"]) <= client.broker.store.now_ms()
    assert 0 <= float(table["commitLogDiskRatio"]) <= 1
    float(table["putTps"].split(" ")[0])
    wanted = """getTransferedTps getTransferredTps sendThreadPoolQueueSize pullThreadPoolQueueSize
        sendThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueHeadWaitTimeMills pageCacheLockTimeMills
        msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgGetTotalYesterdayMorning msgGetTotalTodayMorning
        msgGetTotalTodayNow runtime bootTimestamp remainHowManyDataToFlush commitLogDirCapacity"""
    assert set(wanted.split()) <= table.keys()


LINK = {"lastReadTimestamp", "lastWriteTimestamp", "masterFlushOffset", "maxOffset", "transferredByteInSecond"}


async def test_replication_status_of_both_roles(client, slave):
    """907 as 5.3.3's HARuntimeInfo: a master without slaves, and a slave without a master."""
    put(client.broker)
    master = fastjson.loads(client.ask(907).body)
    assert master == {
        "haClientRuntimeInfo": dict.fromkeys(LINK, 0),
        "haConnectionInfo": [],
        "inSyncSlaveNums": 0,
        "master": True,
        "masterCommitLogMaxOffset": client.broker.store.max_offset,
    }
    put(slave.broker)
    status = fastjson.loads(slave.ask(907).body)
    assert (status["master"], status["masterCommitLogMaxOffset"], status["haConnectionInfo"]) == (False, 0, [])
    assert status["haClientRuntimeInfo"].keys() == LINK


async def test_a_master_tells_how_its_slaves_are(client):
    """907's fields, and ours, of a slave that lacks bytes of the log, seen from where its acknowledgements arrive."""
    broker, transfer = client.broker, client.broker.ha.group_transfer
    put(broker)
    end = broker.store.max_offset
    connection = HAConnection(
        StreamTransport(memory_stream_pair()[0]),
        "10.0.0.5:7",
        "10.0.0.5",
        broker.store,
        transfer,
        broker.settings.ha_config,
    )
    transfer.members_changed(["10.0.0.5"])
    broker.ha._connections[connection] = trio.CancelScope()
    connection.request_offset = connection.ack_offset = end - 10
    transfer.join(connection, end - 10)
    (shown,) = fastjson.loads(client.ask(907).body)["haConnectionInfo"]
    assert shown == {
        "addr": "10.0.0.5:7",
        "diff": 10,
        "inSync": False,
        "slaveAckOffset": end - 10,
        "transferFromWhere": 0,
        "transferredByteInSecond": 0,
    }
    (slave,) = fastjson.loads(client.ask(20001).body)["slaves"]
    assert (slave["inSync"], slave["suspended"], slave["stalled"], slave["verified"]) == (False, False, False, False)
    assert slave["reason"] == "has not been level since it connected"
    transfer.acknowledge(connection, end)
    broker.slave_kinds.kinds = {"10.0.0.5:7": SlaveKind()}
    status = fastjson.loads(client.ask(907).body)
    assert (status["inSyncSlaveNums"], status["haConnectionInfo"][0]["inSync"]) == (1, True)
    (slave,) = fastjson.loads(client.ask(20001).body)["slaves"]
    assert (slave["inSync"], slave["verified"], slave["reason"]) == (True, True, None)


async def test_member_status_says_who_and_where(client, slave):
    put(client.broker)
    status = fastjson.loads(client.ask(20001).body)
    assert status["name"] == "broker-a-0"
    assert (status["group"], status["brokerId"], status["role"]) == ("broker-a", 0, "ASYNC_MASTER")
    assert status["address"] == "127.0.0.1:10911"
    assert status["haAddress"] == "127.0.0.1:10912"
    assert status["maxOffset"] == status["confirmedOffset"] == status["dispatchedOffset"] > 0
    assert status["master"] is None
    assert status["policy"] == {
        "words": "in the master's memory",
        "level": "L0 async",
        "inSyncReplicas": 2,
        "minInSyncReplicas": 1,
        "needed": 1,
        "inSync": 1,
        "members": 1,
        "warnings": [],
    }
    assert (status["ackWaitP50Seconds"], status["ackWaitP99Seconds"]) == (None, None), "nobody waited"
    waits = client.broker.ha.group_transfer.waits
    waits.ended([Waiter(1, 3.0, None, b"")], 2, "confirmed", now=0.002, timeout=3.0)
    status = fastjson.loads(client.ask(20001).body)
    assert 0.0015 < status["ackWaitP50Seconds"] <= status["ackWaitP99Seconds"] <= 0.0025
    status = fastjson.loads(slave.ask(20001).body)
    assert status["role"] == "SLAVE"
    assert status["master"]["address"] is None
    assert (status["policy"], status["ackPolicy"], status["ackMode"]) == (None, "takes no messages", "written")
