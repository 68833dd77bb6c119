"""What load balancers are told, by what members say of themselves."""

import pytest

from tests.cluster.http.members import MASTER, SLAVE
from twinlog.cluster.http.probes import is_counted, lag_of, node_of, not_following, not_serving
from twinlog.cluster.http.source import NamesrvStatus
from twinlog.cluster.remoting.member_status import MemberStatus

SLAVE_STATUS = MemberStatus.from_json(SLAVE)


@pytest.mark.parametrize(
    ("said", "serves"),
    [
        (MASTER, True),
        ({**MASTER, "roleState": "serving"}, True),
        ({**MASTER, "roleState": "holding"}, True),
        ({**MASTER, "roleState": "fenced", "roleWhy": "another one was chosen"}, False),
        ({**MASTER, "roleState": "starting"}, False),
        ({**MASTER, "state": "failed", "whyNotWritable": "the disk is full"}, False),
        (SLAVE, False),
    ],
)
def test_a_master_serves_unless_it_is_kept_from_it(said, serves):
    status = MemberStatus.from_json(said)
    why = not_serving(node_of(status), status)
    assert (why is None) is serves, why


@pytest.mark.parametrize(
    ("state", "follows"), [("streaming", True), ("retrying", False), ("diverged", False), ("idle", False)]
)
def test_a_slave_follows_while_it_streams(state, follows):
    status = MemberStatus.from_json({**SLAVE, "state": state})
    assert (not_following(node_of(status), status) is None) is follows


def test_lag_is_what_the_masters_log_has_and_the_own_has_not_or_not_on_its_disk():
    assert [lag_of(SLAVE_STATUS, 1000, mode) for mode in ("written", "flushed")] == [100, 600]
    assert lag_of(SLAVE_STATUS, 800, "written") == 0


def test_a_slave_counts_by_its_masters_word():
    assert is_counted(SLAVE_STATUS, MemberStatus.from_json(MASTER))
    for field in ("counted", "inSync"):
        (connection,) = MASTER["slaves"]
        assert not is_counted(
            SLAVE_STATUS, MemberStatus.from_json({**MASTER, "slaves": [{**connection, field: False}]})
        )
    assert not is_counted(SLAVE_STATUS, MemberStatus(max_offset=1000))


def test_a_name_server_serves():
    node = node_of(NamesrvStatus())
    assert not_serving(node, NamesrvStatus()) is None
    assert not_following(node, MemberStatus()) == "its role is namesrv"
