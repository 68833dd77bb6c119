"""The archive of scripts/spark-env is all that executors and drivers have of ours."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.helpers import open_store
from tests.spark.exports import SCHEMA, order, put
from tests.spark.logs import flip
from tests.store import golden
from tests.support.spark_cluster.standalone import ENVIRONMENT, ROOT, Standalone, alone

BYTES_MAX = 130_000_000


def test_what_is_in_it(archive: Path, unpacked: Path):
    assert archive.stat().st_size < BYTES_MAX
    (packages,) = unpacked.glob("lib/python3.*/site-packages")
    names = {each.name for each in packages.iterdir()}
    assert {"twinlog", "trio", "numpy", "pyarrow"} <= names
    assert not {"pyspark", "py4j", "pip", "setuptools", "pytest"} & names
    assert list(packages.glob("twinlog/store/__pycache__/*.pyc"))  # Else each executor compiles it anew.


def test_it_works_wherever_it_lies(unpacked: Path, tmp_path: Path):
    script = "import twinlog, numpy, pyarrow; print(twinlog.__file__)"
    command = alone(tmp_path, [f"{unpacked}/bin/python", "-c", script])
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{unpacked}/lib/")
    subprocess.run(alone(tmp_path, [f"{unpacked}/bin/twinlog", "--version"]), check=True, timeout=60)


def test_a_node_without_that_python_is_told(unpacked: Path, tmp_path: Path):
    """Spark shows these words in the driver: they are on the stderr of a Python worker that did not start."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "uname").symlink_to("/bin/uname")
    program = (unpacked / "bin/python").read_text().replace("/usr/bin/", "/none/").replace("/usr/local/bin/", "/none/")
    (tmp_path / "bin/python").write_text(program)
    command = alone(tmp_path, ["/bin/sh", "bin/python", "-c", ""], PATH=str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 127
    assert "twinlog's environment needs Python 3." in done.stderr
    assert "spark.executorEnv.TWINLOG_PYTHON=" in done.stderr


@pytest.mark.timeout(600)
def test_jobs_from_the_archive_alone(cluster: Standalone, unpacked: Path, tmp_path: Path):
    """An audit and an export; nodes have no twinlog but what Spark unpacked for their executors."""
    members = [golden.unpack("4.9.7", name, tmp_path) for name in golden.CLEAN]
    flip(members[1], 7)
    store, out = open_store(tmp_path / "store"), tmp_path / "out"
    put(store, *(json.dumps(order(number)).encode() for number in range(5)))
    export = [
        "--path",
        str(store.config.root),
        "--unconfirmed",
        "--topic",
        "orders",
        "--schema",
        SCHEMA,
        "--out",
        str(out),
    ]
    script = cluster.place(ROOT / "tests/spark/submitted_jobs.py")
    submit = cluster.driver_place / ENVIRONMENT / "submit"
    jobs = [
        [str(submit / "audit.py"), *map(str, members), "--out", str(tmp_path / "audit")],
        [str(submit / "export.py"), *export],
    ]
    with cluster.driver("jobs", script, json.dumps(jobs)) as driver:
        assert driver.wait(400) == 0, cluster.tails()
    printed = driver.lines()
    ends = [line.partition("submit/")[2] for line in printed if " ended with " in line]
    assert ends == ["audit.py ended with 1", "export.py ended with 0"], driver.tail()
    assert (tmp_path / "audit/report.html").is_file()
    assert len(list(cluster.directory.glob(f"worker-*/app-*/*/{ENVIRONMENT}/lib"))) == 4  # Two jobs on two workers.
    assert list(out.glob("topic=orders/day=*/batch=*/*.parquet"))
