"""The tables' files: RocketMQ's text, and what is left after a crash."""

from pathlib import Path

import pytest

from cluster.broker.consumer_offset import ConsumerOffsetManager
from cluster.broker.json_file import JsonFile
from cluster.broker.subscription_group import SubscriptionGroupManager
from cluster.broker.topic_config import TopicConfigManager
from cluster.remoting.fastjson import pretty

GOLDEN = Path(__file__).parents[2] / "golden" / "config"


@pytest.mark.parametrize(
    ("name", "manager"),
    [
        ("topics.json", TopicConfigManager(lambda: 0)),
        ("subscriptionGroup.json", SubscriptionGroupManager(lambda: 0)),
        ("consumerOffset.json", ConsumerOffsetManager()),
    ],
)
def test_what_rocketmq_wrote_is_read_and_written_again_with_the_same_text(name, manager):
    """Golden: config files of a 4.9.7 master after a clean stop."""
    if hasattr(manager, "version"):
        manager.table.clear()
    manager.merge(JsonFile(GOLDEN / name).load())
    assert pretty(manager.plain()) == (GOLDEN / name).read_text()


def test_delay_offsets_have_rocketmqs_text():
    value = JsonFile(GOLDEN / "delayOffset.json").load()
    table = {int(level): offset for level, offset in value["offsetTable"].items()}
    assert table == {1: 2, 2: 2, 3: 7}
    assert pretty({"offsetTable": table}) == (GOLDEN / "delayOffset.json").read_text()


def test_an_empty_table_is_written_as_rocketmq_does():
    assert pretty({"offsetTable": {}}) == '{\n\t"offsetTable":{}\n}'


def test_the_text_before_is_kept(tmp_path):
    file = JsonFile(tmp_path / "config" / "t.json")
    assert file.load() == {}
    file.save('{"a":1}')
    file.save('{"a":2}', durable=True)
    assert file.load() == {"a": 2}
    assert file.backup.read_text() == '{"a":1}'


@pytest.mark.parametrize("broken", ["", "{", '{"offsetTable":', "[1]"])
def test_a_torn_file_is_replaced_by_the_one_before(tmp_path, broken):
    file = JsonFile(tmp_path / "t.json")
    file.save('{"a":1}')
    file.save('{"a":2}')
    file.path.write_text(broken)
    assert file.load() == {"a": 1}


def test_two_broken_files_are_an_error(tmp_path):
    """Starting with empty tables would lose every consumer's position."""
    file = JsonFile(tmp_path / "t.json")
    file.path.write_text("{")
    file.backup.write_text("{")
    with pytest.raises(ValueError, match="bak"):
        file.load()
