"""Fail-points: each has a place in the product, all of them come round, and who gets to one dies there and nowhere else."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from attrs import define, field

from scripts.fault_matrix.failpoints import POINTS, Armed, of_stage, put_in
from scripts.fault_matrix.fault_points import next_point
from tests.simulation.simulate import run_seed
from tests.store.records import put_message
from twinlog.store.config import StoreConfig
from twinlog.store.message_store import MessageStore

SEEDS_MAX, TO_PRODUCERS = 60, "cluster.broker.send.acks:ProducerAcks.answer"


class Died(BaseException):
    """Instead of SIGKILL."""


@define
class FakeGroup:
    seed: int
    points_taken: dict[str, int] = field(factory=dict)


def die() -> None:
    raise Died


def test_each_point_has_a_name_of_its_own():
    assert len({(point.stage, point.name) for point in POINTS}) == len(POINTS)


@pytest.mark.parametrize("stage", ["traffic", "start", "cut", "change"])
@pytest.mark.parametrize("per_run", [1, 2, 3])
def test_runs_of_consecutive_seeds_take_all_points(stage, per_run):
    points = of_stage(stage)
    groups = [FakeGroup(seed) for seed in range(1, len(points) + 1)]
    assert {next_point(group, stage).name for group in groups for _ in range(per_run)} == {p.name for p in points}


def died_at(root: Path, lines: str) -> tuple[str, int]:
    """What was reached, and where the log ended in memory."""
    path = root / "points"
    path.write_text(lines)
    with ExitStack() as stack:
        put_in(Armed(path, die), stack)
        store = MessageStore(StoreConfig(root=root / "store", mapped_file_size_commit_log=1 << 14))
        try:
            store.load()
            for _ in range(3):
                store.put([put_message("T1", b"x" * 100)])
        except Died:
            pass
        end = store.max_offset
        store._release()
    reached = path.with_suffix(".reached")
    return reached.read_text() if reached.exists() else "", end


def test_nobody_dies_who_was_not_told_to(tmp_path):
    reached, end = died_at(tmp_path, "")
    assert reached == ""
    assert end > 300


@pytest.mark.parametrize("side", ["before", "half way through", "after"])
def test_it_dies_at_the_pass_that_it_was_told(tmp_path, side):
    """The second message: before it is written, with half of it, with all of it."""
    (tmp_path / "sound").mkdir()
    _, all_three = died_at(tmp_path / "sound", "")
    one = all_three // 3
    reached, end = died_at(tmp_path, f"2 traffic: {side} a write of the log\n1 start: next\n")
    assert reached == f"traffic: {side} a write of the log\n"
    assert (tmp_path / "points").read_text() == "1 start: next\n"
    assert end == (2 * one if side == "after" else one)
    raw = (tmp_path / "store/commitlog" / f"{0:020d}").read_bytes()
    written = len(raw.rstrip(b"\0"))
    assert {
        "before": written <= one,
        "half way through": one < written < 2 * one - 10,
        "after": written > 2 * one - 10,
    }[side]


def test_a_start_dies_in_recovery(tmp_path):
    reached, _ = died_at(tmp_path, "1 start: after the walk through the log\n")
    assert reached == "start: after the walk through the log\n"


@pytest.mark.slow
def test_seeds_of_the_simulation_pass_all_points(monkeypatch):
    """None is a place that nobody gets to. Producers of the simulation have no broker's connection."""
    passed = set()
    monkeypatch.setattr(Armed, "reached", lambda self, point: passed.add(point.name))
    with ExitStack() as stack:
        put_in(Armed(Path("nowhere"), die), stack)
        for seed in range(SEEDS_MAX):
            assert run_seed(seed).violation == ""
            if passed >= {point.name for point in POINTS if point.target != TO_PRODUCERS}:
                return
    pytest.fail(f"not passed: {sorted({point.name for point in POINTS} - passed)}")
