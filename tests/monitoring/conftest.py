"""A running cluster with clients and a history, and Prometheus scraping it: made once for all tests here."""

import json
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from attrs import frozen

from tests.monitoring.prometheus import Prometheus, missing, prometheus
from tests.support.clients.remoting import request
from tests.support.process_group.ports import HOST
from tests.support.process_group.process import PROGRAM
from tests.support.process_group.up import Up, free_port_base, gone, running
from tests.support.waiting import wait_for

HEART_BEAT, SEND_BACK, CREATE_GROUP = 34, 36, 200
TOPIC, GROUP, SLAVES = "orders", "billing", 2


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if reason := missing():
        assert os.environ.get("CI") != "true", reason
        pytest.skip(reason)


@frozen
class Watched:
    """A cluster of a master and two slaves, and who watches it."""

    up: Up
    prometheus: Prometheus

    @property
    def master(self) -> str:
        return f"{HOST}:{self.up.port_base + 11}"


@pytest.fixture(scope="session")
def watched(tmp_path_factory) -> Iterator[Watched]:
    directory = tmp_path_factory.mktemp("monitoring")
    audit = directory / "audit.prom"
    settings = (
        f"auditMetricsFile={audit}",
        "flushDiskType=SYNC_FLUSH",
        "autoFailoverAfterMs=30000",  # Its first master is killed, and is to stay master on a busy machine.
        "autoFailoverRestartMs=30000",
    )
    options = ("--slaves", str(SLAVES), *(word for each in settings for word in ("--set", each)))
    with ExitStack() as stack:
        base = free_port_base(1 + SLAVES)
        up = stack.enter_context(running(directory / "data", *options, port_base=base))
        up.wait_ready()
        targets = {
            "broker": [f"{HOST}:{base + 14 + 10 * number}" for number in range(1 + SLAVES)],
            "namesrv": [f"{HOST}:{base + 2}"],
        }
        watched = Watched(up, stack.enter_context(prometheus(targets, directory)))
        restart_master(watched)
        stack.enter_context(clients(watched.master))
        work(up, watched.master)
        stack.enter_context(traffic(up))
        ledger = ("--incremental", str(directory / "ledger"))
        up.twinlog("audit", "--live", "broker-a-0", "broker-a-1", *ledger, "--metrics", str(audit))
        yield watched


def restart_master(watched: Watched) -> None:
    """Kill it: its slaves lose their connections, and come back."""
    master = watched.up.member("broker-a-0")
    master.kill()
    wait_for(lambda: gone([master]), "the end of the master")

    def is_back() -> bool:
        states = {each["name"]: each["state"] for each in watched.up.members()}
        return states == {"broker-a-0": "serving", "broker-a-1": "streaming", "broker-a-2": "streaming"}

    wait_for(is_back, "the master serves again")


def work(up: Up, master: str) -> None:
    """Messages for slaves to follow and consumers to get; one of them becomes a dead letter."""
    up.twinlog("send", TOPIC, "hello", "--count", "200")
    up.twinlog("consume", TOPIC, "--group", GROUP, "--count", "100")
    found = json.loads(up.twinlog("peek", TOPIC, "--count", "1", "-o", "json").splitlines()[0])["message"]
    phy_offset = int(found["offset_message_id"][-16:], 16)
    fields = {"offset": str(phy_offset), "group": GROUP, "delayLevel": "-1", "originTopic": TOPIC}
    answer, _ = request(master, SEND_BACK, fields)
    assert answer["code"] == 0, answer
    up.twinlog("send", TOPIC, "more", "--count", "50")


@contextmanager
def traffic(up: Up) -> Iterator[None]:
    """Messages of another topic now and then, so that rates are not zero."""
    command = [PROGRAM, "send", "ticks", "tick", "--count", "100000", "--rate", "10", "-n", up.namesrv]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


def clients(master: str) -> socket.socket:
    """A producer and a consumer, which stay for as long as their connection."""
    subscription = {"topic": TOPIC, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    consumer = {
        "groupName": GROUP,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{**subscription, "classFilterMode": False, "tagsSet": [], "codeSet": []}],
        "unitMode": False,
    }
    beat = {"clientID": "a client", "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "shop"}]}
    header = json.dumps({"code": HEART_BEAT, "language": "GO", "version": 409, "opaque": 1, "flag": 0}).encode()
    body = json.dumps(beat).encode()
    host, port = master.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
    assert connection.recv(4)
    return connection
