"""The command line against the real RocketMQ: it sends, reads and lists there as it does at home."""

import json
import os
import subprocess
from pathlib import Path

from tests.support.process_group.process import PROGRAM
from tests.support.process_group.rocketmq import Broker, NameServer


def twinlog(namesrv: str, *arguments: str) -> str:
    env = {**os.environ, "NAMESRV_ADDR": namesrv}
    done = subprocess.run([PROGRAM, *arguments], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_work_on_a_real_cluster(real_namesrv: NameServer, root: Path) -> None:
    namesrv = real_namesrv.address
    with (
        Broker(root / "master", namesrv, role="ASYNC_MASTER") as master,
        Broker(root / "slave", namesrv, role="SLAVE") as slave,
    ):
        arguments = ("--tags", "TagA", "--keys", "k1", "--property", "colour=grün", "--count", "5", "-o", "json")
        sent = [json.loads(line) for line in twinlog(namesrv, "send", "orders", "größe", *arguments).splitlines()]
        assert {each["status"] for each in sent} == {"SEND_OK"}

        everything = [json.loads(line) for line in twinlog(namesrv, "consume", "orders", "-o", "json").splitlines()]
        assert [each["offset_message_id"] for each in everything] == [each["offset_message_id"] for each in sent]
        assert {(m["body"], m["tags"], m["keys"]) for m in everything} == {("größe", "TagA", "k1")}
        assert everything[0]["properties"] == {"colour": "grün"}
        assert twinlog(namesrv, "consume", "orders", "--tags", "Other") == ""

        first = twinlog(namesrv, "consume", "orders", "--group", "g", "--count", "2", "-o", "json").splitlines()
        rest = twinlog(namesrv, "consume", "orders", "--group", "g", "-o", "json").splitlines()
        assert (len(first), len(rest)) == (2, 3)

        topics = json.loads(twinlog(namesrv, "topic", "list", "-o", "json"))["topics"]
        assert [(topic["name"], topic["messages"]) for topic in topics] == [("orders", 5)]

        members = json.loads(twinlog(namesrv, "list", "-o", "json"))["members"]
        assert [(m["address"], m["role"], m["state"]) for m in members] == [
            (master.address, "master", "serving"),
            (slave.address, "slave", "answering"),
        ]
        assert members[0]["written_offset"] > 0
        assert members[0]["confirmed_offset"] is None
        assert "RocketMQ 4.9.7" in members[0]["reason"]
