"""The notebook of docs/notebooks runs from top to bottom, and what it is kept with is what a run gives."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.spark.conftest import HERE
from tests.spark.notebook import load
from tests.support.process_group.up import free_port_base

ROOT = HERE.parents[1]
NOTEBOOK = ROOT / "docs" / "notebooks" / "rocketmq-in-spark.ipynb"

pytestmark = pytest.mark.timeout(240)


def run(out: Path, log: Path) -> int:
    """Execute it in a process of its own, with its cluster; returns the exit status. Nothing of it is left."""
    command = [sys.executable, "-m", "tests.spark.notebook", str(NOTEBOOK), str(out)]
    environment = os.environ | {"PORT_BASE": str(free_port_base())}
    with log.open("wb") as said:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=said, start_new_session=True)
    try:
        return process.wait(220)
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(10)


def test_the_notebook_runs_and_gives_what_it_is_kept_with(tmp_path):
    out, log = tmp_path / "out.ipynb", tmp_path / "stderr"
    assert run(out, log) == 0, log.read_text()[-5000:]
    for kept, now in zip(load(NOTEBOOK)["cells"], load(out)["cells"], strict=True):
        assert now == kept, "see tests/spark/notebook.py for how its outputs are kept"
