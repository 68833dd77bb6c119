"""Following a log by Spark itself, up to the confirmed offset that a running broker reports.

The reader alone: test_stream_reader.py.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import open_store, put
from tests.support.process_group.roles import TOPIC, Group, running
from tests.support.waiting import wait_for
from twinlog.cluster.pipeline.sources.files import inspect_store
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.cluster.pipeline.tables.broker_end import ask_broker

BODY = b"x" * 200  # 306 bytes a record.


def stream(spark, root: Path, **options: str) -> Any:
    told = {"unconfirmed": "true"} | options
    return spark.readStream.format("rocketmq_records").options(**told).load(str(root))


def follow(frame: Any, checkpoint: Path, each: Callable[[Any, int], None]) -> Any:
    """Read everything present, and end."""
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.foreachBatch(each).start()
    assert query.awaitTermination(60), "the query does not end"
    return query


class Sink:
    """Takes each batch once, by its number."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    def __call__(self, batch: Any, number: int) -> None:
        self.batches[number] = sorted(row["offset"] for row in batch.select("offset").collect())

    @property
    def offsets(self) -> list[int]:
        return [offset for number in sorted(self.batches) for offset in self.batches[number]]


def test_batches_are_bounded_and_refusals_are_heard(spark, tmp_path):
    store, sink = open_store(tmp_path / "store"), Sink()
    for _ in range(2):
        put(store, *(BODY for _ in range(10)))
        follow(stream(spark, store.config.root, maxBytesPerTrigger="2000"), tmp_path / "checkpoint", sink)
    assert sink.offsets == list(range(0, 20 * 306, 306))
    assert max(map(len, sink.batches.values())) <= 7
    with pytest.raises(Exception, match="the confirmed offset of its log is unknown"):
        follow(stream(spark, store.config.root, unconfirmed="false"), tmp_path / "refused", sink)


def test_a_batch_that_failed_comes_again_as_it_was(spark, tmp_path):
    """Although the log has grown in the meantime."""
    store, sink = open_store(tmp_path / "store"), Sink()
    put(store, *(BODY for _ in range(10)))
    seen: list[list[int]] = []

    def fail(batch: Any, _number: int) -> None:
        seen.append(sorted(row["offset"] for row in batch.select("offset").collect()))
        raise RuntimeError("the sink is full")

    with pytest.raises(Exception, match="the sink is full"):
        follow(stream(spark, store.config.root), tmp_path / "checkpoint", fail)
    put(store, *(BODY for _ in range(10)))
    follow(stream(spark, store.config.root), tmp_path / "checkpoint", sink)
    assert seen == [sink.batches[0]]
    assert len(sink.offsets) == len(set(sink.offsets)) == 20


def sent(group: Group, body: str, *, is_confirmed: bool = True) -> None:
    group.twinlog("send", TOPIC, body, status=0 if is_confirmed else None)


def test_a_running_broker_tells_what_is_confirmed(spark, tmp_path):
    """Bytes that only the master has are not read, until a slave has them."""
    found: list[str] = []

    def take(batch: Any, _number: int) -> None:
        found.extend(bytes(row["body"]).decode() for row in batch.orderBy("offset").collect())

    with running(tmp_path, 2) as group:
        master, slave = group.members
        told = {"unconfirmed": "false", "broker": master.address, "topics": TOPIC, "body": "true"}
        sent(group, "one")
        follow(stream(spark, master.store, **told), tmp_path / "checkpoint", take)
        assert found == ["one"]
        slave.kill()
        sent(group, "two", is_confirmed=False)
        table = spark.read.format("rocketmq_records").options(**told)
        wait_for(lambda: table.option("unconfirmed", "true").load(str(master.store)).count() == 2, "two records")
        follow(stream(spark, master.store, **told), tmp_path / "checkpoint", take)
        assert found == ["one"]
        slave.start()
        group.twinlog("wait", "level")
        place = StoreUri(str(master.store))
        wait_for(lambda: ask_broker(master.address) == inspect_store(place).end, "all is confirmed")
        follow(stream(spark, master.store, **told), tmp_path / "checkpoint", take)
        assert found[:2] == ["one", "two"]
        master.kill()
        with pytest.raises(ReadRefusedError, match=f"{master.address}: the broker did not report"):
            ask_broker(master.address)
        sent_before = spark.read.format("rocketmq_records").option("topics", TOPIC).load(str(master.store))
        assert sent_before.count() == len(found)  # No process has it open now.
