"""What load balancers are told, by what members say of themselves."""

import pytest

from tests.cluster.http.members import MASTER, SLAVE
from twinlog.cluster.http.probes import is_counted, lag_of, node_of, not_following, not_serving


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
    why = not_serving(node_of("broker", said), said)
    assert (why is None) is serves, why


@pytest.mark.parametrize(
    ("state", "follows"), [("streaming", True), ("retrying", False), ("diverged", False), ("idle", False)]
)
def test_a_slave_follows_while_it_streams(state, follows):
    said = {**SLAVE, "state": state}
    assert (not_following(node_of("broker", said), said) is None) is follows


def test_lag_is_what_the_masters_log_has_and_the_own_has_not_or_not_on_its_disk():
    assert [lag_of(SLAVE, 1000, mode) for mode in ("written", "flushed")] == [100, 600]
    assert lag_of(SLAVE, 800, "written") == 0


def test_a_slave_counts_by_its_masters_word():
    assert is_counted(SLAVE, MASTER)
    for field in ("counted", "inSync"):
        (connection,) = MASTER["slaves"]
        assert not is_counted(SLAVE, {**MASTER, "slaves": [{**connection, field: False}]})
    assert not is_counted(SLAVE, {"maxOffset": 1000})


def test_a_name_server_serves():
    node = node_of("namesrv", {"name": "namesrv", "state": "serving"})
    assert not_serving(node, {}) is None
    assert not_following(node, {}) == "its role is namesrv"
