"""Python workers and executors killed during the work: the task is repeated, or named in the report."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.spark.conftest import HERE
from tests.spark.deadly_file import DeadlyFile, executor, python_worker
from tests.spark.logs import flip, log_files
from tests.store import golden
from tests.support.process_group.process import PROGRAM
from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.audit.report import AuditVerdict
from twinlog.cluster.pipeline.jobs.audit import AuditOptions, audit
from twinlog.cluster.pipeline.sources.places import StoreUri

pytestmark = pytest.mark.root  # A file that kills its readers: fanotify(7).

CLUSTER = "local-cluster[1,2,1024]"  # One worker with two cores and so many MiB; its executor is a separate JVM.
SETTINGS = "spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\n"


@pytest.fixture
def members(tmp_path: Path) -> list[Path]:
    """Master, slave, and a second slave with one bit of a record changed."""
    master, slave = (golden.unpack("4.9.7", name, tmp_path) for name in golden.CLEAN)
    third = tmp_path / "third"
    shutil.copytree(slave, third)
    flip(third, 5)
    return [master, slave, third]


def test_a_worker_that_is_killed_once_costs_nothing_but_time(spark, members):
    """Its task is repeated."""
    expected = audit(spark, [StoreUri(str(each)) for each in members], AuditOptions())
    with DeadlyFile(log_files(members[1])[1], python_worker, times=1) as deadly:
        report = audit(spark, [StoreUri(str(each)) for each in members], AuditOptions())
    assert len(deadly.killed) == 1
    assert report.findings == expected.findings
    assert report.not_read == ()


def test_a_worker_that_dies_of_a_file_each_time_names_it(spark, members):
    """As when the kernel kills it for its memory. The other members are still compared."""
    with DeadlyFile(log_files(members[1])[1], python_worker) as deadly:
        report = audit(spark, [StoreUri(str(each)) for each in members], AuditOptions())
    assert len(deadly.killed) >= 4
    assert report.verdict is AuditVerdict.DIVERGENT
    slave, third = report.members[1].name, report.members[2].name
    (unreadable,) = [each for each in report.findings if each.cls is FindingClass.UNREADABLE]
    assert unreadable.member == slave
    assert report.not_read
    found = [each for each in report.findings if each.cls is not FindingClass.UNREADABLE]
    assert {each.member for each in found} == {third}


@pytest.mark.long  # tests/spark_cluster kills executors of a stream.
@pytest.mark.timeout(180)
def test_an_executor_that_is_killed_is_replaced(members, tmp_path: Path):
    """On a cluster of processes the next executor repeats its tasks. Equal members give exit status 0."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(SETTINGS)
    places = {
        "PYTHONPATH": str(HERE.parents[1]),
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
    }
    command = [PROGRAM, "audit", *map(str, members[:2]), "--spark-master", CLUSTER, "-o", "json"]
    with DeadlyFile(log_files(members[1])[1], executor, times=1) as deadly:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=150,
            cwd=tmp_path,
            env={**os.environ, **places},
        )
    assert len(deadly.killed) == 1
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["verdict"], report["findings"], report["not_read"]) == ("equal", [], [])
