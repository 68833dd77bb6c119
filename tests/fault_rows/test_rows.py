"""Rows of the fault matrix in their short form: one fault, chosen by the seed, on real processes, judged by all its oracles.

$FAULTS_SEED chooses others. `scripts/faults --short --row N --seed S` is the same by hand; `--keep DIR` keeps history and logs.
"""

import os

import pytest

from scripts.fault_matrix.checkers.verdict import ORACLES
from scripts.fault_matrix.needs import missing
from scripts.fault_matrix.results import line
from scripts.fault_matrix.rows import SHORT, Row
from scripts.fault_matrix.run import run
from scripts.fault_matrix.schedule import one_kind

SEED = int(os.environ.get("FAULTS_SEED", "20"))
# The others are the same at a lower level, or what the simulation, tests/faults, tests/roles, tests/docker, tests/pairs and
# tests/interop do in other ways: they are for `scripts/test long`.
EACH_TIME = {"1-L2", "3-L3", "4-L3", "5-L2", "13-L3", "14-L2", "16-L2", "18-L2", "19-L2", "20-L1", "23-L2"} | {
    *("29-L3", "34-L3", "35-L3")
}
LIMIT_S = 120  # A row takes 10 to 40 s; a busy machine may wait for each of several things.


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.key, marks=[pytest.mark.long] * (row.key not in EACH_TIME)) for row in SHORT]
)
def test_the_row_holds(row: Row, tmp_path):
    if reason := missing(row):
        assert os.environ.get("CI") != "true", reason
        pytest.skip(reason)
    report = run(row, SEED, tmp_path / "run", schedule=one_kind)
    print(line(report))
    assert report.holds, "\n".join(
        [line(report), report.error, f"again: scripts/faults --short --row {row.number} --seed {SEED}"]
        + [f"{each.oracle} ({ORACLES[each.oracle]}): {wrong}" for each in report.verdicts for wrong in each.wrong]
    )
