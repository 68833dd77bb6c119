"""Exactly once into Delta by Spark itself, read back by `deltalake`, which knows nothing of Spark."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import open_store
from tests.product import ROOT
from tests.spark.checkpoints import uncommitted
from tests.spark.exports import SCHEMA, order, put
from tests.support.process_group.roles import running
from tests.support.waiting import wait_for
from twinlog.cluster.pipeline.jobs.daily import daily_report
from twinlog.cluster.pipeline.jobs.export import CHECKPOINT, ExportOptions, export
from twinlog.store.message_store import MessageStore

QUICKLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # Only saves time.
BODY, RECORD_SIZE = b"x" * 200, 321


def rows(table: Path | str, *columns: str, by: str = "offset") -> list[dict[str, Any]]:
    """Rows of a Delta table by their offset, as delta-rs has them."""
    from deltalake import DeltaTable

    found: list[dict[str, Any]] = DeltaTable(str(table)).to_pyarrow_table(columns=list(columns) or None).to_pylist()
    return sorted(found, key=lambda row: row[by])


def versions(table: Path) -> int:
    return len(list((table / "_delta_log").glob("*.json")))


def options(store: MessageStore, out: Path, **more: Any) -> ExportOptions:
    told = {"path": str(store.config.root), "topic": "orders", "out": str(out), "schema": SCHEMA, "unconfirmed": True}
    return ExportOptions(**told | {"format": "delta"} | more)


def test_spark_streams_a_log_into_delta_once(spark, tmp_path):
    """With Delta's own sink, over three runs, and a batch that comes again."""
    store, out = open_store(tmp_path / "store"), tmp_path / "table"
    for run in range(3):
        put(store, *(BODY for _ in range(10)))
        frame = spark.readStream.format("rocketmq_records").options(unconfirmed="true", maxBytesPerTrigger="2000")
        writer = frame.load(str(store.config.root)).writeStream.format("delta")
        writer = writer.option("checkpointLocation", str(tmp_path / "progress")).trigger(availableNow=True)
        assert writer.start(str(out)).awaitTermination(100)
        assert [row["offset"] for row in rows(out, "offset")] == [
            RECORD_SIZE * number for number in range(10 * (run + 1))
        ]
        uncommitted(tmp_path / "progress")


@pytest.mark.timeout(180)
def test_spark_streams_a_topic_into_delta_once(spark, tmp_path):
    """Of running brokers, over three runs with a switchover between them, and batches that come again."""
    with running(tmp_path / "group", 2) as group:
        for run in range(3):
            group.twinlog("send", "flowing", f"run {run}", "--count", "30", "--keys", "k")
            told = {"nameServer": group.namesrv.address, "subscribe": "flowing", "startingOffsets": "earliest"}
            frame = spark.readStream.format("rocketmq").options(**told, maxOffsetsPerTrigger="12").load()
            writer = frame.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "progress"))
            assert writer.trigger(availableNow=True).start(str(tmp_path / "table")).awaitTermination(100)
            uncommitted(tmp_path / "progress")
            if run == 1:
                group.twinlog("switchover", "--candidate", group.members[1].label, "--yes")
        found = rows(tmp_path / "table", "broker", "queueId", "queueOffset", "value", "keys", by="queueOffset")
    assert Counter(row["value"] for row in found) == {b"run 0": 30, b"run 1": 30, b"run 2": 30}
    assert len({(row["broker"], row["queueId"], row["queueOffset"]) for row in found}) == len(found)
    assert {row["keys"] for row in found} == {"k"}


def test_export_into_delta_with_columns_that_come_later(spark, tmp_path):
    """Also a batch that comes again, bad rows, and the daily report on it."""
    store, out = open_store(tmp_path / "store"), tmp_path / "out"
    put(store, json.dumps(order(1)).encode(), b"no JSON")
    result = export(spark, options(store, out, schema="id BIGINT"))
    assert (result.rows, result.bad, result.batches) == (1, 1, 1)
    put(store, json.dumps(order(2)).encode(), b"none either")
    export(spark, options(store, out))
    uncommitted(out / CHECKPOINT)
    before = versions(out), versions(tmp_path / "out-bad")
    assert export(spark, options(store, out)).batches == 1
    assert (versions(out), versions(tmp_path / "out-bad")) == before
    first, second = rows(out)
    assert first["body"] == {"id": 1, "customer": None, "tags": None}
    assert json.loads(dict(first["other_fields"])["customer"]) == order(1)["customer"]
    assert second["body"] == order(2)
    assert [row["undecoded"] for row in rows(tmp_path / "out-bad")] == [b"no JSON", b"none either"]
    (day,) = daily_report(spark, str(out)).topics
    assert (day.messages, day.undecoded) == (4, 2)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_kill_in_the_middle_costs_no_row_and_doubles_none(tmp_path):
    """The driver and its JVM by kill -9, while it writes batches; the next run ends the work."""
    store, out = open_store(tmp_path / "store", file_size=1 << 20), tmp_path / "out"
    for number in range(60):
        put(store, *(json.dumps(order(10 * number + each)).encode() for each in range(10)))
    command = [sys.executable, "-P", str(ROOT / "cluster/pipeline/submit/export.py"), "--path", str(store.config.root)]
    command += ["--unconfirmed", "--topic", "orders", "--schema", SCHEMA, "--format", "delta", "--out", str(out)]
    command += ["-o", "json", "--bytes-per-batch"]
    env = {**os.environ, "SPARK_LOCAL_DIRS": str(tmp_path), "JAVA_TOOL_OPTIONS": QUICKLY}
    process = subprocess.Popen([*command, "5000"], env=env, start_new_session=True)
    try:
        wait_for(lambda: versions(out) >= 2, "two batches", timeout_s=180)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert 0 < len(rows(out, "offset")) < 600
    done = subprocess.run([*command, "1000000"], env=env, stdout=subprocess.PIPE, timeout=180, check=True)
    assert [row["body"]["id"] for row in rows(out, "body", "offset")] == list(range(600))
    told = json.loads(done.stdout.splitlines()[-1])
    assert 0 < told["rows"] < 600
    assert (told["bad"], told["format"], told["out"]) == (0, "delta", str(out))
