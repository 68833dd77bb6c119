"""Schemas of exported bodies: new columns may come, nothing else changes. Types of pyspark, without a JVM."""

import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from twinlog.cluster.pipeline.jobs.columns import check_growth
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError


def struct(**fields) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


TEXT, NUMBER = StringType(), LongType()
THERE = struct(
    id=NUMBER, customer=struct(name=TEXT), tags=ArrayType(struct(a=TEXT)), notes=MapType(TEXT, struct(b=TEXT))
)


def with_(**changed) -> StructType:
    return StructType([StructField(each.name, changed.get(each.name, each.dataType)) for each in THERE.fields])


def test_new_columns_may_come_at_any_depth():
    check_growth(THERE, THERE)
    more = with_(
        customer=struct(city=TEXT, name=TEXT),
        tags=ArrayType(struct(a=TEXT, new=TEXT)),
        notes=MapType(TEXT, struct(b=TEXT, new=TEXT)),
    )
    check_growth(THERE, StructType([StructField("total", NUMBER), *more.fields]))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (with_(id=TEXT), "column id is BIGINT in rows that are there, and STRING in the schema"),
        (with_(id=struct(x=TEXT)), "column id is BIGINT"),
        (with_(customer=struct(name=NUMBER)), r"column customer\.name is STRING"),
        (with_(tags=ArrayType(struct(b=TEXT))), r"lacks column tags\[\]\.a"),
        (with_(notes=MapType(NUMBER, struct(b=TEXT))), r"column notes\.key is STRING"),
        (struct(id=NUMBER), "lacks column customer"),
        (struct(ID=NUMBER), "lacks column id"),
    ],
)
def test_a_contradiction_names_the_column(wanted, words):
    with pytest.raises(ReadRefusedError, match=words):
        check_growth(THERE, wanted)
