"""Units of many records are sorted by queue as a loop over the records would do it."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.store.offline.verify.unit_batch import UnitBatch, differing
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.columns import Columns, KeyColumns

TOPICS = ["a", "b", "ö"]
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([0, 1, -1, (1 << 31) - 1, -(1 << 31)]),
        st.integers(0, 3),
        st.sampled_from([0, 4, 8, 12]),
        st.integers(-(1 << 63), (1 << 63) - 1),
    ),
    max_size=40,
)
NONE = np.zeros(0, np.int64)


def columns(records: list[tuple[int, ...]], start: int, topics: list[str]) -> Columns:
    """Records of 100 bytes each, by number of topic, queue id, queue offset, system flag and tags code."""
    topic, queue_id, queue_offset, sys_flag, code = np.array(records, np.int64).reshape(-1, 5).T
    places = np.arange(start, start + len(records)) * 100
    sizes, times = np.full(len(records), 100), np.zeros(len(records), np.int64)
    keys = KeyColumns(NONE, NONE, NONE)
    return Columns(topics, topic, queue_id, queue_offset, places, sizes, code, times, sys_flag, keys)


@settings(deadline=None)
@given(RECORDS, RECORDS)
def test_units_of_two_windows(first, second):
    """Their topics have other numbers in each."""
    batch = UnitBatch()
    batch.add(columns(first, 0, TOPICS))
    batch.add(columns(second, len(first), TOPICS[::-1]))
    expected: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    names = [TOPICS[record[0]] for record in first] + [TOPICS[::-1][record[0]] for record in second]
    for number, (name, (_, queue_id, queue_offset, sys_flag, code)) in enumerate(
        zip(names, first + second, strict=True)
    ):
        if sys_flag not in (4, 12):
            unit = UNIT.pack(number * 100, 100, code)
            expected.setdefault((name, queue_id), []).append((queue_offset, unit))
    assert batch.count == sum(map(len, expected.values()))
    found = list(batch.take())
    assert [each.key for each in found] == list(expected), "in the order in which queues come first"
    for each in found:
        offsets, units = zip(*expected[each.key], strict=True)
        assert each.offsets.tolist() == list(offsets)
        assert each.units == b"".join(units)
        assert each.is_run == all(b - a == 1 for a, b in pairwise(offsets))
    assert list(batch.take()) == []


def test_units_that_differ():
    """Also where the queue ends."""
    units = [UNIT.pack(number, 1, 0) for number in range(10)]
    found = [*units[:2], bytes(20), bytes(20), *units[4:6], bytes(20)]
    assert list(differing(b"".join(units), b"".join(found))) == [
        (2, b"".join(units[2:4])),
        (6, b"".join(units[6:])),
    ]


def test_very_many_places_are_one():
    units = b"".join(UNIT.pack(number, 1, 0) for number in range(1000))
    found = b"".join(UNIT.pack(number, 1, number % 2) for number in range(1000))
    assert list(differing(units, found)) == [(1, units[UNIT.size :])]
