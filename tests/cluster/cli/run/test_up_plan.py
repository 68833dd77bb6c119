"""`twinlog up` decides names, ports and files before anything runs."""

import socket
from pathlib import Path

import pytest

from twinlog.cluster.cli.run.ports import busy_ports, holder, in_use
from twinlog.cluster.cli.run.up_plan import ELECTING, WITH_ETCD, PlanError, Port, conf_text, group_name, plan_up
from twinlog.cluster.config.properties_file import parse_properties
from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.ha.config import AutoFailoverMode, HAConfig

DIR = Path("/data")


def test_the_default_is_a_master_a_slave_and_rocketmqs_ports():
    plan = plan_up(DIR)
    assert [(b.name, b.role, b.port, b.http_port) for b in plan.brokers] == [
        ("broker-a-0", "SYNC_MASTER", 10911, 10914),
        ("broker-a-1", "SLAVE", 10921, 10924),
    ]
    assert (plan.namesrv.port, plan.namesrv.dashboard_port, plan.namesrv.http_port) == (9876, 9877, 9878)
    assert [port.number for port in plan.brokers[1].listens] == [10921, 10919, 10922]


def test_brokers_count_group_by_group_from_the_port_base():
    plan = plan_up(DIR, masters=2, slaves=2, port_base=20000)
    assert [(b.name, b.port) for b in plan.brokers] == [
        ("broker-a-0", 20011),
        ("broker-a-1", 20021),
        ("broker-a-2", 20031),
        ("broker-b-0", 20041),
        ("broker-b-1", 20051),
        ("broker-b-2", 20061),
    ]
    assert (plan.namesrv.address, plan.namesrv.dashboard_port) == ("127.0.0.1:20000", 20001)
    assert plan.brokers[3].store_root == DIR / "broker-b-0"


@pytest.mark.parametrize("options", [{"is_async": True}, {"slaves": 0}])
def test_nobody_waits_for_slaves_that_are_not_meant_to_acknowledge(options):
    assert plan_up(DIR, **options).brokers[0].role == "ASYNC_MASTER"


@pytest.mark.parametrize(
    ("base", "allowed"), [(0, "expected 1 and above"), (65530, "expected 1 to 65511 for 2 brokers")]
)
def test_ports_that_do_not_exist_are_refused(base, allowed):
    with pytest.raises(PlanError, match=allowed):
        plan_up(DIR, port_base=base)
    assert plan_up(DIR, port_base=65511).brokers[-1].http_port == 65535


def test_no_port_is_planned_twice():
    plan = plan_up(DIR, masters=3, slaves=2, port_base=30000)
    ports = [port.number for member in plan.members for port in member.listens]
    ports += [plan.namesrv.http_port, plan.namesrv.dashboard_port, *(broker.http_port for broker in plan.brokers)]
    assert len(set(ports)) == len(ports)


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({"slaves": 2}, "members"),
        ({"slaves": 3, "masters": 2}, "members"),
        ({"slaves": 1}, None),
        ({"slaves": 0}, None),
        ({"slaves": 2, "is_async": True}, None),
    ],
)
def test_groups_of_three_elect_by_themselves(options, mode):
    """All members of one group say the same. The written value is one that the members take."""
    for broker in plan_up(DIR, **options).brokers:
        settings = broker.settings()
        assert settings.get("autoFailover") == mode
        assert ("autoFailoverRestartMs" in settings) == (mode is not None)
    HAConfig(auto_failover=AutoFailoverMode.members, auto_failover_restart_ms=int(ELECTING["autoFailoverRestartMs"]))


def test_set_leaves_it_to_a_person():
    (first, *_) = plan_up(DIR, slaves=2).brokers
    entries = {entry.key: entry.value for entry in parse_properties(conf_text(first, {"autoFailover": "off"}))}
    assert entries["autoFailover"] == "off"


def test_group_names_go_on_after_z():
    assert [group_name(n) for n in (0, 1, 25, 26, 27, 52)] == [
        f"broker-{letters}" for letters in ("a", "b", "z", "aa", "ab", "ba")
    ]


def test_a_member_file_says_who_wrote_it_and_set_wins():
    text = conf_text(plan_up(DIR).brokers[0], {"brokerRole": "ASYNC_MASTER", "slaveTimeout": "5000"})
    entries = {entry.key: entry.value for entry in parse_properties(text)}
    assert text.startswith("# Written by `twinlog up`")
    assert entries["brokerRole"] == "ASYNC_MASTER"
    assert entries["slaveTimeout"] == "5000"
    assert entries["storePathRootDir"] == "/data/broker-a-0"
    assert entries["listenPort"] == "10911"
    assert text.count("brokerRole=") == 1


@pytest.mark.parametrize("name", ["a b", " lead", "back\\slash", "tab\t", "C:=x#!"])
def test_odd_directories_survive_the_file(name):
    text = conf_text(plan_up(Path("/") / name).brokers[0], {})
    entries = {entry.key: entry.value for entry in parse_properties(text)}
    assert entries["storePathRootDir"] == f"/{name}/broker-a-0"


@pytest.mark.slow
def test_a_busy_port_is_found_and_its_holder_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert busy_ports([Port(port, "x")]) == [Port(port, "x")]
        assert holder(port).startswith("process ")
        more = [Port(1000 + k, "y") for k in range(12)]
        assert in_use([Port(port, "x")]) == (f"Port {port} (x) is in use by {holder(port)}.", "")
        assert in_use([Port(port, "x"), *more])[1].startswith("12 more are in use: 1000, 1001, ")
    assert busy_ports([Port(port, "x")]) == []


def test_with_etcd_a_pair_elects_and_goes_on_alone():
    plan = plan_up(DIR, slaves=1, port_base=30000, with_etcd=True)
    for broker in plan.brokers:
        settings = broker.settings()
        assert (settings["autoFailover"], settings["flushDiskType"]) == ("etcd", "SYNC_FLUSH")
        assert settings["etcdEndpoints"] == "http://127.0.0.1:30003"
    HAConfig(auto_failover=AutoFailoverMode.etcd, auto_failover_restart_ms=int(WITH_ETCD["autoFailoverRestartMs"]))
    EtcdConfig(endpoints=(plan.etcd.endpoint,))
    numbers = [port.number for port in plan.listens]
    others = [plan.namesrv.http_port, plan.namesrv.dashboard_port, *(broker.http_port for broker in plan.brokers)]
    assert len({*numbers, *others}) == len(numbers) + len(others)
    assert "--data-dir=/data/etcd" in plan.etcd.arguments()
    assert plan_up(DIR).etcd is None


@pytest.mark.parametrize("options", [{"slaves": 0}, {"is_async": True}])
def test_etcd_has_nothing_to_keep_where_nobody_is_waited_for(options):
    with pytest.raises(PlanError, match="--etcd needs a slave"):
        plan_up(DIR, with_etcd=True, **options)
