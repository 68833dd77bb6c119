"""Readers of format rocketmq against brokers in this process."""

from datetime import UTC, datetime

from tests.cluster.pipeline.topics.reading import rows, send
from tests.support.group.loopback import cluster as cluster

NAMES = [
    "topic",
    "broker",
    "queueId",
    "queueOffset",
    "keys",
    "tags",
    "value",
    "properties",
    "bornTimestamp",
    "storeTimestamp",
    "messageId",
    "flag",
    "sysFlag",
    "bornHost",
    "storeHost",
    "reconsumeTimes",
    "physicalOffset",
    "valueProblem",
]


async def test_rows_have_what_messages_have(cluster):
    broker, _ = await cluster.start("a")
    before = datetime.now(UTC)
    await send(cluster.namesrv, "orders", b"first", tags="a", keys="k1 k2", properties={"colour": "red"})
    await send(cluster.namesrv, "orders", b"x" * 10_000)
    found = sorted(await rows(cluster.namesrv, subscribe="orders"), key=lambda row: row["physicalOffset"])
    assert list(found[0]) == NAMES
    first, second = found
    assert first["value"] == b"first"
    assert (first["topic"], first["broker"], first["tags"], first["keys"]) == ("orders", "broker-a", "a", "k1 k2")
    assert first["properties"]["colour"] == "red"
    assert first["messageId"] == first["properties"]["UNIQ_KEY"]
    assert before.timestamp() - 1 < first["storeTimestamp"].timestamp() < datetime.now(UTC).timestamp() + 1
    assert first["storeHost"] == broker.address
    assert second["value"] == b"x" * 10_000
    assert second["sysFlag"] & 1
    assert second["valueProblem"] is None
    assert (second["tags"], second["keys"]) == (None, None)
