"""Topics of a running group, read by Spark itself. The readers alone: tests/cluster/pipeline/topics."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.process_group.roles import TOPIC, Traffic, in_thread, running
from tests.support.waiting import wait_for
from twinlog.spark import SourceLag, lag_of, message_of

pytestmark = pytest.mark.timeout(180)


class Sink:
    """Takes each batch once, by its number."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[bytes, int]]] = {}

    def __call__(self, batch: Any, number: int) -> None:
        self.batches[number] = [(bytes(row[0]), row[1]) for row in batch.select("value", "physicalOffset").collect()]

    @property
    def found(self) -> list[tuple[bytes, int]]:
        return [each for batch in self.batches.values() for each in batch]


@contextmanager
def following(frame: Any, checkpoint: Path, sink: Sink, **trigger: Any) -> Iterator[Any]:
    """A query as long as the block lasts."""
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(**trigger)
    query = writer.foreachBatch(sink).start()
    try:
        yield query
    finally:
        query.stop()


async def test_each_message_once_through_a_switchover_and_a_masters_death(spark, tmp_path: Path):
    """In one query, in which no task fails, and in a second one that goes on from its checkpoint."""
    sink = Sink()
    with running(tmp_path, 3) as group:
        traffic = Traffic(group.namesrv.address)
        options = {"nameServer": group.namesrv.address, "subscribe": TOPIC, "consumerGroup": "spark"}
        frame = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest").load

        def lag() -> int:
            told = json.loads(group.twinlog("lag", "spark", "-o", "json").stdout)
            return sum(each["lag_messages"] for each in told["topics"])

        def have_all() -> bool:
            return traffic.acknowledged.keys() <= {body for body, _ in sink.found}

        async with traffic.flowing(2):
            await traffic.more(50)
            with following(
                await in_thread(frame), tmp_path / "checkpoint", sink, processingTime="300 milliseconds"
            ) as query:
                await in_thread(wait_for, lambda: len(sink.found) > 50, "the first batches")
                await in_thread(group.twinlog, "switchover", "--candidate", group.members[1].label, "--yes")
                await traffic.more(50)
                group.members[1].kill()
                failed = await in_thread(
                    lambda: group.twinlog("failover", "--candidate", group.members[2].label, "--yes", status=None)
                )
                assert failed.returncode in (0, 6), failed.stderr
                before = len(sink.found)
                await traffic.more(50)
                await in_thread(wait_for, lambda: len(sink.found) > before + 50, "batches of the new master")
                assert query.exception() is None
        with following(await in_thread(frame), tmp_path / "checkpoint", sink, availableNow=True) as query:
            assert await in_thread(query.awaitTermination, 60)
            assert have_all()
            assert lag_of(query.lastProgress) == SourceLag(0, 0)
        traffic.check(sink.found)
        assert lag() == 0
        once = spark.read.format("rocketmq").options(**options)
        assert await in_thread(lambda: once.load().count()) == len(sink.found)
        with pytest.raises(Exception, match="nothing") as error:
            await in_thread(lambda: once.option("subscribe", "nothing").load().count())
        assert message_of(error.value).startswith(
            "no broker that is registered now has a readable queue of the topic nothing"
        )
