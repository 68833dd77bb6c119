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
# The same at a lower level, and what the simulation, tests/faults, tests/roles, tests/docker, tests/pairs and tests/interop do in
# other ways.
LONG = {
    *("2-L2", "3-L0", "3-L1", "6-L2", "7-L2", "8-L2", "9-L2", "10-L2", "11-L2", "12-L3", "15-L3", "17-L2", "21-L2", "22-L2"),
    *("24-L2", "25-L2", "26-L2", "27-L2", "28-L2", "30-L2", "33-L3", "36-L3"),
}
LIMIT_S = 120  # A row takes 10 to 40 s; a busy machine may wait for each of several things.


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.key, marks=[pytest.mark.long] * (row.key in LONG)) for row in SHORT]
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
