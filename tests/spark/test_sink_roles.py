"""Format rocketmq as a sink while its brokers change roles: a switchover, and kill -9 of the master in a group that elects."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field
from pyspark.sql.functions import udf

from tests.support.process_group.role_changes import change_role, wait_grouped
from tests.support.process_group.roles import Group, running
from tests.support.waiting import wait_for
from twinlog.cluster.admin.admin import open_admin
from twinlog.cluster.client.messages import ReceivedMessage

ROWS, TASKS = 1000, 2  # Of a batch.
PAUSE_S = 0.002  # For each row: a batch takes a second, in which its tasks send all the time.
REQUEST_BYTES = "10000"
# So few rows fill the buffers between Spark's processes that they reach the sink one after the other.
LARGE = "x" * 1000
TOPIC = "rows"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """Three that elect by themselves."""
    with running(tmp_path / "group", 3, autoFailover="members") as found:
        found.wait_auto_failover("members")
        found.twinlog("topic", "create", TOPIC, "--queues", "4")
        yield found


def paced(marker: Path, hold: Path) -> Callable[[str], str]:
    """A function that lets rows pass slowly, makes the marker in the middle of each batch, and waits there while it is held."""

    def same(value: str) -> str:
        time.sleep(PAUSE_S)
        if int(value.partition(" ")[0]) % ROWS == ROWS // 2:
            marker.touch()
        while hold.exists() and marker.exists():
            time.sleep(0.01)
        return value

    return same


@define(eq=False)
class Writing:
    """A stream into the topic. Its batch N has the numbers from N * ROWS on, as text."""

    spark: Any
    group: Group
    directory: Path
    marker: Path = field(init=False)
    hold: Path = field(init=False)
    query: Any = field(default=None, init=False)
    complete: int = field(default=0, init=False)  # Batches.

    def __attrs_post_init__(self) -> None:
        self.marker, self.hold = self.directory / "middle", self.directory / "hold"

    def start(self) -> None:
        """Begin, or take up the checkpoint."""
        source = self.spark.readStream.format("rate-micro-batch")
        rows = source.options(rowsPerBatch=str(ROWS), numPartitions=str(TASKS)).load()
        slowly = udf(paced(self.marker, self.hold), "STRING", useArrow=False)
        rows = rows.selectExpr(f"CONCAT(value, ' {LARGE}') AS value").select(slowly("value").alias("value"))
        writer = rows.writeStream.format("rocketmq").option("checkpointLocation", str(self.directory / "checkpoint"))
        options = {"nameServer": self.group.namesrv.address, "topic": TOPIC, "batchSize": REQUEST_BYTES}
        self.query = writer.options(**options).start()

    def stop(self) -> None:
        """Whatever is under way."""
        if self.query is not None:
            self._look()
            self.query.stop()

    def reach_middle(self) -> None:
        """Of some batch: some of its rows are stored, others are to come."""
        self.marker.unlink(missing_ok=True)
        wait_for(lambda: self._look() or self.marker.exists(), "the middle of a batch")

    def break_off(self) -> None:
        """End in the middle of a batch, however slow this machine is."""
        self.hold.touch()
        self.reach_middle()
        self.stop()
        self.hold.unlink()

    def go_on(self) -> None:
        """Until two further batches are complete, of which one has begun by now."""
        self._look()
        target = self.complete + 2
        wait_for(lambda: self._look() or self.complete >= target, f"batch {target}")

    def _look(self) -> None:
        assert self.query.exception() is None
        if (progress := self.query.lastProgress) is not None:
            self.complete = max(self.complete, progress.batchId + 1)


def stored(group: Group) -> list[tuple[str, int]]:
    """Id and number of each message in the topic, by a client that knows nothing of Spark."""
    found: list[tuple[str, int]] = []

    def take(message: ReceivedMessage) -> bool:
        found.append((message.properties["SPARK_ROW_ID"], int(message.body.partition(b" ")[0])))
        return True

    async def consume() -> None:
        async with open_admin((group.namesrv.address,)) as admin:
            await admin.consume(TOPIC, take)

    trio.run(consume)
    return found


def play(stream: Writing, group: Group) -> None:
    """A switchover, an election, and the stream's own end and return, each in the middle of a batch."""
    first = group.master()
    second = next(each for each in group.members if each is not first)
    stream.start()
    stream.go_on()
    wait_grouped(first, 3)
    stream.reach_middle()
    change_role("switchover", second)
    stream.go_on()
    wait_grouped(second, 3)
    stream.reach_middle()
    second.kill()
    wait_for(lambda: group.serving(but=second), "an election")
    stream.go_on()
    second.start()
    group.wait_healthy()
    assert group.master() is not second
    stream.break_off()
    stream.start()
    stream.go_on()
    stream.stop()


def test_each_row_is_stored_over_a_switchover_and_an_election(spark: Any, group: Group, tmp_path: Path):
    """At least once, and always with the same id; the reader drops what was sent twice, if it is asked to."""
    stream = Writing(spark, group, tmp_path)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        play(stream, group)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        stream.stop()
    found = stored(group)
    ids_of = Counter(number for _, number in set(found))
    print(f"{stream.complete} batches; {len(found)} messages, {len(found) - len(ids_of)} of them repeated")
    assert stream.complete >= 5
    assert set(range(stream.complete * ROWS)) <= ids_of.keys()
    assert max(ids_of.values()) == 1, "a row that was sent again has another id"
    assert len(found) > len(ids_of), "the batch that was broken off was not sent again"
    source = spark.read.format("rocketmq").options(nameServer=group.namesrv.address, subscribe=TOPIC)
    once = source.option("dropRepetitions", "true").load().selectExpr("CAST(value AS STRING) AS value").collect()
    assert sorted(int(row.value.partition(" ")[0]) for row in once) == sorted(ids_of)
