"""TLS with the real RocketMQ on the other end, both ways."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.clients.java_client import JavaClient
from tests.support.clients.remoting import TLS_ONLY
from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group import jars, rocketmq, twinlog
from tests.support.process_group.member import QUICK_SLAVE
from tests.support.process_group.ports import HOST
from tests.support.process_group.status import send, status
from tests.support.process_group.up import run

COUNT = 60
SECURE = {"TWINLOG_TLS": "true"}


@contextmanager
def cluster(root: Path, mode: str) -> Iterator[twinlog.Broker]:
    """A name server and a broker of ours with a certificate that they make themselves."""
    name_server = twinlog.NameServer(root / "namesrv")
    with (root / "namesrv" / "namesrv.conf").open("a") as conf:
        conf.write(f"tls.server.mode={mode}\n")
    with name_server as namesrv:
        if mode == "enforcing":
            TLS_ONLY.add(namesrv.address)
        broker = twinlog.Broker(root / "broker", namesrv.address, settings={"tls.server.mode": mode})
        with broker:
            yield broker


def send_and_consume(client: JavaClient, broker: twinlog.Broker, topic: str) -> None:
    producer = client.producer(topic, broker.namesrv)
    producer.send_until_ok(topic)
    sent = producer.send(topic, COUNT, threads=4, body_size=3000)
    assert [message for message in sent if not message.ok] == []
    consumed = client.consumer(topic, broker.namesrv, topic).consumed(COUNT + 1, timeout_s=30)
    assert {message.msg_id for message in sent} < {message.msg_id for message in consumed}


@pytest.mark.parametrize(
    ("mode", "version"), [("permissive", jars.VERSION), ("enforcing", jars.VERSION), ("enforcing", jars.VERSION_5)]
)
def test_the_java_client_uses_tls(root: Path, mode: str, version: str) -> None:
    """Messages, routes and pulls go over it; the broker's own way to an enforcing name server does, too."""
    with cluster(root, mode) as broker:
        with JavaClient(root / "secure", version=version, jvm_options=["-Dtls.enable=true"]) as client:
            send_and_consume(client, broker, f"secure-{mode}")
        with JavaClient(root / "plain") as client:
            if mode == "permissive":
                send_and_consume(client, broker, "plain")
            else:
                (refused,) = client.producer("plain", broker.namesrv).send("plain", 1)
                assert "RemotingSendRequestException" in (refused.error or "")
        done = tool(broker.namesrv, "topic", "list", "-o", "json", environment=SECURE)
        assert f"secure-{mode}" in done.stdout
        assert (tool(broker.namesrv, "topic", "list").returncode == 0) is (mode == "permissive")


def tool(namesrv: str, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return run(*arguments, namesrv=namesrv, env=environment)


def test_a_real_slave_is_refused_by_a_master_that_takes_tls_only_and_served_by_one_that_does_not(root: Path) -> None:
    """RocketMQ has no TLS on the HA stream: the master says so, and what to set."""
    with twinlog.NameServer(root / "namesrv") as namesrv:
        master = twinlog.Broker(root / "master", namesrv.address, role="ASYNC_MASTER", settings={"haTls": "true"})
        settings = {"haMasterAddress": f"{HOST}:{master.ha_port}"} | QUICK_SLAVE
        with master, rocketmq.Broker(root / "slave", namesrv.address, role="SLAVE", settings=settings) as slave:
            assert set(send(master.port, "plain", 20, size=1000)) == {0}
            says = '"cause": "tls"'
            master.wait_until(lambda: says in master.log.read_text(), "the refusal")
            (line, *_) = [line for line in master.log.read_text().splitlines() if says in line]
            assert "RocketMQ's slaves cannot: they need haTls=false" in line
            assert not (slave.commit_log.is_dir() and any(slave.commit_log.iterdir()))
            master.stop()
            master.settings["haTls"] = "false"
            master.configure()
            master.start()
            wait_for_same_commitlog(master.commit_log, slave.commit_log)
            assert [each["tls"] for each in status(master)["slaves"]] == [False]


def real_master(root: Path, namesrv: str, heap: Sequence[str]) -> rocketmq.Broker:
    TLS_ONLY.add(namesrv)
    return rocketmq.Broker(root, namesrv, heap=heap)


def test_ours_uses_tls_with_the_real_one(root: Path) -> None:
    """An enforcing name server and broker take our tools, and our slave would not get in without it."""
    enforcing = (*rocketmq.SMALL_HEAP, "-Dtls.server.mode=enforcing", "-Dtls.enable=true")
    with (
        rocketmq.NameServer(root / "namesrv", heap=enforcing) as namesrv,
        real_master(root / "master", namesrv.address, enforcing),
    ):
        arguments = ("--count", "5", "-o", "json")
        sent = tool(namesrv.address, "send", "secure", "text", *arguments, environment=SECURE)
        assert sent.returncode == 0, sent.stderr
        assert {json.loads(line)["status"] for line in sent.stdout.splitlines()} == {"SEND_OK"}
        got = tool(namesrv.address, "consume", "secure", "-o", "json", environment=SECURE)
        assert [json.loads(line)["body"] for line in got.stdout.splitlines()] == ["text"] * 5
        refused = tool(namesrv.address, "topic", "list")
        assert refused.returncode == 3
        settings = {"tls.server.mode": "enforcing"}
        with twinlog.Broker(root / "slave", namesrv.address, role="SLAVE", settings=settings) as slave:
            assert "ready " in slave.tail()
            listed = tool(namesrv.address, "list", "-o", "json", environment=SECURE)
            assert slave.address in listed.stdout
