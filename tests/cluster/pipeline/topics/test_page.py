"""docs/reference/spark.md has every column and every option."""

import re

from tests.product import ROOT
from twinlog.cluster.pipeline.sink import options as sink_options
from twinlog.cluster.pipeline.tables.datasource import struct_of
from twinlog.cluster.pipeline.topics import connection, options
from twinlog.cluster.pipeline.topics.rows import SCHEMA

PAGE = (ROOT / "docs" / "reference" / "spark.md").read_text()


def test_the_page_has_the_columns_in_order():
    rows = [
        f"| `{each.name}` | {each.dataType.simpleString()} | {each.metadata['comment']} |"
        for each in struct_of(SCHEMA).fields
    ]
    assert "\n".join(rows) in PAGE


def test_the_page_has_each_option():
    named = set(re.findall(r"`(\w+)`", "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))))
    assert {*connection.OPTIONS, *options.OPTIONS, *sink_options.OPTIONS} <= named
