"""Faults of a cluster for tests: the example of docs/testing.md, and each of its methods once."""

import re
from pathlib import Path

import pytest

from twinlog.client import RemotingError, SendStatus
from twinlog.testing import GoneError

pytestmark = pytest.mark.timeout(180)
PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


@pytest.mark.rocketmq_cluster(slaves=2)
def test_three_members_elect_and_partition(rocketmq_cluster):
    """The test of the page, then its other half: a master that is cut off is replaced, and comes back as a slave."""
    (text,) = re.findall(r"```python\n# test_failover.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict = {}
    exec(text, names)
    names["test_nothing_is_lost_with_the_master"](rocketmq_cluster)
    gone, before = "broker-a-0", rocketmq_cluster.master
    assert gone not in (before, *rocketmq_cluster.slaves)
    rocketmq_cluster.restart(gone)
    rocketmq_cluster.wait_healthy()

    rocketmq_cluster.partition(before)
    after = rocketmq_cluster.wait_master(other_than=before)
    assert rocketmq_cluster.master == after
    assert rocketmq_cluster.send("orders", b"pen").status is SendStatus.SEND_OK
    rocketmq_cluster.heal()
    rocketmq_cluster.wait_healthy()
    assert {message.body for message in rocketmq_cluster.messages("orders")} == {b"book", b"pen"}
    assert before in rocketmq_cluster.slaves


def test_a_pair_and_its_faults(rocketmq_cluster):
    """A person decides here: nobody is elected."""
    first, second = rocketmq_cluster.members
    assert (rocketmq_cluster.master, rocketmq_cluster.slaves) == (first, (second,))
    topic = rocketmq_cluster.fresh_topic(queues=1)
    assert rocketmq_cluster.switchover() == second
    assert rocketmq_cluster.send(topic, b"1").status is SendStatus.SEND_OK

    rocketmq_cluster.partition(first)
    assert rocketmq_cluster.send(topic, b"2").status in (SendStatus.FLUSH_SLAVE_TIMEOUT, SendStatus.SLAVE_NOT_AVAILABLE)
    rocketmq_cluster.heal()
    rocketmq_cluster.wait_healthy()

    rocketmq_cluster.freeze(second)
    with pytest.raises(RemotingError):
        rocketmq_cluster.send(topic, b"3", timeout_ms=500)
    rocketmq_cluster.thaw(second)
    rocketmq_cluster.wait_healthy()

    rocketmq_cluster.kill(second)
    with pytest.raises(GoneError, match=f"{second} does not run"):
        rocketmq_cluster.pid(second)
    with pytest.raises(GoneError, match="no master serves now"):
        _ = rocketmq_cluster.master
    assert rocketmq_cluster.failover() == first
    assert [message.body for message in rocketmq_cluster.messages(topic)][:2] == [b"1", b"2"]

    rocketmq_cluster.restart("namesrv")
    rocketmq_cluster.restart(second)
    rocketmq_cluster.wait_healthy()
    with pytest.raises(ValueError, match="'broker-b-0' is no member: expected one of namesrv, broker-a-0, broker-a-1"):
        rocketmq_cluster.kill("broker-b-0")
