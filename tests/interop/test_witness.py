"""A pair of ours with RocketMQ's name server, which says who is registered, and no more."""

import signal

import pytest

from tests.support.process_group import jars
from tests.support.process_group.rocketmq import NameServer
from tests.support.process_group.roles import Group, RoleBroker
from tests.support.process_group.status import status
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(150)
SETTINGS = {"autoFailover": "members", "haLeaseMs": "1500", "autoFailoverAfterMs": "2000"}


@pytest.mark.parametrize("version", [jars.VERSION, jars.VERSION_5])
def test_a_pair_asks_who_is_registered(root, version):
    """A master that hangs is registered for two minutes more, so the slave stays and says why; one that is killed is not, and is
    passed. 4.9's says nothing to what it does not know.
    """
    with NameServer(root / "namesrv", version=version) as namesrv:
        members = [RoleBroker(root / f"m{number}", namesrv.address, number, SETTINGS) for number in (0, 1)]
        with members[0] as first, members[1] as second:
            group = Group(namesrv, (first, second))
            group.wait_record()
            wait_for(lambda: status(second)["groupRecord"]["lossFreeFrom"] is not None, "a slave that may be elected")
            first.send_signal(signal.SIGSTOP)
            says = f"{namesrv.address} has the master {first.address} registered (RocketMQ: "
            second.wait_until(lambda: says in second.log.read_text(), "its word that the name server has the master")
            assert status(second)["roleState"] == "following"
            first.send_signal(signal.SIGCONT)
            group.wait_healthy()
            first.kill()
            wait_for(lambda: status(second)["roleState"] == "serving", "an election")
            assert f"nor do {namesrv.address} hear it" in group.twinlog("history").stdout
