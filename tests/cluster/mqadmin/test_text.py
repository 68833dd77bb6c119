"""How mqadmin writes things: the same text as RocketMQ's, which tests/mqadmin compares on running clusters."""

from datetime import datetime

import pytest

from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.mqadmin import text


def test_versions_by_number():
    """Each release has two numbers, a minor version twenty."""
    numbers = {0: "V0", 1: "V1", 312: "V4_5_0_SNAPSHOT", 313: "V4_5_0", 406: "V4_9_7_SNAPSHOT", 407: "V4_9_7"}
    numbers |= {409: "V4_9_8", 413: "V5_0_0", 479: "V5_3_3"}
    assert {number: text.version_name(number) for number in numbers} == numbers


@pytest.mark.parametrize(("bits", "letters"), [(0, "---"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX")])
def test_permissions_are_letters(bits, letters):
    assert text.perm(bits) == letters


def test_what_java_prints_of_a_topic_and_a_group():
    assert text.topic_config(TopicConfig("T", 1, 2, 7, order=True)) == (
        "TopicConfig [topicName=T, readQueueNums=1, writeQueueNums=2, perm=RWX, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=true]"
    )
    assert text.topic_config(TopicConfig("T", 1, 2)).endswith(
        "perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false]"
    )
    assert text.group_config(SubscriptionGroupConfig(name="G")).startswith(
        "SubscriptionGroupConfig [groupName=G, consumeEnable=true, consumeFromMinEnable=true, "
    )


def test_json_as_fastjson_prints_it():
    """A line for each key and element, but number keys side by side."""
    assert text.json({"a": [{"b": {0: "x", 1: "y"}}], "c": {}, "d": []}) == (
        '{\n\t"a":[\n\t\t{\n\t\t\t"b":{0:"x",1:"y"\n\t\t\t}\n\t\t}\n\t],\n\t"c":{},\n\t"d":[]\n}'
    )
    assert text.json({"a": [1, "x"], "b": {}}) == '{\n\t"a":[\n\t\t1,\n\t\t"x"\n\t],\n\t"b":{}\n}'
    assert text.json({0: 5, 1: 6}) == "{0:5,1:6\n}"


def test_times_as_a_person_gives_them():
    at = datetime(2026, 11, 22, 8, 30, 1, 234_000)
    milliseconds = round(at.timestamp() * 1000)
    assert text.parse_moment("2026-11-22#08:30:01:234") == milliseconds
    assert (text.parse_moment("now"), text.parse_moment("1795264829652")) == (-1, 1795264829652)
    assert text.moment(milliseconds) == "2026-11-22 08:30:01,234"
    for bad in ("", "yesterday", "2026-11-22", "2026-13-22#08:30:01:234"):
        with pytest.raises(ValueError, match="expected now"):
            text.parse_moment(bad)
