"""The jobs by spark-submit, with only the wheel in --py-files."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.helpers import open_store
from tests.spark.conftest import HERE
from tests.spark.exports import SCHEMA, now_ms, order, put, snapshot
from tests.spark.logs import flip
from tests.store import golden

ROOT = HERE.parents[1]
FOLDERS = [ROOT / "twinlog" / name for name in ("store", "ha", "cluster")]
# Settings that only save time.
QUICKLY = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel with some texts changed, to distinguish it from this checkout."""
    path = tmp_path / "twinlog-0.1.0-py3-none-any.whl"
    words = {"summary.py": ("of up to 64 KiB", "of at most 64 KiB"), "shapes.py": ('yield "body"', 'yield "b-o-d-y"')}
    with ZipFile(path, "w") as archive:
        inside = (path for folder in FOLDERS for path in folder.rglob("*"))
        for file in sorted((*(ROOT / "twinlog").glob("*.py"), *inside)):
            if file.is_file() and "__pycache__" not in file.parts:
                old, new = words.get(file.name, ("", ""))
                data = file.read_bytes().replace(old.encode(), new.encode()) if old else file.read_bytes()
                archive.writestr(str(file.relative_to(ROOT)), data)
    return path


def submit(wheel: Path, *jobs: list[str]) -> list[str]:
    """Run the jobs; returns the lines they print."""
    scripts = wheel.parent / "jobs"
    shutil.copytree(ROOT / "cluster" / "pipeline" / "submit", scripts)
    shutil.copy(HERE / "submitted_jobs.py", scripts)
    options = [word for name, value in QUICKLY.items() for word in ("--conf", f"{name}={value}")]
    command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2,4]", *options]
    command += ["--py-files", str(wheel), str(scripts / "submitted_jobs.py"), json.dumps(jobs)]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(wheel.parent)}
    done = subprocess.run(command, cwd=wheel.parent, env=env, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.long  # tests/spark_cluster has executors without this checkout, too.
def test_jobs_of_the_wheel(wheel: Path, tmp_path: Path):
    """Driver and executors run the wheel's code: an audit, an export, and a report on it."""
    members = [golden.unpack("4.9.7", name, tmp_path) for name in golden.CLEAN]
    flip(members[1], 7)
    store, out, days = open_store(tmp_path / "store"), str(tmp_path / "out"), tmp_path / "report.json"
    put(store, *(json.dumps(order(number)).encode() for number in range(5)))
    snapshot(tmp_path / "offsets", now_ms() + 5000, {"orders@readers": {0: 2}})
    place = ["--path", str(store.config.root), "--unconfirmed", "--topic", "orders", "--schema", SCHEMA, "--out", out]
    printed = submit(
        wheel,
        ["audit.py", *map(str, members), "--out", str(tmp_path / "audit")],
        ["export.py", *place],
        ["daily.py", "--export", out, "--snapshots", str(tmp_path / "offsets"), "--out", str(days)],
    )
    text = "\n".join(printed)
    assert [line for line in printed if " ended with " in line] == [
        "audit.py ended with 1",
        "export.py ended with 0",
        "daily.py ended with 0",
    ]
    assert "of at most 64 KiB" in text
    assert "in the b-o-d-y" in text
    assert (tmp_path / "audit" / "report.html").is_file()
    assert "orders: 5 messages" in text
    assert "readers on orders: behind 3 messages" in text
    assert json.loads(days.read_text())["topics"][0]["messages"] == 5
