"""Cores of `twinlog up --pin`: the plan, and how a process is bound."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from twinlog.cluster.cli.run.pinning import bound, own_cores, pinned, spread
from twinlog.cluster.cli.run.up_plan import plan_up

DIR = Path("/data")


def cores(masters: int, slaves: int, count: int) -> list[int | None]:
    """Of all brokers in the plan's order: group by group, the master first."""
    return [broker.core for broker in pinned(plan_up(DIR, masters=masters, slaves=slaves), range(count)).brokers]


@pytest.mark.parametrize(
    ("masters", "slaves", "count", "expected"),
    [
        (1, 1, 2, [0, 1]),
        (2, 1, 2, [0, 1, 1, 0]),
        (2, 1, 8, [0, 2, 1, 3]),
        (2, 2, 4, [0, 2, 3, 1, 0, 2]),
        (4, 0, 2, [0, 1, 0, 1]),
        (1, 3, 2, [0, 1, 1, 1]),
    ],
)
def test_masters_come_first_and_slaves_take_the_cores_after(masters, slaves, count, expected):
    assert cores(masters, slaves, count) == expected


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8, 64])
@pytest.mark.parametrize("slaves", [0, 1, 2, 3])
@pytest.mark.parametrize("masters", [1, 2, 3, 4, 9])
def test_any_plan_keeps_masters_apart_and_slaves_off_their_masters_core(masters, slaves, count):
    brokers = pinned(plan_up(DIR, masters=masters, slaves=slaves), range(count)).brokers
    of_masters = {broker.group: broker.core for broker in brokers if broker.broker_id == 0}
    assert len(set(of_masters.values())) == min(masters, count)
    assert all(broker.core != of_masters[broker.group] for broker in brokers if broker.broker_id)
    loads = [sum(broker.core == core for broker in brokers) for core in range(count)]
    # One master alone has its core to itself, however many slaves there are.
    assert masters == 1 or max(loads) - min(loads) <= 2


@pytest.mark.parametrize("count", [0, 1])
def test_with_one_core_nothing_is_bound(count):
    assert cores(2, 1, count) == [None] * 4


def test_nothing_else_of_the_plan_changes():
    plan = plan_up(DIR, masters=2)
    assert [broker.settings() for broker in pinned(plan, range(4)).brokers] == [
        broker.settings() for broker in plan.brokers
    ]


@pytest.mark.parametrize(
    ("siblings", "expected"),
    [
        ({0: [0], 1: [1]}, [0, 1]),
        ({0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3]}, [0, 2, 1, 3]),
        ({0: [0, 2], 1: [1, 3], 2: [0, 2], 3: [1, 3]}, [0, 1, 2, 3]),
        ({1: [0, 1], 2: [2, 3], 3: [2, 3]}, [1, 2, 3]),
    ],
    ids=["without", "neighbours", "halves", "one is not ours"],
)
def test_the_first_cores_are_of_different_physical_ones(siblings, expected):
    assert spread(siblings) == expected


@pytest.mark.parametrize(("text", "expected"), [("0-1\n", [0, 1]), ("0,1\n", [0, 1]), ("nonsense", [0, 1])])
def test_the_cores_of_this_process_are_read_from_the_kernel(tmp_path, monkeypatch, text, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 0})
    (tmp_path / "cpu0/topology").mkdir(parents=True)
    (tmp_path / "cpu0/topology/thread_siblings_list").write_text(text)
    assert own_cores(tmp_path) == expected


def test_a_child_is_bound_and_its_parent_is_not():
    def of_child() -> set[int]:
        command = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
        return {int(core) for core in subprocess.run(command, capture_output=True, check=True).stdout.split()}

    own = os.sched_getaffinity(0)
    with bound(max(own)):
        assert of_child() == {max(own)}
    with bound(None):
        assert of_child() == own
    assert os.sched_getaffinity(0) == own


def test_a_core_that_is_gone_keeps_no_member_from_its_start():
    own = os.sched_getaffinity(0)
    with bound(max(own) + 100_000):
        assert os.sched_getaffinity(0) == own
    assert os.sched_getaffinity(0) == own
