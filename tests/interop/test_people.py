"""The commands for people against the real broker: they ask nothing that it does not know."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.process_group import rocketmq
from tests.support.process_group.up import run

CONSUMER = """
import sys, trio
from twinlog.client import Client, From, PushConsumer
async def main():
    async def take(batch): pass
    async with Client(sys.argv[1]) as client:
        async with PushConsumer(client, "billing", {"orders": "*"}, handler=take, start=From.FIRST):
            print("ready", flush=True)
            await trio.sleep_forever()
trio.run(main)
"""


class Shell:
    """`twinlog` with a name server."""

    def __init__(self, namesrv: str, home: Path) -> None:
        self.namesrv = namesrv
        self.environment = {"XDG_CONFIG_HOME": str(home)}

    def __call__(self, *arguments: str, status: int = 0, stdin: str | None = None) -> str:
        done = run(*arguments, namesrv=self.namesrv, env=self.environment, input=stdin)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    def json(self, *arguments: str) -> dict:
        return json.loads(self(*arguments, "-o", "json"))


@pytest.fixture
def twinlog(root: Path, real_namesrv: rocketmq.NameServer) -> Iterator[Shell]:
    with rocketmq.Broker(root / "broker", real_namesrv.address):
        yield Shell(real_namesrv.address, root / "config")


def test_topics_messages_groups_and_settings_of_a_real_broker(twinlog: Shell) -> None:
    """One broker for all of it: a JVM takes its time to start."""
    twinlog("topic", "create", "orders", "--queues", "2")
    sent = twinlog.json("send", "orders", "hello", "--keys", "k1", "--tags", "A")
    twinlog("send", "orders", "--lines", "--file", "-", "--batch", "2", stdin="a\nb\nc\n")
    assert sum(queue["messages"] for queue in twinlog.json("topic", "show", "orders")["queues"]) == 4
    for what in (("orders", "--key", "k1"), (sent["message_id"],), (sent["offset_message_id"],)):
        assert twinlog.json("peek", *what)["message"]["body"] == "hello"

    twinlog("consume", "orders", "--group", "audit", "--count", "3")
    assert twinlog.json("lag", "audit")["topics"][0]["lag_messages"] == 1
    twinlog("group", "reset", "audit", "orders", "--to", "first", "--yes")
    twinlog("group", "seek", "audit", "orders", "0", "+1", "--yes")
    twinlog("group", "clone", "audit", "other", "--yes")
    assert twinlog.json("lag", "other")["topics"][0]["lag_messages"] == 3
    twinlog("group", "create", "other", "--retry-max", "3")
    assert "yes -> no" in twinlog("group", "update", "other", "--no-consume")
    twinlog("group", "delete", "other", "--yes")

    twinlog("config", "set", "broker-a", "fileReservedTime=48", "--yes")
    (option,) = twinlog.json("config", "get", "broker-a", "fileReservedTime")["options"]
    assert (option["value"], option["source"]) == ("48", "set")

    with subprocess.Popen([sys.executable, "-c", CONSUMER, twinlog.namesrv], stdout=subprocess.PIPE) as consumer:
        try:
            assert consumer.stdout is not None
            consumer.stdout.readline()
            while not (holders := {queue["consumer"] for queue in twinlog.json("lag", "billing")["queues"]} - {None}):
                pass
            assert len(holders) == 1
            assert "1 connected client was notified" in twinlog(
                "group", "reset", "billing", "orders", "--to", "first", "--yes"
            )
            assert "all queues at once" in twinlog("group", "seek", "billing", "orders", "0", "+1", "--yes", status=4)
            assert "billing are connected" in twinlog("topic", "delete", "orders", "--yes", status=4)
        finally:
            consumer.kill()
    twinlog("topic", "delete", "orders", "--although-read", "--yes")
    assert "orders" not in twinlog("topic", "list")
