"""What mqadmin of RocketMQ 5.3.3 asks besides: of brokers that have no controller, and of the controller that is not there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mqadmin.clusters import MESSAGES, Cluster, assert_all_codes_are_known
from tests.support.clients.java_client import JavaClient
from tests.support.clients.java_reader import Tool
from tests.support.clients.remoting import request
from tests.support.process_group import jars

NO_CONTROLLER = "not supported: there is no controller; roles change with twinlog switchover"


@pytest.fixture(scope="module")
def ours(clusters: tuple[Cluster, Cluster]) -> Cluster:
    return clusters[1]


@pytest.fixture(scope="module")
def tool(root: Path, ours: Cluster) -> Iterator[Tool]:
    with JavaClient(root / "client-5", version=jars.VERSION_5) as client:
        yield Tool(client, ours.namesrv)


def run(tool: Tool, ours: Cluster, command: str, arguments: str) -> str:
    out, err = tool.both(command, "-n", ours.namesrv, *arguments.format(**ours.words()).split())
    assert "Exception" not in err, err
    return out


def test_what_5_3_3_asks_besides(tool: Tool, ours: Cluster) -> None:
    """topicStatus and consumerProgress ask brokers for a topic's configuration (351), which those of 4.9 do not know."""
    status = run(tool, ours, "topicStatus", "-t Orders").partition("#Broker Name")[2].splitlines()  # Before: logback.
    assert [line.split()[:2] for line in status[1:3]] == [["broker-a", "0"], ["broker-a", "1"]]
    progress = run(tool, ours, "consumerProgress", "-g CG")
    line = next(line.split() for line in progress.splitlines() if line.startswith("Single "))
    assert line[1:3] == ["broker-a", "0"]
    assert int(line[3]) >= MESSAGES
    assert "Consume TPS:" in progress
    assert "Diff Total:" in progress


def test_groups_as_5_3_3_asks_for_them(ours: Cluster) -> None:
    header, body = request(ours.master.address, 352, {"group": "CG"})
    assert header["code"] == 0
    assert b'"groupName":"CG"' in body
    header, _ = request(ours.master.address, 352, {"group": "Nobody"})
    assert header["code"] == 26


def test_replication_as_5_3_3_shows_it(tool: Tool, ours: Cluster) -> None:
    master = run(tool, ours, "haStatus", "-b {broker}")
    assert "#MasterAddr" in master
    assert ours.master.address in master
    assert "#InSyncSlaveNum\t1" in master
    assert " OK " in master
    slave = run(tool, ours, "haStatus", "-b {slave}")
    assert "#MasterAddr" in slave
    epochs = run(tool, ours, "getBrokerEpoch", "-b broker-a")
    assert epochs.count("#clusterName\tDefaultCluster") == 2
    assert "#Epoch: EpochEntry{epoch=0, startOffset=0" in epochs


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("getControllerMetaData", "-a {namesrv}"),
        ("getControllerMetaData", "-a {broker}"),
        ("getSyncStateSet", "-a {namesrv} -b broker-a"),
        ("electMaster", "-a {namesrv} -b 1 -bn broker-a -c DefaultCluster"),
        ("getControllerConfig", "-a {namesrv}"),
        ("updateControllerConfig", "-a {namesrv} -k key -v value"),
        ("cleanBrokerMetadata", "-a {namesrv} -b 1 -bn broker-a -c DefaultCluster"),
    ],
)
def test_commands_of_the_controller_fail_with_one_clear_line(
    tool: Tool, ours: Cluster, command: str, arguments: str
) -> None:
    out, err = tool.both(command, *arguments.format(**ours.words()).split())
    causes = [line for line in err.splitlines() if NO_CONTROLLER in line]
    assert len(causes) == 1, out + err
    assert causes[0].startswith("Caused by: ")


def test_every_request_code_of_5_3_3_is_known(tool: Tool) -> None:
    assert_all_codes_are_known(tool)
