"""dropRepetitions: no row is lost, however writers repeat rows and however the reader cuts a queue."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from twinlog.cluster.pipeline.sink import repetitions
from twinlog.cluster.pipeline.sink.repetitions import Repetitions, first_needed

# A queue: an id for each offset. None: a message of another producer.
QUEUES = st.lists(st.one_of(st.none(), st.sampled_from("abcdef")), max_size=40)
LOOK_BACKS = st.integers(1, 50)


def read(queue: list[str | None], start: int, end: int, look_back: int, floor: int = 0) -> list[int]:
    """Offsets that a task gives for its range."""
    kept = Repetitions(look_back)
    first = first_needed(start, look_back, floor)
    kept.are_new(range(first, start), queue[first:start])
    new = kept.are_new(range(start, end), queue[start:end])
    return [start + number for number, is_new in enumerate(new) if is_new]


@given(QUEUES, LOOK_BACKS, st.data())
def test_how_a_queue_is_cut_does_not_matter(queue, look_back, data):
    """Tasks and batches begin anywhere, also between an original and its repetition."""
    floor = data.draw(st.integers(0, len(queue)))
    cuts = sorted(data.draw(st.sets(st.integers(floor, len(queue))), label="cuts") | {floor, len(queue)})
    whole = read(queue, floor, len(queue), look_back, floor)
    pieces = [read(queue, start, end, look_back, floor) for start, end in pairwise(cuts)]
    assert [offset for piece in pieces for offset in piece] == whole


@given(QUEUES, LOOK_BACKS, st.data())
def test_nothing_is_lost(queue, look_back, data):
    """Each id from the query's first offset on, and each message without one, comes out; what is dropped has a copy before it."""
    floor = data.draw(st.integers(0, len(queue)))
    kept = read(queue, floor, len(queue), look_back, floor)
    assert {queue[offset] for offset in kept} == set(queue[floor:])
    for offset in set(range(floor, len(queue))) - set(kept):
        assert queue[offset] is not None
        assert queue[offset] in queue[max(floor, offset - look_back) : offset]


@given(QUEUES)
def test_each_id_comes_once_within_the_look_back(queue):
    kept = read(queue, 0, len(queue), len(queue) + 1)
    counts = Counter(queue[offset] for offset in kept)
    assert all(count == 1 for row_id, count in counts.items() if row_id is not None)
    assert counts[None] == queue.count(None)


@given(st.data())
def test_writers_that_are_repeated_or_speculative(data):
    """Attempts of one task, each cut off anywhere, in flight at once, in any order: each row once, none lost."""
    rows = [f"row-{number}" for number in range(data.draw(st.integers(1, 6)))]
    cut_off = data.draw(st.lists(st.permutations(rows).map(tuple), max_size=3))
    attempts = [list(each[: data.draw(st.integers(0, len(each)))]) for each in cut_off]
    attempts.append(data.draw(st.permutations(rows)))  # One succeeds.
    queue: list[str | None] = []
    while waiting := [each for each in attempts if each]:
        queue.append(data.draw(st.sampled_from(range(len(waiting))).map(waiting.__getitem__)).pop(0))
        queue += data.draw(st.lists(st.none(), max_size=1))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(queue)))) | {0, len(queue)})
    kept = [queue[offset] for start, end in pairwise(cuts) for offset in read(queue, start, end, len(queue))]
    assert sorted(each for each in kept if each) == rows
    assert kept.count(None) == queue.count(None)


def test_memory_is_bounded_by_the_look_back(monkeypatch):
    monkeypatch.setattr(repetitions, "_ROOM", 100)
    kept = Repetitions(look_back=50)
    for start in range(0, 10_000, 10):
        assert kept.are_new(range(start, start + 10), [f"id-{start + number}" for number in range(10)]).all()
        assert len(kept._last) <= 160
    assert kept.are_new([10_000], ["id-9951"]).tolist() == [False]
    assert kept.are_new([10_001], ["id-9950"]).tolist() == [True]  # 51 offsets before.


def test_a_hole_in_the_offsets_counts_as_offsets():
    """Filtered messages and blank units."""
    kept = Repetitions(look_back=10)
    assert kept.are_new([0, 5, 15, 100], ["a", "a", "a", "a"]).tolist() == [True, False, False, True]
