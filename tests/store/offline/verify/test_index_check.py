"""Items of an index that fit their slots are told without sorting them as a replay of their puts tells it."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.store.offline.verify import index_check

SLOTS = 5
ITEMS = st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=30)


def put(before: list[int], slots: list[int]) -> tuple[np.ndarray, list[int], int]:
    """The newest item of each slot after a replay of the first puts; what the others name; the first one's number."""
    newest = [0] * SLOTS
    for number, slot in enumerate(before, 1):
        newest[slot] = number
    start, named = np.array(newest, np.int32), []
    for number, slot in enumerate(slots, len(before) + 1):
        named.append(newest[slot])
        newest[slot] = number
    return start, named, len(before) + 1


@settings(deadline=None)
@given(ITEMS, ITEMS, st.data())
def test_items_that_fit_and_items_of_which_one_does_not(before, slots, data):
    """With one item that names another one than it should nothing is put; whichever it names."""
    newest, named, first = put(before, slots)
    untouched, replayed = newest.copy(), newest.copy()
    assert index_check._put(replayed, np.array(slots), first).tolist() == named
    at = data.draw(st.integers(0, len(slots) - 1))
    wrong = data.draw(st.integers(-2, first + len(slots) + 1).filter(lambda number: number != named[at]))
    others = [*named[:at], wrong, *named[at + 1 :]]
    assert not index_check._fit(newest, np.array(slots), np.array(others, np.int32), first)
    assert newest.tolist() == untouched.tolist()
    assert index_check._fit(newest, np.array(slots), np.array(named, np.int32), first)
    assert newest.tolist() == replayed.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_many_items_with_several_wrong_ones(seed):
    """Such as two that are exchanged, or all of a slot that name one: the count of what is named is right there."""
    rnd = random.Random(seed)
    slots = [rnd.randrange(SLOTS) for _ in range(60)]
    newest, named, first = put(slots[:20], slots[20:])
    for _ in range(50):
        others = list(named)
        for _ in range(rnd.randrange(1, 6)):
            a, b = rnd.randrange(40), rnd.randrange(40)
            others[a], others[b] = rnd.choice([(others[b], others[a]), (others[b], others[b]), (0, others[b])])
        fits = index_check._fit(newest.copy(), np.array(slots[20:]), np.array(others, np.int32), first)
        assert fits == (others == named)
