"""Members whose networks change under them, with Compose v2: other IPs, cut off and back, one in another network.

Clients outside are told 127.0.0.2, where toxiproxy is, between them and the published ports.

One story, with producers outside that send all the time, RocketMQ's Java client among them. Nothing that they were promised is
lost, nobody becomes another member, and nobody fails over but where a person, or the mode, says so. A few messages a second do.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial

import pytest
import trio
from docker.types import IPAMConfig, IPAMPool

from tests.docker.compose import BROKERS, NAMESRV, SERVICES, Compose, until, until_healthy
from tests.docker.conftest import project
from tests.docker.prometheus_image import prometheus_image
from tests.monitoring.prometheus import Prometheus
from tests.support.clients.java_client import JavaClient
from tests.support.clients.java_traffic import JavaTraffic
from tests.support.process_group.go_programs import COMPOSE
from tests.support.process_group.roles import Traffic
from tests.support.process_group.toxiproxy import Proxy, Toxiproxy, through_bad_ways

OUTSIDE = "127.0.0.2"
in_thread = trio.to_thread.run_sync


@pytest.fixture(scope="module")
def compose(image, daemon):
    variables = {"PROMETHEUS_IMAGE": prometheus_image(daemon), "TWINLOG_ADDRESS": OUTSIDE}
    with project(program=str(COMPOSE.program()), variables=variables) as found:
        found("up", "-d")
        yield found


@pytest.fixture(scope="module", autouse=True)
def ways(tmp_path_factory) -> Iterator[dict[str, Proxy]]:
    """The way of clients outside to each broker."""
    with Toxiproxy(tmp_path_factory.mktemp("toxiproxy")) as server:
        ports = {name: 10911 + 10 * number for number, name in enumerate(BROKERS)}
        yield {name: server.proxy(name, f"{OUTSIDE}:{port}", f"127.0.0.1:{port}") for name, port in ports.items()}


@pytest.fixture(scope="module")
def earlier() -> list[Traffic]:
    """What producers were told by the tests before."""
    return []


@pytest.fixture
def traffic(earlier, request) -> Traffic:
    made = Traffic(NAMESRV, topic=request.node.name, pause_seconds=0.2)
    earlier.append(made)
    return made


@pytest.fixture(scope="module")
def java(tmp_path_factory):
    with JavaClient(tmp_path_factory.mktemp("java")) as client:
        yield JavaTraffic(client, NAMESRV, "from-java", pause_ms=400)


@pytest.fixture(scope="module")
def ids(compose) -> dict[str, str]:
    """Who is who, before anything moves."""
    return {name: each["member_id"] for name, each in members(compose, "broker-a-0").items()}


def members(compose: Compose, via: str) -> dict[str, dict]:
    found = json.loads(compose.twinlog(via, "list", "-o", "json"))
    return {each["name"]: each for each in found["members"]}


def reigns(compose: Compose) -> list[tuple[int, str]]:
    found = json.loads(compose.twinlog("broker-a-1", "history", "-o", "json"))["reigns"]
    return [(each["epoch"], each["new"]) for each in found]


def serving(compose: Compose, among: Sequence[str]) -> list[str]:
    """Who serves, by the status of each of these."""
    found = members(compose, among[0])
    return [name for name in among if name in found and found[name]["state"] == "serving"]


async def until_as_before(compose: Compose, ids: dict[str, str], master: str) -> None:
    """One master that serves, two slaves that follow, all under their ids."""

    def is_so() -> bool:
        found = members(compose, master)
        states = {name: each["state"] for name, each in found.items()}
        expected = {name: "serving" if name == master else "streaming" for name in BROKERS}
        return states == expected and {name: each["member_id"] for name, each in found.items()} == ids

    await until(is_so, f"{master} serves, the others follow")


def switches_over(compose: Compose, candidate: str) -> bool:
    """Whether the command does it; why not is printed."""
    done = compose.container("broker-a-0").exec_run(["twinlog", "switchover", "--candidate", candidate, "--yes"])
    print(f"switchover: exit status {done.exit_code}, {done.output.decode()}")
    return bool(done.exit_code == 0)


async def set_auto_failover(compose: Compose, mode: str) -> None:
    await in_thread(compose.twinlog, "broker-a-0", "auto-failover", mode)

    def are_known() -> bool:
        found = json.loads(compose.twinlog("broker-a-0", "auto-failover", "-o", "json"))["members"]
        return [*found.values()] == [mode] * len(BROKERS)

    await until(are_known, f"autoFailover={mode} in all records")


async def test_it_comes_up_with_compose_v2(compose):
    assert "v2" in await in_thread(compose, "version")
    await until_healthy(compose, *SERVICES)
    await set_auto_failover(compose, "off")
    await in_thread(partial(compose, "--profile", "monitoring", "up", "-d", "prometheus"))


async def test_members_come_back_with_another_ip_each(compose, traffic, java, ids):
    """The two slaves, one after the other, then the master; that one's absence is the only one that producers notice."""
    async with traffic.flowing(), java.flowing():
        await traffic.more(5)
        for number, name in enumerate(("broker-a-2", "broker-a-1", "broker-a-0")):
            others = dict(traffic.others)
            before = compose.ip(name)
            await in_thread(partial(compose, "stop", name))
            await in_thread(compose.network.disconnect, compose.container(name))
            await in_thread(compose.connect, name, compose.network, f"198.51.100.{40 + number}")
            await in_thread(partial(compose, "start", name))
            await until_as_before(compose, ids, "broker-a-0")
            assert compose.ip(name) == f"198.51.100.{40 + number}" != before
            await traffic.more(5)
            await java.more(3)
            assert name == "broker-a-0" or traffic.others == others
    traffic.check(await traffic.consumed())
    assert len(await in_thread(reigns, compose)) == 1


@pytest.mark.long
async def test_clients_on_bad_ways_lose_no_promise(compose, traffic, java, ways):
    async with traffic.flowing():
        await through_bad_ways(ways["broker-a-0"], traffic.more, messages=5)
    traffic.check(await traffic.consumed())
    async with java.flowing():
        await through_bad_ways(ways["broker-a-0"], java.more, messages=2)


@pytest.mark.long
async def test_a_slave_that_is_cut_off_costs_nothing(compose, traffic, ids):
    """The other one acknowledges meanwhile. It comes back with another IP."""
    async with traffic.flowing():
        await in_thread(compose.network.disconnect, compose.container("broker-a-2"))
        others = dict(traffic.others)
        await traffic.more(10)
        await in_thread(compose.connect, "broker-a-2", compose.network, "198.51.100.50")
        await until_as_before(compose, ids, "broker-a-0")
        assert traffic.others == others
    traffic.check(await traffic.consumed())


async def test_a_master_that_is_cut_off_promises_nothing_and_goes_on(compose, traffic, java, ids):
    """Nobody takes its place, since that is left to a person. What was sent inside its own container is not promised either."""
    async with traffic.flowing(), java.flowing():
        await traffic.more(5)
        await java.more(3)
        await in_thread(compose.network.disconnect, compose.container("broker-a-0"))
        await trio.sleep(0.5)
        before = len(traffic.acknowledged)
        await trio.sleep(3)
        assert len(traffic.acknowledged) == before
        await in_thread(compose.connect, "broker-a-0", compose.network, "198.51.100.51")
        await until_as_before(compose, ids, "broker-a-0")
        await traffic.more(5)
        await java.more(3)
    traffic.check(await traffic.consumed())
    assert len(await in_thread(reigns, compose)) == 1


async def test_prometheus_finds_all_members_where_they_are_now(compose):
    """In a container of its own, with the configuration and the rules that are shipped."""
    prometheus = Prometheus("127.0.0.1:9090")
    await in_thread(prometheus.wait_for, 'sum(up{job="twinlog"})', 1.0 + len(BROKERS))
    await in_thread(prometheus.wait_for, 'sum(rocketmq_ha_role_info{role="slave"})', 2.0)
    groups = (await in_thread(prometheus.get, "rules"))["groups"]
    health = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    assert len(health) > 10
    assert set(health.values()) == {"ok"}


async def test_a_member_moves_to_another_network(compose, traffic, earlier, java, ids):
    """Where the others have an address, too; then it becomes the master there."""
    pool = IPAMConfig(pool_configs=[IPAMPool(subnet="198.51.100.192/26")])
    labels = {"com.docker.compose.project": compose.project}
    other = await in_thread(
        partial(compose.daemon.networks.create, f"{compose.project}_other", ipam=pool, labels=labels)
    )
    try:
        async with traffic.flowing(), java.flowing():
            await java.more(3)
            for name in ("namesrv", "broker-a-0", "broker-a-2"):
                await in_thread(compose.connect, name, other)
            await in_thread(compose.connect, "broker-a-1", other, "198.51.100.200")
            await in_thread(compose.network.disconnect, compose.container("broker-a-1"))
            await until_as_before(compose, ids, "broker-a-0")
            assert [*compose.container("broker-a-1").attrs["NetworkSettings"]["Networks"]] == [other.name]
            await traffic.more(5)
            await until(partial(switches_over, compose, "broker-a-1"), "the old network's connections end, after 10 s")
            await until_as_before(compose, ids, "broker-a-1")
            await traffic.more(5)
        assert [epoch for epoch, _ in await in_thread(reigns, compose)] == [0, 1]

        await set_auto_failover(compose, "members")
        await in_thread(other.disconnect, compose.container("broker-a-1"))
        slaves = ("broker-a-0", "broker-a-2")
        await until(lambda: serving(compose, slaves), "one that is not cut off is elected")
        await in_thread(compose.connect, "broker-a-1", other, "198.51.100.201")
        (master,) = await in_thread(serving, compose, slaves)
        await until_as_before(compose, ids, master)
        for each in earlier:
            each.check(await each.consumed())
        await java.check()
        print("acknowledged", {each.topic: len(each.acknowledged) for each in earlier})
        check = partial(compose.container("broker-a-0").exec_run, ["twinlog", "crosscheck"])
        await until(lambda: check().exit_code == 0, "connections to its old IP are given up, after 10 s, and all agree")
    finally:
        await in_thread(partial(compose, "--profile", "monitoring", "down", "--timeout", "5", check=False))
        await in_thread(other.remove)
