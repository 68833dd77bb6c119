"""`twinlog mqadmin` without a JVM: RocketMQ's own mqadmin is asked beside it in tests/mqadmin."""

import pytest

from twinlog.cluster.mqadmin.messages import place_of


def test_where_a_message_is():
    assert place_of("C000020B00002A9F0000000000000400") == ("192.0.2.11:10911", 1024)
    for bad in ("", "C0", "Z" * 32):
        with pytest.raises(ValueError, match="hexadecimal"):
            place_of(bad)


async def test_a_topic_from_the_cradle_to_the_grave(cluster):
    made = await cluster.twinlog("mqadmin", "updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "2", "-w", "2")
    assert made.output.splitlines()[0] == f"create topic to {cluster.master.address} success."
    assert "T\n" in (await cluster.twinlog("mqadmin", "topicList")).output
    status = (await cluster.twinlog("mqadmin", "topicStatus", "-t", "T")).output.splitlines()
    assert [line.split() for line in status[1:]] == [["broker-a", "0", "0", "0"], ["broker-a", "1", "0", "0"]]
    assert '"readQueueNums":2' in (await cluster.twinlog("mqadmin", "topicRoute", "-t", "T")).output
    gone = await cluster.twinlog("mqadmin", "deleteTopic", "-c", "DefaultCluster", "-t", "T")
    assert "delete topic [T] from NameServer success." in gone.output
    refused = await cluster.twinlog("mqadmin", "topicRoute", "-t", "T", ok=False)
    assert (refused.exit_code, "No topic route info" in refused.output) == (1, True)


async def test_brokers(cluster):
    rows = (await cluster.twinlog("mqadmin", "clusterList")).output.splitlines()
    assert [line.split()[:5] for line in rows[1:]] == [
        ["DefaultCluster", "broker-a", "0", cluster.master.address, "V4_9_8"],
        ["DefaultCluster", "broker-a", "1", cluster.slave.address, "V4_9_8"],
    ]
    assert len((await cluster.twinlog("mqadmin", "clusterList", "-m")).output.splitlines()) == 3
    status = (await cluster.twinlog("mqadmin", "brokerStatus", "-b", cluster.master.address)).output
    assert "brokerVersionDesc               : V4_9_8" in status


async def test_groups_and_messages(cluster):
    await cluster.twinlog("mqadmin", "updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "1", "-w", "1")
    sent = (await cluster.twinlog("send", "T", "hello", "--keys", "k1", "-o", "json")).output
    found = (await cluster.twinlog("mqadmin", "queryMsgByKey", "-t", "T", "-k", "k1")).output.splitlines()
    assert found[1].split()[1:] == ["0", "0"]
    assert found[1].split()[0] in sent
    await cluster.twinlog("mqadmin", "updateSubGroup", "-c", "DefaultCluster", "-g", "G")
    nobody = await cluster.twinlog("mqadmin", "consumerProgress", "-g", "Nobody", ok=False)
    assert nobody.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("updateTopic", "-t", "T"), "either -b HOST:PORT or -c CLUSTER"),
        (("brokerStatus", "-b", "1.2.3.4:5", "-c", "C"), "either -b HOST:PORT or -c CLUSTER"),
        (("queryMsgById", "-i", "xyz"), "hexadecimal digits"),
        (("resetOffsetByTime", "-g", "G", "-t", "T", "-s", "soon"), "expected now"),
        (("updateTopic", "-c", "Nowhere", "-t", "T"), "there is no cluster Nowhere"),
    ],
)
async def test_what_cannot_be_is_told(cluster, arguments, reason):
    result = await cluster.twinlog("mqadmin", *arguments, ok=False)
    assert result.exit_code in (1, 2)
    assert reason.lower() in result.output.lower()
