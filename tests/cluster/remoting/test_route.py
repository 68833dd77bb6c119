"""Routes and clusters, parsed from the bodies that RocketMQ's specification shows."""

import pytest

from twinlog.cluster.client.api import name_servers
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.route import MessageQueue, QueueData, TopicRoute, read_cluster, read_route

ROUTE = fastjson.loads(
    b'{"brokerDatas":[{"brokerAddrs":{0:"192.0.2.11:10911",1:"192.0.2.12:10911"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster"},{"brokerAddrs":{1:"192.0.2.22:10911"},"brokerName":"broker-b",'
    b'"cluster":"DefaultCluster"}],"filterServerTable":{},"queueDatas":['
    b'{"brokerName":"broker-b","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2},'
    b'{"brokerName":"broker-a","perm":6,"readQueueNums":3,"topicSysFlag":0,"writeQueueNums":2}]}'
)


def test_producers_write_to_queues_of_groups_with_a_master():
    route = read_route("T1", ROUTE)
    assert route.publish_queues() == [MessageQueue("T1", "broker-a", 0), MessageQueue("T1", "broker-a", 1)]


def test_consumers_read_from_slaves_too():
    queues = read_route("T1", ROUTE).read_queues()
    assert [(queue.broker_name, queue.queue_id) for queue in queues] == [
        ("broker-a", 0),
        ("broker-a", 1),
        ("broker-a", 2),
        ("broker-b", 0),
        ("broker-b", 1),
    ]


def test_a_new_topic_takes_at_most_four_of_the_default_topics_queues():
    route = TopicRoute("TBW102", read_route("T1", ROUTE).brokers, (QueueData("broker-a", 8, 8, 7),))
    assert [queue.queue_id for queue in route.publish_queues("New", queues_max=4)] == [0, 1, 2, 3]
    assert route.publish_queues("New", queues_max=4)[0].topic == "New"


@pytest.mark.parametrize(("perm", "text"), [(6, "RW"), (4, "R-"), (2, "-W"), (0, "--"), (7, "RW")])
def test_permissions_are_letters(perm, text):
    assert QueueData("b", 1, 1, perm).perm_text == text


def test_a_slave_stands_in_for_a_master_and_any_member_for_another():
    brokers = read_route("T1", ROUTE).brokers
    assert brokers["broker-a"].find(0) == "192.0.2.11:10911"
    assert brokers["broker-a"].find(1) == "192.0.2.12:10911"
    assert brokers["broker-b"].find(0) == "192.0.2.22:10911"
    assert brokers["broker-b"].master is None


def test_a_cluster_lists_its_groups_in_order():
    body = (
        b'{"brokerAddrTable":{"broker-b":{"brokerAddrs":{0:"h:2"},"brokerName":"broker-b","cluster":"C"},'
        b'"broker-a":{"brokerAddrs":{1:"h:3",0:"h:1"},"brokerName":"broker-a","cluster":"C"}},"clusterAddrTable":{}}'
    )
    groups = read_cluster(fastjson.loads(body))
    assert [(group.broker_name, list(group.addresses)) for group in groups] == [("broker-a", [0, 1]), ("broker-b", [0])]


def test_name_servers_are_split_and_completed():
    assert name_servers("a:1; b ;a:1;") == ("a:1", "b:9876")
    assert name_servers("") == ()
