"""The tables as Spark shows them: columns, filters, joins, refusals. For their content see test_tables.py."""

from pathlib import Path
from typing import Any

import pytest

from tests.spark.logs import log_files
from tests.spark.reading import rows
from tests.store import golden
from twinlog.cluster.pipeline.tables import schemas


def table(spark, name: str, *roots: Path | str, **options: str) -> Any:
    return spark.read.format(name).options(**options).load(",".join(map(str, roots)))


@pytest.mark.parametrize("name", [each.name for each in schemas.TABLES])
def test_rows_and_columns_are_those_of_the_readers(spark, tmp_path, name):
    roots = [golden.unpack("4.9.7", which, tmp_path) for which in golden.CLEAN]
    found = table(spark, name, *roots, splitSize="100000")
    (expected,) = [each.schema for each in schemas.TABLES if each.name == name]
    assert found.columns == expected.names
    assert all(field.metadata["comment"] for field in found.schema)
    assert sorted(comparable(row.asDict()) for row in found.collect()) == sorted(map(comparable, rows(name, *roots)))


def comparable(row: dict[str, Any]) -> str:
    """Rows in a form that can be compared: maps are unordered, and Spark returns bytearrays."""
    plain = {name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.items()}
    return str(
        sorted((name, sorted(value.items()) if isinstance(value, dict) else value) for name, value in plain.items())
    )


FILTERS = [
    "topic in ('TopicA', 'TopicB') and offset >= 131072",
    "offset > 100000 and offset <= 200000 and queue_id = 1",
    "topic like 'Topic%' and tags is null",
    "topic = 'TopicA' or offset < 1000",
    "offset > 100 and offset < 50",
]


@pytest.mark.parametrize("pushed", ["false", "true"])
def test_filters_give_what_they_give_without(spark, tmp_path, pushed):
    root = golden.unpack("4.9.7", "master", tmp_path)
    columns = ["offset", "topic", "queue_id", "tags", "stored_ms"]

    def loaded() -> Any:
        return table(spark, "rocketmq_records", root, splitSize="65536", pushFilters=pushed).select(columns)

    kept = loaded().collect()
    copied = spark.createDataFrame(kept, loaded().schema)
    middle = sorted(row["stored_ms"] for row in kept)[150]
    texts = [*FILTERS, f"stored_ms >= {middle} and topic = 'TopicB'"]
    truth = copied.selectExpr("*", *(f"({text}) as is_in_{number}" for number, text in enumerate(texts))).collect()
    for number, text in enumerate(texts):
        wanted = [row[: len(columns)] for row in truth if row[f"is_in_{number}"]]
        assert sorted(map(str, map(tuple, loaded().where(text).collect()))) == sorted(map(str, wanted)), text


def test_a_frame_may_be_used_with_several_filters(spark, tmp_path):
    """Filters are pushed down only on request, because Spark 4.3 keeps those of the last query."""
    found = table(spark, "rocketmq_records", golden.unpack("4.9.7", "master", tmp_path))
    both = found.where("topic = 'TopicA'").union(found.where("topic = 'TopicB'"))
    assert {row["topic"] for row in both.select("topic").distinct().collect()} == {"TopicA", "TopicB"}
    assert found.where("offset < 131072").count() < found.count()


def test_what_is_filtered_out_is_not_read(spark, tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    log_files(root)[1].write_bytes(b"")
    pushing = table(spark, "rocketmq_records", root, pushFilters="true")
    assert pushing.where("offset < 131072").count() > 50
    with pytest.raises(Exception, match=r"of the log cannot be read.*failOnDataLoss=false"):
        table(spark, "rocketmq_records", root).where("offset < 131072").count()


def test_units_are_joined_with_records(spark, tmp_path):
    root = golden.unpack("5.3.3", "master", tmp_path)
    units, records = table(spark, "rocketmq_consumequeue", root), table(spark, "rocketmq_records", root)
    same = ["member", "topic", "queue_id", "queue_offset", "offset", "size"]
    assert units.join(records, same).count() == units.count() > 300


def test_refusals_are_heard(spark, tmp_path):
    with pytest.raises(Exception, match="Name the store's root"):
        table(spark, "rocketmq_records", tmp_path / "nowhere").count()
    with pytest.raises(Exception, match="option splitSize is 'much'"):
        table(spark, "rocketmq_blocks", tmp_path, splitSize="much").count()
    with pytest.raises(Exception, match="option path is missing"):
        spark.read.format("rocketmq_index").load().count()


def test_no_rows_are_no_error(spark, tmp_path):
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert table(spark, "rocketmq_records", tmp_path / "store").count() == 0
