"""Format rocketmq as a sink, by Spark itself, into a group of two members. The parts: tests/cluster/pipeline/sink."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.process_group.roles import Group, running
from twinlog.cluster.pipeline.jobs.session import message_of


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


def test_an_answer_that_is_not_safe_fails_the_task(spark, group):
    """The slave is gone, and the master is a SYNC_MASTER."""
    group.members[1].kill()
    said = refusal(write, group, spark.sql("SELECT 'v' AS value"), topic="unsafe", onNotSafe="fail")
    assert "the broker stored 1 messages with " in said
    assert "SYNC_MASTER" in said
