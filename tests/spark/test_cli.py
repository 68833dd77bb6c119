"""`twinlog audit` in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.cli.json_schema import violations
from tests.spark.logs import flip
from tests.store import golden
from tests.support.process_group.process import PROGRAM
from tests.support.process_group.up import POISON, modules_of_an_application
from twinlog.cluster.admin.documents import schema_of
from twinlog.cluster.pipeline.audit.report import AuditReport

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def members(tmp_path: Path) -> list[Path]:
    return [golden.unpack("4.9.7", name, tmp_path) for name in golden.CLEAN]


def run(command: list[str], cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SPARK_LOCAL_DIRS": str(cwd), **env}
    return subprocess.run(command, capture_output=True, text=True, timeout=150, cwd=cwd, env=env)


def twinlog(cwd: Path, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    return run([str(PROGRAM), "audit", *map(str, arguments)], cwd, **env)


def test_a_difference_leaves_with_1_and_files_that_tell_it(members, tmp_path: Path):
    """Stderr stays empty, without output of Spark, and nothing is imported from the working directory.

    Equal members: test_killed.py.
    """
    at = flip(members[1], 7)
    out = tmp_path / "a" / "report"
    application = modules_of_an_application(tmp_path / "application", POISON)
    (application / "json.py").write_text(POISON)
    done = twinlog(application, *members, "--out", out)
    assert done.returncode == 1, done.stderr
    assert ("\x1b" in done.stdout, done.stderr) == (False, "")
    assert "B bit-rot" in done.stdout
    assert "to repair 1: twinlog backup" in done.stdout
    assert sorted(path.name for path in out.iterdir()) == ["findings.parquet", "report.html", "report.json"]
    report = json.loads((out / "report.json").read_bytes())
    assert violations(report, schema_of(AuditReport)) == []
    assert report["startup_seconds"] > 0
    (found,) = report["findings"]
    assert (found["cls"], found["member"], found["record"], found["good"]) == ("bit-rot", "slave", at, "master")
    assert "bit-rot" in (out / "report.html").read_text()


def test_without_spark_one_line_says_how_to_install_it(members, tmp_path: Path):
    """As with an installation of twinlog alone."""
    blocker = tmp_path / "blocker"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text(
        "import importlib.util as u\n_find = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'pyspark' else _find(name, *more)\n"
    )
    done = twinlog(tmp_path, *members, PYTHONPATH=str(blocker))
    assert done.returncode == 2
    assert "needs pyspark, which is not installed" in done.stderr
    assert "pip install 'twinlog[spark]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_java_a_line_says_what_to_install(members, tmp_path: Path):
    done = twinlog(tmp_path, *members, PATH=str(Path(sys.executable).parent), JAVA_HOME="")
    assert done.returncode == 2
    assert "apt install openjdk-17-jre-headless" in done.stderr
    assert "Traceback" not in done.stderr
