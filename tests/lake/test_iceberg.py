"""Batches into Iceberg by pyiceberg: the same batch again changes nothing, new columns come later."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from tests.helpers import open_store, put
from tests.spark.checkpoints import uncommitted
from twinlog.cluster.pipeline.jobs.iceberg import IcebergWriter
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError


@pytest.fixture
def catalog(tmp_path):
    from pyiceberg.catalog.sql import SqlCatalog

    found = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    found.create_namespace("orders")
    yield found
    found.engine.dispose()


def batch(**columns: object) -> pa.Table:
    return pa.table({name: pa.array([value]) for name, value in columns.items()})


def test_a_batch_is_taken_once_and_columns_come_later(catalog):
    first = batch(id=1, at=datetime(2026, 11, 26, tzinfo=UTC))
    table = catalog.create_table("orders.rows", first.schema)
    writer = IcebergWriter(table, query="one")
    assert writer.write(first, 0)
    assert not writer.write(first, 0)
    assert writer.write(batch(id=2, at=datetime(2026, 11, 27, tzinfo=UTC), name="later"), 1)
    assert IcebergWriter(table, query="two").write(first, 0)  # Another checkpoint has numbers of its own.
    again = IcebergWriter(catalog.load_table("orders.rows"), query="one")
    assert not again.write(first, 1)
    found = sorted(again.table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["name"]) for row in found] == [(1, None), (1, None), (2, "later")]
    assert {(each.summary["twinlog.query"], each.summary["twinlog.batch"]) for each in again.table.snapshots()} == {
        ("one", "0"),
        ("one", "1"),
        ("two", "0"),
    }


def test_a_column_of_another_type_is_refused_and_nothing_written(catalog):
    table = catalog.create_table("orders.rows", batch(id=1).schema)
    writer = IcebergWriter(table, query="one")
    with pytest.raises(ReadRefusedError, match=r"batch 0 does not fit into the table orders\.rows"):
        writer.write(batch(id="x"), 0)
    assert writer.write(batch(id=1), 0)
    assert catalog.load_table("orders.rows").scan().to_arrow().num_rows == 1


def test_spark_streams_a_log_into_iceberg_once(spark, catalog, tmp_path):
    """Over two runs, with a batch that comes again."""
    store = open_store(tmp_path / "store")
    table = None
    for run in range(2):
        put(store, *(json.dumps(number).encode() for number in range(10)))
        told = {"unconfirmed": "true", "body": "true", "maxBytesPerTrigger": "600"}
        frame = spark.readStream.format("rocketmq_records").options(**told).load(str(store.config.root))
        frame = frame.selectExpr("offset", "body", "properties", "timestamp_millis(stored_ms) stored_at")
        if table is None:
            table = catalog.create_table("orders.rows", to_arrow_schema(frame.schema, timezone="UTC"))
        writer = frame.writeStream.foreachBatch(IcebergWriter(table, query="all"))
        writer = writer.option("checkpointLocation", str(tmp_path / "progress")).trigger(availableNow=True)
        assert writer.start().awaitTermination(100)
        found = sorted(catalog.load_table("orders.rows").scan().to_arrow().to_pylist(), key=lambda row: row["offset"])
        assert [row["body"] for row in found] == [json.dumps(number).encode() for number in range(10)] * (run + 1)
        uncommitted(tmp_path / "progress")
