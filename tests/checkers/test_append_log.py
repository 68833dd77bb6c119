"""The checker of the append-only log against wrong histories made by hand, and against a search through all orders."""

import pytest
from hypothesis import given, settings

from scripts.fault_matrix.checkers.append_log import one_log_per_queue, wrong_in_queue
from scripts.fault_matrix.history import Append, Seen
from tests.checkers.events import early, histories, history, read, send


def wrong(*parts):
    told = history(*parts)
    return wrong_in_queue(told.appends, told.reads)


def test_one_after_the_other_and_side_by_side():
    assert not wrong(send("a", 1, 2, 0), send("b", 3, 4, 1), read(["a", "b"]))
    assert not wrong(send("a", 1, 9, 1), send("b", 2, 8, 0), read(["b", "a"]))


def test_the_order_of_two_that_do_not_overlap():
    """The first was answered for before the second began, so it comes first."""
    assert wrong(send("a", 1, 2, 1), send("b", 3, 4, 0))


def test_one_place_two_values():
    """What was acknowledged was overwritten by another master's message."""
    assert wrong(send("a", 1, 2, 0), send("b", 3, 4, 0))
    assert wrong(send("a", 1, 2, 0), send("b", 3, 4, None, outcome="unknown"), read(["b"]))


def test_one_value_at_two_places():
    assert wrong(send("a", 1, 2, 0), read(["a", "a"]))


def test_a_place_that_nobody_can_have_filled():
    assert wrong(send("a", 1, 2, 1))
    assert not wrong(send("a", 1, 2, 1), send("b", 1, None, None))
    assert wrong(send("a", 1, 2, 1), send("b", 3, None, None)), "it began after place 1 was told"


def test_read_before_it_was_sent():
    assert wrong(early(["a"], 1, 2), send("a", 3, 4, 0))
    assert not wrong(early(["a"], 1, 4), send("a", 3, 5, 0))


def test_a_message_that_was_seen_and_then_taken_back():
    """A consumer saw what a failover took back: two values at one place."""
    assert wrong(send("a", 1, None, None), early(["a"], 2, 3), send("b", 5, 6, 0), read(["b"]))


def test_refused_is_not_there():
    assert wrong(send("a", 1, 2, None, outcome="fail"), read(["a"]))


def test_an_unknown_one_arrives_late_or_never():
    maybe = send("a", 1, 2, None, outcome="unknown")
    assert not wrong(maybe, send("b", 5, 6, 0), read(["b", "a"]))
    assert not wrong(maybe, send("b", 5, 6, 0), read(["b"]))


def test_queues_are_apart_and_the_last_read_has_no_gaps():
    told = history(send("a", 1, 2, 0, queue="x"), send("b", 3, 4, 0, queue="y"), read(["a"], queue="x"))
    assert one_log_per_queue(told).holds
    assert not one_log_per_queue(history(send("a", 1, None, None), send("b", 1, 2, 1), read(["b"], first=1))).holds


# All orders, tried one after the other


def can_be(appends, reads):
    """Wing and Gong: take an operation that no other one ended before, and go on from there."""
    operations = [*[each for each in appends if each.outcome != "fail"], *reads]

    def end_of(operation):
        return float("inf") if operation.end_ns is None else operation.end_ns

    def step(left, state):
        if all(isinstance(each, Append) and each.outcome == "unknown" for each in left):
            return True
        first_end = min(end_of(operations[each]) for each in left_indices(left))
        for index in left_indices(left):
            operation = operations[index]
            if operation.begin_ns > first_end:
                continue
            rest = [each for each in left if each is not operation]
            if isinstance(operation, Seen):
                if operation.offset < len(state) and state[operation.offset] == operation.value and step(rest, state):
                    return True
            elif (operation.outcome == "unknown" or operation.offset == len(state)) and step(
                rest, [*state, operation.value]
            ):
                return True
        return False

    def left_indices(left):
        return [index for index, each in enumerate(operations) if any(each is other for other in left)]

    return step(operations, [])


@pytest.mark.slow
@settings(max_examples=1500)
@given(histories())
def test_the_same_answer_as_a_search_through_all_orders(given_history):
    appends, reads = given_history
    assert (not wrong_in_queue(appends, reads)) is can_be(appends, reads)


def test_the_search_itself_knows_right_from_wrong():
    """Else the comparison above would show nothing."""
    first, second = Append("a", "q", "p", "L2", 1, 2, "ok", "m", 0), Append("b", "q", "p", "L2", 3, 4, "ok", "m", 1)
    assert can_be([first, second], [Seen("q", 1, "b", 3, 5, True)])
    assert not can_be([first, second], [Seen("q", 0, "b", 3, 5, True)])
    assert not can_be(
        [Append("a", "q", "p", "L2", 1, 2, "ok", "m", 1), Append("b", "q", "p", "L2", 3, None, "unknown")], []
    )


def test_a_hundred_thousand_operations_take_seconds():
    """The search would never end."""
    count = 100_000
    appends = [Append(f"v{at}", "q", "p", "L2", at, at + 50, "ok", "m", at) for at in range(count)]
    reads = [Seen("q", at, f"v{at}", count + 100, count + 200, True) for at in range(count)]
    assert not wrong_in_queue(appends, reads)
    reads[500] = Seen("q", 501, "v500", count, count + 1, True)
    assert wrong_in_queue(appends, reads)
