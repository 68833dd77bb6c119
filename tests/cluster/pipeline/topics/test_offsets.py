"""Offsets: forms, fair shares, parts, and loss."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.topics.offsets import (
    Checkpoint,
    Ends,
    Mark,
    Range,
    behind,
    check_cluster,
    divided,
    limited,
    nested,
    ranges_between,
    read_offsets,
    start_now,
    unknown_queues,
)
from twinlog.cluster.pipeline.topics.survey import boundary
from twinlog.cluster.remoting.route import MessageQueue

QUEUES = [MessageQueue(topic, broker, number) for topic in "ab" for broker in ("x", "y") for number in range(3)]
TABLES = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 1000))


@given(TABLES)
def test_offsets_come_back_from_json(offsets):
    assert read_offsets(json.dumps(nested(offsets)), "startingOffsets", least=-2) == offsets


@given(TABLES, st.randoms())
def test_a_checkpoint_has_one_text(offsets, random):
    """Spark compares texts."""
    pairs = list(offsets.items())
    random.shuffle(pairs)
    mark = Mark("a", 0, 1, 2, 3)
    one = Checkpoint({"x": "c", "y": "d"}, offsets, {"x": mark, "y": mark})
    other = Checkpoint({"y": "d", "x": "c"}, dict(pairs), {"y": mark, "x": mark})
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())
    assert Checkpoint.from_json(json.loads(json.dumps(one.to_json()))) == one


@pytest.mark.parametrize("value", [{}, {"store": {"offset": 1}}, {"cluster": {}, "queues": {"a": {"x": {"0": "z"}}}}])
def test_a_checkpoint_of_another_source_is_refused(value):
    with pytest.raises(ReadRefusedError, match="belongs to a query that read something else"):
        Checkpoint.from_json(value)


@pytest.mark.parametrize("cluster", [{"x": "other", "y": "c"}, {"z": "c"}])
def test_a_checkpoint_of_another_cluster_is_refused(cluster):
    with pytest.raises(ReadRefusedError, match="of another cluster"):
        check_cluster(Checkpoint({"x": "c"}, {QUEUES[0]: 1}), cluster)


@pytest.mark.parametrize("cluster", [{"x": "c"}, {"x": "c", "z": "new"}, {}])
def test_brokers_come_and_go(cluster):
    check_cluster(Checkpoint({"x": "c"}, {QUEUES[0]: 1}), cluster)


@given(TABLES, TABLES, st.none() | st.integers(1, 2000))
def test_shares_are_fair_and_within_bounds(starts, ends, most):
    found = limited(starts, ends, most)
    assert found.keys() == starts.keys()
    sizes = {queue: found[queue] - starts[queue] for queue in starts}
    waiting = {queue: max(0, ends.get(queue, 0) - starts[queue]) for queue in starts}
    assert all(0 <= sizes[queue] <= waiting[queue] for queue in starts)
    total = sum(waiting.values())
    assert sum(sizes.values()) == (total if most is None else min(total, most))
    cut_sizes = [sizes[queue] for queue in starts if sizes[queue] < waiting[queue]]
    assert not cut_sizes or max(sizes.values()) <= max(cut_sizes) + len(
        starts
    )  # Nobody gets much more than who waits on.


@given(TABLES, TABLES, st.none() | st.integers(1, 50))
def test_parts_cover_each_range_once(starts, ends, count):
    ranges = ranges_between(starts, ends)
    assert {each.queue for each in ranges} <= starts.keys() & ends.keys()
    parts = divided(ranges, count)
    assert all(part.size > 0 for part in parts)
    for each in ranges:
        mine = [part for part in parts if part.queue == each.queue]
        assert mine[0].start == each.start
        assert mine[-1].end == each.end
        assert all(one.end == other.start for one, other in pairwise(mine))
        assert max(part.size for part in mine) - min(part.size for part in mine) <= 1
    if count is not None:
        assert len(parts) >= min(count, sum(each.size for each in ranges))
        assert len(parts) <= count + len(ranges)


def test_a_new_queue_begins_with_the_next_batch():
    assert ranges_between({}, {QUEUES[0]: 5}) == []


@pytest.mark.parametrize(("first", "start"), [(0, 10), (15, 15), (30, 20)])
def test_what_retention_leaves_of_a_range(first, start):
    assert start_now(Range(QUEUES[0], 10, 20), Ends(first, 50)) == Range(QUEUES[0], start, 20)


def test_what_is_behind():
    assert behind({QUEUES[0]: 5, QUEUES[1]: 9}, {QUEUES[0]: 8, QUEUES[1]: 9, QUEUES[2]: 4}) == {QUEUES[0]: 3}


def test_unknown_queues_are_named():
    problem = unknown_queues("startingOffsets", QUEUES[:1], QUEUES[1:])
    assert "queue 0 of a on x" in str(problem)
    assert unknown_queues("startingOffsets", QUEUES[:1], QUEUES) is None


@given(st.integers(0, 100), st.integers(0, 100), st.integers(-10, 120), st.integers(-5, 130))
async def test_a_boundary_is_found_wherever_the_search_begins(low, size, near, true_end):
    asked = []

    async def is_below(number: int) -> bool:
        assert low <= number < low + size
        asked.append(number)
        return number < true_end

    found = await boundary(low, low + size, near, is_below)
    assert found == min(max(true_end, low), low + size)
    assert len(asked) <= 16
