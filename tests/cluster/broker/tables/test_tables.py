"""Groups, offsets, locks: small tables with RocketMQ's rules."""

import pytest

from twinlog.cluster.broker.tables.groups import BUILT_IN_GROUPS, SubscriptionGroupConfig, SubscriptionGroupManager
from twinlog.cluster.broker.tables.offsets import NOT_STORED, ConsumerOffsetManager


def test_groups_are_created_on_first_use_where_allowed():
    groups = SubscriptionGroupManager(lambda: 7)
    assert groups.find("CG1") == SubscriptionGroupConfig(name="CG1")
    assert groups.version.to_json() == {"counter": 1, "timestamp": 7}
    strict = SubscriptionGroupManager(lambda: 7, auto_create=False)
    assert strict.find("CG1") is None
    assert strict.find("CID_RMQ_SYS_TRANS") is not None
    assert all(strict.find(name) for name in BUILT_IN_GROUPS)


@pytest.mark.parametrize("name", ["", "a@b", "../x", "g" * 256])
def test_impossible_group_names_are_refused(name):
    groups = SubscriptionGroupManager(lambda: 7)
    assert groups.find(name) is None
    with pytest.raises(ValueError):
        SubscriptionGroupConfig.read({"groupName": name})


def test_fields_that_a_request_leaves_out_take_the_defaults():
    """And those of RocketMQ 5 are dropped."""
    config = SubscriptionGroupConfig.read({"groupName": "G", "retryMaxTimes": 3, "groupSysFlag": 0, "attributes": {}})
    assert config == SubscriptionGroupConfig(name="G", retry_times_max=3)


def test_offsets_go_where_they_are_told_even_back():
    offsets = ConsumerOffsetManager()
    assert offsets.query("G", "T", 0) == NOT_STORED
    offsets.commit("G", "T", 0, 9)
    offsets.commit("G", "T", 0, 3)
    assert offsets.query("G", "T", 0) == 3
    assert offsets.topics_of("G") == ["T"]
    assert offsets.groups_of("T") == ["G"]


def test_a_slave_takes_the_masters_offsets_key_by_key():
    """As the real slave: a key is replaced whole, other keys stay, names that cannot be are left out."""
    offsets = ConsumerOffsetManager()
    offsets.commit("G", "T", 0, 9)
    offsets.commit("G", "T", 1, 9)
    offsets.commit("H", "T", 0, 5)
    offsets.merge({"offsetTable": {"T@G": {"0": 2}, "../evil@G": {"0": 1}, "no group": {"0": 1}}})
    assert offsets.table == {"T@G": {0: 2}, "T@H": {0: 5}}
