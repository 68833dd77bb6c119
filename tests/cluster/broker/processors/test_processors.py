"""Requests of administrators, each through its handler, against a real store."""

import pytest
import trio
from trio.testing import memory_stream_pair

from tests.cluster.broker.helpers import make_broker, opened, put
from tests.support.stream_transport import StreamTransport
from twinlog.cluster.broker.peers.slave_peers import SlaveKind
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting import fastjson
from twinlog.ha.master.connection import HAConnection
from twinlog.store.config import BrokerRole
from twinlog.store.log.offset_waiters import Waiter


@pytest.fixture
async def client(tmp_path):
    async with opened(make_broker(tmp_path / "broker-a-0")) as client:
        yield client


@pytest.fixture
async def slave(tmp_path):
    async with opened(make_broker(tmp_path / "broker-a-1", role=BrokerRole.SLAVE)) as client:
        yield client


# Topics and groups

TOPIC = {
    "topic": "T1",
    "defaultTopic": "TBW102",
    "readQueueNums": 4,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "order": True,
}


async def test_a_topic_is_made_shown_and_removed(client):
    assert (await client.ask_async(17, **TOPIC)).code == 0
    assert client.broker.tables.topics.select("T1") == TopicConfig("T1", 4, 2), "order is not set by 17"
    assert fastjson.loads(client.ask(351, topic="T1").body)["writeQueueNums"] == 2
    table = fastjson.loads(client.ask(21).body)
    assert table["topicConfigTable"]["T1"]["readQueueNums"] == 4
    assert table["dataVersion"]["counter"] == 1
    assert fastjson.loads(client.broker.tables.topics_writer.file.path.read_bytes()) == table, "saved before the answer"
    assert (await client.ask_async(215, topic="T1")).code == 0
    assert client.ask(351, topic="T1").code == 17
    assert (await client.ask_async(215, topic="T1")).code == 0


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"topic": "TBW102"}, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "broker-a"}, "conflict"),
        ({"topic": "a b"}, "illegal characters"),
        ({"readQueueNums": -1}, "-1 queues"),
        ({"writeQueueNums": 1_000_000}, "queues"),
    ],
)
async def test_topics_that_cannot_be_are_refused(client, change, remark):
    reply = await client.ask_async(17, **{**TOPIC, **change})
    assert reply.code == 1
    assert remark in reply.remark


async def test_a_slave_changes_neither_topics_nor_groups(slave):
    for reply in (
        await slave.ask_async(17, **TOPIC),
        await slave.ask_async(215, topic="T1"),
        await slave.ask_async(200, {"groupName": "G"}),
    ):
        assert reply.code == 1
        assert "slave broker" in reply.remark


async def test_topic_statistics_in_the_dialect_of_fastjson(client):
    client.broker.tables.topics.update(TopicConfig("T1", 1, 1))
    stored = put(client.broker).store_timestamp
    assert client.ask(202, topic="T1").body == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T1"}:'
        b'{"lastUpdateTimestamp":%d,"maxOffset":1,"minOffset":0}}}' % stored
    )
    assert client.ask(202, topic="T2").code == 17


async def test_a_group_is_made_and_all_tables_are_shown(client):
    assert (await client.ask_async(200, {"groupName": "G", "retryMaxTimes": 3})).code == 0
    groups = fastjson.loads(client.ask(201).body)["subscriptionGroupTable"]
    assert groups["G"]["retryMaxTimes"] == 3
    assert (await client.ask_async(200, {"groupName": "a/b"})).code == 1
    client.broker.tables.offsets.commit("G", "T1", 2, 7)
    client.broker.schedule.table[3] = 4
    assert client.ask(43).body == b'{"offsetTable":{"T1@G":{2:7}}}'
    assert client.ask(45).body == b'{"offsetTable":{3:4}}'


# Groups


async def test_a_group_goes_with_its_offsets_where_that_is_asked(client, slave):
    client.broker.tables.offsets.commit("G", "T1", 0, 1)
    await client.ask_async(200, {"groupName": "G"})
    assert fastjson.loads(client.ask(352, group="G").body)["retryMaxTimes"] == 16
    assert (await client.ask_async(207, groupName="G")).code == 0
    assert client.broker.tables.offsets.query("G", "T1", 0) == 1
    await client.ask_async(207, groupName="G", cleanOffset=True)
    assert client.broker.tables.offsets.query("G", "T1", 0) == -1
    assert client.ask(352, group="G").code == 26
    assert (await slave.ask_async(207, groupName="G")).code == 1


# Transactions


async def test_a_transaction_that_never_began_cannot_end(client, slave):
    fields = {
        "producerGroup": "P",
        "tranStateTableOffset": 0,
        "commitLogOffset": 0,
        "commitOrRollback": 8,
        "msgId": "x",
    }
    assert client.ask(37, **fields).code == 1
    assert slave.ask(37, **fields).code == 11


# What a broker says of itself


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


async def test_the_configuration_is_shown_as_properties(client):
    reply = client.ask(26)
    lines = dict(line.split("=", 1) for line in reply.body.decode().splitlines())
    assert lines["brokerName"] == "broker-a"
    assert lines["brokerRole"] == "ASYNC_MASTER"
    assert lines["haListenPort"] == "10912", "as it is in force"
    assert fastjson.loads(reply.ext["version"])["counter"] == 0


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
