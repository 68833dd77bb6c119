"""Damaged ranges, against a set of the damaged offsets."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from twinlog.store.integrity.damage import DamagedRanges

ranges = st.tuples(st.integers(0, 40), st.integers(1, 10)).map(lambda item: (item[0], item[0] + item[1]))


@given(st.lists(st.tuples(st.sampled_from(["add", "remove"]), ranges), max_size=20), ranges)
def test_ranges_are_the_set_of_their_offsets(history, asked):
    damaged, expected = DamagedRanges(), set()
    for name, (start, end) in history:
        getattr(damaged, name)(start, end)
        expected = expected | set(range(start, end)) if name == "add" else expected - set(range(start, end))
    found = list(damaged)
    assert {offset for start, end in found for offset in range(start, end)} == expected
    assert all(first[1] < second[0] for first, second in pairwise(found))
    assert damaged.total == len(expected)
    assert len(damaged) == len(found)
    assert damaged.overlaps(*asked) == bool(expected & set(range(*asked)))
