"""The tables of stores, read by Spark: what is in them, what is not read, and what is refused."""

import hashlib
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cluster.pipeline import schemas
from cluster.pipeline.bodies import Bounds, inflate
from store.config import BrokerRole
from store.digest import digest
from store.epoch_file import EpochId
from store.index_layout import index_hash
from store.role_file import RoleState, save_role
from tests.helpers import open_store, put
from tests.spark.logs import flip, log_bytes, log_files
from tests.store import golden

OTHERS = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC")


def table(spark, name: str, *roots: Path | str, **options: str) -> Any:
    return spark.read.format(name).options(**options).load(",".join(map(str, roots)))


def rows(spark, name: str, *roots: Path | str, **options: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in table(spark, name, *roots, **options).collect()]


def sha1(row: dict[str, Any]) -> str:
    return hashlib.sha1(inflate(bytes(row["body"]), row["sys_flag"], Bounds())).hexdigest()


@pytest.mark.parametrize(("version", "name"), golden.STOPPED)
def test_records_are_what_the_client_sent(spark, tmp_path, version, name):
    """Truth is what the client noted: bodies by hash, tags, keys, queue offsets."""
    root = golden.unpack(version, name, tmp_path)
    found = rows(spark, "rocketmq_records", root, body="true", splitSize="100000")
    by_offset = {row["offset"]: row for row in found}
    assert len(by_offset) == len(found)
    sent = [each for each in golden.truth(version)["messages"] if each["kind"] not in ("batch_result", "query")]
    placed = [each for each in sent if each["kind"] == "normal"]
    assert len(placed) > 200
    for each in placed:
        row = by_offset[int(each["offset_msg_id"][16:], 16)]
        assert (row["topic"], row["queue_id"], row["queue_offset"]) == (
            each["topic"],
            each["queue_id"],
            each["queue_offset"],
        )
        assert (row["tags"], row["keys"], sha1(row)) == (each["tags"], each["keys"], each["body_sha1"])
        assert row["unique_key"] == each["msg_id"] == row["properties"]["UNIQ_KEY"]
    batched = {each["keys"]: each for each in sent if each["kind"] in ("batch", "oneway", "delay", "tx")}
    stored = Counter((row["topic"], row["tags"], row["keys"], sha1(row)) for row in found)
    for each in sent:
        if each["kind"] in ("batch", "oneway", "delay") or each.get("how") == "commit":
            assert stored[each["topic"], each["tags"], each["keys"], each["body_sha1"]] >= 1, each
    assert batched
    ours = [row for row in found if row["topic"] not in OTHERS]
    assert all(row["stored_ms"] >= row["born_ms"] - 1000 for row in ours)
    assert {row["file"] for row in found} == {file.name for file in log_files(root)}
    assert {row["member"] for row in found} == {str(root)}


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_master_and_slave_have_the_same_rows(spark, tmp_path, version):
    master, slave = (golden.unpack(version, name, tmp_path) for name in golden.CLEAN)
    for name, options in (("rocketmq_records", {"body": "true"}), ("rocketmq_blocks", {})):
        both = table(spark, name, master, slave, **options)
        left, right = (both.where(both.member == str(root)).drop("member") for root in (master, slave))
        pairs = sorted(map(str, left.collect())), sorted(map(str, right.collect()))
        assert pairs[0] == pairs[1]
        assert pairs[0]


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_a_copy_of_a_running_store(spark, tmp_path, version):
    """Nobody has it open here: it is read to the end of what is whole."""
    root = golden.unpack(version, golden.RUNNING, tmp_path)
    found = rows(spark, "rocketmq_records", root)
    assert len(found) > 300
    assert len(rows(spark, "rocketmq_consumequeue", root)) > 300


def test_columns_are_those_of_the_page(spark, tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    for each in schemas.TABLES:
        found = table(spark, each.name, root)
        assert found.columns == each.schema.names
        assert {field.name for field in found.schema if not field.nullable} == {
            field.name for field in each.schema if not field.nullable
        }
    assert table(spark, "rocketmq_records", root, body="true").columns[-1] == "body"


FILTERS = [
    "topic = 'TopicA'",
    "topic in ('TopicA', 'TopicB') and offset >= 131072",
    "offset < 70000",
    "offset = 0",
    "offset > 100000 and offset <= 200000 and queue_id = 1",
    "topic like 'Topic%' and tags is null",
    "topic = 'TopicA' or offset < 1000",
    "topic = 'no such'",
    "offset > 100 and offset < 50",
]


def test_filters_give_what_they_give_without(spark, tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    found = table(spark, "rocketmq_records", root, splitSize="65536")
    middle = sorted(row["stored_ms"] for row in found.collect())[150]
    cached = spark.createDataFrame(found.collect(), found.schema)
    for text in [*FILTERS, f"stored_ms >= {middle}", f"stored_ms < {middle} and topic = 'TopicB'"]:
        expected = sorted(map(str, cached.where(text).collect()))
        assert sorted(map(str, found.where(text).collect())) == expected, text


def test_what_is_filtered_out_is_not_read(spark, tmp_path):
    """A file that cannot be read does no harm to who does not ask for it."""
    root = golden.unpack("4.9.7", "master", tmp_path)
    found = table(spark, "rocketmq_records", root)
    log_files(root)[1].write_bytes(b"")
    assert found.where("offset < 131072").count() > 50
    with pytest.raises(Exception, match=r"are not there to be read.*failOnDataLoss=false"):
        found.count()
    rest = table(spark, "rocketmq_records", root, failOnDataLoss="false")
    assert rest.count() == rest.where("offset < 131072").count() + rest.where("offset >= 262144").count()


def test_damaged_records_are_passed_over(spark, tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    before = {row["offset"] for row in rows(spark, "rocketmq_records", root)}
    at = flip(root, 5)
    assert {row["offset"] for row in rows(spark, "rocketmq_records", root)} == before - {at}


def test_blocks_are_digests_of_the_bytes(spark, tmp_path):
    root = golden.unpack("5.3.3", "master", tmp_path)
    log = log_bytes(root)
    offsets = sorted(row["offset"] for row in rows(spark, "rocketmq_records", root))
    found = sorted(rows(spark, "rocketmq_blocks", root, splitSize="131072"), key=lambda row: row["start"])
    assert [row["start"] for row in found] == list(range(0, found[-1]["end"], 65536))
    for row in found:
        assert bytes(row["digest"]) == digest(log[row["start"] : row["end"]])
        inside = [at for at in offsets if row["start"] <= at < row["end"]]
        assert (row["records"], row["first_record"]) == (len(inside), inside[0] if inside else -1)
    some = table(spark, "rocketmq_blocks", root).where("start >= 65536 and start < 200000").collect()
    assert sorted(row["start"] for row in some) == [65536, 131072, 196608]


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_units_lead_to_their_records(spark, tmp_path, version):
    root = golden.unpack(version, "master", tmp_path)
    units = table(spark, "rocketmq_consumequeue", root, splitSize="4000").where("problem is null")
    records = table(spark, "rocketmq_records", root)
    same = ["topic", "queue_id", "queue_offset", "offset", "size"]
    assert units.join(records, same).count() == units.count() > 300
    assert units.where("topic = 'TopicA'").select("topic").distinct().count() == 1
    by_name = table(spark, "rocketmq_consumequeue", root, topics="TopicA")
    assert by_name.count() == units.where("topic = 'TopicA'").count() > 0


def test_items_lead_to_their_records(spark, tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    items = {(row["key_hash"], row["offset"]) for row in rows(spark, "rocketmq_index", root)}
    for row in rows(spark, "rocketmq_records", root):
        if row["topic"] not in OTHERS:
            for key in [*(row["keys"] or "").split(), row["unique_key"]]:
                assert (index_hash(row["topic"], key), row["offset"]) in items, row


def noted(root: Path, confirmed: int) -> None:
    """What a member writes at a change of roles."""
    state = RoleState(
        role=BrokerRole.SYNC_MASTER, broker_id=0, promised=EpochId(1, ""), group=None, told_confirmed=confirmed
    )
    save_role(root / "twinlog", state)


def test_a_running_store(spark, tmp_path):
    """This process has it open, as a broker would."""
    store = open_store(tmp_path / "store")
    put(store, *(b"confirmed" for _ in range(7)))
    confirmed = store.max_offset
    put(store, *(b"not yet" for _ in range(5)))
    for name in ("rocketmq_records", "rocketmq_blocks"):
        with pytest.raises(Exception, match=r"nothing tells up to where its log is confirmed.*unconfirmed=true"):
            table(spark, name, store.config.root).count()
    assert table(spark, "rocketmq_records", store.config.root, unconfirmed="true").count() == 12
    noted(store.config.root, confirmed)
    assert table(spark, "rocketmq_records", store.config.root).count() == 7
    (block,) = rows(spark, "rocketmq_blocks", store.config.root)
    assert (block["end"], block["records"]) == (confirmed, 7)
    assert table(spark, "rocketmq_records", store.config.root, unconfirmed="true").count() == 12


def test_a_broker_that_does_not_answer_is_named(spark, tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    with pytest.raises(
        Exception, match=r"127.0.0.1:1: the broker was to tell what .* is confirmed, and does not answer"
    ):
        table(spark, "rocketmq_records", root, broker="127.0.0.1:1").count()


def test_what_is_no_store_is_said(spark, tmp_path):
    with pytest.raises(Exception, match="Name the store's root"):
        table(spark, "rocketmq_records", tmp_path / "nowhere").count()
    with pytest.raises(Exception, match="option path is missing"):
        spark.read.format("rocketmq_index").load().count()
    with pytest.raises(Exception, match="option splitSize is 'much'"):
        table(spark, "rocketmq_blocks", tmp_path, splitSize="much").count()


def test_a_store_without_records_has_tables(spark, tmp_path):
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    for each in schemas.TABLES:
        assert table(spark, each.name, tmp_path / "store").count() == 0


def test_the_log_may_lie_elsewhere(spark, tmp_path):
    root = golden.unpack("4.9.7", "master", tmp_path)
    expected = table(spark, "rocketmq_records", root).count()
    shutil.move(root / "commitlog", tmp_path / "disk")
    assert table(spark, "rocketmq_records", f"{root};{tmp_path / 'disk'}").count() == expected
