"""Splits of a log, cut anywhere, contain every record once and report all damage, as one walk over the whole log does."""

import json
import lzma
import os
import random
import tarfile
import tracemalloc
import zlib
from collections import Counter
from contextlib import closing
from hashlib import sha1
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.pipeline.logs import chained, forged, is_cover, merged, message, records, store_files, traffic
from tests.store import golden
from twinlog.cluster.pipeline.sources.files import StoreFiles, inspect_store
from twinlog.cluster.pipeline.sources.log_bytes import LogBytes, Split, splits
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.cluster.pipeline.sources.walk import Broken, BrokenKind, walk_split
from twinlog.cluster.pipeline.tables.scan import RecordFilter, record_batches
from twinlog.store.offline.file_series import FileReader, FileSeries, list_files
from twinlog.store.offline.walk import Gap, walk
from twinlog.store.record.message import encode_message

FILE_SIZE = 16 << 10
LOOK_BACK = 4 << 10  # More than two of the largest records.


def walked(files: StoreFiles) -> tuple[list[int], list[tuple[int, int]]]:
    """Offsets of records and damage, by the offline tools' walk."""
    reader = FileReader()
    found, _ = list_files(Path(files.log[0].uri.text).parent)
    series = FileSeries(Path(), files.file_size, tuple(found), reader, files.first)
    starts: list[int] = []
    gaps: list[tuple[int, int]] = []
    for piece in walk(series, files.first, files.end):
        if isinstance(piece, Gap):
            gaps.append((piece.start, piece.end))
        else:
            starts += [entry.phy_offset for entry in piece.entries]
    reader.close()
    return starts, gaps


def in_splits(files: StoreFiles, parts: list[Split], *, window: int = 4 << 20, look_back: int = LOOK_BACK):
    """Offsets of records and damage by splits, in order."""
    starts: list[int] = []
    broken: list[Broken] = []
    for part in parts:
        with closing(LogBytes(files.log, files.file_size)) as source:
            for piece in walk_split(source, part, files.first, files.end, window=window, look_back=look_back):
                if isinstance(piece, Broken):
                    assert part.start <= piece.start < piece.end <= part.end
                    broken.append(piece)
                else:
                    found = piece.columns.phy_offset.tolist()
                    assert all(part.start <= at < part.end for at in found)
                    starts += found
    return starts, [(piece.start, piece.end) for piece in merged(broken)]


def cut(files: StoreFiles, bounds: list[int]) -> list[Split]:
    """The log between its ends, cut at some places."""
    inside = sorted({at for at in bounds if files.first < at < files.end})
    found = [Split(*pair) for pair in zip([files.first, *inside], [*inside, files.end], strict=True)]
    assert is_cover(found, files.first, files.end)
    return found


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1 << 30),
    start=st.sampled_from([0, 3 * FILE_SIZE, 3 * FILE_SIZE + 5000]),
    count=st.integers(1, 140),
    window=st.sampled_from([64, 700, 4 << 20]),
    look_back=st.sampled_from([LOOK_BACK, 1 << 20]),
)
def test_sound_logs_cut_anywhere(tmp_path_factory, seed, start, count, window, look_back):
    data, placed = records(traffic(count, seed), start, FILE_SIZE)
    files = store_files(tmp_path_factory.mktemp("log"), data, start, FILE_SIZE)
    chance = random.Random(seed)
    near = [
        each.phy_offset + chance.choice((-1, 0, 1, 4, 8, 90)) for each in chance.sample(placed, min(9, len(placed)))
    ]
    anywhere = [files.first + chance.randrange(len(data)) for _ in range(9)]
    found = in_splits(files, cut(files, near + anywhere), window=window, look_back=look_back)
    assert found == ([each.phy_offset for each in placed], [])
    assert walked(files) == found


@pytest.mark.slow
def test_every_byte_is_a_place_to_cut(tmp_path):
    data, placed = records(traffic(4, 1, 60), 0, 512)
    files = store_files(tmp_path, data, 0, 512)
    for at in range(1, len(data)):
        assert in_splits(files, cut(files, [at]), window=256) == ([each.phy_offset for each in placed], [])


@st.composite
def damages(draw):
    """What is done to bytes: places are parts of a whole."""
    kind = draw(st.sampled_from(["flip", "zeros", "random", "shift"]))
    return kind, draw(st.floats(0, 1)), draw(st.integers(1, 3000)), draw(st.integers(0, 7))


def damaged(data: bytes, wounds) -> bytes:
    image = bytearray(data)
    for kind, where, size, bit in wounds:
        at = min(int(where * len(image)), len(image) - 1)
        piece = image[at : at + size]
        if kind == "flip":
            image[at] ^= 1 << bit
        elif kind == "zeros":
            image[at : at + size] = bytes(len(piece))
        elif kind == "random":
            image[at : at + size] = random.Random(size).randbytes(len(piece))
        else:
            image[at : at + size] = piece[bit:] + piece[:bit]
    return bytes(image)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 1 << 30),
    wounds=st.lists(damages(), min_size=1, max_size=3),
    bounds=st.lists(st.floats(0, 1), max_size=8),
    window=st.sampled_from([300, 4 << 20]),
)
def test_damaged_logs_cut_anywhere(tmp_path_factory, seed, wounds, bounds, window):
    data, _ = records(traffic(80, seed), 0, FILE_SIZE)
    files = store_files(tmp_path_factory.mktemp("log"), damaged(data, wounds), 0, FILE_SIZE)
    parts = cut(files, [int(bound * files.end) for bound in bounds])
    starts, gaps = walked(files)
    found, broken = in_splits(files, parts, window=window, look_back=1 << 20)
    assert found == starts
    assert broken == joined(gaps)


def joined(gaps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in gaps:
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], end
        else:
            found.append((start, end))
    return found


@pytest.mark.parametrize("look_back", [LOOK_BACK, 1 << 20])
def test_bodies_made_of_records_fool_nobody(tmp_path, look_back):
    """They name the very places at which they lie: their sender knew where the log ended."""
    made, at = [], 0
    for number in range(30):
        each = message(number, b"z" * 200) if number % 3 else forged(number, at, 6)
        made.append(each)
        data, placed = records(made, 0, FILE_SIZE)
        at = len(data)
        if at % FILE_SIZE + 2000 > FILE_SIZE:
            made.append(message(900 + number, b"f" * (FILE_SIZE - at % FILE_SIZE - 300)))
            at = len(records(made, 0, FILE_SIZE)[0])
    data, placed = records(made, 0, FILE_SIZE)
    assert data.count(b"Forged") > 50
    files = store_files(tmp_path, data, 0, FILE_SIZE)
    for size in (100, 333, 1000, 4096):
        found = in_splits(files, splits(files.log, size, end=files.end), look_back=look_back)
        assert found == ([each.phy_offset for each in placed], [])


@pytest.mark.parametrize("look_back", [LOOK_BACK, 1 << 20])
def test_a_second_log_in_the_bodies_of_the_first(tmp_path, look_back):
    """From a place in a body a walk would meet only what was put there, for as long as it goes on."""
    file_size = 1 << 20
    data, placed = records(chained(100), 0, file_size)
    files = store_files(tmp_path, data, 0, file_size)
    for size in (1000, 1777, 9999):
        found = in_splits(files, splits(files.log, size, end=files.end), look_back=look_back)
        assert found == ([each.phy_offset for each in placed], [])


def test_copies_of_records_in_bodies(tmp_path):
    """An archiver's messages: each body is a record of elsewhere."""
    made = [message(number, encode_message(message(number, b"inner"))) for number in range(100)]
    data, placed = records(made, 0, FILE_SIZE)
    files = store_files(tmp_path, data, 0, FILE_SIZE)
    found = in_splits(files, splits(files.log, 500, end=files.end))
    assert found == ([each.phy_offset for each in placed], [])


def test_broken_bytes_are_told_with_their_reason(tmp_path):
    data, placed = records([message(number) for number in range(200)], 0, FILE_SIZE)
    image = bytearray(data)
    image[placed[20].phy_offset + 90] ^= 1
    image[placed[40].phy_offset] ^= 0x40
    files = store_files(tmp_path, bytes(image), 0, FILE_SIZE)
    told: list[Broken] = []
    batches = list(record_batches(files, Split(0, files.end), on_broken=told.append, rows_max=50))
    assert [(piece.start, piece.end, piece.kind) for piece in told] == [
        (placed[number].phy_offset, placed[number + 1].phy_offset, BrokenKind.DAMAGED) for number in (20, 40)
    ]
    assert told[0].reason == "its body does not match its CRC"
    assert "where the file has" in told[1].reason
    offsets = [at for batch in batches for at in batch.column("offset").to_pylist()]
    assert offsets == [each.phy_offset for number, each in enumerate(placed) if number not in (20, 40)]
    assert max(map(len, batches)) <= 50


def test_a_damaged_size_costs_no_memory(tmp_path):
    """It says that the record takes most of a large file, which is not read for it."""
    file_size = 1 << 30
    data, placed = records([message(number) for number in range(300)], 0, file_size)
    image = bytearray(data)
    image[placed[100].phy_offset] = 0x30
    files = store_files(tmp_path, b"", 0, 1 << 10)
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes(image)
    os.truncate(path, file_size)
    log = (attrs.evolve(files.log[0], size=file_size),)
    files = attrs.evolve(files, log=log, file_size=file_size, end=file_size // 2)
    tracemalloc.start()
    try:
        for parts in ([Split(0, 1 << 20)], [Split(0, 15_000), Split(15_000, 17_000), Split(17_000, 1 << 20)]):
            told: list[Broken] = []
            found = [batch for part in parts for batch in record_batches(files, part, on_broken=told.append)]
            assert sum(map(len, found)) == 299
            first, *_ = merged(told)
            assert (first.start, first.end) == (placed[100].phy_offset, placed[101].phy_offset)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 160 << 20


def test_a_missing_and_a_short_file(tmp_path):
    data, placed = records([message(number, b"x" * 900) for number in range(90)], 0, FILE_SIZE)
    files = store_files(tmp_path, data, 0, FILE_SIZE)
    (tmp_path / "commitlog" / f"{FILE_SIZE:020d}").unlink()
    os.truncate(tmp_path / "commitlog" / f"{3 * FILE_SIZE:020d}", 5000)
    files = attrs.evolve(files, log=tuple(file for file in files.log if file.start != FILE_SIZE))
    for size in (1 << 20, 3000):
        told: list[Broken] = []
        offsets = []
        for part in splits(files.log, size, end=files.end):
            for batch in record_batches(files, part, on_broken=told.append):
                offsets += batch.column("offset").to_pylist()
        first, second = merged(told)
        assert (first.start, first.end, first.kind) == (FILE_SIZE, 2 * FILE_SIZE, BrokenKind.MISSING)
        assert 3 * FILE_SIZE + 4000 < second.start <= 3 * FILE_SIZE + 5000
        assert (second.end, second.kind) == (4 * FILE_SIZE, BrokenKind.MISSING)
        gone = [range(first.start, first.end), range(second.start, second.end)]
        assert offsets == [each.phy_offset for each in placed if not any(each.phy_offset in part for part in gone)]


def test_a_file_that_cannot_be_read(tmp_path):
    """A directory in its place: opening succeeds, reading does not."""
    data, placed = records([message(number, b"x" * 900) for number in range(90)], 0, FILE_SIZE)
    files = store_files(tmp_path, data, 0, FILE_SIZE)
    path = tmp_path / "commitlog" / f"{FILE_SIZE:020d}"
    path.unlink()
    path.mkdir()
    for size in (1 << 20, 3000):
        told: list[Broken] = []
        offsets = []
        for part in splits(files.log, size, end=files.end):
            for batch in record_batches(files, part, on_broken=told.append):
                offsets += batch.column("offset").to_pylist()
        (found,) = merged(told)
        assert (found.start, found.end, found.kind) == (FILE_SIZE, 2 * FILE_SIZE, BrokenKind.UNREADABLE)
        assert str(path) in found.reason
        assert "directory" in found.reason
        assert offsets == [each.phy_offset for each in placed if each.phy_offset // FILE_SIZE != 1]


def test_filters(tmp_path):
    data, placed = records(traffic(200, 3), 0, FILE_SIZE)
    files = store_files(tmp_path, data, 0, FILE_SIZE)

    def offsets(**where) -> list[int]:
        batches = record_batches(files, Split(0, files.end), where=RecordFilter(**where))
        return [at for batch in batches for at in batch.column("offset").to_pylist()]

    third, last = placed[30], placed[150]
    assert offsets(start=third.phy_offset, end=last.phy_offset) == [each.phy_offset for each in placed[30:150]]
    assert offsets(start=third.phy_offset + 1, end=last.phy_offset + 1) == [each.phy_offset for each in placed[31:151]]
    times = {"begin_ms": third.store_timestamp, "end_ms": last.store_timestamp}
    assert offsets(**times) == [each.phy_offset for each in placed[30:150]]
    chosen = [each.phy_offset for each in placed if each.topic in ("T1", "T2")]
    assert offsets(topics=frozenset({"T1", "T2", "none"})) == chosen
    assert offsets(topics=frozenset({"none"})) == []
    assert offsets(start=files.end) == []
    assert offsets(start=500, end=400) == []


def test_nothing_behind_the_end_is_read(tmp_path):
    data, placed = records([message(number) for number in range(50)], 0, FILE_SIZE)
    files = attrs.evolve(store_files(tmp_path, data, 0, FILE_SIZE), end=placed[20].phy_offset)
    batches = list(record_batches(files, Split(0, 1 << 40)))
    assert sum(map(len, batches)) == 20


def test_the_same_split_gives_the_same_batches(tmp_path):
    data, _ = records(traffic(300, 4), 0, FILE_SIZE)
    files = store_files(tmp_path, data, 0, FILE_SIZE)
    part = Split(5000, 30_000)
    first, again = (list(record_batches(files, part, body=True, rows_max=64)) for _ in range(2))
    assert len(first) == len(again)
    assert all(one.equals(other) for one, other in zip(first, again, strict=True))


# The real brokers' stores.


@pytest.fixture(params=golden.ALL, ids="-".join)
def captured(request, tmp_path):
    version, name = request.param
    return version, inspect_store(StoreUri(str(golden.unpack(version, name, tmp_path))))


def table(files: StoreFiles, *, size: int = 64 << 20) -> list[dict[str, object]]:
    found, told = [], []
    for part in splits(files.log, size, files.first, files.end):
        for batch in record_batches(files, part, body=True, on_broken=told.append):
            found += batch.to_pylist()
    assert told == []
    return found


def told_of(row) -> tuple[object, ...]:
    """A message as its client knows it: final topic and uncompressed body."""
    properties = dict(row["properties"])
    body = zlib.decompress(row["body"]) if row["sys_flag"] & 1 else row["body"]
    return properties.get("REAL_TOPIC", row["topic"]), row["tags"], row["keys"], sha1(body).hexdigest()


def test_the_table_is_what_the_clients_noted(captured):
    version, files = captured
    rows = table(files)
    by_offset, by_content = {row["offset"]: row for row in rows}, Counter(map(told_of, rows))
    noted = [each for each in golden.truth(version)["messages"] if "body_sha1" in each and each["kind"] != "query"]
    answered = [each for each in noted if each["kind"] == "normal"]
    for each in answered:
        row = by_offset.get(int(each["offset_msg_id"][-16:], 16))
        if row is None:  # Sent after the running store was copied.
            assert int(each["offset_msg_id"][-16:], 16) >= files.end
            continue
        assert told_of(row) == (each["topic"], each["tags"], each["keys"], each["body_sha1"])
        assert (row["unique_key"], row["queue_id"], row["queue_offset"]) == (
            each["msg_id"],
            each["queue_id"],
            each["queue_offset"],
        )
    assert len(rows) > len(noted) or files.has_abort
    if not files.has_abort:
        expected = Counter((each["topic"], each["tags"], each["keys"], each["body_sha1"]) for each in noted)
        assert not expected - by_content


def test_golden_stores_in_small_splits(captured):
    _, files = captured
    whole = table(files)
    assert table(files, size=7777) == whole
    starts, gaps = walked(files)
    assert ([row["offset"] for row in whole], gaps) == (starts, [])


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_twinlogs_own_store(tmp_path, name):
    release = golden.GOLDEN / "twinlog-0.1"
    with tarfile.open(release / f"store-{name}.tar.xz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = staticmethod(tarfile.data_filter)
        archive.extractall(tmp_path)
    files = inspect_store(StoreUri(str(tmp_path / name)))
    by_offset = {row["offset"]: row for row in table(files, size=10_000)}
    noted = json.loads(lzma.decompress((release / f"truth-{name}.json.xz").read_bytes()))["messages"]
    for each in noted:
        row = by_offset[each["phy_offset"]]
        assert row["unique_key"] == each["unique_id"]
        if each["kind"] == "plain":
            assert (row["topic"], row["queue_id"], row["queue_offset"]) == (
                each["topic"],
                each["queue_id"],
                each["queue_offset"],
            )
    assert len(noted) > 50
