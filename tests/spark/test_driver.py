"""The reason for the end of a query is in the first lines of its driver, a script of a user."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tests.support.process_group.twinlog import NameServer
from twinlog.cluster.pipeline.jobs.messages import MessageFirst

SCRIPT = Path(__file__).with_name("stopping_driver.py")
UNKNOWN = "no broker that is registered now has a readable queue of the topic nothing. Check the name"
NO_SERVER = "the name servers 127.0.0.1:1, or a broker of theirs: 127.0.0.1:1: Connection refused. Check that it runs"
IN_SPARK = "Failed: Traceback:\n  File\ntwinlog.cluster.pipeline.sources.limits.ReadRefusedError: it is so.\n SQLSTATE"


@pytest.mark.timeout(120)
def test_the_reason_is_in_the_first_lines_of_a_driver(tmp_path: Path):
    """Above Spark's log, and above Python's traceback; one that is caught is given by message_of."""
    with NameServer(tmp_path / "namesrv") as namesrv:
        command = [sys.executable, str(SCRIPT), namesrv.address, str(tmp_path)]
        env = {**os.environ, "SPARK_LOCAL_DIRS": str(tmp_path)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(UNKNOWN)
    lines = done.stderr.splitlines()
    log = [number for number, line in enumerate(lines) if "ERROR MicroBatchExecution" in line]
    first = next(line for line in lines if not line.startswith("WARNING: Using incubator modules"))
    assert first.startswith(f"twinlog: the query ends: {UNKNOWN}")
    assert lines[log[1] - 1].startswith(f"twinlog: the query ends: {NO_SERVER}")
    trace = lines.index("Traceback (most recent call last):")
    assert lines[trace - 1].startswith(f"twinlog: {NO_SERVER}")
    assert "StreamingQueryException" in done.stderr[done.stderr.index(lines[trace - 1]) :]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PySparkException(IN_SPARK), "twinlog: it is so.\n"),
        (Py4JError(IN_SPARK), "twinlog: it is so.\n"),
        (PySparkException("no memory"), ""),
        (ValueError(IN_SPARK), ""),
    ],
)
def test_other_errors_are_as_they_were(capsys, error, told):
    """The hook that was there before gets all of them."""
    seen = []
    MessageFirst(lambda *each: seen.append(each))(type(error), error, None)
    assert seen == [(type(error), error, None)]
    assert capsys.readouterr().err == told
