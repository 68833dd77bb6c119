"""Following a log: each record once, across restarts; never beyond the confirmed offset; errors with a next step."""

from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.helpers import open_store, put
from tests.spark.reading import Query, Row, noted, rows
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.tables.datasource import RecordsSource

BODY = b"x" * 200  # 306 bytes a record.


def query(*roots: Path, **options: str) -> Query:
    return Query({"path": ",".join(map(str, roots)), "unconfirmed": "true"} | options)


class Sink:
    """Takes each batch once, by its number."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    def __call__(self, batch: list[Row], number: int) -> None:
        self.batches[number] = [row["offset"] for row in batch]

    @property
    def offsets(self) -> list[int]:
        return [offset for number in sorted(self.batches) for offset in self.batches[number]]


def test_a_log_that_grows_is_followed_across_restarts(tmp_path):
    """Batches end at any byte; each record is in one of them, in order."""
    store, sink = open_store(tmp_path / "store"), Sink()
    following = query(store.config.root, maxBytesPerTrigger="2000", splitSize="700")
    for _ in range(3):
        put(store, *(BODY for _ in range(70)))
        following.run(sink)
    assert sink.offsets == [row["offset"] for row in rows("rocketmq_records", store.config.root, unconfirmed="true")]
    assert len(sink.offsets) == 210
    assert max(map(len, sink.batches.values())) == 7


def test_a_batch_that_failed_comes_again_as_it_was(tmp_path):
    """Although the log has grown in the meantime."""
    store, sink = open_store(tmp_path / "store"), Sink()
    put(store, *(BODY for _ in range(10)))
    following, seen = query(store.config.root), []

    def fail(batch: list[Row], _number: int) -> None:
        seen.append([row["offset"] for row in batch])
        raise RuntimeError("the sink is full")

    with pytest.raises(RuntimeError):
        following.run(fail)
    put(store, *(BODY for _ in range(10)))
    following.run(sink)
    assert seen == [sink.batches[0]]
    assert len(sink.offsets) == len(set(sink.offsets)) == 20


def test_topics_and_bodies(tmp_path):
    store = open_store(tmp_path / "store")
    put(store, b"one", topic="A")
    put(store, b"two", topic="B")
    found: list[bytes] = []
    query(store.config.root, topics="B", body="true").run(lambda batch, _: found.extend(row["body"] for row in batch))
    assert found == [b"two"]


def test_several_stores_are_followed_at_once(tmp_path):
    stores = [open_store(tmp_path / name) for name in ("one", "two")]
    sink = Sink()
    following = query(*(store.config.root for store in stores), maxBytesPerTrigger="1500")
    for count in (3, 5):
        for store in stores:
            put(store, *(BODY for _ in range(count)))
        following.run(sink)
    assert len(sink.offsets) == 16


def test_a_store_may_be_added(tmp_path):
    stores = [open_store(tmp_path / name) for name in ("one", "two")]
    for store in stores:
        put(store, BODY)
    sink = Sink()
    following = query(stores[0].config.root)
    following.run(sink)
    following.run(sink, path=f"{stores[0].config.root},{stores[1].config.root}")
    assert sink.offsets == [0, 0]


@pytest.mark.parametrize(("start", "count"), [("latest", 0), ("earliest", 5), ("300", 4)])
def test_where_a_new_query_begins(tmp_path, start, count):
    store, sink = open_store(tmp_path / "store"), Sink()
    put(store, *(BODY for _ in range(5)))
    following = query(store.config.root, startingOffset=start)
    following.run(sink)
    assert len(sink.offsets) == count
    put(store, BODY)
    following.run(sink)
    assert len(sink.offsets) == count + 1


def test_what_is_not_confirmed_is_not_read(tmp_path):
    store, sink = open_store(tmp_path / "store"), Sink()
    put(store, *(BODY for _ in range(5)))
    following = query(store.config.root, unconfirmed="false")
    with pytest.raises(ReadRefusedError, match="the confirmed offset of its log is unknown"):
        following.run(sink)
    noted(store.config.root, store.max_offset)
    put(store, *(BODY for _ in range(5)))
    following.run(sink)
    assert len(sink.offsets) == 5
    noted(store.config.root, store.max_offset)
    following.run(sink)
    assert len(sink.offsets) == 10
    noted(store.config.root, 600)  # The confirmed offset may fall when slaves leave.
    following.run(sink)
    assert len(sink.offsets) == 10


def test_what_retention_removed_is_said(tmp_path, capsys):
    store, sink = open_store(tmp_path / "store", file_size=4096), Sink()
    put(store, *(BODY for _ in range(3)))
    following = query(store.config.root)
    following.run(sink)
    put(store, *(BODY for _ in range(60)))
    files = sorted((store.config.root / "commitlog").iterdir())
    for file in files[:3]:
        file.unlink()
    first = int(files[3].name)
    with pytest.raises(ReadRefusedError, match=rf"bytes \d+ to {first} are gone: retention.*failOnDataLoss=false"):
        following.run(sink)
    following.run(sink, failOnDataLoss="false")
    assert f"to {first} of the log are gone" in capsys.readouterr().err
    left = rows("rocketmq_records", store.config.root, unconfirmed="true")
    assert sink.offsets[3:] == [row["offset"] for row in left]
    assert sink.offsets[3] >= first


def test_a_file_that_goes_between_plan_and_read_is_said(tmp_path):
    store = open_store(tmp_path / "store", file_size=4096)
    put(store, *(BODY for _ in range(60)))
    source = RecordsSource({"path": str(store.config.root), "unconfirmed": "true"})
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    sorted((store.config.root / "commitlog").iterdir())[0].unlink()
    with pytest.raises(ReadRefusedError, match=r"bytes 0 to \d+ of the log cannot be read.*retention"):
        list(reader.read(part))


def test_a_log_that_was_cut_is_said(tmp_path):
    """Unconfirmed bytes were read, and are no longer part of the log."""
    store, sink = open_store(tmp_path / "store"), Sink()
    put(store, *(BODY for _ in range(5)))
    following = query(store.config.root)
    following.run(sink)
    (file,) = sorted((store.config.root / "commitlog").iterdir())[:1]
    raw = file.read_bytes()
    file.write_bytes(raw[: sink.offsets[3]].ljust(len(raw), b"\0"))
    with pytest.raises(
        ReadRefusedError, match=rf"it was read up to \d+, and the log ends at {sink.offsets[3]}: it was cut"
    ):
        following.run(sink)


def test_a_record_that_is_being_written_is_not_passed_over(tmp_path):
    """It is complete at the next inspection, and is returned then."""
    store, sink = open_store(tmp_path / "store"), Sink()
    put(store, *(BODY for _ in range(5)))
    (file,) = sorted((store.config.root / "commitlog").iterdir())[:1]
    whole = file.read_bytes()
    file.write_bytes(whole[: 4 * 306 + 100].ljust(len(whole), b"\0"))
    following = query(store.config.root)
    following.run(sink)
    assert len(sink.offsets) == 4
    file.write_bytes(whole)
    following.run(sink)
    assert len(sink.offsets) == 5


def test_damaged_records_are_passed_over_with_a_warning(tmp_path, capsys):
    store, sink = open_store(tmp_path / "store"), Sink()
    put(store, *(BODY for _ in range(5)))
    (file,) = sorted((store.config.root / "commitlog").iterdir())[:1]
    raw = bytearray(file.read_bytes())
    raw[306 + 150] ^= 1
    file.write_bytes(raw)
    query(store.config.root).run(sink)
    assert sink.offsets == [0, 612, 918, 1224]
    assert "bytes 306 to 612 of the log are skipped: its body does not match its CRC" in capsys.readouterr().err
