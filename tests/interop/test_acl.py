"""Access control with the real client and mqadmin: who has the right key is served, the others are told why not.

A master and its slave share the rules; the slave signs what it asks its master.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from attrs import define

from tests.support.clients.java_client import JavaClient
from tests.support.clients.java_reader import Tool
from tests.support.clients.remoting import request
from tests.support.process_group import twinlog
from tests.support.process_group.member import TEST_SETTINGS
from tests.support.process_group.rocketmq import LOGBACK
from tests.support.process_group.up import run
from tests.support.waiting import wait_for

RULES = """
accounts:
  - accessKey: shop-user
    secretKey: shop-secret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [ Orders=PUB|SUB ]
    groupPerms: [ shop=SUB ]
  - accessKey: operator
    secretKey: operator-secret
    admin: true
"""
SECRETS = {"shop-user": "shop-secret", "operator": "operator-secret"}
OWN = {"accessKey": "operator", "secretKey": "operator-secret"}


@define(eq=False)
class Cluster:
    home: Path
    namesrv: str
    master: twinlog.Broker
    slave: twinlog.Broker
    java: JavaClient
    tool: Tool

    def client(self, key: str | None, secret: str | None = None) -> int:
        keys = {} if key is None else {"key": key, "secret": secret or SECRETS[key]}
        return self.java.new("AclClient", {"namesrv": self.namesrv, **keys})

    def send(self, client: int, topic: str, body: str = "x") -> str:
        answer: str = self.java.call(client, "send", topic=topic, body=body)
        return answer

    def consume(self, client: int, topic: str, group: str, count: int, timeout_s: float) -> str:
        options = {"topic": topic, "group": group, "count": str(count), "timeout_ms": str(round(timeout_s * 1000))}
        bodies: str = self.java.call(client, "consume", **options)
        return bodies

    def rules(self) -> dict:
        found: dict = yaml.safe_load((self.home / "conf" / "plain_acl.yml").read_text())
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("acl")
    home, tools = root / "home", root / "tools"
    for path, text in ((home / "conf" / "plain_acl.yml", RULES), (tools / "conf" / "tools.yml", yaml.safe_dump(OWN))):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    (tools / "conf" / "logback_tools.xml").write_text(LOGBACK.format(log=root / "tools.log", level="WARN"))
    own = json.dumps(OWN)
    settings = TEST_SETTINGS | {
        "aclEnable": "true",
        "rocketmqHome": str(home),
        "innerClientAuthenticationCredentials": own,
    }
    with (
        twinlog.NameServer(root / "namesrv") as namesrv,
        twinlog.Broker(root / "master", namesrv.address, settings=settings) as master,
        twinlog.Broker(root / "slave", namesrv.address, role="SLAVE", settings=settings) as slave,
        JavaClient(root / "client", jvm_options=[f"-Drocketmq.home.dir={tools}"]) as java,
    ):
        tool = Tool(java, namesrv.address)
        for topic in ("Orders", "Secret"):
            printed, failed = tool.both("updateTopic", "-b", master.address, "-t", topic, "-r", "2", "-w", "2")
            assert "success" in printed, failed
        yield Cluster(home, namesrv.address, master, slave, java, tool)


def test_producers(cluster: Cluster) -> None:
    user = cluster.client("shop-user")
    assert cluster.send(user, "Orders", "one") == "SEND_OK"
    assert "No default permission for topic:Secret" in cluster.send(user, "Secret")
    assert cluster.send(cluster.client("operator"), "Secret") == "SEND_OK"
    wrong = cluster.client("shop-user", "another-secret")
    assert "Check signature failed for accessKey=shop-user" in cluster.send(wrong, "Orders")
    assert "No acl config for nobody" in cluster.send(cluster.client("nobody", "whatever"), "Orders")
    refused = cluster.send(cluster.client(None), "Orders")
    assert "org.apache.rocketmq.acl.common.AclException: No accessKey is configured" in refused


def test_consumers(cluster: Cluster) -> None:
    """Groups and topics count, in heartbeats, pulls and commits alike."""
    user = cluster.client("shop-user")
    for number in range(20):
        assert cluster.send(user, "Orders", f"m{number:02}") == "SEND_OK"
    got = cluster.consume(user, "Orders", "shop", 21, 30).split(",")  # With the one of test_producers.
    assert {body for body in got if body.startswith("m")} == {f"m{number:02}" for number in range(20)}
    assert cluster.consume(user, "Secret", "shop", 1, 3) == ""
    assert cluster.consume(user, "Orders", "other-group", 1, 3) == ""
    assert cluster.consume(cluster.client("shop-user", "another-secret"), "Orders", "shop-2", 1, 3) == ""


def test_the_slave_copies_what_its_master_has(cluster: Cluster) -> None:
    topics = cluster.slave.store / "config" / "topics.json"
    wait_for(lambda: topics.exists() and "Orders" in topics.read_text(), "the master's topics", timeout_s=30)
    wait_for(
        lambda: (
            (cluster.slave.commit_log / f"{0:020}").read_bytes()[:4096]
            == (cluster.master.commit_log / f"{0:020}").read_bytes()[:4096]
        ),
        "the master's log",
        timeout_s=30,
    )


def test_accounts_by_mqadmin(cluster: Cluster) -> None:
    broker = ("-b", cluster.master.address)
    printed = cluster.tool.run(
        "updateAclConfig", *broker, "-a", "new-account", "-s", "new-secret", "-i", "PUB", "-t", "Orders=PUB,Secret=DENY"
    )
    assert f"create or update plain access config to {cluster.master.address} success." in printed
    account = next(each for each in cluster.rules()["accounts"] if each["accessKey"] == "new-account")
    assert account["topicPerms"] == ["Orders=PUB", "Secret=DENY"]
    client = cluster.client("new-account", "new-secret")
    assert cluster.send(client, "Orders") == "SEND_OK"
    assert "No default permission for topic:Secret" in cluster.send(client, "Secret")

    _, failed = cluster.tool.both("updateAclConfig", *broker, "-a", "other-account", "-s", "short")
    assert "CODE: 209" in failed
    assert "length should longer than 6" in failed

    shown = cluster.tool.run("getAccessConfigSubCommand", *broker)
    assert "new-account" in shown
    assert "secret" not in shown.replace("secretKey", "")

    assert "success" in cluster.tool.run("deleteAccessConfig", *broker, "-a", "new-account")
    assert "No acl config for new-account" in cluster.send(client, "Orders")
    _, failed = cluster.tool.both("deleteAccessConfig", *broker, "-a", "new-account")
    assert "The accesskey[new-account] corresponding to accessConfig has been deleted failed." in failed


def test_versions_and_white_addresses_by_mqadmin(cluster: Cluster) -> None:
    path = str(cluster.home / "conf" / "plain_acl.yml")
    before = cluster.rules().get("dataVersion", [{"counter": 0}])[0]["counter"]
    master = ("-b", cluster.master.address)
    printed = cluster.tool.run("updateGlobalWhiteAddr", *master, "-g", "10.10.103.*,192.168.0.*", "-p", path)
    assert "success" in printed
    assert cluster.rules()["globalWhiteRemoteAddresses"] == ["10.10.103.*", "192.168.0.*"]
    shown = cluster.tool.run("clusterAclConfigVersion", *master)
    (line,) = (line for line in shown.splitlines() if path in line)
    assert line.split()[:5] == ["DefaultCluster", "broker-a", cluster.master.address, path, str(before + 1)]
    _, failed = cluster.tool.both("updateGlobalWhiteAddr", *master, "-g", "10.10.103.1", "-p", "/tmp/other.yml")
    assert "CODE: 211" in failed


def test_nobody_is_served_without_a_key_on_either_port(cluster: Cluster) -> None:
    host, _, port = cluster.master.address.rpartition(":")
    for address in (cluster.master.address, f"{host}:{int(port) - 2}"):
        for code in (28, 26, 21, 20_001, 1007, 99_999):
            header, body = request(address, code)
            assert header["code"] == 1
            assert "No accessKey is configured" in header["remark"]
            assert body == b""


OPERATOR = {"TWINLOG_ACCESS_KEY": "operator", "TWINLOG_SECRET_KEY": "operator-secret"}
USER = {"TWINLOG_ACCESS_KEY": "shop-user", "TWINLOG_SECRET_KEY": "shop-secret"}


def run_twinlog(cluster: Cluster, *arguments: str, **keys: str) -> subprocess.CompletedProcess[str]:
    return run(*arguments, namesrv=cluster.namesrv, env=keys)


def test_the_tools_of_twinlog_sign(cluster: Cluster) -> None:
    members = json.loads(run_twinlog(cluster, "list", "-o", "json", **OPERATOR).stdout)["members"]
    assert [member["role"] for member in members] == ["master", "slave"]
    assert run_twinlog(cluster, "send", "Orders", "by hand", **OPERATOR).returncode == 0
    refused = run_twinlog(cluster, "send", "Orders", "by hand")
    assert refused.returncode == 4
    assert "No accessKey is configured" in refused.stderr
    half = run_twinlog(cluster, "list", TWINLOG_ACCESS_KEY="operator")
    assert half.returncode == 2
    assert "TWINLOG_SECRET_KEY" in half.stderr


def test_doctor_says_what_is_left_open(cluster: Cluster) -> None:
    """The files of this test can be read by all, and connections are plain."""
    findings = json.loads(run_twinlog(cluster, "doctor", "-o", "json", **OPERATOR).stdout)["findings"]
    causes = {finding["cause"] for finding in findings}
    assert {"plain connections", "secrets readable"} <= causes
    assert not causes & {"no access control", "unsigned members", "no administrator"}
    assert not [secret for secret in SECRETS.values() if secret in json.dumps(findings)]


def test_roles_change_by_an_administrator_only(cluster: Cluster) -> None:
    """Leases, promises and what is handed over are requests, too; the client finds the new master."""
    arguments = ("switchover", "--candidate", "broker-a-1", "--yes")
    assert run_twinlog(cluster, *arguments).returncode != 0
    refused = run_twinlog(cluster, *arguments, **USER)
    assert refused.returncode != 0
    assert "Need admin permission" in refused.stderr
    done = run_twinlog(cluster, *arguments, **OPERATOR)
    assert done.returncode == 0, done.stderr
    members = json.loads(run_twinlog(cluster, "list", "-o", "json", **OPERATOR).stdout)["members"]
    assert {member["address"]: member["role"] for member in members} == {
        cluster.slave.address: "master",
        cluster.master.address: "slave",
    }
    user = cluster.client("shop-user")
    wait_for(
        lambda: cluster.send(user, "Orders", "after") == "SEND_OK", "the new master to take messages", timeout_s=30
    )
