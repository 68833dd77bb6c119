"""Directories that are no store, or a damaged one: each is named clearly, and the rest is audited."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.spark.deadly_file import ForbiddenFile
from tests.spark.logs import flip, log_files, record_offsets
from tests.store import golden
from twinlog.cluster.cli.main import cli
from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.audit.report import AuditReport, AuditVerdict
from twinlog.cluster.pipeline.jobs.audit import AuditOptions, audit
from twinlog.cluster.pipeline.sources.places import StoreUri


@pytest.fixture
def members(tmp_path: Path) -> list[Path]:
    return [golden.unpack("4.9.7", name, tmp_path) for name in golden.CLEAN]


def audited(spark, *places: Path) -> AuditReport:
    return audit(spark, [StoreUri(str(place)) for place in places], AuditOptions())


def test_places_without_a_store_are_named_and_the_others_are_audited(spark, members, tmp_path: Path):
    empty, other, missing, file = (tmp_path / name for name in ("empty", "other", "missing", "file"))
    empty.mkdir()
    (other / "letters").mkdir(parents=True)
    (other / "letters" / "00000000000000000000").write_bytes(b"x" * 1000)
    file.write_bytes(b"x" * 1000)
    at = flip(members[1], 3)
    report = audited(spark, members[0], empty, other, missing, file, members[1])
    nowhere = "there is no such directory"
    words = ["it is empty", "neither commitlog/ nor consumequeue/", nowhere, nowhere]
    for told, member in zip(words, report.members[1:5], strict=True):
        assert told in (member.problem or "")
        assert any(told in line and line.startswith(member.name) for line in report.not_read), report.not_read
    found = [(each.cls, each.member, each.record) for each in report.findings]
    assert (FindingClass.BIT_ROT, "slave", at) in found
    assert report.verdict is AuditVerdict.DIVERGENT


def test_what_is_equal_is_not_complete_then(spark, members, tmp_path: Path):
    report = audited(spark, *members, tmp_path / "nothing")
    assert report.verdict is AuditVerdict.INCOMPLETE
    assert [each.cls for each in report.findings] == [FindingClass.UNREADABLE]
    assert report.findings[0].mend


def test_when_there_is_only_one_store_nothing_was_compared(spark, members, tmp_path: Path):
    report = audited(spark, members[0], tmp_path / "nothing")
    assert report.verdict is AuditVerdict.INCOMPLETE
    assert report.blocks == 0


def test_zeros_are_a_log_without_messages(spark, members):
    """Queues mention records, so these were lost."""
    for file in log_files(members[1]):
        file.write_bytes(bytes(file.stat().st_size))
    report = audited(spark, *members)
    assert report.verdict is AuditVerdict.DIVERGENT
    lost = [each for each in report.findings if each.cls in (FindingClass.TRUNCATED, FindingClass.HOLE)]
    assert {each.member for each in lost} == {"slave"}
    assert min(each.offset or 0 for each in lost) == 0


def test_a_log_that_was_cut_inside_of_a_record(spark, members):
    """The log ends behind its last whole record."""
    offsets = record_offsets(members[1])
    last = log_files(members[1])[-1]
    with last.open("r+b") as file:
        file.truncate(offsets[-3] + 20 - int(last.name))
    report = audited(spark, *members)
    assert report.members[1].last_offset == offsets[-3]
    (found,) = [each for each in report.findings if each.cls is FindingClass.TRUNCATED]
    assert (found.member, found.offset) == ("slave", offsets[-3])
    assert report.verdict is AuditVerdict.DIVERGENT


@contextmanager
def closed(path: Path) -> Iterator[None]:
    """A file that cannot be opened; root ignores its mode."""
    if os.geteuid() == 0:
        with ForbiddenFile(path):
            yield
        return
    path.chmod(0)
    yield
    path.chmod(0o600)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_log_file_that_may_not_be_read(spark, members, tmp_path: Path, number):
    """The file is named, and the other members are compared in its range."""
    shutil.copytree(members[1], tmp_path / "third")
    at = flip(tmp_path / "third", 200)
    file = log_files(members[1])[number]
    with closed(file):
        report = audited(spark, *members, tmp_path / "third")
    assert report.verdict is AuditVerdict.DIVERGENT
    assert {(each.cls, each.member) for each in report.findings} == {
        (FindingClass.UNREADABLE, "slave"),
        (FindingClass.BIT_ROT, "third"),
    }
    assert [each.record for each in report.findings if each.cls is FindingClass.BIT_ROT] == [at]
    assert any(file.name in line and re.search("not permitted|denied", line) for line in report.not_read)


def test_a_directory_of_queues_that_may_not_be_read(spark, members):
    """The logs are still compared."""
    queue = next(path for path in (members[1] / "consumequeue" / "TopicA" / "0").iterdir())
    with closed(queue):
        report = audited(spark, *members)
    assert report.verdict in (AuditVerdict.INCOMPLETE, AuditVerdict.DIVERGENT)
    assert report.differing_blocks == 0
    assert any(queue.name in line for line in report.not_read), report.findings


def test_a_configuration_that_is_no_json(spark, members):
    (members[1] / "config" / "topics.json").write_text("{ no")
    report = audited(spark, *members)
    assert FindingClass.CONFIG in {each.cls for each in report.findings}
    assert report.verdict is AuditVerdict.DIVERGENT


def test_logs_without_a_byte_in_common_are_not_called_equal(spark, members):
    for file in log_files(members[0])[1:]:
        file.unlink()
    log_files(members[1])[0].unlink()
    report = audited(spark, *members)
    assert report.verdict is not AuditVerdict.EQUAL


# Without Spark: refusals before its start


def twinlog(*arguments: object):
    return CliRunner().invoke(cli, ["audit", *map(str, arguments)])


def test_when_no_place_is_a_store_spark_is_not_even_started(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    result = twinlog(tmp_path / "empty", tmp_path / "missing")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert lines[0] == "Error: None of them can be read."
    assert "it is empty" in lines[1]
    assert "there is no such directory" in lines[2]


def test_an_output_that_cannot_be_is_told_first(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    result = twinlog(tmp_path, tmp_path / "x", "--out", tmp_path / "file" / "out")
    assert result.exit_code == 2
    assert "cannot be made" in result.stderr


def test_one_member_alone_is_a_usage_error(tmp_path: Path):
    result = twinlog(tmp_path)
    assert (result.exit_code, "at least one SLAVE" in result.stderr) == (2, True)


def test_the_schema_needs_no_spark():
    assert json.loads(twinlog("-o", "schema").stdout)["title"] == "AuditReport"
