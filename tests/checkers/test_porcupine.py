"""The judge that nobody here wrote: sound and wrong histories, and that it says of any other what our own checker says."""

import os

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.fault_matrix.checkers.append_log import wrong_in_queue
from scripts.fault_matrix.checkers.porcupine import an_order_explains, asked, is_there, queues_of
from tests.checkers.events import early, histories, history, read, send

pytestmark = [
    pytest.mark.skipif(not is_there() and os.environ.get("CI") != "true", reason="needs go: apt install golang-go"),
    pytest.mark.slow,  # The first one builds it.
]


def wrong(*parts):
    return an_order_explains(history(*parts)).wrong


def two_queues():
    """Ten messages each, two senders side by side, who are told of their places; one does not know the end of a message that is
    there, and one of a message that is not."""
    parts = []
    for queue in "xy":
        for at in range(10):
            parts.append(send(f"{queue}-{at}", 10 * at, 10 * at + 15, at, queue=queue))
        parts.append(send(f"{queue}-10", 100, 110, None, outcome="unknown", queue=queue))
        parts.append(send(f"{queue}-11", 100, None, None, queue=queue))
        parts.append(
            read([f"{queue}-{at}" for at in range(3)], begin=45, end=47, queue=queue, op="read", process=queue)
        )
    return parts


def values(queue, *, without=(), swapped=()):
    found = [f"{queue}-{at}" for at in range(11) if at not in without]
    if swapped:
        one, other = swapped
        found[one], found[other] = found[other], found[one]
    return found


def test_a_sound_history():
    told = an_order_explains(
        history(*two_queues(), read(values("x"), queue="x"), read(values("y"), queue="y", begin=2000, end=2001))
    )
    assert told.holds, told.wrong
    assert told.facts.startswith("30 operations")  # Of each 12 appends, two reads, and an end.


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("the last one is lost", values("x", without=(9, 10))),
        ("one in the middle is lost", values("x", without=(4,))),
        ("all are lost", []),
        ("a reordered pair", values("x", swapped=(3, 4))),
        ("one that nobody sent", [*values("x"), "x-12"]),
        ("one twice", [*values("x"), "x-3"]),
        ("rubbish", [*values("x")[:10], None]),
    ],
)
def test_a_planted_fault_is_judged_wrong(what, found):
    (line,) = wrong(*two_queues(), read(found, queue="x"), read(values("y"), queue="y", begin=2000, end=2001))
    assert line.startswith("x: no order explains all of its "), what


def test_a_duplicated_place():
    """Two masters told two senders of one place."""
    (line,) = wrong(send("a", 1, 2, 0), send("b", 3, 4, 0), read(["a"]))
    assert (
        line == "q: no order explains all of its 4 operations; 1 at most, without append of [b] at 0" or "[a]" in line
    )


def test_who_was_told_first_comes_first():
    assert wrong(send("a", 1, 2, 1), send("b", 3, 4, 0))
    assert not wrong(send("a", 1, 4, 1), send("b", 3, 5, 0))


def test_what_was_refused_is_not_there():
    assert wrong(send("a", 1, 2, 0), send("b", 3, 4, None, outcome="fail"), read(["a", "b"]))
    assert not wrong(send("a", 1, 2, 0), send("b", 3, 4, None, outcome="fail"), read(["a"]))


def test_what_nobody_knows_the_end_of_may_happen_late_or_never():
    maybe = send("a", 1, 2, None, outcome="unknown")
    assert not wrong(maybe, send("b", 5, 6, 0), read(["b", "a"]))
    assert not wrong(maybe, send("b", 5, 6, 0), read(["b"]))
    assert not wrong(maybe, send("b", 5, 6, 0), early(["b"], 7, 8), early(["b", "a"], 9, 10), read(["b", "a"]))
    assert wrong(maybe, send("b", 5, 6, 0), early(["a"], 3, 4), read(["b", "a"]))
    assert wrong(early(["a"], -3, -2), maybe, send("b", 5, 6, 1), read(["a", "b"]))


def test_one_that_was_seen_and_taken_back():
    assert wrong(send("a", 1, None, None), early(["a"], 2, 3), send("b", 5, 6, 0), read(["b"]))


def test_many_of_which_nobody_knows_the_end_cost_no_time():
    """A master died: each of its senders waits in vain, and none of the messages is there."""
    parts = [send(f"p{number}-0", 5, 4005, None, outcome="unknown") for number in range(200)]
    parts += [send(f"q-{at}", 10 * at, 10 * at + 5, at) for at in range(200)]
    told = an_order_explains(
        history(*parts, read([f"q-{at}" for at in range(200)], begin=5000, end=5001)), seconds=20.0
    )
    assert told.holds, told.wrong


def test_who_cannot_be_judged_in_time_is_not_right():
    """Places that nobody names, and many that may be there: all orders of these are tried."""
    parts = [send(f"p{number}-0", 1, None, None) for number in range(40)]
    told = an_order_explains(history(*parts, send("a", 2, 3, 20), send("b", 4, 5, 20)), seconds=0.3)
    assert told.wrong == ("42 operations were not judged within 0.3 s",)


def test_nothing_shows_nothing():
    assert wrong()


@settings(max_examples=8, deadline=None)
@given(st.lists(histories(), min_size=150, max_size=150))
def test_the_same_answer_as_our_own(many):
    """Each history is a queue of its own."""
    queues, ours = {}, set()
    for number, (appends, reads) in enumerate(many):
        apart = [
            evolve(each, begin_ns=1000 * each.begin_ns - at, end_ns=1000 * each.end_ns) for at, each in enumerate(reads)
        ]
        ends = [each.end_ns if each.end_ns is None else 1000 * each.end_ns for each in appends]
        appends = [
            evolve(each, begin_ns=1000 * each.begin_ns, end_ns=end) for each, end in zip(appends, ends, strict=True)
        ]
        queues[str(number)] = queues_of(appends, apart).get("q", [])
        if wrong_in_queue(appends, apart):
            ours.add(str(number))
    told = asked(queues, 30.0)
    assert told["result"] != "Unknown"
    assert {each["queue"] for each in told["wrong"]} == ours
