"""The tables' files: RocketMQ's text, and what is left after a crash."""

import contextlib
import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.broker.helpers import make_broker
from tests.store import golden
from twinlog.cluster.broker.tables.groups import SubscriptionGroupManager
from twinlog.cluster.broker.tables.offsets import ConsumerOffsetManager
from twinlog.cluster.broker.tables.topics import TopicConfig, TopicConfigManager
from twinlog.cluster.config.json_file import JsonFile
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.fastjson import pretty
from twinlog.store.errors import StoreDirectoryError

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
    assert pretty(manager.to_json()) == (GOLDEN / name).read_text()


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
    file.save('{"a":2}')
    assert file.load() == {"a": 2}
    assert file.backup.read_text() == '{"a":1}'


def config_files(version, tmp_path):
    return golden.unpack(version, "master", tmp_path) / "config"


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_every_table_of_a_real_broker_is_taken(tmp_path, version):
    """4.9 writes numbers as bare keys, 5.x fields that 4.9 does not know; neither's backup is needed."""
    config = config_files(version, tmp_path)
    for backup in config.glob("*.bak"):
        backup.unlink()
    broker = make_broker(config.parent)
    broker.load_tables()
    offsets = broker.tables.offsets.table
    assert offsets["RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS"] == {0: 12}
    assert sum(offsets["TopicB@golden_c2"].values()) == {"4.9.7": 99, "5.3.3": 105}[version]
    assert broker.schedule.positions[3] == {"4.9.7": 7, "5.3.3": 4}[version]
    assert broker.tables.topics.table["TopicB"].write_queues == 2
    assert broker.tables.groups.table["golden_c1"].retry_times_max == 16


async def test_filters_of_rocketmq_stay_as_they_are(tmp_path, autojump_clock):
    config = config_files("4.9.7", tmp_path)
    filters = {path.name: path.read_bytes() for path in config.glob("consumerFilter*")}
    assert len(filters) == 2
    broker = make_broker(config.parent)
    broker.load_tables()
    for writer in (broker.tables.topics_writer, broker.tables.groups_writer, broker.tables.offsets_writer):
        writer.changed()
        await writer.save()
    assert {path.name: path.read_bytes() for path in config.glob("consumerFilter*")} == filters


@pytest.mark.parametrize("broken", ["", "{", '{"offsetTable":', "[1]", "\0\0\0", '{"a":1}\0\0'])
def test_a_torn_file_is_replaced_by_the_one_before(tmp_path, broken):
    file = JsonFile(tmp_path / "t.json")
    file.save('{"a":1}')
    file.save('{"a":2}')
    file.path.write_text(broken)
    assert file.load() == {"a": 1}


@pytest.mark.parametrize(
    ("text", "backup", "table"),
    [
        (None, None, {}),
        (None, '{"a":1}', {"a": 1}),
        ("", None, {}),
        ("", "", {}),
        ("{", '{"a":1}', {"a": 1}),
    ],
)
def test_what_is_taken_when_something_is_missing(tmp_path, text, backup, table):
    """As RocketMQ does. An empty file is all that a crash during the first save ever left."""
    file = JsonFile(tmp_path / "t.json")
    for path, content in ((file.path, text), (file.backup, backup)):
        if content is not None:
            path.write_text(content)
    assert file.load() == table


def test_a_missing_table_is_told(tmp_path, capsys):
    file = JsonFile(tmp_path / "t.json")
    file.save('{"a":1}')
    file.save('{"a":2}')
    file.path.unlink()
    assert file.load() == {"a": 1}
    assert "a table is missing: the text before its last change is used" in capsys.readouterr().out
    file.backup.unlink()
    assert file.load() == {}
    assert "missing" not in capsys.readouterr().out, "a new store has none"


@pytest.mark.parametrize("backup", ["{", "", None, '{"offsetTable":7}'])
def test_broken_files_are_an_error(tmp_path, backup):
    """Starting with empty tables would lose every consumer's position."""
    broker = make_broker(tmp_path)
    file = broker.tables.offsets_writer.file
    file.path.parent.mkdir()
    file.path.write_text('{"offsetTable":')
    if backup is not None:
        file.backup.write_text(backup)
    with pytest.raises(
        StoreDirectoryError, match=r"consumerOffset\.json cannot be read, .*unexpected|expected"
    ) as raised:
        broker.load_tables()
    assert ("consumerOffset.json.bak: " in str(raised.value)) == bool(backup)


def test_a_table_that_makes_no_sense_is_replaced_by_the_one_before(tmp_path):
    broker = make_broker(tmp_path)
    broker.tables.topics_writer.file.save(pretty({"topicConfigTable": {"T1": TopicConfig("T1").to_json()}}))
    broker.tables.topics_writer.file.save('{"dataVersion":{"counter":"x"},"topicConfigTable":{"T2":{}}}')
    broker.load_tables()
    assert "T1" in broker.tables.topics.table
    assert "T2" not in broker.tables.topics.table


def test_a_file_that_may_not_be_read_is_not_passed_over(tmp_path, monkeypatch):
    file = JsonFile(tmp_path / "t.json")
    file.save('{"a":1}')
    file.save('{"a":2}')
    read = Path.read_bytes

    def refused(path):
        if path == file.path:
            raise PermissionError("not yours")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(PermissionError):
        file.load()


@pytest.mark.parametrize("step", range(7))
def test_a_whole_file_is_there_whatever_step_is_the_last(tmp_path, monkeypatch, step):
    """The process dies before any of the calls that change the directory."""
    file = JsonFile(tmp_path / "t.json")
    file.save('{"a":1}')
    file.save('{"a":2}')
    calls = []

    def dying(real):
        def call(*args, **more):
            calls.append(args)
            if len(calls) > step:
                raise KeyboardInterrupt
            return real(*args, **more)

        return call

    for name in ("fsync", "link", "replace"):
        monkeypatch.setattr(os, name, dying(getattr(os, name)))
    with contextlib.suppress(KeyboardInterrupt):
        file.save('{"a":3}')
    monkeypatch.undo()
    found = fastjson.loads(file.path.read_bytes())
    assert found in ({"a": 2}, {"a": 3})
    assert fastjson.loads(file.backup.read_bytes())["a"] <= found["a"]
    file.save('{"a":4}')
    assert (file.load(), file.backup.read_bytes()) == ({"a": 4}, b'{"a":%d}' % found["a"])


def test_without_links_the_backup_is_a_copy(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.EPERM, "not here")

    monkeypatch.setattr(os, "link", refused)
    file = JsonFile(tmp_path / "t.json")
    for n in range(3):
        file.save(f'{{"a":{n}}}')
    assert (file.load(), file.backup.read_text()) == ({"a": 2}, '{"a":1}')


def test_saves_from_several_threads_leave_whole_files(tmp_path):
    file = JsonFile(tmp_path / "t.json")
    texts = [f'{{"a":"{letter * 50_000}"}}' for letter in "abcd"]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(file.save, texts * 8))
    assert {file.path.read_text(), file.backup.read_text()} <= set(texts)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json", "t.json.bak"]


def test_tables_that_a_store_had_are_told(tmp_path, capsys):
    """Topics, where there are queues; what groups have, where a group has a retry topic."""
    broker = make_broker(tmp_path)
    broker.load_tables()
    assert "missing" not in capsys.readouterr().out
    (tmp_path / "consumequeue" / "T1").mkdir(parents=True)
    make_broker(tmp_path).load_tables()
    told = capsys.readouterr().out
    assert told.count("it starts empty") == 1
    assert "topics.json" in told
    topics = {"topicConfigTable": {name: TopicConfig(name).to_json() for name in ("T1", "%RETRY%g1")}}
    broker.tables.topics_writer.file.save(pretty(topics))
    make_broker(tmp_path).load_tables()
    told = capsys.readouterr().out
    assert told.count("it starts empty") == 2
    assert "consumerOffset.json" in told
