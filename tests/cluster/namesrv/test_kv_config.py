"""The KV configuration and its file."""

import json

import pytest

from cluster.namesrv.kv_config import KVConfigManager


def test_values_outlive_the_process(tmp_path):
    path = tmp_path / "namesrv" / "kvConfig.json"
    kv = KVConfigManager(path)
    kv.load()
    kv.put("NS", "k", "v")
    kv.put("NS", "é", "2")
    kv.put("OTHER", "k", "3")
    kv.delete("NS", "k")
    kv.delete("NS", "k")
    again = KVConfigManager(path)
    again.load()
    assert (again.get("NS", "k"), again.namespace("NS"), again.get("OTHER", "k")) == (None, {"é": "2"}, "3")
    assert again.namespace("nowhere") is None
    assert json.loads(path.read_text()) == {"configTable": {"NS": {"é": "2"}, "OTHER": {"k": "3"}}}
    assert [file.name for file in path.parent.iterdir()] == ["kvConfig.json"]


def test_rocketmqs_file_is_read(tmp_path):
    path = tmp_path / "kvConfig.json"
    path.write_text('{\n\t"configTable":{"ORDER_TOPIC_CONFIG":{"T1":"broker-a:4"\n\t\t}\n\t}\n}')
    kv = KVConfigManager(path)
    kv.load()
    assert kv.get("ORDER_TOPIC_CONFIG", "T1") == "broker-a:4"


def test_without_a_file_values_live_in_memory():
    kv = KVConfigManager()
    kv.load()
    kv.put("NS", "k", "v")
    assert kv.get("NS", "k") == "v"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"configTable":[]}', '{"configTable":{"NS":1}}'])
def test_an_unreadable_file_is_named(tmp_path, text):
    path = tmp_path / "kvConfig.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"kvConfig\.json is no KV configuration"):
        KVConfigManager(path).load()


def test_what_cannot_be_written_is_not_changed(tmp_path):
    (tmp_path / "file").write_text("")
    kv = KVConfigManager(tmp_path / "file" / "kvConfig.json")
    with pytest.raises(OSError, match="file"):
        kv.put("NS", "k", "v")
    assert kv.get("NS", "k") is None
