"""Units of consume queues as rows: all of them, ext codes resolved, broken ones marked."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.store import golden
from twinlog.cluster.pipeline.sources.files import inspect_store
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.cluster.pipeline.tables.units import pieces_by_size, queue_pieces, unit_batches
from twinlog.store.queue.consume_queue_ext import EXT_HEAD  # The layout, to write some.
from twinlog.store.queue.layout import BLANK, UNIT
from twinlog.store.record.scan import scan_records

_NAME = "0" * 20
FILE_UNITS = 100


def rows_of(root: Path, topics: frozenset[str] | None = None) -> list[dict[str, Any]]:
    files = inspect_store(StoreUri(str(root)))
    batches = [batch for piece in queue_pieces(files, topics) for batch in unit_batches(piece)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def put_units(root: Path, topic: str, *units: tuple[int, int, int] | bytes) -> Path:
    """A queue of a topic that the captured store does not have; in the middle of its log there is room for it."""
    file = root / "consumequeue" / topic / "0" / _NAME
    file.parent.mkdir(parents=True)
    raw = b"".join(unit if isinstance(unit, bytes) else UNIT.pack(*unit) for unit in units)
    size = -(-len(raw) // (FILE_UNITS * 20)) * FILE_UNITS * 20
    raw = raw.ljust(size, b"\0")
    for start in range(0, size, FILE_UNITS * 20):
        (file.parent / f"{start:020}").write_bytes(raw[start : start + FILE_UNITS * 20])
    return file


@pytest.mark.parametrize(("version", "name"), golden.ALL)
def test_units_are_those_of_the_records(tmp_path, version, name):
    """Of all topics but the delayed one, whose codes are times; copies that were made of a running broker lag a little."""
    root = golden.unpack(version, name, tmp_path)
    log = b"".join(file.read_bytes() for file in sorted((root / "commitlog").iterdir()))
    records = {entry.phy_offset: entry for entry in scan_records(log, 0, golden.FILE_SIZE, check_crc=True).entries}
    rows = rows_of(root)
    assert len(rows) > 300
    for row in rows:
        assert row["problem"] is None, row
        record = records[row["offset"]]
        assert (row["topic"], row["queue_id"], row["size"]) == (record.topic, record.queue_id, record.size)
        assert row["queue_offset"] == record.queue_offset
        if row["topic"] != "SCHEDULE_TOPIC_XXXX":
            assert row["tags_code"] == record.tags_code


def test_topics_are_chosen(tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    assert {row["topic"] for row in rows_of(root, frozenset({"TopicA", "no such"}))} == {"TopicA"}


@pytest.mark.parametrize(
    ("units", "broken"),
    [
        ([(0, 10, 1), (10, 10, 2), (20, 10, 3)], {}),
        ([BLANK, BLANK, (20, 10, 3)], {}),
        ([(0, 10, 1), bytes(20), (20, 10, 3)], {1: "no unit"}),
        ([(0, 10, 1), (-5, 10, 1), (20, 10, 3)], {1: "no unit"}),
        ([(0, 10, 1), (10, 0, 1), (20, 10, 3)], {1: "no unit"}),
        ([(0, 10, 1), (9, 10, 2), (30, 10, 3), (40, 10, 3)], {1: "lies before"}),
        ([(0, 10, 1), (10, 10, 2), (1000, 10, 3), (30, 10, 4), (40, 10, 5)], {2: "lies before"}),
        ([(0, 10, 1), (1 << 40, 10, 2)], {1: "behind the end"}),
        ([(0, 10, 1), ((1 << 63) - 1, 10, 2)], {1: "behind the end"}),
        ([(0, 10, 1), (10, 10, -(1 << 63) + 5)], {1: "ext unit is gone"}),
        ([(n * 10, 10, n) for n in range(250)], {}),
        ([(n * 10 if n != 100 else 5, 10, n) for n in range(250)], {100: "lies before"}),
    ],
)
def test_broken_ones_are_marked(tmp_path, units, broken):
    root = golden.unpack("4.9.7", "master", tmp_path)
    put_units(root, "Made", *units)
    rows = rows_of(root, frozenset({"Made"}))
    assert [row["queue_offset"] for row in rows] == list(range(len(units)))
    found = {row["queue_offset"]: row["problem"] for row in rows if row["problem"] is not None}
    assert found.keys() == broken.keys(), found
    assert all(words in found[number] for number, words in broken.items()), found


def test_zeros_in_a_file_before_the_last_are_units_that_are_lost(tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    units = [(n * 10, 10, n) if n < 90 or n >= 100 else bytes(20) for n in range(120)]
    put_units(root, "Made", *units)
    broken = [row["queue_offset"] for row in rows_of(root, frozenset({"Made"})) if row["problem"] is not None]
    assert broken == list(range(90, 100))


def test_ext_codes_are_resolved(tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    ext = root / "consumequeue_ext" / "Made" / "0" / _NAME
    ext.parent.mkdir(parents=True)
    ext.write_bytes((EXT_HEAD.pack(28, 77, 1, 8) + bytes(8) + EXT_HEAD.pack(20, -5, 2, 0)).ljust(1000, b"\0"))
    base = -(1 << 63)
    put_units(root, "Made", (0, 10, base), (10, 10, base + 28), (20, 10, 3), (30, 10, base + 500))
    rows = rows_of(root, frozenset({"Made"}))
    assert [row["tags_code"] for row in rows] == [77, -5, 3, base + 500]
    assert [row["ext_address"] for row in rows] == [base, base + 28, None, base + 500]
    assert [row["problem"] for row in rows] == [None, None, None, "its ext unit is gone"]


def test_pieces_are_gathered_for_tasks():
    assert list(pieces_by_size([5, 5, 5, 20, 1], 10)) == [range(2), range(2, 3), range(3, 4), range(4, 5)]
    assert list(pieces_by_size([], 10)) == []
