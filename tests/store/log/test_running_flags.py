"""Conditions under which a store refuses bytes, for producers and for replication."""

import pytest

from twinlog.store.log.running_flags import RunningFlags, StoreCondition


def test_nothing_is_the_matter():
    flags = RunningFlags()
    assert (flags.why_not_writable, flags.why_not_appendable, flags.is_passing) == ("", "", True)


def test_a_disk_above_the_limit_stops_producers_only():
    flags = RunningFlags()
    assert flags.set(StoreCondition.DISK_FULL, "91 % of the disk is used")
    assert not flags.set(StoreCondition.DISK_FULL, "92 % of the disk is used")
    assert flags.why_not_writable == "92 % of the disk is used"
    assert flags.why_not_appendable == ""
    assert flags.clear(StoreCondition.DISK_FULL)
    assert not flags.clear(StoreCondition.DISK_FULL)
    assert flags.why_not_writable == ""


def test_the_worst_is_what_is_told():
    flags = RunningFlags()
    reasons = {condition: condition.value for condition in StoreCondition}
    for condition in reversed(StoreCondition):
        flags.set(condition, reasons[condition])
        assert flags.why_not_writable == reasons[condition]
    assert flags.why_not_appendable == "failed"


@pytest.mark.parametrize("condition", [StoreCondition.FAILED, StoreCondition.DISK_REFUSES])
def test_the_first_reason_is_the_cause(condition):
    flags = RunningFlags()
    assert flags.set(condition, "cause")
    assert not flags.set(condition, "consequence")
    assert flags.why_not_writable == flags.why_not_appendable == "cause"
    assert condition in flags


def test_what_passes_by_itself():
    flags = RunningFlags()
    flags.set(StoreCondition.DISK_REFUSES, "no space")
    flags.set(StoreCondition.DISK_FULL, "91 %")
    assert flags.is_passing
    flags.set(StoreCondition.FAILED, "EIO")
    assert not flags.is_passing
    with pytest.raises(AssertionError):
        flags.clear(StoreCondition.FAILED)
