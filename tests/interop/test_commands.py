"""The command line against the real RocketMQ: it sends, reads and lists there as it does at home."""

import json
from functools import partial
from pathlib import Path

from tests.support.process_group import up
from tests.support.process_group.rocketmq import Broker, NameServer


def test_commands_work_on_a_real_cluster(real_namesrv: NameServer, root: Path) -> None:
    namesrv = real_namesrv.address
    twinlog = partial(up.twinlog, namesrv=namesrv)
    with (
        Broker(root / "master", namesrv, role="ASYNC_MASTER") as master,
        Broker(root / "slave", namesrv, role="SLAVE") as slave,
    ):
        arguments = ("--tags", "TagA", "--keys", "k1", "--property", "colour=grün", "--count", "5", "-o", "json")
        sent = [json.loads(line) for line in twinlog("send", "orders", "größe", *arguments).splitlines()]
        assert {each["status"] for each in sent} == {"SEND_OK"}

        everything = [json.loads(line) for line in twinlog("consume", "orders", "-o", "json").splitlines()]
        assert [each["offset_message_id"] for each in everything] == [each["offset_message_id"] for each in sent]
        assert {(m["body"], m["tags"], m["keys"]) for m in everything} == {("größe", "TagA", "k1")}
        assert everything[0]["properties"] == {"colour": "grün"}
        assert twinlog("consume", "orders", "--tags", "Other") == ""

        first = twinlog("consume", "orders", "--group", "g", "--count", "2", "-o", "json").splitlines()
        rest = twinlog("consume", "orders", "--group", "g", "-o", "json").splitlines()
        assert (len(first), len(rest)) == (2, 3)

        topics = json.loads(twinlog("topic", "list", "-o", "json"))["topics"]
        assert [(topic["name"], topic["messages"]) for topic in topics] == [("orders", 5)]

        members = json.loads(twinlog("list", "-o", "json"))["members"]
        assert [(m["address"], m["role"], m["state"]) for m in members] == [
            (master.address, "master", "serving"),
            (slave.address, "slave", "answering"),
        ]
        assert members[0]["written_offset"] > 0
        assert members[0]["confirmed_offset"] is None
        assert "RocketMQ 4.9.7" in members[0]["reason"]
