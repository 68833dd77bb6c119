"""How mqadmin writes things: the same text as RocketMQ's, which tests/mqadmin compares on running clusters."""

import pytest

from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.mqadmin import text


@pytest.mark.parametrize(
    ("number", "name"), [(0, "V0"), (312, "V4_5_0_SNAPSHOT"), (313, "V4_5_0"), (407, "V4_9_7"), (413, "V5_0_0")]
)
def test_a_release_has_its_name(number, name):
    assert text.version_name(number) == name


@pytest.mark.parametrize(("bits", "letters"), [(0, "---"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX")])
def test_permissions_are_letters(bits, letters):
    assert text.perm(bits) == letters


def test_a_topic_is_one_line():
    assert text.topic_config(TopicConfig("T1", 4, 8)) == (
        "TopicConfig [topicName=T1, readQueueNums=4, writeQueueNums=8, perm=RW-, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=false]"
    )


def test_json_has_a_line_for_each_key_but_not_for_numbers():
    assert text.json({"a": [1, "x"], "b": {}}) == '{\n\t"a":[\n\t\t1,\n\t\t"x"\n\t],\n\t"b":{}\n}'
    assert text.json({0: 5, 1: 6}) == "{0:5,1:6\n}"


def test_moments_are_read_as_they_are_written():
    milliseconds = 1_795_352_700_123
    written = text.moment(milliseconds)
    assert text.parse_moment(written.replace(" ", "#").replace(",", ":")) == milliseconds
    assert (text.parse_moment("now"), text.parse_moment("1795352700123")) == (-1, milliseconds)
    with pytest.raises(ValueError, match="expected now"):
        text.parse_moment("yesterday")
