"""Ids of rows: equal for a repeated row, however Spark orders the rows; never equal for two rows of different content."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.pipeline.sink.encoding import batch_of, sent
from twinlog.cluster.pipeline.sink.ids import Occurrences, RowIds, short_id


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), max_size=8))
def test_occurrences_are_counted_over_all_calls(calls):
    counter, met = Occurrences(), Counter[int]()
    for call in calls:
        expected = []
        for key in call:
            expected.append(met[key])
            met[key] += 1
        assert counter.before(np.array(call, np.uint64)).tolist() == expected


def test_counting_takes_eight_bytes_a_row():
    counter = Occurrences()
    for start in range(0, 50_000, 500):
        assert not counter.before(np.arange(start, start + 500, dtype=np.uint64)).any()
    assert sum(run.nbytes for run in counter._runs) == 8 * 50_000
    assert len(counter._runs) < 12
    assert counter.before(np.array([49_999, 3, 60_000], np.uint64)).tolist() == [1, 1, 0]


def test_an_id_says_query_batch_partition_and_row():
    ids = RowIds(short_id("0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"), 12, 3)
    one, other = bytes(range(16)), bytes(16)
    assert ids.of([one, other, one]) == [
        "0a1b2c3d4e5f6071/12/3/000102030405060708090a0b",
        "0a1b2c3d4e5f6071/12/3/000000000000000000000000",
        "0a1b2c3d4e5f6071/12/3/000102030405060708090a0b-1",
    ]


_ROWS = st.lists(st.tuples(st.sampled_from([b"", b"a", b"b"]), st.sampled_from([None, "x"])), min_size=1, max_size=12)


def _messages(rows, cuts=()):
    bounds = [0, *sorted(cuts), len(rows)]
    parts = [rows[start:end] for start, end in pairwise(bounds) if start < end]
    return sent(*(batch_of(value=[row[0] for row in part], tags=_texts([row[1] for row in part])) for part in parts))


def _texts(values):
    return pa.array(values, pa.string())


@given(_ROWS, st.data())
def test_a_repeated_task_gives_the_same_ids_in_any_order(rows, data):
    """Also when its rows come in other batches; and an id has one content."""
    first = _messages(rows)
    cuts = data.draw(st.sets(st.integers(0, len(rows))))
    again = _messages(data.draw(st.permutations(rows)), cuts)
    contents = [{each.row_id: (each.body, each.given) for each in attempt} for attempt in (first, again)]
    assert contents[0] == contents[1]
    assert len(contents[0]) == len(rows)


def test_what_is_sent_makes_the_id():
    """Topic, flag, delay, keys, tags and properties count, and what belongs to which of them."""
    base = {"value": [b"v"]}
    variants = [
        base,
        base | {"topic": ["U"]},
        base | {"flag": [1]},
        base | {"delayLevel": [1]},
        base | {"keys": ["k"]},
        base | {"tags": ["k"]},
        base | {"properties": _map({"a": "b"})},
        base | {"properties": _map({"a": "bc"})},
        base | {"shardingKey": ["k"]},
        {"value": [b"vv"]},
    ]
    ids = [sent(batch_of(**each), topic="" if "topic" in each else "T")[0].row_id for each in variants]
    assert len(set(ids)) == len(ids)


def test_the_order_of_properties_does_not_count():
    one, other = ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})
    ids = [sent(batch_of(value=[b"v"], properties=_map(each)))[0].row_id for each in (one, other)]
    assert ids[0] == ids[1]


def _map(pairs):
    return pa.array([list(pairs.items())], pa.map_(pa.string(), pa.string()))
