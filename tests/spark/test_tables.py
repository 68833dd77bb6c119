"""Content of the tables, parts that are not read, and refusals. In Spark: test_spark_tables.py."""

import hashlib
import shutil
from collections import Counter

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan

from tests.helpers import open_store, put
from tests.spark.logs import flip, log_bytes, log_files
from tests.spark.reading import Row, noted, rows
from tests.store import golden
from twinlog.cluster.pipeline.sources.files import NotAStoreError
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.tables import schemas
from twinlog.store.index.layout import index_hash
from twinlog.store.integrity.digest import digest

OTHERS = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC")


def sha1(row: Row) -> str:
    return hashlib.sha1(row["body"]).hexdigest()


@pytest.mark.parametrize(("version", "name"), golden.STOPPED)
def test_records_are_what_the_client_sent(tmp_path, version, name):
    """Compared with the client's own notes: hashes of bodies, tags, keys, queue offsets."""
    root = golden.unpack(version, name, tmp_path)
    found = rows("rocketmq_records", root, inflate="true", splitSize="100000")
    by_offset = {row["offset"]: row for row in found}
    assert len(by_offset) == len(found)
    sent = golden.truth(version)["messages"]
    placed = [each for each in sent if each["kind"] in ("normal", "delay")]
    assert len(placed) > 200
    for each in placed:
        row = by_offset[int(each["offset_msg_id"][16:], 16)]
        topic = row["properties"]["REAL_TOPIC"] if each["kind"] == "delay" else row["topic"]
        number = row["properties"]["REAL_QID"] if each["kind"] == "delay" else row["queue_id"]
        assert (topic, int(number), row["queue_offset"]) == (each["topic"], each["queue_id"], each["queue_offset"])
        assert (row["tags"], row["keys"], sha1(row)) == (each["tags"], each["keys"], each["body_sha1"])
        assert row["unique_key"] == each["msg_id"] == row["properties"]["UNIQ_KEY"]
    stored = Counter((row["topic"], row["tags"], row["keys"], sha1(row)) for row in found)
    kept = [each for each in sent if each["kind"] in ("batch", "oneway") or each.get("how") == "commit"]
    assert kept
    for each in kept:
        assert stored[each["topic"], each["tags"], each["keys"], each["body_sha1"]] >= 1, each
    assert all(row["body_problem"] is None for row in found)
    assert {row["file"] for row in found} == {file.name for file in log_files(root)}
    assert {row["member"] for row in found} == {str(root)}


@pytest.mark.parametrize("version", golden.VERSIONS)
@pytest.mark.parametrize("name", ["rocketmq_records", "rocketmq_blocks", "rocketmq_index"])
def test_master_and_slave_have_the_same_rows(tmp_path, version, name):
    roots = [golden.unpack(version, which, tmp_path) for which in golden.CLEAN]
    both = rows(name, *roots, splitSize="65536")
    left, right = ([row | {"member": "", "file": ""} for row in both if row["member"] == str(root)] for root in roots)
    assert left == right
    assert left


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_a_copy_of_a_running_store(tmp_path, version):
    """No process has it open here: it is read to the end of its whole records."""
    root = golden.unpack(version, golden.RUNNING, tmp_path)
    assert len(rows("rocketmq_records", root)) > 300
    assert len(rows("rocketmq_consumequeue", root)) > 300


@pytest.mark.parametrize("size", [1, 1000, 4096, 100_000, 1 << 30])
def test_splits_of_any_size_have_the_same_rows(tmp_path, size):
    root = golden.unpack("5.3.3", "master", tmp_path)
    if size == 1:  # Every byte of a stretch by itself.
        filters = [LessThan(("offset",), 3000)]
        expected = [row for row in rows("rocketmq_records", root) if row["offset"] < 3000]
        assert rows("rocketmq_records", root, filters=filters, splitSize="1") == expected
        return
    for name in ("rocketmq_records", "rocketmq_consumequeue", "rocketmq_index"):
        assert rows(name, root, splitSize=str(size)) == rows(name, root)


def test_damaged_records_are_passed_over(tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    before = {row["offset"] for row in rows("rocketmq_records", root)}
    at = flip(root, 5)
    assert {row["offset"] for row in rows("rocketmq_records", root)} == before - {at}


def test_what_cannot_be_read_is_said(tmp_path):
    """A missing file does not affect queries that do not need it."""
    root = golden.unpack("4.9.7", "master", tmp_path)
    log_files(root)[1].write_bytes(b"")
    assert len(rows("rocketmq_records", root, filters=[LessThan(("offset",), 131_072)])) > 50
    with pytest.raises(ReadRefusedError, match=r"bytes 131072 to .* of the log cannot be read.*failOnDataLoss=false"):
        rows("rocketmq_records", root)
    rest = [row["offset"] for row in rows("rocketmq_records", root, failOnDataLoss="false")]
    assert min(rest) == 0
    assert max(rest) > 262_144
    assert not [at for at in rest if 131_072 <= at < 262_144]


def test_blocks_are_digests_of_the_bytes(tmp_path):
    root = golden.unpack("5.3.3", "master", tmp_path)
    log = log_bytes(root)
    offsets = sorted(row["offset"] for row in rows("rocketmq_records", root))
    found = rows("rocketmq_blocks", root, splitSize="131072")
    assert [row["start"] for row in found] == list(range(0, found[-1]["end"], 65536))
    for row in found:
        assert row["digest"] == digest(log[row["start"] : row["end"]])
        inside = [at for at in offsets if row["start"] <= at < row["end"]]
        assert (row["records"], row["first_record"]) == (len(inside), inside[0] if inside else -1)
    some = rows("rocketmq_blocks", root, filters=[GreaterThanOrEqual(("start",), 65536), LessThan(("start",), 200_000)])
    assert [row["start"] for row in some] == [65536, 131_072, 196_608]


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_units_lead_to_their_records(tmp_path, version):
    root = golden.unpack(version, "master", tmp_path)
    records = {row["offset"]: row for row in rows("rocketmq_records", root)}
    units = rows("rocketmq_consumequeue", root)
    assert len(units) > 300
    for unit in units:
        same = ("topic", "queue_id", "queue_offset", "size")
        assert [unit[name] for name in same] == [records[unit["offset"]][name] for name in same]
    of_a = [unit for unit in units if unit["topic"] == "TopicA"]
    assert rows("rocketmq_consumequeue", root, topics="TopicA") == of_a
    assert rows("rocketmq_consumequeue", root, filters=[EqualTo(("topic",), "TopicA")]) == of_a != []


def test_items_lead_to_their_records(tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    items = {(row["key_hash"], row["offset"]) for row in rows("rocketmq_index", root)}
    for row in rows("rocketmq_records", root):
        if row["topic"] not in OTHERS:
            for key in [*(row["keys"] or "").split(), row["unique_key"]]:
                assert (index_hash(row["topic"], key), row["offset"]) in items, row


def test_a_running_store(tmp_path, capfd):
    """This process has it open, as a broker would."""
    store = open_store(tmp_path / "store")
    root = store.config.root
    put(store, *(b"confirmed" for _ in range(7)))
    confirmed = store.max_offset
    put(store, *(b"not yet" for _ in range(5)))
    for name in ("rocketmq_records", "rocketmq_blocks"):
        with pytest.raises(ReadRefusedError, match=r"the confirmed offset of its log is unknown.*unconfirmed=true"):
            rows(name, root)
    assert len(rows("rocketmq_records", root, unconfirmed="true")) == 12
    noted(root, confirmed)
    capfd.readouterr()
    assert len(rows("rocketmq_records", root)) == 7
    assert f"confirmed up to {confirmed}" in capfd.readouterr().err
    (block,) = rows("rocketmq_blocks", root)
    assert (block["end"], block["records"]) == (confirmed, 7)
    assert len(rows("rocketmq_records", root, unconfirmed="true")) == 12
    store.dispatch_pending()
    assert [row["problem"] for row in rows("rocketmq_consumequeue", root)] == [None] * 12


def test_a_broker_that_does_not_answer_is_named(tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    with pytest.raises(
        ReadRefusedError, match=r"127.0.0.1:1: the broker did not report how much of its log is confirmed: "
    ):
        rows("rocketmq_records", root, broker="127.0.0.1:1")


def test_what_is_no_store_is_said(tmp_path):
    for each in schemas.TABLES:
        with pytest.raises(NotAStoreError, match="Name the store's root"):
            rows(each.name, tmp_path / "nowhere")
        with pytest.raises(ReadRefusedError, match="option path is missing"):
            rows(each.name, "")


def test_a_store_without_records_has_tables(tmp_path):
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    for each in schemas.TABLES:
        assert rows(each.name, tmp_path / "store") == []


def test_the_log_may_lie_elsewhere(tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    expected = [row["offset"] for row in rows("rocketmq_records", root)]
    shutil.move(root / "commitlog", tmp_path / "disk")
    assert [row["offset"] for row in rows("rocketmq_records", f"{root};{tmp_path / 'disk'}")] == expected
