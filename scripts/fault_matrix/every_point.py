"""All fail-points in one run: `scripts/faults --every-point`. Rows 1 and 18 take some of them in each run."""

import random

from attrs import evolve

from scripts.fault_matrix.failpoints import POINTS, of_stage
from scripts.fault_matrix.fault_points import AtPoints, KillAtPoint, KillInCut, KillInRoleChange
from scripts.fault_matrix.group import Group
from scripts.fault_matrix.rows import ROWS
from scripts.fault_matrix.schedule import WARM, one_fault
from scripts.fault_matrix.traffic import Traffic

KINDS: tuple[tuple[type[AtPoints], str], ...] = (
    (KillAtPoint, "traffic"),
    (KillInCut, "cut"),
    (KillInRoleChange, "change"),
)
(_ROW,) = (row for row in ROWS if row.key == "1-L2")
EVERY_POINT = evolve(
    _ROW, name=f"kill -9 at all {len(POINTS)} named places", seconds_max=1200.0, oracles="ABCDEFG"
)  # Too long for porcupine, as the soak is.


def every_point(row: object, group: Group, traffic: Traffic, rng: random.Random) -> None:
    """Fault after fault until each stage's list was gone through. Starts are in all of them."""
    traffic.more(WARM)
    for kind, stage in KINDS:
        while group.points_taken.get(stage, 0) < len(of_stage(stage)):  # type: ignore[arg-type]
            one_fault(kind(group, rng), group, traffic, is_helped=False)
    assert group.points_taken["start"] >= len(of_stage("start"))
