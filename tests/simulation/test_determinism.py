"""A seed that fails on one day, in one process, fails on the next, in another."""

import pytest

from tests.simulation.role_plan import draw
from tests.simulation.run import Job, Pool


@pytest.mark.timeout(120)
def test_the_same_seed_leaves_the_same_trace_in_two_processes():
    seeds = (1, 2, 3, 4)
    traces: dict[int, set[str]] = {seed: set() for seed in seeds}
    for _ in range(2):
        with Pool.open(1) as pool:
            for outcome in pool.run(map(Job, seeds)):
                traces[outcome["seed"]].add(outcome["trace_hash"])
    assert [len(found) for found in traces.values()] == [1] * len(seeds)
    assert len(set().union(*traces.values())) == len(seeds)


@pytest.mark.timeout(120)
def test_a_seed_does_not_depend_on_those_before_it():
    with Pool.open(1) as pool:
        (alone,) = pool.run([Job(4)])
    with Pool.open(1) as pool:
        *_, after = pool.run(map(Job, (2, 4)))
    assert alone["trace_hash"] == after["trace_hash"]


def test_a_plan_depends_on_its_seed_only():
    assert draw(7) == draw(7) != draw(8)
