"""`-o schema`: what it says is what is printed."""

from enum import Enum
from typing import Literal

import pytest
from attrs import field, frozen

from tests.cluster.cli.json_schema import violations
from twinlog.cluster.admin.documents import schema_of


class Colour(Enum):
    RED = "red"


@frozen
class Inner:
    """A part."""

    colour: Colour
    children: tuple["Inner", ...] = ()


@frozen
class Document:
    """A whole."""

    count: int = field(metadata={"doc": "how many"})
    name: str | None
    inner: Inner | None
    ratio: float
    pair: tuple[int, str]
    kind: Literal["a", "b"]
    by_name: dict[str, int]


GOOD = {
    "schema": 1,
    "count": 1,
    "name": None,
    "inner": {"colour": "red", "children": [{"colour": "red", "children": []}]},
    "ratio": 0.5,
    "pair": [1, "x"],
    "kind": "a",
    "by_name": {"x": 1},
}


def test_an_answer_fits_its_schema():
    assert violations(GOOD, schema_of(Document)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"count": "1"},
        {"count": None},
        {"count": True},
        {"name": 3},
        {"inner": {"colour": "blue", "children": []}},
        {"inner": {"colour": "red"}},
        {"inner": {"colour": "red", "children": [{}]}},
        {"ratio": "half"},
        {"pair": [1]},
        {"pair": [1, "x", 2]},
        {"pair": ["x", 1]},
        {"kind": "c"},
        {"by_name": {"x": "1"}},
        {"more": 1},
    ],
)
def test_what_is_not_promised_does_not_fit(change):
    assert violations(GOOD | change, schema_of(Document))


def test_a_field_that_is_left_out_does_not_fit():
    for name in GOOD:
        assert violations({k: v for k, v in GOOD.items() if k != name}, schema_of(Document))


def test_descriptions_come_from_the_classes():
    schema = schema_of(Document)
    assert schema["description"] == "A whole."
    assert schema["properties"]["count"] == {"type": "integer", "description": "how many"}
    assert schema["$defs"]["Inner"]["description"] == "A part."


def test_what_json_has_no_form_for_is_refused():
    @frozen
    class Odd:
        data: bytes

    with pytest.raises(TypeError, match="bytes"):
        schema_of(Odd)
