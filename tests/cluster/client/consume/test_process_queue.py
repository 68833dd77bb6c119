"""Messages that a consumer holds: the offset that it may commit, and its limits."""

from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.client.helpers import received_message
from twinlog.cluster.client.consume.process_queue import FlowLimits, ProcessQueue, Turns
from twinlog.cluster.remoting.route import MessageQueue

QUEUE = MessageQueue("T", "b", 0)


def held(count: int, *, start: int = 0, body: bytes = b"12345") -> ProcessQueue:
    queue = ProcessQueue(QUEUE, start)
    queue.put(received_message(start + number, body=body) for number in range(count))
    queue.next_offset = start + count
    return queue


def offsets(messages) -> list[int]:
    return [message.queue_offset for message in messages]


def test_the_commit_offset_stays_before_what_is_not_done():
    queue = held(5)
    first, second = queue.take(2), queue.take(2)
    queue.remove(second)
    assert queue.commit_offset == 0
    queue.remove(first)
    assert queue.commit_offset == 4
    queue.remove(queue.take(9))
    assert (queue.commit_offset, queue.count, queue.size) == (5, 0, 0)


def test_what_is_given_back_comes_first_again():
    queue = held(4)
    taken = queue.take(2)
    queue.give_back([message.again() for message in taken])
    again = queue.take(3)
    assert offsets(again) == [0, 1, 2]
    assert [message.reconsume_times for message in again] == [1, 1, 0]
    assert not queue.is_running or queue.commit_offset == 0


def test_what_is_given_back_late_is_in_order_with_what_waits():
    """Batches of an unordered consumer fail in any order; the commit offset passes none of them."""
    queue = held(3)
    batches = [queue.take(1) for _ in range(3)]
    for batch in (batches[0], batches[2], batches[1]):
        queue.give_back(batch)
    assert queue.commit_offset == 0
    assert offsets(queue.take(3)) == [0, 1, 2]


def test_each_limit_stops_the_reader():
    limits = FlowLimits(messages_max=3, size_max=100, span_max=10)
    assert [held(count).is_full(limits) for count in (2, 3)] == [False, True]
    assert held(1, body=bytes(100)).is_full(limits)
    queue = held(1)
    queue.next_offset = 12
    assert queue.is_full(limits)
    assert not queue.is_full(limits, ordered=True)


def test_nothing_held_is_never_too_far():
    """A filter may exclude many messages in a row."""
    queue = ProcessQueue(QUEUE, 0)
    queue.next_offset = 1_000_000
    assert not queue.is_full(FlowLimits())
    assert queue.commit_offset == 1_000_000


@given(st.lists(st.tuples(st.sampled_from(["put", "take", "done", "back"]), st.integers(1, 5)), max_size=60))
def test_nothing_is_skipped_and_nothing_stays_behind(steps):
    """In any order of completion, the commit offset is the first message that is not done, and never falls."""
    queue, next_offset, taken, done, committed = ProcessQueue(QUEUE, 0), 0, [], set(), 0
    for step, count in steps:
        if step == "put":
            queue.put(received_message(next_offset + number) for number in range(count))
            next_offset += count
            queue.next_offset = next_offset
        elif step == "take":
            messages = queue.take(count)
            assert offsets(messages) == sorted(offsets(messages))
            taken += [[message] for message in messages]
        elif taken and step == "done":
            messages = taken.pop(count % len(taken))
            queue.remove(messages)
            done |= set(offsets(messages))
        elif taken:
            queue.give_back(taken.pop(count % len(taken)))
        first_open = next((number for number in range(next_offset) if number not in done), next_offset)
        assert queue.commit_offset == first_open >= committed
        assert queue.count == next_offset - len(done)
        committed = first_open


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
