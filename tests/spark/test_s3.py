"""A store in object storage: the same tables and findings as for the directory on disk, by ranged reads."""

from pathlib import Path

from tests.helpers import open_store, put
from tests.spark.logs import flip
from tests.spark.s3_server import S3Server
from tests.store import golden
from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.audit.report import AuditVerdict
from twinlog.cluster.pipeline.jobs.audit import AuditOptions, audit
from twinlog.cluster.pipeline.sources.places import StoreUri

MIB = 1 << 20


def rows(spark, source: str, place: str, **options: str) -> list[str]:
    """All rows of a table, sorted, without the column that names the store."""
    table = spark.read.format(source).options(**options).load(place)
    return sorted(str(row.asDict()) for row in table.drop("member").collect())


def test_tables_are_those_of_the_disk(spark, s3: S3Server, tmp_path: Path):
    """Of one version; tests/cluster/pipeline/sources/test_object_storage.py has both, without Spark."""
    root = golden.unpack("4.9.7", "master", tmp_path)
    place = s3.upload(root, "tables")
    for source, options in (
        ("rocketmq_records", {"body": "true"}),
        ("rocketmq_blocks", {}),
        ("rocketmq_consumequeue", {}),
        ("rocketmq_index", {}),
    ):
        on_disk = rows(spark, source, str(root), **options)
        assert on_disk, source
        assert rows(spark, source, place, **options) == on_disk, source


def test_an_audit_of_copies_in_two_places(spark, s3: S3Server, tmp_path: Path):
    """A master on disk, its slave in an archive with one changed bit; nothing else is found."""
    master, slave = (golden.unpack("4.9.7", name, tmp_path) for name in golden.CLEAN)
    at = flip(slave, 5)
    damaged = audit(spark, [StoreUri(str(master)), StoreUri(s3.upload(slave, "damaged"))], AuditOptions())
    assert damaged.not_read == ()
    (found,) = damaged.findings
    assert (found.cls, found.record) == (FindingClass.BIT_ROT, at)
    assert found.good == damaged.members[0].name


def test_the_log_is_read_in_ranges(spark, s3: S3Server, tmp_path: Path):
    """No file is fetched whole, and little of it twice."""
    store = open_store(tmp_path / "store", file_size=16 * MIB)
    for _ in range(300):
        end = put(store, *(bytes(64 * 1024 - 200) for _ in range(2)))
        store.dispatch_pending()  # Queues show the end of the log; otherwise its last file is searched.
    place = s3.upload(store.config.root, "ranges")
    before = len(s3.asked())
    assert len(rows(spark, "rocketmq_records", place)) == 600
    reads = [asked for asked in s3.asked()[before:] if asked.method == "GET" and "/ranges/commitlog/" in asked.path]
    assert reads
    assert all(asked.range is not None for asked in reads)
    sizes = [last - first + 1 for first, last in (asked.range for asked in reads if asked.range is not None)]
    assert max(sizes) <= 8 * MIB
    assert sum(sizes) < 1.5 * end


def test_a_bucket_that_is_not_there_is_named(spark, s3: S3Server, tmp_path: Path):
    """The other members are still compared."""
    master, slave = (golden.unpack("5.3.3", name, tmp_path) for name in golden.CLEAN)
    missing = s3.uri("store").replace("//archive/", "//no-such-bucket/")
    report = audit(spark, [StoreUri(str(place)) for place in (master, slave, missing)], AuditOptions())
    assert report.verdict is AuditVerdict.INCOMPLETE
    assert report.members[2].place.startswith("s3://no-such-bucket/store")
    (problem,) = report.not_read
    assert "no such directory" in problem
    assert report.blocks > 0
