"""Following a log: every record once, across restarts; never past what is confirmed; errors that say what next."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.pipeline.limits import ReadRefusedError
from cluster.pipeline.told import ask_broker
from tests.helpers import open_store, put
from tests.processes.harness import until
from tests.roles.group import TOPIC, Group, running
from tests.spark.test_tables import noted

BODY = b"x" * 200  # 313 bytes a record.


def stream(spark, root: Path, **options: str) -> Any:
    told = {"unconfirmed": "true"} | options
    return spark.readStream.format("rocketmq_records").options(**told).load(str(root))


def follow(frame: Any, checkpoint: Path, each: Callable[[Any, int], None]) -> Any:
    """Take all that is there now, and end."""
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


def test_a_log_that_grows_is_followed_across_restarts(spark, tmp_path):
    """Several runs with one checkpoint, while messages come: batches of any bytes, each record in one of them, in order."""
    store, sink, expected = open_store(tmp_path / "store"), Sink(), []
    for _ in range(3):
        for _ in range(20):
            expected.append(store.max_offset)
            put(store, BODY)
        follow(stream(spark, store.config.root, maxBytesPerTrigger="2000"), tmp_path / "checkpoint", sink)
        found = [offset for offset in sink.offsets if offset < store.max_offset]
        assert len(found) == len(set(found)) == len(expected)
    assert len(sink.batches) >= 9
    assert max(map(len, sink.batches.values())) <= 7
    records = spark.read.format("rocketmq_records").option("unconfirmed", "true").load(str(store.config.root)).collect()
    assert sink.offsets == sorted(row["offset"] for row in records)


def test_a_batch_that_failed_comes_again_as_it_was(spark, tmp_path):
    """Although the log has grown meanwhile."""
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


def test_topics_and_bodies(spark, tmp_path):
    store = open_store(tmp_path / "store")
    put(store, b"one", topic="A")
    put(store, b"two", topic="B")
    found = []
    frame = stream(spark, store.config.root, topics="B", body="true")
    follow(frame, tmp_path / "checkpoint", lambda batch, _: found.extend(bytes(row["body"]) for row in batch.collect()))
    assert found == [b"two"]


def test_several_stores_are_followed_at_once(spark, tmp_path):
    stores = [open_store(tmp_path / name) for name in ("one", "two")]
    sink = Sink()
    for count in (3, 5):
        for store in stores:
            put(store, *(BODY for _ in range(count)))
        both = ",".join(str(store.config.root) for store in stores)
        follow(stream(spark, both, maxBytesPerTrigger="1500"), tmp_path / "checkpoint", sink)
    assert len(sink.offsets) == 16


@pytest.mark.parametrize(("start", "count"), [("latest", 0), ("earliest", 5), ("300", 4)])
def test_where_a_new_query_begins(spark, tmp_path, start, count):
    store, sink = open_store(tmp_path / "store"), Sink()
    put(store, *(BODY for _ in range(5)))
    follow(stream(spark, store.config.root, startingOffset=start), tmp_path / "checkpoint", sink)
    assert len(sink.offsets) == count
    put(store, BODY)
    follow(stream(spark, store.config.root, startingOffset=start), tmp_path / "checkpoint", sink)
    assert len(sink.offsets) == count + 1


def test_what_is_not_confirmed_is_not_read(spark, tmp_path):
    store, sink = open_store(tmp_path / "store"), Sink()
    put(store, *(BODY for _ in range(5)))
    with pytest.raises(Exception, match="nothing tells up to where its log is confirmed"):
        follow(stream(spark, store.config.root, unconfirmed="false"), tmp_path / "refused", sink)
    noted(store.config.root, store.max_offset)
    put(store, *(BODY for _ in range(5)))
    follow(stream(spark, store.config.root, unconfirmed="false"), tmp_path / "checkpoint", sink)
    assert len(sink.offsets) == 5
    noted(store.config.root, store.max_offset)
    follow(stream(spark, store.config.root, unconfirmed="false"), tmp_path / "checkpoint", sink)
    assert len(sink.offsets) == 10
    noted(store.config.root, 600)  # What is confirmed may fall when slaves leave.
    follow(stream(spark, store.config.root, unconfirmed="false"), tmp_path / "checkpoint", sink)
    assert len(sink.offsets) == 10


def test_what_retention_removed_is_said(spark, tmp_path):
    store, sink = open_store(tmp_path / "store", file_size=4096), Sink()
    put(store, *(BODY for _ in range(3)))
    follow(stream(spark, store.config.root), tmp_path / "checkpoint", sink)
    put(store, *(BODY for _ in range(60)))
    files = sorted((store.config.root / "commitlog").iterdir())
    for file in files[:3]:
        file.unlink()
    first = int(files[3].name)
    with pytest.raises(Exception, match=rf"bytes \d+ to {first} are gone: retention.*failOnDataLoss=false"):
        follow(stream(spark, store.config.root), tmp_path / "checkpoint", sink)
    follow(stream(spark, store.config.root, failOnDataLoss="false"), tmp_path / "checkpoint", sink)
    left = spark.read.format("rocketmq_records").option("unconfirmed", "true").load(str(store.config.root)).collect()
    assert sink.offsets[3:] == sorted(row["offset"] for row in left)
    assert sink.offsets[3] >= first


def test_a_log_that_was_cut_is_said(spark, tmp_path):
    """What was not confirmed was read, and is no part of the log any more."""
    store, sink = open_store(tmp_path / "store"), Sink()
    put(store, *(BODY for _ in range(5)))
    follow(stream(spark, store.config.root), tmp_path / "checkpoint", sink)
    (file,) = sorted((store.config.root / "commitlog").iterdir())[:1]
    raw = file.read_bytes()
    file.write_bytes(raw[: sink.offsets[3]].ljust(len(raw), b"\0"))
    with pytest.raises(Exception, match=rf"it was read up to \d+, and the log ends at {sink.offsets[3]}: it was cut"):
        follow(stream(spark, store.config.root), tmp_path / "checkpoint", sink)


def sent(group: Group, body: str, *, is_confirmed: bool = True) -> None:
    group.twinlog("send", TOPIC, body, status=0 if is_confirmed else None)


def test_a_running_broker_tells_what_is_confirmed(spark, tmp_path):
    """What only the master has is not read, though it lies in its log; once a slave has it, it is."""
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
        until(lambda: table.option("unconfirmed", "true").load(str(master.store)).count() == 2, "two records")
        follow(stream(spark, master.store, **told), tmp_path / "checkpoint", take)
        assert found == ["one"]
        slave.start()
        group.twinlog("wait", "level")
        until(lambda: ask_broker(master.address).confirmed == ask_broker(master.address).written, "all is confirmed")
        follow(stream(spark, master.store, **told), tmp_path / "checkpoint", take)
        assert found[:2] == ["one", "two"]
        master.kill()
        with pytest.raises(ReadRefusedError, match=f"{master.address}: the broker was to tell"):
            ask_broker(master.address)
        sent_before = spark.read.format("rocketmq_records").option("topics", TOPIC).load(str(master.store))
        assert sent_before.count() == len(found)  # Nobody has it open now.
