"""docker-compose.yml as a file: right for Compose 1.29 and v2, and no door that nobody meant to open."""

import json
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.docker import compose_schema
from tests.docker.compose import BROKERS, BROKERS_B, ROOT, SERVICES, SPARK
from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.cli.run.settings import load_broker
from twinlog.cluster.cli.run.up_plan import plan_up
from twinlog.cluster.config.properties_file import parse_properties

TEXT = (ROOT / "docker-compose.yml").read_text()


def interpolated(text: str) -> str:
    """As Compose does it where no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


DOCKER = ROOT / "deploy/docker"
FILE = yaml.safe_load(interpolated(TEXT))
OUTSIDE = "127.0.0.1:9876:9875"  # Of the name server: the port on which it tells addresses outside.
OURS = {name: FILE["services"][name] for name in (*SERVICES, *BROKERS_B)}


@pytest.mark.parametrize("schema", [compose_schema.fetched, lambda: compose_schema.OF_DEBIAN], ids=["v2", "1.29"])
def test_it_is_what_the_schema_allows(schema):
    jsonschema.Draft7Validator(compose_schema.load(schema())).validate(FILE)


def test_the_schema_finds_a_slip():
    wrong = {**FILE, "services": {"namesrv": {"image": "x", "helthcheck": {}}}}
    with pytest.raises(jsonschema.ValidationError, match="helthcheck"):
        jsonschema.Draft7Validator(compose_schema.load(compose_schema.fetched())).validate(wrong)


def test_nothing_in_it_is_newer_than_compose_1():
    """Which knows no start_interval, and takes a file without `version:` since 1.27."""
    command = ["docker-compose", "-f", str(ROOT / "docker-compose.yml"), "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_ports_are_published_on_loopback_only():
    ports = [port for service in FILE["services"].values() for port in service.get("ports", ())]
    assert len(ports) >= 8
    assert all(re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port) for port in ports if port != OUTSIDE)
    assert OUTSIDE in ports
    assert len({port.split(":")[1] for port in ports}) == len(ports)


@pytest.mark.parametrize("name", [*OURS, *SPARK, "secret"])
def test_every_service_has_no_rights(name):
    service = FILE["services"][name]
    assert service["read_only"] is True
    assert service["init"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service


@pytest.mark.parametrize("name", [*OURS, *SPARK])
def test_every_member_has_a_check_and_time_to_stop(name):
    assert FILE["services"][name]["healthcheck"]["test"][:2] == ["CMD", "twinlog-probe"]
    assert FILE["services"][name]["stop_grace_period"] in ("10s", "30s")


def test_no_broker_waits_for_another_one():
    """After a failover, and a start of all, the first master would wait for ever for one that has not been started."""
    assert all({*OURS[name]["depends_on"]} == {"namesrv", "secret"} for name in (*BROKERS, *BROKERS_B))


def test_spark_is_there_for_who_asks_for_it():
    assert [name for name, service in FILE["services"].items() if service.get("profiles") == ["spark"]] == [*SPARK]
    assert all(mount.endswith(":ro") for name in SPARK for mount in FILE["services"][name]["volumes"])


def test_no_two_share_a_network_namespace():
    assert [name for name, service in FILE["services"].items() if "network_mode" in service] == ["secret"]
    assert FILE["services"]["secret"]["network_mode"] == "none"


def test_only_who_needs_the_group_secret_can_read_it_and_nobody_write_it():
    mounts = {
        name: [mount for mount in service.get("volumes", ()) if mount.startswith("secret:")]
        for name, service in FILE["services"].items()
    }
    expected = ["secret:/run/twinlog:ro"]
    assert {name: found for name, found in mounts.items() if found} == {
        **dict.fromkeys((*BROKERS, *BROKERS_B, "dashboard"), expected),
        "secret": ["secret:/var/lib/twinlog"],
    }


def test_brokers_differ_only_in_who_they_are():
    def rest(name: str, port: int) -> str:
        text = json.dumps(OURS[name], sort_keys=True)
        for number in (port, port - 2, port + 3):
            text = text.replace(str(number), "PORT")
        role = OURS[name]["environment"]["TWINLOG_BROKER_ROLE"]
        return text.replace(name, "NAME").replace(f'"{role}"', '"ROLE"').replace(f'ID": "{name[-1]}"', 'ID": ""')

    texts = [rest(name, 10911 + 10 * number) for number, name in enumerate((*BROKERS, *BROKERS_B))]
    assert [len({*texts[:3]}), len({*texts[3:]})] == [1, 1]
    of_the_second = json.loads(texts[3])
    assert of_the_second.pop("profiles") == ["two-groups"]
    assert of_the_second["environment"].pop("TWINLOG_BROKER_NAME") == "broker-b"
    assert of_the_second == json.loads(texts[0])


def test_a_second_group_is_there_for_who_asks_for_it():
    """With names and ports as those of `twinlog up --masters 2 --slaves 2`."""
    found = [name for name, service in FILE["services"].items() if "two-groups" in service.get("profiles", ())]
    assert found == [*BROKERS_B]
    planned = {each.name: each.port for each in plan_up(Path("data"), masters=2, slaves=2).brokers}
    assert planned == {name: int(OURS[name]["environment"]["TWINLOG_LISTEN_PORT"]) for name in (*BROKERS, *BROKERS_B)}


@pytest.mark.parametrize("name", [*BROKERS, *BROKERS_B])
@pytest.mark.parametrize("file", ["broker.conf", "broker-etcd.conf"])
def test_each_broker_is_who_its_service_says(name, file):
    """As it reads the shared file and its own variables."""
    environment = {key: value for key, value in OURS[name]["environment"].items() if "FILE" not in key}
    config = load_broker(DOCKER / file, (), namesrv=None, environment=environment).of(BrokerConfig)
    assert f"{config.broker_name}-{config.broker_id}" == name


def test_what_it_mounts_is_there():
    mounts = [volume for service in FILE["services"].values() for volume in service.get("volumes", ())]
    files = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert len(files) >= 6
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_etcd_is_there_for_who_asks_for_it():
    """The file of variables asks for the profile and for the brokers' configuration, which names its members."""
    profile = [name for name, service in FILE["services"].items() if service.get("profiles") == ["etcd"]]
    variables = dict(line.split("=") for line in (DOCKER / "etcd.env").read_text().splitlines() if line[0] != "#")
    assert variables["COMPOSE_PROFILES"] == "etcd"
    text = (DOCKER / variables["TWINLOG_BROKER_CONF"]).read_text()
    found = {entry.key: entry.value for entry in parse_properties(text)}
    assert found["etcdEndpoints"].split(";") == [f"http://{name}:2379" for name in profile]
    assert len(profile) == 3
    for name in profile:
        service = FILE["services"][name]
        assert service["cap_drop"] == ["ALL"]
        assert "ports" not in service
        (initial,) = [each for each in service["command"] if each.startswith("--initial-cluster=")]
        assert f"{name}={service['environment']['ETCD_INITIAL_ADVERTISE_PEER_URLS']}" in initial
    load_broker(DOCKER / variables["TWINLOG_BROKER_CONF"], (), namesrv=None, environment={})


def test_the_brokers_configurations_differ_in_etcd_only():
    plain, with_etcd = (
        {entry.key: entry.value for entry in parse_properties((DOCKER / name).read_text())}
        for name in ("broker.conf", "broker-etcd.conf")
    )
    assert {key for key in plain | with_etcd if plain.get(key) != with_etcd.get(key)} == {
        "autoFailover",
        "etcdEndpoints",
        "flushDiskType",
    }
