"""The audit of directories as a Spark job: its findings for any division of the work, and its report."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cluster.pipeline.planting import FAULTS, SOUND, make_pair
from tests.spark.logs import flip, log_bytes, log_files, record_offsets
from tests.store import golden
from twinlog.cluster.pipeline.audit.completeness import CUTS
from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.audit.report import AuditReport, AuditVerdict
from twinlog.cluster.pipeline.jobs.audit import AuditOptions, audit
from twinlog.cluster.pipeline.report.page import write_report
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.store.integrity.digest import BLOCK_SIZE


def audited(spark, *places: Path, **options: object) -> AuditReport:
    return audit(spark, [StoreUri(str(place)) for place in places], AuditOptions(**options))


@pytest.fixture(params=golden.VERSIONS)
def members(request, tmp_path: Path) -> list[Path]:
    return [golden.unpack(request.param, name, tmp_path) for name in golden.CLEAN]


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    """A master and two equal slaves."""
    master, slave = (golden.unpack("4.9.7", name, tmp_path) for name in golden.CLEAN)
    shutil.copytree(slave, tmp_path / "third")
    return [master, slave, tmp_path / "third"]


def test_golden_members_are_equal(spark, members):
    report = audited(spark, *members)
    assert report.verdict is AuditVerdict.EQUAL, report.findings
    assert {each.cls for each in report.findings} <= {FindingClass.LAG}, "5.3.3's slave took its tables before the end"
    end = record_offsets(members[0])[-1]
    assert all(member.first_offset == 0 and member.last_offset > end for member in report.members)
    assert [member.name for member in report.members] == ["master", "slave"]
    assert report.blocks == -(-report.members[0].last_offset // BLOCK_SIZE)
    assert report.differing_blocks == 0
    assert report.members[0].read_bytes == report.members[0].last_offset


@pytest.mark.parametrize("split_size", [BLOCK_SIZE, 1 << 30])
def test_findings_do_not_depend_on_how_the_work_is_cut(spark, three, split_size):
    """Digests of each part are compared, and neighbours across parts are merged."""
    wanted = [flip(three[1], 5), flip(three[2], 200)]
    report = audited(spark, *three, split_size=split_size, with_tables=False)
    assert [(each.cls, each.member, each.record, each.good) for each in report.findings] == [
        (FindingClass.BIT_ROT, "slave", wanted[0], "master"),
        (FindingClass.BIT_ROT, "third", wanted[1], "master"),
    ]
    assert report.verdict is AuditVerdict.DIVERGENT
    assert report.differing_blocks == 2


def test_a_good_copy_may_be_the_slaves(spark, three):
    flip(three[0], 9)
    (found,) = audited(spark, *three, with_tables=False).findings
    assert (found.member, found.cls) == ("master", FindingClass.BIT_ROT)
    assert found.good in ("slave", "third")


def test_a_slave_that_is_behind_lags_and_is_equal(spark, three):
    """Its last records are missing, with their queue units and index items."""
    end = record_offsets(three[1])[-20]
    last = log_files(three[1])[-1]
    with last.open("r+b") as file:
        file.truncate(end - int(last.name))
        file.truncate(golden.FILE_SIZE)
    for name in ("consumequeue", "index", "checkpoint"):
        shutil.rmtree(three[1] / name) if (three[1] / name).is_dir() else (three[1] / name).unlink()
    report = audited(spark, *three, with_tables=False)
    assert [(each.cls, each.member, each.offset) for each in report.findings] == [(FindingClass.LAG, "slave", end)]
    assert report.verdict is AuditVerdict.EQUAL
    assert report.members[1].behind_bytes == report.members[0].last_offset - end


def test_a_hole_is_named_from_its_first_byte_to_its_last(spark, three):
    start, end = record_offsets(three[1])[30], record_offsets(three[1])[33]
    with log_files(three[1])[0].open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))
    report = audited(spark, *three, with_tables=False)
    (found,) = report.findings
    assert (found.cls, found.member) == (FindingClass.HOLE, "slave")
    assert start <= found.offset < start + 8
    assert end - 8 < found.end <= end


def test_a_file_that_is_gone_is_a_hole(spark, three):
    gone = log_files(three[2])[1]
    gone.unlink()
    report = audited(spark, *three, with_tables=False)
    (found,) = report.findings
    assert (found.cls, found.member, found.offset) == (FindingClass.HOLE, "third", int(gone.name))


def test_queues_are_checked_in_tasks(spark, three):
    """A unit that points elsewhere."""
    queue = next(path for path in sorted((three[1] / "consumequeue" / "TopicA" / "0").iterdir()))
    with queue.open("r+b") as file:
        file.write(b"\x00\x00\x00\x00\x00\x00\x00\x07")
    report = audited(spark, *three)
    assert {(each.cls, each.member) for each in report.findings} == {(FindingClass.QUEUE, "slave")}
    assert "TopicA" in {each.topic for each in report.findings}
    assert "log rebuild" in report.findings[0].mend


def test_without_files_beside_the_logs_nothing_is_said_of_them(spark, three):
    (three[1] / "config" / "consumerOffset.json").write_text("{")
    assert audited(spark, *three, with_tables=False).verdict is AuditVerdict.EQUAL
    assert audited(spark, *three).verdict is AuditVerdict.DIVERGENT


def test_progress_goes_from_nothing_to_all(spark, three):
    told: list[tuple[int, int]] = []
    audit(spark, [StoreUri(str(each)) for each in three], AuditOptions(), lambda *step: told.append(step))
    assert told
    assert all(0 <= done <= total for done, total in told)
    assert told[-1][0] == told[-1][1] >= 2 * 3 * golden.FILE_SIZE


def test_findings_as_parquet(spark, three, tmp_path: Path):
    at = flip(three[1], 5)
    report = audited(spark, *three)
    write_report(report, tmp_path / "out", parquet=True)
    table = pq.read_table(tmp_path / "out" / "findings.parquet")
    assert table.num_rows == len(report.findings)
    row = table.to_pylist()[0]
    assert (row["cls"], row["member"], row["record"]) == ("bit-rot", "slave", at)
    assert table.schema.metadata[b"twinlog.version"] == b"1"
    frame = spark.read.parquet(str(tmp_path / "out" / "findings.parquet"))
    assert frame.where("cls = 'bit-rot'").count() == 1


def test_nothing_is_changed(spark, three):
    """No byte and no time of any file."""
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in three[0].rglob("*")}
    content = log_bytes(three[0])
    audited(spark, *three)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in three[0].rglob("*")} == before
    assert log_bytes(three[0]) == content


@pytest.mark.parametrize("fault", [*FAULTS[::7], SOUND[0]], ids=str)
def test_a_planted_fault_is_found_by_the_job_and_nothing_else(spark, fault, tmp_path: Path):
    """Some faults of tests/cluster/pipeline, through tasks, shuffles and the report; each has a repair command."""
    pair = make_pair(fault.store, tmp_path)
    expected = fault.plant(pair)
    report = audited(spark, pair.master, pair.slave)
    found = [each for each in report.findings if each.cls is not FindingClass.LAG or each.offset is not None]
    for wanted in expected:
        assert [wanted.is_met_by(finding) for finding in found].count(True) == 1, found
    assert len(found) == len(expected), found
    assert all(each.mend.startswith("truncate -s " if each.what in CUTS else "twinlog ") for each in found)
    assert (report.verdict is AuditVerdict.EQUAL) == all(each.cls is FindingClass.LAG for each in found)
