"""All fail-points in one go: python -m tests.faults.matrix.every_point [SEED]. Rows 1 and 18 take some of them in each run."""

import random
import sys
import tempfile
from pathlib import Path

from attrs import evolve

from tests.faults.matrix.__main__ import show
from tests.faults.matrix.failpoints import POINTS, of_stage
from tests.faults.matrix.fault_points import AtPoints, KillAtPoint, KillInCut, KillInRoleChange
from tests.faults.matrix.group import Group
from tests.faults.matrix.rows import ROWS, Row
from tests.faults.matrix.run import run
from tests.faults.matrix.schedule import WARM, one_fault
from tests.faults.matrix.traffic import Traffic

KINDS: tuple[tuple[type[AtPoints], str], ...] = (
    (KillAtPoint, "traffic"),
    (KillInCut, "cut"),
    (KillInRoleChange, "change"),
)


def every_point(row: Row, group: Group, traffic: Traffic, rng: random.Random) -> None:
    """Fault after fault until each stage's list was gone through. Starts are in all of them."""
    traffic.more(WARM)
    for kind, stage in KINDS:
        while group.points_taken.get(stage, 0) < len(of_stage(stage)):  # type: ignore[arg-type]
            one_fault(kind(group, rng), group, traffic, is_helped=False)
    assert group.points_taken["start"] >= len(of_stage("start"))


if __name__ == "__main__":
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    (row,) = (each for each in ROWS if each.key == "1-L2")
    row = evolve(row, name=f"kill -9 at all {len(POINTS)} named places", seconds_max=1200.0)
    with tempfile.TemporaryDirectory(prefix="twinlog-faults-") as directory:
        report = run(row, seed, Path(directory), schedule=every_point)
    show(report)
    sys.exit(not report.holds)
