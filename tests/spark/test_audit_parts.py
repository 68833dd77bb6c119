"""Records that members have alike are read of one of them: the audit finds what it finds when each is read for itself."""

import shutil
from pathlib import Path

import pytest

from tests.cluster.pipeline.planting import FAULTS, SOUND, make_pair
from tests.spark.in_process import TaskRunner, audited
from tests.store import golden
from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.audit.parts import parts_alone
from twinlog.cluster.pipeline.audit.report import AuditReport, AuditVerdict
from twinlog.cluster.pipeline.jobs import audit as job
from twinlog.store.integrity.digest import BLOCK_SIZE
from twinlog.store.offline.verify import log_check


def each_for_itself(monkeypatch, *roots: Path, **options) -> AuditReport:
    with monkeypatch.context() as patched:
        patched.setattr(
            job,
            "parts_together",
            lambda files, known, *_: [part for unit in parts_alone(files, known) for part in unit],
        )
        return audited(*roots, **options)


@pytest.mark.parametrize("fault", [*FAULTS[::4], *SOUND], ids=str)
def test_the_findings_are_the_same(fault, monkeypatch, tmp_path):
    """And with three members, of which two have what the first one has."""
    pair = make_pair(fault.store, tmp_path)
    expected = fault.plant(pair)
    report = audited(pair.master, pair.slave, split_size=BLOCK_SIZE)
    found = [each for each in report.findings if each.cls is not FindingClass.LAG or each.offset is not None]
    for wanted in expected:
        assert [wanted.is_met_by(finding) for finding in found].count(True) == 1, found
    assert len(found) == len(expected), found
    assert report == each_for_itself(monkeypatch, pair.master, pair.slave, split_size=BLOCK_SIZE)
    three = pair.master, pair.slave, shutil.copytree(pair.master, tmp_path / "third")
    assert audited(*three) == each_for_itself(monkeypatch, *three)


@pytest.fixture
def walked(monkeypatch) -> list[int]:
    """The bytes of logs that were walked, each time."""
    sizes: list[int] = []
    walk = log_check.walk_columns

    def counted(log, start, end, **options):
        for piece in walk(log, start, end, **options):
            sizes.append(piece.end - piece.start)
            yield piece

    monkeypatch.setattr(log_check, "walk_columns", counted)
    return sizes


def test_equal_logs_are_walked_once(walked, tmp_path):
    """But for what lies behind their ends; the progress counts the bytes of all members."""
    pair = make_pair("own", tmp_path)
    third = shutil.copytree(pair.slave, tmp_path / "third")
    runner = TaskRunner()
    report = audited(pair.master, pair.slave, third, runner=runner)
    assert report.verdict is AuditVerdict.EQUAL
    end = report.members[0].last_offset
    rest = -end % golden.FILE_SIZE
    assert sum(walked) == end + 3 * rest
    assert runner.counted == runner.total == 3 * (end + end + rest)


def test_a_member_that_is_behind_is_read_with_the_others_up_to_its_end(walked, tmp_path):
    """The block in which its log ends has two digests, and equal records."""
    pair = make_pair("own", tmp_path)
    log = sorted((pair.slave / "commitlog").iterdir())
    for name in ("consumequeue", "index", "checkpoint", "twinlog"):
        shutil.rmtree(pair.slave / name) if (pair.slave / name).is_dir() else (pair.slave / name).unlink()
    with log[-1].open("r+b") as file:
        file.truncate(20_000)
        file.truncate(golden.FILE_SIZE)
    report = audited(pair.master, pair.slave)
    end, behind = (member.last_offset for member in report.members)
    assert behind < end
    assert sum(walked) == end + sum(-at % golden.FILE_SIZE for at in (end, behind))
