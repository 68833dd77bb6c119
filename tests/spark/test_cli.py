"""`twinlog audit` and the same job by spark-submit, as processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from cluster.cli.schema import schema_of
from cluster.pipeline.report import AuditReport
from tests.cluster.cli.json_schema import violations
from tests.interop.twinlog import PROGRAM
from tests.spark.conftest import HERE
from tests.spark.logs import flip
from tests.store import golden

ROOT = HERE.parents[1]
PACKAGES = ("store", "ha", "cluster")
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def members(tmp_path: Path) -> list[Path]:
    return [golden.unpack("4.9.7", name, tmp_path) for name in golden.CLEAN]


def run(command: list[str], cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SPARK_LOCAL_DIRS": str(cwd), **env}
    return subprocess.run(command, capture_output=True, text=True, timeout=150, cwd=cwd, env=env)


def twinlog(cwd: Path, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    return run([str(PROGRAM), "audit", *map(str, arguments)], cwd, **env)


def test_equal_members_leave_with_0(members, tmp_path: Path):
    """And stderr stays empty: not a word of Spark's."""
    done = twinlog(tmp_path, *members, "-o", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert violations(report, schema_of(AuditReport)) == []
    assert (report["verdict"], report["findings"]) == ("equal", [])
    assert report["startup_seconds"] > 0
    assert done.stderr == ""


def test_a_difference_leaves_with_1_and_files_that_tell_it(members, tmp_path: Path):
    at = flip(members[1], 7)
    out = tmp_path / "a" / "report"
    done = twinlog(tmp_path, *members, "--out", out)
    assert done.returncode == 1, done.stderr
    assert "\x1b" not in done.stdout
    assert "B bit-rot" in done.stdout
    assert "to mend 1: twinlog backup" in done.stdout
    assert sorted(path.name for path in out.iterdir()) == ["findings.parquet", "report.html", "report.json"]
    (found,) = json.loads((out / "report.json").read_bytes())["findings"]
    assert (found["cls"], found["member"], found["record"], found["good"]) == ("bit-rot", "slave", at, "master")
    assert "bit-rot" in (out / "report.html").read_text()


def test_without_spark_one_line_says_how_to_install_it(members, tmp_path: Path):
    """As where only twinlog was installed."""
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


def test_spark_submit_with_the_wheel(members, tmp_path: Path):
    """Driver and executors run what is in the file of --py-files: some words in it are others than here."""
    wheel = tmp_path / "twinlog-0.1.0-py3-none-any.whl"
    words = {"summary.py": ("blocks of up to", "pieces of up to"), "shapes.py": ('Field("body"', 'Field("b-o-d-y"')}
    with ZipFile(wheel, "w") as archive:
        for file in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                old, new = words.get(file.name, ("", ""))
                data = file.read_bytes().replace(old.encode(), new.encode()) if old else file.read_bytes()
                archive.writestr(str(file.relative_to(ROOT)), data)
    entry = tmp_path / "job" / "audit.py"
    entry.parent.mkdir()
    entry.write_bytes((ROOT / "cluster/pipeline/submit/audit.py").read_bytes())
    flip(members[1], 7)
    submit = Path(sys.executable).with_name("spark-submit")
    command = [str(submit), "--master", "local[2,4]", "--py-files", str(wheel), str(entry), *map(str, members)]
    done = run([*command, "--out", str(tmp_path / "out")], tmp_path, PYSPARK_PYTHON=sys.executable)
    assert done.returncode == 1, done.stderr
    assert "pieces of up to" in done.stdout
    assert "in the b-o-d-y" in done.stdout
    assert (tmp_path / "out" / "report.html").is_file()
