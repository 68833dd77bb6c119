"""Whose turn it is: everybody's in line, and of an ordered queue one batch at a time."""

from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.client.helpers import received_message
from twinlog.cluster.client.consume.process_queue import ProcessQueue
from twinlog.cluster.client.consume.slices import Turns
from twinlog.cluster.client.route import MessageQueue


def filled(number: int, count: int) -> ProcessQueue:
    held = ProcessQueue(MessageQueue("T", "b", number), 0)
    held.put(received_message(offset, queue_id=number) for offset in range(count))
    held.next_offset = count
    return held


def taken(turns: Turns, count_max: int = 1) -> list[tuple[int, list[int]]]:
    found = []
    while (turn := turns.take(count_max)) is not None:
        found.append((turn[0].queue.queue_id, [message.queue_offset for message in turn[1]]))
    return found


def test_queues_take_turns():
    turns = Turns(False, lambda _queue: True)
    for number in range(2):
        turns.add(filled(number, 3))
    assert taken(turns, 2) == [(0, [0, 1]), (1, [0, 1]), (0, [2]), (1, [2])]


def test_of_an_ordered_queue_the_next_batch_waits():
    turns = Turns(True, lambda _queue: True)
    held = filled(0, 3)
    turns.add(held)
    assert taken(turns) == [(0, [0])]
    held.remove([received_message(0)])
    assert turns.add(held)
    assert taken(turns) == [(0, [1])]


def test_without_its_lock_or_after_a_failure_nothing_is_handed_out():
    held_locks = set()
    turns = Turns(True, held_locks.__contains__)
    held = filled(0, 1)
    assert not turns.add(held)
    held_locks.add(held.queue)
    turns.suspended.add(held)
    assert not turns.add(held)
    turns.suspended.clear()
    assert turns.add(held)
    held_locks.clear()
    assert taken(turns) == []


def test_a_queue_that_was_dropped_has_no_turn():
    turns = Turns(False, lambda _queue: True)
    held = filled(0, 1)
    turns.add(held)
    held.is_dropped = True
    assert taken(turns) == []


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 5))
def test_everything_is_handed_out_once_in_order(counts, count_max):
    turns = Turns(False, lambda _queue: True)
    for number, count in enumerate(counts):
        turns.add(filled(number, count))
    found: dict[int, list[int]] = {}
    for number, offsets in taken(turns, count_max):
        found.setdefault(number, []).extend(offsets)
    assert found == {number: list(range(count)) for number, count in enumerate(counts) if count}
