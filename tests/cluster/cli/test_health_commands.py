"""`twinlog explain`, `check`, `wait`, `doctor` and `list -w` against a name server, a master and a slave."""

import json
import re
import socket

import pytest
import trio

from tests.cluster.cli.conftest import register_under
from tests.cluster.cli.json_schema import violations
from tests.support.group.loopback import HOST
from twinlog.cluster.admin.admin import open_admin
from twinlog.store.config import BrokerRole

PROMETHEUS_LINE = re.compile(r'[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [-0-9.e+]+|# (HELP|TYPE) [a-z_]+ .+')


async def test_explain_says_what_a_member_does(cluster):
    await cluster.twinlog("send", "orders", "hello")
    slave = (await cluster.twinlog("explain", "broker-a-1")).stdout
    assert "a twinlog slave of broker-a (brokerId 1)" in slave
    assert f"the master at {cluster.master.settings.ha_address}" in slave
    master = (await cluster.twinlog("explain", cluster.master.address)).stdout
    assert "SEND_OK    a producer hears it when a message is in the master's memory" in master
    assert "streaming, 0 bytes behind, counts" in master
    document = json.loads((await cluster.twinlog("explain", "broker-a-1", "-o", "json")).stdout)
    assert violations(document, json.loads((await cluster.twinlog("explain", "x", "-o", "schema")).stdout)) == []
    assert document["member"]["name"] == "broker-a-1"
    assert (await cluster.twinlog("explain", "broker-a-1", "-o", "tsv")).stdout.startswith("topic\ttext\nis\t")


async def test_explain_of_nobody(cluster):
    result = await cluster.twinlog("explain", "broker-z-9", ok=False)
    assert (result.exit_code, "No member is called broker-z-9" in result.stderr) == (1, True)


async def test_check_in_three_formats(cluster):
    await cluster.twinlog("send", "orders", "hello")
    nagios = (await cluster.twinlog("check", "--warn-lag", "1MB")).stdout
    assert nagios == (
        "TWINLOG OK - 2 members, slaves among them: 1 | 'broker-a-1_lag'=0B;1000000;;0 'broker-a-1_behind'=0.0s;;;0\n"
        "note: members of broker-a do not prove who they are: who sends from the IP address of one may vote in its place\n"
    )
    document = json.loads((await cluster.twinlog("check", "-o", "json")).stdout)
    assert violations(document, json.loads((await cluster.twinlog("check", "-o", "schema")).stdout)) == []
    assert document["level"] == "ok"
    prometheus = (await cluster.twinlog("check", "-o", "prometheus")).stdout
    assert all(PROMETHEUS_LINE.fullmatch(line) for line in prometheus.splitlines())
    assert (
        'twinlog_replica_lag_bytes{cluster="DefaultCluster",group="broker-a",member="broker-a-1",role="slave"} 0'
        in prometheus
    )


async def test_check_has_nagios_statuses(cluster):
    register_under(cluster.slave, f"{HOST}:9")
    await cluster.slave.registration.register_all()
    result = await cluster.twinlog("check", ok=False)
    assert (result.exit_code, result.stdout.startswith("TWINLOG CRITICAL - broker-a-1 is registered")) == (2, True)
    for fmt, said in (("nagios", "TWINLOG UNKNOWN - "), ("json", '"level":"unknown"'), ("prometheus", "_status 3")):
        result = await cluster.twinlog("check", "-n", f"{HOST}:9", "-o", fmt, ok=False)
        assert (result.exit_code, said in result.stdout) == (3, True)


async def test_wait_returns_once_all_conditions_hold(cluster):
    await cluster.twinlog("wait", "healthy", "level", "members=2", "broker-a-1=streaming")


async def test_wait_says_what_is_missing_and_gives_up(cluster):
    result = await cluster.twinlog("wait", "members=3", "--timeout", "0.5", ok=False)
    assert result.exit_code == 5
    assert "waiting: 2 of 3 members are there" in result.stderr
    assert "Still missing: 2 of 3 members are there" in result.stderr
    assert (await cluster.twinlog("wait", "soon", ok=False)).exit_code == 2


async def test_wait_outlasts_a_name_server_that_comes_late(cluster):
    result = await cluster.twinlog("wait", "healthy", "-n", f"{HOST}:9", "--timeout", "0.5", ok=False)
    assert (result.exit_code, "no name server answers" in result.stderr) == (5, True)


async def test_watching_shows_the_members_again_and_again(cluster):
    shown = []
    async with open_admin((cluster.namesrv,)) as admin:
        with trio.move_on_after(0.5):
            await admin.watch_members(0.1, shown.append)
    assert len(shown) >= 2
    assert all([member.name for member in found.members] == ["broker-a-0", "broker-a-1"] for found in shown)


async def test_doctor_finds_nothing_wrong_with_a_fresh_cluster(cluster):
    result = await cluster.twinlog("doctor")
    assert result.exit_code == 0
    assert len(re.findall(r" ok$", result.stdout, re.MULTILINE)) >= 11
    document = json.loads((await cluster.twinlog("doctor", "-o", "json")).stdout)
    assert violations(document, json.loads((await cluster.twinlog("doctor", "-o", "schema")).stdout)) == []
    assert document["verdict"] == "healthy"
    assert (await cluster.twinlog("doctor", "-o", "tsv")).stdout.startswith("level\tcause\tsubject\twhat\tfix")


# A fresh set-up of two nodes with one thing wrong: doctor names it.


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


async def causes(cluster, *arguments: str) -> set[str]:
    result = await cluster.twinlog("doctor", *arguments, "-o", "json", ok=False)
    document = json.loads(result.stdout)
    assert result.exit_code == (document["verdict"] == "findings")
    return {finding["cause"] for finding in document["findings"]}


async def test_doctor_names_a_closed_ha_port(cluster):
    cluster.master.settings.ha_address = (
        f"{HOST}:{closed_port()}"  # As it looks from outside when a firewall closes it.
    )
    assert "HA port closed" in await causes(cluster)


async def test_doctor_names_a_wrong_broker_ip2(cluster):
    cluster.master.settings.ha_address = f"127.0.0.77:{closed_port()}"
    assert "wrong brokerIP2" in await causes(cluster)


async def test_doctor_names_two_masters_by_the_address_of_the_one_that_is_not_shown(cluster):
    other, _ = await cluster.members.start("second", BrokerRole.ASYNC_MASTER)
    await cluster.master.registration.register_all()
    assert "two masters" in await causes(cluster, other.address, cluster.master.address)


async def test_doctor_names_a_slave_that_was_started_as_a_master(cluster):
    await cluster.members.start("b", BrokerRole.SYNC_MASTER, broker_name="broker-b")
    result = await cluster.twinlog("doctor", ok=False)
    assert result.exit_code == 1
    assert "no slave of broker-b is registered" in result.stdout


async def test_doctor_names_another_file_size(cluster):
    await cluster.members.start("b0", BrokerRole.SYNC_MASTER, broker_name="broker-b")
    await cluster.members.start("b1", BrokerRole.SLAVE, broker_name="broker-b", file_size=1 << 18)
    assert "other file size" in await causes(cluster)


@pytest.mark.parametrize("fmt", ["pretty", "tsv", "json"])
async def test_doctor_without_a_name_server(cluster, fmt):
    result = await cluster.twinlog("doctor", "-n", f"{HOST}:9", "-o", fmt, ok=False)
    assert (result.exit_code, "cannot be reached" in result.stderr) == (3, True)


async def test_doctor_of_one_name_server_of_two_that_is_down(cluster):
    assert await causes(cluster, "-n", f"{HOST}:9;{cluster.namesrv}") == {
        "name server does not answer",
        "no group secret",
    }
