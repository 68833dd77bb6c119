"""Keys that may change while a broker runs, and the values that each may have."""

from enum import Enum

import attrs
import pytest

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.config_changes import BLACK_LIST, CHANGEABLE, range_text, read_changes
from twinlog.cluster.remoting.errors import RequestError
from twinlog.store.config import StoreConfig


def changes(body):
    return read_changes(body, BrokerConfig(), StoreConfig(), {"listenPort", "storePathRootDir", "brokerRole"})


def refused(body):
    with pytest.raises(RequestError) as caught:
        changes(body)
    return caught.value.code, caught.value.remark


def test_every_key_that_may_change_is_an_option():
    options = {
        each.metadata["key"]: each for cls in (BrokerConfig, StoreConfig) for each in attrs.fields(cls) if each.metadata
    }
    assert options.keys() >= CHANGEABLE.keys()
    for key, allowed in CHANGEABLE.items():
        assert (allowed is not None) == (type(options[key].default) is int), key


def test_every_default_may_be_set_again():
    for cls in (BrokerConfig, StoreConfig):
        config = cls()
        for each in attrs.fields(cls):
            allowed = CHANGEABLE.get(each.metadata.get("key"))
            assert allowed is None or getattr(config, each.name) in allowed, each.name


def test_no_key_is_a_path_a_host_or_a_command():
    """Numbers, switches and a choice; the one text among them is hours of the day, and is checked as such."""
    options = {
        each.metadata["key"]: each for cls in (BrokerConfig, StoreConfig) for each in attrs.fields(cls) if each.metadata
    }
    assert {key for key in CHANGEABLE if type(options[key].default) not in (int, bool)} == {"deleteWhen", "haSecret"}
    assert isinstance(options["haSecret"].default, Enum)


def test_values_are_read_by_type():
    found = changes(b"slaveReadEnable=true\nfileReservedTime = 24\ndeleteWhen=03;04\nbrokerPermission=4\n")
    assert found.broker == {"slave_read_enable": True, "broker_permission": 4}
    assert found.store == {"file_reserved_time_hours": 24, "delete_when": "03;04"}
    assert found.texts["slaveReadEnable"] == "true"


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"slaveReadEnable=yes", "slaveReadEnable=yes: expected true or false"),
        (b"fileReservedTime=soon", "fileReservedTime=soon: expected a whole number"),
        (b"fileReservedTime=0", "fileReservedTime=0: expected 1 to 87600"),
        (b"brokerPermission=7", "brokerPermission=7: expected 0, 2, 4 or 6"),
        (b"maxMessageSize=99999999999999999999", "maxMessageSize=99999999999999999999: expected a whole number"),
        (b"maxMessageSize=", "maxMessageSize=: expected a whole number"),
        (b"maxMessageSize", "maxMessageSize=: expected a whole number"),
        (b"deleteWhen=99", None),
        (b"\xff\xfe=1", None),
    ],
)
def test_values_that_cannot_be(body, remark):
    code, said = refused(body)
    assert code == 1
    assert remark is None or said == remark


@pytest.mark.parametrize("key", sorted(BLACK_LIST))
def test_the_black_list_of_rocketmq(key):
    assert refused(f"{key}=/tmp/x".encode()) == (16, "Can not update config in black list.")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("listenPort", "cannot be changed while the broker runs"),
        ("storePathRootDir", "cannot be changed while the broker runs"),
        ("brokerRole", "cannot be changed while the broker runs"),
        (
            "autoFailover",
            "is of the group, not of one broker: twinlog auto-failover off, members or etcd",
        ),
        ("sendMessageThreadPoolNums", "has no effect here"),
        ("enableCalcFilterBitMap", "is always false: twinlog has no bit maps"),
        ("noSuchKey", "there is no option noSuchKey"),
        ("x" * 10_000, "there is no option"),
        ("", "there is no option"),
    ],
)
def test_other_keys_are_refused(key, words):
    code, remark = refused(f"slaveReadEnable=true\n{key}=1".encode())
    assert code == 16
    assert words in remark
    assert len(remark) < 300


def test_not_too_many_keys():
    assert refused("\n".join(f"k{number}=1" for number in range(1000)).encode())[0] == 1


def test_the_last_line_of_a_key_counts():
    assert changes(b"slaveReadEnable=false\nslaveReadEnable=true").broker == {"slave_read_enable": True}


def test_ranges_in_words():
    assert range_text(range(1, 11)) == "1 to 10"
    assert range_text(range(0, 7, 2)) == "0, 2, 4 or 6"
