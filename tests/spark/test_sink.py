"""Format rocketmq as a sink, by Spark itself, into a group of two members. The parts: tests/cluster/pipeline/sink."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from pyspark.sql.functions import udf

from tests.support.process_group.roles import Group, running
from twinlog.cluster.admin.admin import open_admin
from twinlog.spark import message_of

LARGE = "x" * 2_000  # 100 rows, which Spark hands on together, are more than the buffers between its processes hold.


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with running(tmp_path_factory.mktemp("group"), 2) as found:
        yield found


def write(group: Group, frame: Any, **options: str) -> None:
    told = {"nameServer": group.namesrv.address} | options
    frame.write.format("rocketmq").options(**told).mode("append").save()


def read(spark, group: Group, topic: str, **options: str) -> Any:
    told = {"nameServer": group.namesrv.address, "subscribe": topic} | options
    return spark.read.format("rocketmq").options(**told).load()


def refusal(act: Any, *arguments: Any, **options: str) -> str:
    with pytest.raises(Exception) as caught:
        act(*arguments, **options)
    return message_of(caught.value)


def test_rows_are_written_and_what_was_read_can_be_written_again(spark, group):
    frame = spark.sql(
        "SELECT CAST(id AS STRING) AS value, 'k' AS keys, map('n', CAST(id AS STRING)) AS properties, "
        "CAST(id % 3 AS STRING) AS shardingKey, 'written' AS topic FROM range(50)"
    )
    write(group, frame)
    found = read(spark, group, "written").orderBy("physicalOffset").collect()
    assert sorted(int(bytes(row.value)) for row in found) == list(range(50))
    assert all(row["keys"] == "k" and row.properties["n"] == bytes(row.value).decode() for row in found)
    assert len({row.properties["SPARK_ROW_ID"] for row in found}) == 50
    assert len({(int(bytes(row.value)) % 3, row.broker, row.queueId) for row in found}) == 3
    write(group, read(spark, group, "written"), topic="again")
    again = read(spark, group, "again").collect()
    assert sorted(bytes(row.value) for row in again) == sorted(bytes(row.value) for row in found)
    assert all(row["keys"] == "k" and row.properties["__SHARDINGKEY"] for row in again)


def test_what_cannot_be_written_is_told_in_the_first_line(spark, group):
    frame = spark.sql("SELECT 'v' AS value")
    assert "no topic is given" in refusal(write, group, frame)
    assert "mode overwrite" in refusal(
        frame.write.format("rocketmq").options(nameServer=group.namesrv.address, topic="t").mode("overwrite").save
    )
    assert "columns other are none" in refusal(write, group, spark.sql("SELECT 'v' AS value, 1 AS other"), topic="t")
    said = refusal(write, group, frame, topic="t", nameServer="127.0.0.1:1", timeoutMs="500")
    assert "no route of topic t can be had" in said
    nulls = spark.sql("SELECT CAST(NULL AS STRING) AS value")
    assert "row 0 of partition 0: its value is null" in refusal(write, group, nulls, topic="t")


def dying(marker: Path, namesrv: str, topic: str) -> Callable[[str], str]:
    """A function whose process dies once, at row 250, when rows of the task have arrived in the topic."""

    async def arrived() -> bool:
        async with open_admin((namesrv,)) as admin:
            route = await admin.api.topic_route(topic)
            queues = route.read_queues() if route is not None else []
            return any([await admin.api.max_offset(route.brokers[each.broker_name].master, each) for each in queues])

    def same(value: str) -> str:
        if value.startswith("250 ") and not marker.exists():
            until = time.monotonic() + 60
            while not trio.run(arrived) and time.monotonic() < until:
                time.sleep(0.1)
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    return same


def test_a_stream_whose_task_dies_in_the_middle(spark, group, tmp_path):
    """Each row at least once; those that are repeated have equal ids, and the reader drops them if it is asked to."""
    source, marker = tmp_path / "source", tmp_path / "marker"
    spark.range(0, 300, 1, 1).selectExpr(f"CONCAT(id, ' {LARGE}') AS value").write.text(str(source))
    die = udf(dying(marker, group.namesrv.address, "died"), "STRING", useArrow=False)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        rows = spark.readStream.text(str(source)).select(die("value").alias("value"))
        stream = rows.writeStream.format("rocketmq").option("checkpointLocation", str(tmp_path / "checkpoint"))
        options = {"nameServer": group.namesrv.address, "topic": "died", "batchSize": "10000"}
        query = stream.options(**options).trigger(availableNow=True).start()
        assert query.awaitTermination(120), "the query does not end"
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert marker.exists()
    found = read(spark, group, "died").selectExpr("properties['SPARK_ROW_ID'] AS id", "CAST(value AS STRING)").collect()
    ids = Counter(row.id for row in found)
    assert len(ids) == len({(row.id, row.value) for row in found}) == 300
    assert max(ids.values()) > 1
    assert {row.id.rpartition("/")[0] for row in found} == {f"{query.id.replace('-', '')[:16]}/0/0"}
    assert read(spark, group, "died", dropRepetitions="true").count() == 300


def test_an_answer_that_is_not_safe_fails_the_task(spark, group):
    """The slave is gone, and the master is a SYNC_MASTER."""
    group.members[1].kill()
    said = refusal(write, group, spark.sql("SELECT 'v' AS value"), topic="unsafe", onNotSafe="fail")
    assert "the broker stored 1 messages with " in said
    assert "SYNC_MASTER" in said
