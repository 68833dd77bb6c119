"""The table of formats: what the reference shows, what the checker is held to."""

import re
from pathlib import Path

import pytest
from hypothesis import given

from tests.helpers import docs_extension
from tests.store.records import messages
from twinlog.store import retention
from twinlog.store.config import CONSUME_QUEUE_UNIT
from twinlog.store.index import index_files
from twinlog.store.index.layout import HEADER, ITEM, SLOT
from twinlog.store.integrity import digest
from twinlog.store.log.checkpoint import FILE_SIZE as CHECKPOINT_SIZE
from twinlog.store.offline.finding import FindingKind
from twinlog.store.queue.consume_queue_ext import EXT_HEAD
from twinlog.store.record.message import encode_message
from twinlog.store.recovery import point as recovery_point
from twinlog.store.truncation import intent as truncate_intent

formats = docs_extension("format_fields")
NO_CUT = truncate_intent.TruncateIntent(
    kind=truncate_intent.CutKind.CUT, offset=0, old_end=0, last_timestamp=0, when_ms=0, kept_in="", why=""
)
PAGES = Path(__file__).parents[3] / "docs" / "reference" / "formats"


def fixed_size(name: str) -> int:
    return sum(field.size for field in formats.FORMATS[name] if isinstance(field.size, int))


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("record-v1", 75),
        ("record-v2", 76),
        ("blank", 8),
        ("unit", CONSUME_QUEUE_UNIT),
        ("ext-unit", EXT_HEAD.size),
        ("index-header", HEADER.size),
        ("index-slot", SLOT.size),
        ("index-item", ITEM.size),
        ("checkpoint", CHECKPOINT_SIZE),
        ("digest-header", digest.PAGE_SIZE),
        ("digest-page", digest.PAGE_SIZE),
        ("index-behind", len(index_files.encode_note(0))),
        ("clock", len(retention.encode_clock(0))),
        ("truncate", len(truncate_intent.encode_intent(NO_CUT))),
    ],
)
def test_fields_fill_what_they_are_in(name, size):
    """No byte is forgotten."""
    assert fixed_size(name) == size


def test_fields_of_the_recovery_point_fill_it():
    """An empty one, and what each queue adds."""
    empty = recovery_point.RecoveryPoint(offset=0, log_start=0, log_file_size=0, queue_file_size=0)
    assert len(recovery_point.encode_point(empty)) == fixed_size("recovery-point")
    queue = recovery_point.QueueEnds("T", 0, 0, 0, 0)
    one = recovery_point.RecoveryPoint(offset=0, log_start=0, log_file_size=0, queue_file_size=0, queues=(queue,))
    added = len(recovery_point.encode_point(one)) - len(recovery_point.encode_point(empty))
    assert added == fixed_size("queue-state") + len("T")


@given(messages())
def test_fields_lie_where_the_table_says(message):
    """For any record of either version: the fields follow one another, and cover no bit outside of the record."""
    record = encode_message(message)
    extents = {extent.field.name: extent for extent in formats.record_extents(record)}
    assert record[extents["topic"].start : extents["topic"].end] == message.topic.encode()
    assert record[extents["body"].start : extents["body"].end] == message.body
    assert record[extents["storeTimestamp"].start : extents["storeTimestamp"].end] == message.store_timestamp.to_bytes(
        8, signed=True
    )
    bits = formats.covered_bits(record, is_indexed=True)
    assert len(bits) == len(record)
    assert bits[:12] == b"\xff" * 12
    assert not any(bits[extents["flag"].start : extents["flag"].end])


def test_every_format_and_every_kind_of_finding_is_in_the_reference():
    """Once."""
    text = "\n".join(page.read_text() for page in sorted(PAGES.glob("*.md")))
    assert sorted(re.findall(r"^```{format} (\S+)$", text, re.MULTILINE)) == sorted(formats.FORMATS)
    rows = re.findall(r"^\| (`[a-z`, -]+`) \|", (PAGES / "findings.md").read_text(), re.MULTILINE)
    assert sorted(kind for row in rows for kind in re.findall(r"[a-z-]+", row)) == sorted(FindingKind)


def test_what_nothing_covers_is_what_the_specification_says():
    """Of a record: what only its sender and its broker know."""
    bare = [field.name for field in formats.FORMATS["record-v1"] if field.cover is formats.Cover.NOTHING]
    assert bare == [
        "flag",
        "bornTimestamp",
        "bornHost",
        "storeTimestamp",
        "storeHost",
        "reconsumeTimes",
        "preparedTransactionOffset",
        "properties",
    ]
