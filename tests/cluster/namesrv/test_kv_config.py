"""The KV configuration and its file."""

import json

import pytest
import trio

from twinlog.cluster.namesrv import kv_config
from twinlog.cluster.namesrv.kv_config import KVConfigManager
from twinlog.cluster.remoting.errors import RequestError


async def test_values_outlive_the_process(tmp_path):
    path = tmp_path / "namesrv" / "kvConfig.json"
    kv = KVConfigManager(path)
    kv.load()
    await kv.put("NS", "k", "v")
    await kv.put("NS", "é", "2")
    await kv.put("OTHER", "k", "3")
    await kv.delete("NS", "k")
    await kv.delete("NS", "k")
    again = KVConfigManager(path)
    again.load()
    assert (again.get("NS", "k"), again.namespace("NS"), again.get("OTHER", "k")) == (None, {"é": "2"}, "3")
    assert again.namespace("nowhere") is None
    assert json.loads(path.read_text()) == {"configTable": {"NS": {"é": "2"}, "OTHER": {"k": "3"}}}
    assert {file.name for file in path.parent.iterdir()} == {"kvConfig.json", "kvConfig.json.bak"}


async def test_a_broken_file_is_not_the_end_of_the_one_before(tmp_path):
    path = tmp_path / "kvConfig.json"
    kv = KVConfigManager(path)
    await kv.put("NS", "k", "1")
    await kv.put("NS", "k", "2")
    path.write_text("{")
    again = KVConfigManager(path)
    again.load()
    assert again.get("NS", "k") == "1"


async def test_changes_at_the_same_time_are_all_kept(tmp_path):
    kv = KVConfigManager(tmp_path / "kvConfig.json")
    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(kv.put, "NS", f"k{number}", "v")
    again = KVConfigManager(tmp_path / "kvConfig.json")
    again.load()
    assert again.namespace("NS") == {f"k{number}": "v" for number in range(8)}


def test_rocketmqs_file_is_read(tmp_path):
    path = tmp_path / "kvConfig.json"
    path.write_text('{\n\t"configTable":{"ORDER_TOPIC_CONFIG":{"T1":"broker-a:4"\n\t\t}\n\t}\n}')
    kv = KVConfigManager(path)
    kv.load()
    assert kv.get("ORDER_TOPIC_CONFIG", "T1") == "broker-a:4"


async def test_without_a_file_values_live_in_memory():
    kv = KVConfigManager()
    kv.load()
    await kv.put("NS", "k", "v")
    assert kv.get("NS", "k") == "v"


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"configTable":[]}', '{"configTable":{"NS":1}}'])
def test_an_unreadable_file_is_named(tmp_path, text):
    path = tmp_path / "kvConfig.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"kvConfig\.json is not a KV configuration"):
        KVConfigManager(path).load()


async def test_empty_namespaces_go_when_there_is_no_room(monkeypatch):
    """RocketMQ keeps them for ever; here they count as entries."""
    monkeypatch.setattr(kv_config, "ENTRIES_MAX", 3)
    kv = KVConfigManager()
    for namespace in "abc":
        await kv.put(namespace, "k", "v")
        await kv.delete(namespace, "k")
    assert kv.namespace("a") == {}
    await kv.put("d", "k", "v")
    assert [kv.namespace(namespace) for namespace in "abcd"] == [None, None, None, {"k": "v"}]


async def test_all_of_it_has_a_bound(monkeypatch):
    """Counted when the change is made: concurrent changes cannot exceed the limit together."""
    monkeypatch.setattr(kv_config, "BYTES_MAX", 100)
    kv = KVConfigManager()
    await kv.put("NS", "k", "x" * 90)
    await kv.put("NS", "k", "y" * 97)
    for namespace, key, value in [("NS", "k", "é" * 49), ("N", "", ""), ("NS", "l", "")]:
        with pytest.raises(RequestError, match="at most 100"):
            await kv.put(namespace, key, value)
    assert kv.namespace("NS") == {"k": "y" * 97}


async def test_changes_at_the_same_time_do_not_pass_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(kv_config, "ENTRIES_MAX", 3)
    kv, refused = KVConfigManager(tmp_path / "kvConfig.json"), []

    async def put(key):
        try:
            await kv.put("NS", key, "v")
        except RequestError:
            refused.append(key)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(put, f"k{number}")
    assert (len(kv.namespace("NS")), len(refused)) == (3, 5)


async def test_what_cannot_be_written_is_not_changed(tmp_path):
    (tmp_path / "file").write_text("")
    kv = KVConfigManager(tmp_path / "file" / "kvConfig.json")
    with pytest.raises(OSError, match="file"):
        await kv.put("NS", "k", "v")
    assert kv.get("NS", "k") is None
