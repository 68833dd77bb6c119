"""Digests of blocks are those of the bytes, and records are counted where they begin."""

import os
import random

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.pipeline.logs import message, records, store_files, traffic
from tests.store import golden
from twinlog.cluster.pipeline.sources.files import inspect_store
from twinlog.cluster.pipeline.sources.log_bytes import Split, splits
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.cluster.pipeline.tables import scan
from twinlog.cluster.pipeline.tables.scan import block_batches
from twinlog.cluster.pipeline.tables.schemas import BLOCK_COLUMNS
from twinlog.store.integrity.digest import BLOCK_SIZE, digest

FILE_SIZE = 3 * BLOCK_SIZE


def rows(files, parts, **options) -> list[dict[str, object]]:
    found = []
    for part in parts:
        for batch in block_batches(files, part, **options):
            assert batch.schema.equals(BLOCK_COLUMNS, check_metadata=True)
            found += batch.to_pylist()
    return found


def expected(data: bytes, start: int, offsets: list[int]) -> list[dict[str, object]]:
    found, low, end = [], start, start + len(data)
    while low < end:
        high = min(end, low - low % BLOCK_SIZE + BLOCK_SIZE)
        inside = [at for at in offsets if low <= at < high]
        found.append(
            {
                "start": low,
                "end": high,
                "digest": digest(data[low - start : high - start]),
                "records": len(inside),
                "first_record": inside[0] if inside else -1,
            }
        )
        low = high
    return found


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1 << 30),
    start=st.sampled_from([0, FILE_SIZE, 2 * FILE_SIZE + 70_000]),
    size=st.sampled_from([1000, BLOCK_SIZE, 100_000, 1 << 30]),
    window=st.sampled_from([1, 2 * BLOCK_SIZE, 1 << 20]),
    size_max=st.sampled_from([300, 5000, 150_000]),
)
def test_blocks_of_sound_logs(tmp_path_factory, seed, start, size, window, size_max):
    data, placed = records(traffic(60, seed, size_max), start, FILE_SIZE)
    files = store_files(tmp_path_factory.mktemp("log"), data, start, FILE_SIZE)
    found = rows(files, splits(files.log, size, files.first, files.end), window=window)
    assert found == expected(data, start, [each.phy_offset for each in placed])


def test_files_that_are_no_multiple_of_a_block(tmp_path):
    data, placed = records(traffic(200, 1, 3000), 0, 100_000)
    files = store_files(tmp_path, data, 0, 100_000)
    assert rows(files, [Split(0, files.end)]) == expected(data, 0, [each.phy_offset for each in placed])


def test_counting_goes_on_behind_damage(tmp_path):
    data, placed = records([message(number, b"x" * 900) for number in range(400)], 0, FILE_SIZE)
    image = bytearray(data)
    broken = placed[100].phy_offset
    image[broken : broken + 4] = random.Random(1).randbytes(4)
    zeros = range(placed[150].phy_offset, placed[300].phy_offset)
    image[zeros.start : zeros.stop] = bytes(len(zeros))
    files = store_files(tmp_path, bytes(image), 0, FILE_SIZE)
    sound = [each.phy_offset for each in placed if each.phy_offset != broken and each.phy_offset not in zeros]
    for size in (1000, BLOCK_SIZE, 1 << 30):
        assert rows(files, splits(files.log, size, 0, files.end)) == expected(bytes(image), 0, sound)


def test_missing_bytes_have_no_blocks(tmp_path):
    data, placed = records([message(number, b"x" * 900) for number in range(900)], 0, FILE_SIZE)
    files = store_files(tmp_path, data, 0, FILE_SIZE)
    (tmp_path / "commitlog" / f"{FILE_SIZE:020d}").unlink()
    os.truncate(tmp_path / "commitlog" / f"{2 * FILE_SIZE:020d}", BLOCK_SIZE + 10)
    files = attrs.evolve(files, log=tuple(file for file in files.log if file.start != FILE_SIZE))
    whole = expected(data, 0, [each.phy_offset for each in placed])
    found = rows(files, [Split(0, files.end)])
    kept = [each for each in whole if not FILE_SIZE <= each["start"] < 2 * FILE_SIZE]
    kept = [each for each in kept if not 2 * FILE_SIZE + BLOCK_SIZE <= each["start"] < 3 * FILE_SIZE]
    assert [each["start"] for each in found] == [each["start"] for each in kept]
    assert [each["digest"] for each in found] == [each["digest"] for each in kept]
    assert found[:3] == kept[:3]


def test_bytes_that_cannot_be_read_have_no_digest(tmp_path):
    data, _ = records([message(number, b"x" * 900) for number in range(900)], 0, FILE_SIZE)
    files = store_files(tmp_path, data, 0, FILE_SIZE)
    path = tmp_path / "commitlog" / f"{FILE_SIZE:020d}"
    path.unlink()
    path.mkdir()
    found = rows(files, splits(files.log, 2 * BLOCK_SIZE, 0, files.end))
    assert [each["start"] for each in found if each["digest"] is None] == [
        FILE_SIZE + number * BLOCK_SIZE for number in range(3)
    ]
    assert [each["start"] for each in found] == list(range(0, files.end, BLOCK_SIZE))


def test_batches_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "_ROWS_MAX", 2)
    data, placed = records([message(number, b"x" * 900) for number in range(900)], 0, FILE_SIZE)
    files = store_files(tmp_path, data, 0, FILE_SIZE)
    batches = list(block_batches(files, Split(0, files.end), window=BLOCK_SIZE))
    assert max(map(len, batches)) == 2
    found = [row for batch in batches for row in batch.to_pylist()]
    assert found == expected(data, 0, [each.phy_offset for each in placed])


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_master_and_slave_have_the_same_blocks(version, tmp_path):
    sides = [inspect_store(StoreUri(str(golden.unpack(version, name, tmp_path)))) for name in golden.CLEAN]
    first, second = (rows(files, splits(files.log, 64 << 20, files.first, files.end)) for files in sides)
    assert first == second
    assert sum(each["records"] for each in first) > 100


def test_digests_alone_are_the_same(tmp_path):
    """What an audit compares: no record is counted then, and no byte looked at twice."""
    data, _ = records(traffic(60, 1, 20_000), 0, FILE_SIZE)
    files = store_files(tmp_path, data, 0, FILE_SIZE)
    (part,) = splits(files.log, 1 << 30, files.first, files.end)
    counted, alone = rows(files, [part]), rows(files, [part], count_records=False)
    assert sum(row["records"] for row in counted) == 60
    assert {(row["records"], row["first_record"]) for row in alone} == {(0, -1)}
    names = ("start", "end", "digest")
    assert [[row[name] for name in names] for row in alone] == [[row[name] for name in names] for row in counted]
