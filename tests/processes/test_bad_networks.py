"""toxiproxy between a slave and its master, and between clients and the master: what is slow, narrow, cut and reset.

Members are on 127.0.0.1; the slave, and clients of the name server's outside port, come in at 127.0.0.2, where toxiproxy is.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trio
from attrs import frozen

from tests.support.clients.java_client import JavaClient
from tests.support.clients.java_traffic import JavaTraffic
from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group import twinlog
from tests.support.process_group.ports import HOST, free_port
from tests.support.process_group.roles import Group, RoleBroker, Traffic, in_thread
from tests.support.process_group.status import send, status
from tests.support.process_group.toxiproxy import Proxy, Toxiproxy, through_bad_ways
from tests.support.waiting import wait_for
from twinlog.cluster.remoting.codes import ResponseCode

BESIDE = "127.0.0.2"
SETTINGS = {
    "bindAddress": HOST,
    "haListenHost": HOST,
    "brokerIP2": BESIDE,
    "slaveTimeout": "500",
    "haSendHeartbeatInterval": "500",
    "haHousekeepingInterval": "3000",
}
OK, TIMED_OUT = ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT
NO_SLAVE = ResponseCode.SLAVE_NOT_AVAILABLE

pytestmark = pytest.mark.timeout(120)


@frozen
class Stage:
    """A master, its slave, and toxiproxy on both ways to the master."""

    group: Group
    outside: str  # The name server, for clients beyond the proxy.
    ha: Proxy
    clients: Proxy

    @property
    def master(self) -> RoleBroker:
        return self.group.members[0]

    def lag(self) -> int:
        (slave,) = status(self.master)["slaves"]
        return int(slave["lagBytes"])

    def send(self, count: int, size: int = 1000) -> list[int]:
        """The answers to so many messages, one after the other, past the proxy."""
        return send(self.master.port, "past", count, size=size)

    def wait_caught_up(self) -> None:
        """Until producers are promised two copies again, and both logs are the same."""
        wait_for(lambda: self.send(1) == [OK], "SEND_OK")
        wait_for_same_commitlog(*(each.commit_log for each in self.group.members))


@pytest.fixture(scope="module")
def stage(tmp_path_factory) -> Iterator[Stage]:
    if shutil.which("go") is None:
        assert os.environ.get("CI") != "true"
        pytest.skip("toxiproxy needs Go to be built")
    with running(tmp_path_factory.mktemp("bad-networks")) as found:
        yield found


@contextmanager
def running(root: Path) -> Iterator[Stage]:
    outside = free_port()
    namesrv = twinlog.NameServer(root / "namesrv")
    with (namesrv.root / "namesrv.conf").open("a") as conf:
        conf.write(f"outsideListenPort={outside}\noutsideAddress={BESIDE}\n")
    with ExitStack() as stack:
        stack.enter_context(namesrv)
        proxies = stack.enter_context(Toxiproxy(root))
        brokers = [RoleBroker(root / f"m{number}", namesrv.address, number, SETTINGS) for number in range(2)]
        first, second = brokers
        ha = proxies.proxy("ha", f"{BESIDE}:{first.ha_port}", f"{HOST}:{first.ha_port}")
        clients = proxies.proxy("clients", f"{BESIDE}:{first.port}", first.address)
        proxies.proxy("clients of the slave", f"{BESIDE}:{second.port}", second.address)
        group = Group(namesrv, tuple(stack.enter_context(broker) for broker in brokers))
        group.wait_record()
        yield Stage(group, f"{HOST}:{outside}", ha, clients)


def is_suspended_in(codes: list[int]) -> bool:
    """Three deadlines in a row are missed, after one of before the first look at who is level; then nobody waits for it."""
    missed = codes.count(TIMED_OUT)
    return missed in (3, 4) and codes == [TIMED_OUT] * missed + [NO_SLAVE] * (len(codes) - missed)


def test_a_slow_way_takes_its_time_and_no_promise(stage):
    with stage.ha.toxic("latency", latency=150):
        began = time.monotonic()
        assert stage.send(5) == [OK] * 5
        assert time.monotonic() - began > 5 * 0.15
    stage.wait_caught_up()


def test_who_lags_on_a_narrow_way_is_waited_for_and_then_is_not(stage):
    with stage.ha.toxic(
        "bandwidth", rate=10
    ):  # KB a second: two seconds a message, of which a producer waits half a one.
        assert is_suspended_in(stage.send(6, size=20_000))
        assert stage.lag() > 50_000
    stage.wait_caught_up()
    assert stage.lag() == 0


def test_a_slave_that_no_byte_reaches_is_given_up(stage):
    """Its connection stays. Both ends give it up after haHousekeepingInterval."""
    with stage.ha.toxic("timeout", timeout=0), stage.ha.toxic("timeout", "upstream", timeout=0):
        assert is_suspended_in(stage.send(6))
        wait_for(lambda: all(each["state"] != "streaming" for each in status(stage.master)["slaves"]), "it is given up")
        assert stage.send(1) == [NO_SLAVE]
    stage.wait_caught_up()


def test_no_slave_can_connect(stage):
    with stage.ha.cut():
        assert OK not in stage.send(5)
    stage.wait_caught_up()


def test_a_slave_whose_connections_are_reset_counts_once(stage):
    """Also while the end of its last one is told late."""
    with stage.ha.toxic("reset_peer", timeout=200), stage.ha.toxic("slow_close", delay=1000):
        codes, counted = [], []
        ends_at = time.monotonic() + 4
        while time.monotonic() < ends_at:  # Several connections; without a slave answers come at once.
            codes += stage.send(1, size=3000)
            counted.append(len(status(stage.master)["slaves"]))
            time.sleep(0.05)
        assert set(codes) <= {OK, TIMED_OUT, NO_SLAVE}
        assert max(counted) == 1, counted
    stage.wait_caught_up()
    assert status(stage.master)["policy"]["inSync"] == 2


async def test_clients_lose_no_promise_on_bad_ways(stage):
    """Nor does a message come twice, whose producer does not repeat it."""
    traffic = Traffic(stage.outside, topic="clients")
    async with traffic.flowing(2):
        await through_bad_ways(stage.clients, traffic.more)
    print(f"acknowledged {len(traffic.acknowledged)}, others {traffic.others}")
    traffic.check(await traffic.consumed())


async def test_a_java_client_loses_no_promise_on_bad_ways(stage, tmp_path):
    with JavaClient(tmp_path) as java:
        traffic = JavaTraffic(java, stage.outside, "java")
        async with traffic.flowing():
            await through_bad_ways(stage.clients, traffic.more)
        await traffic.check()


async def test_what_was_promised_on_a_bad_way_survives_the_master(stage):
    """The way to the slave is slow, breaks, and is cut; then the master dies, and the slave has it all."""
    traffic = Traffic(stage.outside, topic="survives")
    first, second = stage.group.members
    async with traffic.flowing(2):
        with stage.ha.toxic("latency", latency=20, jitter=20):
            await traffic.more(50)
            with stage.ha.toxic("reset_peer", timeout=300):
                await trio.sleep(1)
            await traffic.more(20)
            with stage.ha.cut():
                await trio.sleep(0.5)
                await in_thread(first.kill)
        await in_thread(stage.group.twinlog, "failover", "--candidate", second.label, "--yes")
    print(f"acknowledged {len(traffic.acknowledged)}, others {traffic.others}")
    traffic.check(await traffic.consumed())
