"""Items of index files as rows: each leads to a record that has the key, and each record's keys are there."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.store import golden
from twinlog.cluster.pipeline.sources.files import inspect_store
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.cluster.pipeline.tables.units import index_pieces, item_batches
from twinlog.store.index.layout import ITEM
from twinlog.store.record.keys import keys_of
from twinlog.store.record.scan import scan_records


def rows_of(root: Path, slots: int | None = None) -> list[dict[str, Any]]:
    files = inspect_store(StoreUri(str(root)))
    pieces = index_pieces(files.index(), files.end, slots)
    batches = [batch for piece in pieces for batch in item_batches(piece)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


@pytest.mark.parametrize(("version", "name"), golden.ALL)
def test_items_are_the_keys_of_the_records(tmp_path, version, name):
    root = golden.unpack(version, name, tmp_path)
    log = b"".join(file.read_bytes() for file in sorted((root / "commitlog").iterdir()))
    keyed = keys_of(scan_records(log, 0, golden.FILE_SIZE, check_crc=True).entries)
    stored = dict(zip(keyed.phy_offsets, keyed.timestamps, strict=True))
    rows = rows_of(root)
    assert [(row["key_hash"], row["offset"]) for row in rows] == list(zip(keyed.hashes, keyed.phy_offsets, strict=True))
    assert len({row["file"] for row in rows}) > 1
    for row in rows:
        assert row["problem"] is None
        assert row["slot"] == row["key_hash"] % 100
        if row["item"] > 1:  # The first one counts from the file before.
            assert 0 <= stored[row["offset"]] - row["stored_ms"] < 1000


def test_broken_ones_are_marked(tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    first = sorted((root / "index").iterdir())[0]
    made = {5: (-3, 0, 0, 0), 6: (7, 1 << 40, 0, 0), 7: (7, 100, 0, 9)}
    with first.open("r+b") as file:
        for number, item in made.items():
            file.seek(40 + 100 * 4 + number * ITEM.size)
            file.write(ITEM.pack(*item))
    found = {row["item"]: row["problem"] for row in rows_of(root) if row["problem"] is not None}
    assert found.keys() == made.keys()
    assert "negative" in found[5]
    assert "behind the end" in found[6]
    assert "forward" in found[7]


def test_no_index_has_no_items(tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    for file in (root / "index").iterdir():
        file.unlink()
    assert rows_of(root) == []
