"""Writers as Spark uses them, without a JVM, against brokers in this process; through Spark itself: tests/spark/test_sink.py."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import frozen
from pyspark.sql.types import StringType, StructField, StructType

from tests.cluster.pipeline.sink.encoding import batch_of
from tests.cluster.pipeline.topics.reading import in_thread, known, rows
from tests.support.group.loopback import cluster as cluster
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.pipeline.sink import writers
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.topics.datasource import RocketMQSource

SCHEMA = StructType([StructField("value", StringType())])
ACL = """
accounts:
- {accessKey: "writer12", secretKey: "12345678", defaultTopicPerm: DENY, topicPerms: ["orders=PUB"]}
"""


@frozen
class FakeContext:
    """What a task knows of itself."""

    local: dict[str, str]
    attempt: int = 0

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802 - Spark's name, as those below.
        return self.local.get(key)

    def partitionId(self) -> int:  # noqa: N802
        return 5

    def attemptNumber(self) -> int:  # noqa: N802
        return self.attempt


@pytest.fixture
def context(monkeypatch) -> Iterator[FakeContext]:
    found = FakeContext(
        {"sql.streaming.queryId": "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", "streaming.sql.batchId": "12"}
    )
    monkeypatch.setattr(writers, "_context", lambda: found)
    return found


def write(namesrv: str, *values: str, is_stream: bool = False, **options: str) -> int:
    """Write as a task does; the writer comes to it by pickle."""
    source = RocketMQSource({"nameServer": namesrv, "topic": "orders", **options})
    writer: Any = source.streamWriter(SCHEMA, False) if is_stream else source.writer(SCHEMA, False)
    return pickle.loads(pickle.dumps(writer)).write(iter([batch_of(value=list(values))])).count


async def refusal(namesrv: str, **options: str) -> str:
    with pytest.raises(ReadRefusedError) as caught:
        await in_thread(lambda: write(namesrv, "v", **options))
    return str(caught.value)


async def ids(namesrv: str) -> list[str]:
    await known(namesrv, "orders")
    return sorted(row["properties"]["SPARK_ROW_ID"] for row in await rows(namesrv, subscribe="orders"))


async def test_rows_of_a_stream_have_ids_of_query_and_batch(cluster, context):
    await cluster.start("a")
    assert await in_thread(lambda: write(cluster.namesrv, "a", "b", is_stream=True)) == 2
    assert {each.rpartition("/")[0] for each in await ids(cluster.namesrv)} == {"0a1b2c3d4e5f6071/12/5"}
    context.local.clear()
    assert "would have no ids" in await refusal(cluster.namesrv, is_stream=True)


async def test_each_batch_write_has_an_id_unless_it_is_given_one(cluster, context):
    await cluster.start("a")
    for _ in range(2):
        await in_thread(lambda: write(cluster.namesrv, "a"))
    assert len(set(await ids(cluster.namesrv))) == 2
    for _ in range(2):
        await in_thread(lambda: write(cluster.namesrv, "a", writeId="day-17"))
    found = await ids(cluster.namesrv)
    assert (len(found), len(set(found))) == (4, 3)
    assert sum(each.startswith("day-17/0/5/") for each in found) == 2


async def test_topics_and_servers_are_checked_before_anything_is_sent(cluster, context):
    broker, _ = await cluster.start("a", auto_create_topic_enable=False)
    assert "has it, and none creates topics when a message comes" in await refusal(cluster.namesrv)
    assert "Check that these are name servers" in await refusal(broker.address)
    assert "Check that these are name servers" in await refusal("127.0.0.1:1", timeoutMs="500")
    with pytest.raises(ReadRefusedError, match="a topic cannot be emptied"):
        RocketMQSource({"nameServer": cluster.namesrv, "topic": "orders"}).writer(SCHEMA, True)


async def test_rights(cluster, context, tmp_path):
    """Of the account. A topic's right PUB is asked of messages sent alone only: as in RocketMQ 4.9, batches need none."""
    (tmp_path / "home" / "conf").mkdir(parents=True)
    (tmp_path / "home" / "conf" / "plain_acl.yml").write_text(ACL)
    await cluster.start("a", acl=AclConfig(enable=True, home=tmp_path / "home"))
    right = {"accessKey": "writer12", "secretKey": "12345678"}
    assert await in_thread(lambda: write(cluster.namesrv, "v", **right)) == 1
    for wrong in ({}, {**right, "accessKey": "nobody12"}, {**right, "secretKey": "87654321"}):
        said = await refusal(cluster.namesrv, **wrong)
        assert "Check options accessKey and secretKey, the account's right to publish" in said
