"""Filters that save reading: each is applied exactly, or left to Spark."""

import pytest
from attrs import evolve

from twinlog.cluster.pipeline.tables.pushed import Pushed
from twinlog.cluster.pipeline.tables.scan import RecordFilter


@pytest.mark.parametrize(
    ("kind", "column", "value", "expected"),
    [
        ("EqualTo", "topic", "a", {"topics": frozenset("a")}),
        ("In", "topic", ("a", "b"), {"topics": frozenset("ab")}),
        ("In", "topic", ("a", None), {"topics": frozenset("a")}),
        ("EqualTo", "offset", 300, {"start": 300, "end": 301}),
        ("LessThan", "offset", 300, {"end": 300}),
        ("LessThanOrEqual", "offset", 300, {"end": 301}),
        ("GreaterThan", "offset", 300, {"start": 301}),
        ("GreaterThanOrEqual", "offset", 300, {"start": 300}),
        ("GreaterThanOrEqual", "stored_ms", 5, {"begin_ms": 5}),
        ("LessThan", "stored_ms", 5, {"end_ms": 5}),
        ("EqualTo", "stored_ms", 5, {"begin_ms": 5, "end_ms": 6}),
        ("IsNotNull", "offset", None, {}),
    ],
)
def test_taken(kind, column, value, expected):
    pushed = Pushed("offset")
    assert pushed.take(kind, column, value)
    assert pushed.where(start=100, end=1000) == evolve(RecordFilter(start=100, end=1000), **expected)


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("StringStartsWith", "topic", "a"),
        ("Not", "topic", None),
        ("EqualTo", "queue_id", 1),
        ("In", "offset", (1, 2)),
        ("EqualTo", "offset", 1.5),
        ("EqualNullSafe", "offset", None),
        ("IsNull", "offset", None),
        ("IsNotNull", "tags", None),
    ],
)
def test_left_to_spark(kind, column, value):
    pushed = Pushed("offset")
    assert not pushed.take(kind, column, value)
    assert pushed.where(start=100, end=1000) == RecordFilter(start=100, end=1000)


def test_several_narrow_each_other():
    pushed = Pushed("offset", frozenset("ab"))
    for filters in (("GreaterThan", 200), ("LessThan", 900), ("LessThan", 800)):
        assert pushed.take(filters[0], "offset", filters[1])
    assert pushed.take("In", "topic", ("b", "c"))
    assert pushed.where(start=100, end=1000) == RecordFilter(topics=frozenset("b"), start=201, end=800)


def test_what_contradicts_itself_is_empty():
    pushed = Pushed("offset")
    assert pushed.take("LessThan", "offset", 5)
    where = pushed.where(start=100, end=1000)
    assert where.start == where.end == 100
