"""Conditions of `twinlog wait`: what they take to be missing."""

import pytest
from attrs import evolve

from tests.cluster.observe.members import MASTER, SLAVE, as_member, cluster
from twinlog.cluster.admin.waiting import parse_condition
from twinlog.cluster.remoting.member_status import NO_STATUS

BEHIND = as_member(SLAVE, lag_bytes=1000, lag_seconds=2.0, state="catching up")
UNKNOWN = as_member(SLAVE, lag_bytes=None, lag_seconds=None)


@pytest.mark.parametrize(
    ("text", "slave", "missing"),
    [
        ("healthy", SLAVE, []),
        ("healthy", BEHIND, ["broker-a-1 is catching up"]),
        ("healthy", evolve(SLAVE, status=NO_STATUS), []),  # A note is no illness.
        ("level", SLAVE, []),
        ("level", BEHIND, ["broker-a-1 is 1000 bytes behind"]),
        ("level", UNKNOWN, ["broker-a-1 is ? bytes behind"]),
        ("lag<1001", BEHIND, []),
        ("lag<1kB", BEHIND, ["broker-a-1 is 1000 bytes behind"]),
        ("behind<2.5s", BEHIND, []),
        ("behind<2", BEHIND, ["broker-a-1 is 2.0 s behind"]),
        ("behind<2", UNKNOWN, ["broker-a-1 is ? s behind"]),
        ("members=2", SLAVE, []),
        ("members=3", SLAVE, ["2 of 3 members are there"]),
        ("members=2", as_member(SLAVE, state="unreachable"), ["1 of 2 members are there"]),
        ("broker-a-1=catching up", BEHIND, []),
        ("broker-a-1=streaming", BEHIND, ["broker-a-1 is catching up, not streaming"]),
        ("broker-a-1=slave", BEHIND, []),
        ("10.0.0.2:10911=streaming", SLAVE, []),
        ("broker-z-1=streaming", SLAVE, ["broker-z-1 is not registered"]),
    ],
)
def test_what_is_missing(text, slave, missing):
    assert parse_condition(text).missing(cluster(MASTER, slave)) == missing


def test_without_a_master_nobody_is_level():
    assert parse_condition("level").missing(cluster(SLAVE)) == ["broker-a has no master"]


@pytest.mark.parametrize("text", ["", "well", "lag<", "lag<5 apples", "members=", "members=x", "behind<soon", "=x"])
def test_what_is_no_condition_is_refused_with_those_that_are(text):
    with pytest.raises(ValueError, match="expected"):
        parse_condition(text)
