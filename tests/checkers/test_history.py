"""Histories are written line by line by several processes, and read again for another judgement."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.fault_matrix.history import KINDS, Event, decode, encode, history_of, load
from tests.checkers.events import history, read, send

events = st.builds(
    Event,
    ns=st.integers(0, 2**62),
    kind=st.sampled_from(sorted(KINDS - {"ok"})),
    process=st.text(max_size=5),
    id=st.integers(-1, 2**40),
    value=st.none() | st.text(max_size=5),
    offset=st.none() | st.integers(0, 2**40),
    text=st.text(max_size=20),
)


@given(events)
def test_a_line_says_what_the_event_says(event):
    line = encode(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == event


@given(st.lists(events, max_size=5))
def test_a_stored_history_is_the_same_history(tmp_path_factory, given_events):
    path = tmp_path_factory.mktemp("h") / "history"
    before = history_of(given_events)
    path.write_bytes(b"".join(map(encode, before.events)))
    assert load(path) == before


def test_several_writers_are_one_history_and_a_cut_last_line_is_left_out(tmp_path):
    """A writer that was killed in the middle of a line has said everything before it."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"".join(map(encode, send("p-0", 10, 30, 0))))
    two.write_bytes(b"".join(map(encode, send("r-0", 20, None, None))) + encode(Event(ns=40, kind="note"))[:-5])
    told = load(one, two)
    assert [event.ns for event in told.events] == [10, 20, 30]
    assert [(append.value, append.outcome) for append in told.appends] == [("p-0", "ok"), ("r-0", "unknown")]


@pytest.mark.parametrize("line", [b"{}", b'{"ns": 1, "kind": "perhaps"}', b'{"ns": 1, "kind": "ok", "more": 1}', b"x"])
def test_what_is_no_event_is_refused(line):
    with pytest.raises(ValueError):
        decode(line)


def test_an_operation_that_begins_twice_is_no_history():
    with pytest.raises(ValueError, match="begins twice"):
        history(send("p-0", 1, None, None), send("p-0", 2, None, None))


def test_reads_keep_their_times_and_know_the_last_one():
    told = history(read(["a"], begin=5, end=9, op="read"), read(["a"], begin=50, end=60))
    assert [(each.begin_ns, each.end_ns, each.final) for each in told.reads] == [(5, 9, False), (50, 60, True)]
    assert len(told.final) == 1
