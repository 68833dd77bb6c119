"""Export of a live store's topic into Parquet, run repeatedly, and a daily report on it. Delta: tests/lake."""

import json
import shutil
import time
import zlib
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from attrs import evolve
from click.testing import CliRunner

from tests.helpers import open_store
from tests.spark.checkpoints import uncommitted
from tests.spark.exports import SCHEMA, now_ms, order, put, snapshot
from tests.support.process_group.twinlog import Broker, NameServer
from tests.support.process_group.up import run
from twinlog.cluster.pipeline.jobs.daily import daily_report
from twinlog.cluster.pipeline.jobs.daily import main as daily_command
from twinlog.cluster.pipeline.jobs.delta import JARS_VARIABLE
from twinlog.cluster.pipeline.jobs.export import CHECKPOINT, ExportOptions, check_source, export
from twinlog.cluster.pipeline.jobs.export import main as export_command
from twinlog.cluster.pipeline.jobs.snapshots import read_snapshots
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.tables.bodies import InflateLimits
from twinlog.spark import message_of
from twinlog.store.message_store import MessageStore


def zstd(body: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(body)
    return sink.getvalue().to_pybytes()


def options(store: MessageStore, out: Path, **more: Any) -> ExportOptions:
    told = {"path": str(store.config.root), "topic": "orders", "out": str(out), "schema": SCHEMA, "unconfirmed": True}
    return ExportOptions(**told | more)


def test_a_topic_is_exported_once_however_often_it_runs(spark, tmp_path):
    store, out = open_store(tmp_path / "store"), tmp_path / "out"
    for turn in range(2):
        bodies = [json.dumps(order(10 * turn + number)).encode() for number in range(10)]
        put(store, *bodies[:4])
        put(store, *map(zlib.compress, bodies[4:7]), sys_flag=0x301)
        put(store, *map(zstd, bodies[7:]), sys_flag=0x201)
        put(store, b"of no interest", topic="other")
        result = export(spark, options(store, out, bytes_per_batch=1000))
        assert (result.rows, result.bad) == (10, 0)
        assert result.batches > 1
    uncommitted(out / CHECKPOINT)
    export(spark, options(store, out, bytes_per_batch=1000))
    found = spark.read.parquet(str(out))
    rows = found.orderBy("offset").collect()
    assert [row["body"].asDict(recursive=True) for row in rows] == [order(number) for number in range(20)]
    assert {(row["topic"], row["other_fields"]) for row in rows} == {("orders", None)}
    assert not Path(f"{out}-bad").exists()
    today = {f"{datetime.fromtimestamp(row['stored_at'].timestamp(), UTC):%Y-%m-%d}" for row in rows}
    assert {path.name for path in (out / "topic=orders").iterdir()} == {f"day={day}" for day in today}
    assert {(row["keys"], row["tags"], row["unique_key"]) for row in rows} == {("k", "t", "u")}
    assert [row["queue_offset"] for row in rows] == list(range(20))


def test_bodies_that_cannot_be_decoded_are_kept(spark, tmp_path):
    store, out = open_store(tmp_path / "store", file_size=1 << 20), tmp_path / "out"
    whole = json.dumps(order(1)).encode()
    put(store, b'{"id": 1', b"\xff\xfe", b"", b"[1, 2]", whole)
    bomb = zlib.compress(b'{"id": 1}' + b" " * 2_000_000)
    put(store, bomb, zlib.compress(whole)[:-5], sys_flag=0x301)
    result = export(spark, options(store, out, bounds=InflateLimits(size_max=1_000_000)))
    assert str(result) == f"orders: 1 row in 1 batch into {out}, 6 bad rows into {out}-bad"
    (good,) = spark.read.parquet(str(out)).collect()
    assert good["body"]["id"] == 1
    rows = spark.read.parquet(f"{out}-bad").orderBy("offset").collect()
    problems = [row["problem"] for row in rows]
    assert problems[:4] == ["no JSON of the schema"] * 4
    assert "inflate to more than 1000000" in problems[4]
    assert "it is no zlib" in problems[5]
    kept = [bytes(row["undecoded"]) for row in rows]
    assert kept[1] == b"\xff\xfe"
    assert kept[4] == bomb


def test_columns_come_later_and_nothing_is_lost_or_written_again(spark, tmp_path):
    store, out = open_store(tmp_path / "store"), tmp_path / "out"
    put(store, json.dumps(order(1) | {"new": [1, {"a": None}]}).encode())
    export(spark, options(store, out, schema="id BIGINT, tags ARRAY<STRING>"))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    put(store, json.dumps(order(2)).encode())
    export(spark, options(store, out))
    rows = spark.read.option("mergeSchema", "true").parquet(str(out)).orderBy("offset").collect()
    assert [row["body"].asDict(recursive=True) for row in rows] == [order(1) | {"customer": None}, order(2)]
    assert {name: json.loads(text) for name, text in rows[0]["other_fields"].items()} == {
        "customer": order(1)["customer"],
        "new": [1, {"a": None}],
    }
    assert rows[1]["other_fields"] is None
    assert before.items() <= {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}.items()
    for schema, words in (
        ("id STRING, tags ARRAY<STRING>, customer STRUCT<name: STRING>", "column id is BIGINT in rows that are there"),
        ("id BIGINT", "lacks column customer"),
        (None, "bodies are columns in rows that are there, and would be bytes now"),
        ("id BIGINT, Id INT", "has id twice"),
        ("id", "the schema 'id' is invalid"),
    ):
        with pytest.raises(ReadRefusedError, match=words):
            export(spark, options(store, out, schema=schema))


def test_a_running_cluster_is_exported_without_its_directory(spark, tmp_path):
    """By its name servers; the second run has what came since the first."""
    bodies = [json.dumps(order(number)) for number in range(2)]
    with NameServer(tmp_path / "namesrv") as namesrv, Broker(tmp_path / "broker", namesrv.address):
        for body in (bodies[0], "no JSON"):
            assert run("send", "orders", body, namesrv=namesrv.address).returncode == 0
        told = ExportOptions(namesrv=namesrv.address, topic="orders", out=str(tmp_path / "out"), schema=SCHEMA)
        check_source(told)
        with pytest.raises(ReadRefusedError, match="queue of the topic nothing"):
            check_source(evolve(told, topic="nothing"))
        result = export(spark, told)
        assert (result.rows, result.bad) == (1, 1)
        assert run("send", "orders", bodies[1], namesrv=namesrv.address).returncode == 0
        result = export(spark, told)
        assert (result.rows, result.bad) == (1, 0)
    rows = spark.read.parquet(told.out).orderBy("offset").collect()
    assert [row["body"].asDict(recursive=True) for row in rows] == [order(0), order(1)]
    assert {(row["topic"], row["broker"], row["size"]) for row in rows} == {("orders", "broker-a", None)}
    assert all(row["unique_key"] and row["stored_at"] >= row["born_at"] for row in rows)
    (bad,) = spark.read.parquet(told.bad_place).collect()
    assert bytes(bad["undecoded"]) == b"no JSON"
    assert [topic.messages for topic in daily_report(spark, told.out).topics] == [3]


@pytest.fixture(scope="module")
def plain(spark, tmp_path_factory: pytest.TempPathFactory) -> ExportOptions:
    """An export without a schema, of messages and half messages."""
    root = tmp_path_factory.mktemp("plain")
    store = open_store(root / "store")
    put(store, b"\x00\x01", b"")
    put(store, zlib.compress(b"two"), sys_flag=0x301)
    put(store, b"prepared", sys_flag=0x4)
    put(store, b"committed", sys_flag=0x8)
    put(store, b"rolled back", sys_flag=0xC)
    done = options(store, root / "out", schema=None)
    export(spark, done)
    return done


def test_without_a_schema_bodies_stay_bytes_and_half_messages_are_none(spark, plain):
    rows = spark.read.parquet(plain.out).orderBy("offset").collect()
    assert [bytes(row["body"]) for row in rows] == [b"\x00\x01", b"", b"two", b"committed"]
    assert "other_fields" not in rows[0]


def test_an_output_has_one_checkpoint(spark, plain, tmp_path):
    """With another one its messages would be there twice."""
    with pytest.raises(ReadRefusedError, match=r"holds an export already, which is not in .*/other"):
        export(spark, evolve(plain, checkpoint=str(tmp_path / "other")))
    shutil.copytree(plain.out, tmp_path / "out", ignore=shutil.ignore_patterns(CHECKPOINT))
    with pytest.raises(ReadRefusedError, match="holds an export already"):
        export(spark, evolve(plain, out=str(tmp_path / "out")))


def nearest_rank(values: list[int], share: float) -> int:
    """Percentile of few values, as Spark's percentile_approx has it."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100).__trunc__() - 1)]


def test_the_report_of_a_day(spark, tmp_path):
    """Compared with a computation in plain Python."""
    store, out, offsets = open_store(tmp_path / "store"), tmp_path / "out", tmp_path / "offsets"
    times = [now_ms()]
    for round_ in range(3):
        for number in range(20):
            put(store, json.dumps(order(number)).encode(), keys=f"all k{number % 3} ", queue=number % 2)
        time.sleep(0.02)
        times.append(now_ms())
        snapshot(
            offsets,
            times[-1],
            {"orders@readers": {0: 10 * round_, 1: 10}, "elsewhere@readers": {0: 1}, "orders@new": {7: 5}},
        )
        time.sleep(0.02)
    put(store, b"no JSON")
    export(spark, options(store, out))
    records = spark.read.format("rocketmq_records").option("unconfirmed", "true").load(str(store.config.root)).collect()

    report = daily_report(spark, str(out), snapshots=read_snapshots(str(offsets)), top=2)
    days = Counter(f"{datetime.fromtimestamp(row['stored_ms'] / 1000, UTC):%Y-%m-%d}" for row in records)
    assert {topic.day: topic.messages for topic in report.topics} == days
    assert sum(topic.bytes for topic in report.topics) == sum(row["size"] for row in records)
    assert sum(topic.undecoded for topic in report.topics) == 1
    if len(days) == 1:  # Otherwise it is midnight.
        (day,) = report.topics
        latencies = [row["stored_ms"] - row["born_ms"] for row in records]
        assert day.latency_max_ms == max(latencies) >= 500
        assert day.latency_ms == {f"{p:g}": nearest_rank(latencies, p) for p in (50, 90, 99, 99.9)}
        assert (day.first_ms, day.last_ms) == (records[0]["stored_ms"], records[-1]["stored_ms"])
        assert day.top_keys == (("all", 60), ("k0", 21))
        assert day.clock_behind == 0
    assert {(point.messages, point.seconds) for point in report.lag if point.group == "new"} == {(None, None)}
    lag = [point for point in report.lag if point.group == "readers"]
    assert [(point.at_ms, point.group, point.topic, point.messages) for point in lag] == [
        (times[1], "readers", "orders", 10),
        (times[2], "readers", "orders", 10 + 10),
        (times[3], "readers", "orders", 10 + 20),
    ]
    behind = {(row["queue_id"], row["queue_offset"]): row["stored_ms"] for row in records}
    assert lag[0].seconds == pytest.approx((times[1] - behind[0, 0]) / 1000)
    assert lag[2].seconds == pytest.approx((times[3] - min(behind[0, 20], behind[1, 10])) / 1000)
    assert json.loads(report.to_json())["lag"][1]["messages"] == 10
    assert daily_report(spark, str(out), day="2000-01-01").topics == ()


def test_what_is_refused_is_said_in_a_sentence(tmp_path, monkeypatch):
    """Before Spark starts, or from the traceback of its worker."""
    monkeypatch.setenv(JARS_VARIABLE, "/nowhere")  # In .venv-lake there are some.
    store = open_store(tmp_path / "store")
    put(store, b"x")
    place = ["--topic", "t", "--out", str(tmp_path / "out"), "--path"]
    for path, words in (
        (store.config.root, "confirmed offset of its log is unknown"),
        (tmp_path / "out", "Name the store's root"),
    ):
        done = CliRunner().invoke(export_command, [*place, str(path)])
        assert done.exit_code == 1
        assert done.output.startswith("Error: ")
        assert words in done.output
    for arguments, words in (
        (["--path", str(tmp_path / "store"), "--format", "delta"], "format delta"),
        (["--namesrv", "127.0.0.1:1"], "no name server answers at 127.0.0.1:1"),
        (["--namesrv", "127.0.0.1:port"], "is no HOST:PORT"),
        (["--namesrv", "127.0.0.1:1", "--unconfirmed"], "are for stores"),
        (
            ["--namesrv", "127.0.0.1:1", "--source-option", "secretKey=@/nowhere"],
            "the file of secretKey cannot be read",
        ),
        ([], "name one source"),
    ):
        done = CliRunner().invoke(export_command, [*place[:-1], *arguments])
        assert done.exit_code != 0
        assert words in done.output
    done = CliRunner().invoke(daily_command, ["--export", "x", "--snapshots", str(tmp_path)])
    assert (done.exit_code, "no snapshots" in done.output) == (1, True)
    raised = "twinlog.cluster.pipeline.sources.limits.ReadRefusedError"
    trace = f"[PYTHON] Failed\nTraceback (most recent call last):\n{raised}: /a: gone.\n\nat x"
    assert message_of(Exception(trace)) == "/a: gone."
    assert message_of(Exception("no memory\nat y")) == "no memory"
