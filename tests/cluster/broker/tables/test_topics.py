"""Topics: what is there from the start, how messages create more, and the file RocketMQ shares with us."""

import json

import pytest
from attrs import evolve

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.tables.topics import TopicConfig, TopicConfigManager, built_in_topics
from twinlog.cluster.remoting.route import PERM_INHERIT


def manager(**options):
    topics = TopicConfigManager(now_ms=lambda: 1000, **options)
    config = BrokerConfig(broker_cluster_name="C1", broker_name="broker-a")
    topics.add_built_in(built_in_topics(evolve(config, auto_create_topic_enable=topics.auto_create)))
    return topics


def test_built_in_topics_are_those_of_rocketmq():
    """Names, queues and permissions of a fresh 4.9 broker."""
    assert {(t.name, t.read_queues, t.write_queues, t.perm) for t in manager().table.values()} == {
        ("SELF_TEST_TOPIC", 1, 1, 6),
        ("TBW102", 8, 8, 7),
        ("BenchmarkTest", 1024, 1024, 6),
        ("C1", 16, 16, 7),
        ("broker-a", 1, 1, 7),
        ("OFFSET_MOVED_EVENT", 1, 1, 6),
        ("SCHEDULE_TOPIC_XXXX", 18, 18, 6),
        ("C1_REPLY_TOPIC", 1, 1, 6),
    }


@pytest.mark.parametrize(("client_queues", "queues"), [(4, 4), (16, 8), (-1, 0)])
def test_a_message_creates_its_topic_with_the_smaller_number_of_queues(client_queues, queues):
    """The client's wish is bounded by TBW102, and the inherit bit is not inherited."""
    topics = manager()
    assert topics.create_in_send("T1", "TBW102", client_queues) == TopicConfig("T1", queues, queues, 6)
    assert topics.version.counter == 1


def test_without_auto_creation_the_topic_stays_unknown():
    topics = manager(auto_create=False)
    assert topics.create_in_send("T1", "TBW102", 4) is None
    assert topics.create_in_send("T1", "C1", 4) is not None, "any topic with the inherit bit can be the model"


def test_a_saved_tbw102_loses_its_inherit_bit_when_auto_creation_was_turned_off():
    topics = TopicConfigManager(now_ms=lambda: 1, auto_create=False)
    topics.merge({"topicConfigTable": {"TBW102": {"perm": 7, "readQueueNums": 8, "writeQueueNums": 8}}})
    assert topics.create_in_send("T1", "TBW102", 4) is None
    assert not topics.table["TBW102"].perm & PERM_INHERIT


def test_retry_topics_may_always_be_created():
    assert manager(auto_create=False).create_in_send("%RETRY%G", "TBW102", 4, True) == TopicConfig(
        "%RETRY%G", 1, 1, 6, sys_flag=2
    )


@pytest.mark.parametrize("name", ["../x", "", "a/b", "t" * 128, "a b"])
def test_impossible_names_create_nothing(name):
    topics = manager()
    assert topics.create_in_send(name, "TBW102", 4) is None
    assert topics.create_in_send_back(name, 1) is None
    with pytest.raises(ValueError):
        topics.replace({"dataVersion": {"counter": 9}, "topicConfigTable": {name: {}}})


def test_each_change_is_told_once_with_a_new_version():
    told = []
    topics = TopicConfigManager(now_ms=lambda: 5, on_change=[told.append])
    topics.update(TopicConfig("T1"))
    topics.create_in_send_back("%RETRY%G", 1)
    topics.create_in_send_back("%RETRY%G", 1)
    assert topics.delete("T1")
    assert not topics.delete("T1")
    assert told == ["T1", "%RETRY%G", "T1"]
    assert topics.version.to_json() == {"counter": 3, "timestamp": 5}


def test_order_comes_from_name_servers_only():
    topics = manager()
    topics.update(TopicConfig("T1"))
    topics.set_order(["T1"])
    assert topics.table["T1"].order
    assert topics.update(TopicConfig("T1", 8, 8)).order
    topics.set_order([])
    assert not topics.table["T1"].order


def test_a_masters_table_replaces_ours_only_when_its_version_differs():
    master, slave = manager(), manager()
    master.update(TopicConfig("T1"))
    assert slave.replace(json.loads(json.dumps(master.to_json())))
    assert slave.table == master.table
    assert not slave.replace(master.to_json())
