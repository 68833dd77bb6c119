"""Each way in which messages can go wrong is found in a history made by hand, and a right one is left alone."""

from hypothesis import given
from hypothesis import strategies as st

from scripts.fault_matrix.checkers.recovery import NS
from scripts.fault_matrix.checkers.sets import compare_sets, nothing_invented, nothing_lost, only_a_tail_lost
from tests.checkers.events import fault, history, read, send

TWO = [*send("p-0", 1, 2, 0), *send("p-1", 3, 4, 1)]


def test_a_right_history():
    told = history(TWO, send("p-2", 5, None, None), read(["p-0", "p-1"]))
    assert nothing_lost(told).holds
    assert nothing_invented(told).holds
    assert compare_sets(told).reordered == ()


def test_lost():
    assert [each.value for each in compare_sets(history(TWO, read(["p-0"]))).lost] == ["p-1"]
    assert not nothing_lost(history(TWO, read(["p-0"]))).holds


def test_lost_though_it_was_seen_before():
    """What counts is what is there in the end."""
    assert not nothing_lost(history(TWO, read(["p-0", "p-1"], begin=10, op="read"), read(["p-0"]))).holds


def test_an_unknown_one_may_be_there_and_may_not():
    maybe = send("p-2", 5, 6, None, outcome="unknown")
    for there in (["p-0", "p-1"], ["p-0", "p-1", "p-2"]):
        assert nothing_lost(history(TWO, maybe, read(there))).holds
        assert nothing_invented(history(TWO, maybe, read(there))).holds


def test_refused_but_there():
    refused = send("p-2", 5, 6, None, outcome="fail")
    assert nothing_lost(history(TWO, refused, read(["p-0", "p-1"]))).holds
    assert not nothing_lost(history(TWO, refused, read(["p-0", "p-1", "p-2"]))).holds


def test_invented_or_corrupt_is_wrong_at_any_time():
    for value in ("nobody", None):
        told = history(TWO, read(["p-0", value], begin=10, op="read"), read(["p-0", "p-1"]))
        assert not nothing_invented(told).holds


def test_twice():
    assert not nothing_invented(history(TWO, read(["p-0", "p-1", "p-0"]))).holds


def test_reordered():
    told = history(send("p-0", 1, 2, 1), send("p-1", 3, 4, 0), read(["p-1", "p-0"]))
    assert len(compare_sets(told).reordered) == 1


def test_nothing_acknowledged_shows_nothing():
    assert not nothing_lost(history(send("p-0", 1, None, None), read([]))).holds


def test_only_a_tail_may_be_lost_where_a_level_allows_it():
    """Before the fault at 100: the last ones may go. After it they may go too, but not one before another that stayed."""
    before = [*send("p-0", 1, 2, 0), *send("p-1", 3, 4, 1), *send("p-2", 5, 6, 2)]
    after = [*send("p-3", 110, 120, 3), *send("p-4", 130, 140, 4)]
    for there, holds in (
        (["p-0", "p-1", "p-2", "p-3", "p-4"], True),
        (["p-0", "p-3", "p-4"], True),
        (["p-0", "p-2", "p-3", "p-4"], False),
        (["p-0", "p-1", "p-2", "p-4"], False),
    ):
        assert only_a_tail_lost(history(before, fault(0, 100, 105), after, read(there))).holds is holds


def test_a_tail_is_what_was_not_flushed_yet_and_not_the_whole_log():
    old, new = send("p-0", 1, 2, 0), send("p-1", 8 * NS, 9 * NS, 1)
    told = history(old, new, fault(0, 10 * NS, 11 * NS), send("p-2", 12 * NS, 13 * NS, 0))
    assert only_a_tail_lost(history(told.events, read(["p-0", "p-2"]))).holds
    assert not only_a_tail_lost(history(told.events, read(["p-2"]))).holds


@given(st.lists(st.booleans(), min_size=1, max_size=8))
def test_a_tail_is_what_has_nothing_behind_it(kept):
    """Against the plain definition: no kept one behind a lost one."""
    sent = [event for at in range(len(kept)) for event in send(f"p-{at}", 10 * at + 1, 10 * at + 2, at)]
    told = history(sent, read([f"p-{at}" for at, there in enumerate(kept) if there]), fault(0, 900, 910))
    plain = not any(not kept[low] and kept[high] for high in range(len(kept)) for low in range(high))
    assert only_a_tail_lost(told).holds is plain
