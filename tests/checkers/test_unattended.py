"""Who decided on a master, whether anybody had to, and how long it took: right runs, and each wrong one."""

import pytest
from attrs import evolve

from scripts.fault_matrix.checkers.recovery import NS
from scripts.fault_matrix.checkers.unattended import (
    ANYBODY,
    ELECTIONS,
    ELECTIONS_BEFORE,
    GOES_ON,
    NEVER_PAUSED,
    NEVER_PAUSED_ENDS,
    goes_on_in_time,
    never_paused,
    no_needless_election,
    nobody_typed,
    too_soon,
)
from scripts.fault_matrix.history import Event
from tests.checkers.events import fault, history, send
from twinlog.store.epoch_file import FIRST, EpochEntry

START = EpochEntry(epoch=1, winner="a", start_offset=0, kind="restart")
ELECTED = EpochEntry(epoch=2, winner="b", start_offset=9, kind="failover", decided_by="group", at_ms=1000)
AGAIN = evolve(ELECTED, epoch=3, winner="a", at_ms=2000)


def test_the_group_decided():
    told = nobody_typed({"a": (FIRST, START, ELECTED), "b": (FIRST, START)})
    assert told.holds
    assert told.facts == "1 changes of the master in 2 histories"


@pytest.mark.parametrize(
    "entry",
    [
        evolve(ELECTED, decided_by="person"),
        evolve(ELECTED, decided_by=""),
        evolve(ELECTED, kind="forced"),
        evolve(ELECTED, kind="switchover", decided_by="person"),
    ],
)
def test_somebody_decided_or_it_was_forced(entry):
    assert not nobody_typed({"a": (FIRST, ELECTED), "b": (FIRST, START, entry)}).holds


def test_no_history_shows_nothing():
    assert not nobody_typed({}).holds
    assert not no_needless_election(history(), {"a": (FIRST,)}).holds


def broken(number, at, before, allowed):
    """A fault that says how many elections there may be."""
    known = {"ns": at, "kind": "note", "id": number}
    notes = [Event(text=f"{ELECTIONS_BEFORE} {before}", **known), Event(text=f"{ELECTIONS} {allowed}", **known)]
    return [*fault(number, at, at + 1), *notes]


def test_elections_where_they_are_allowed():
    told = no_needless_election(history(broken(0, 1, 0, 1), broken(1, 5, 1, 0)), {"a": (START,), "b": (START, ELECTED)})
    assert told.holds, told.wrong
    assert told.facts == "1 elections; 1 of 2 faults may have none"
    assert no_needless_election(history(broken(0, 1, 0, 2)), {"a": (START, ELECTED, AGAIN)}).holds
    assert no_needless_election(history(broken(0, 1, 0, 1)), {"a": (START,)}).holds, "nobody had to"


@pytest.mark.parametrize(
    ("faults", "entries"),
    [
        ([broken(0, 1, 0, 0)], (START, ELECTED)),
        ([broken(0, 1, 0, 1)], (START, ELECTED, AGAIN)),
        ([broken(0, 1, 0, 0), broken(1, 5, 1, 1)], (START, ELECTED, AGAIN)),
        ([broken(0, 1, 1, 1)], (START, ELECTED)),
    ],
)
def test_needless_elections(faults, entries):
    """Where there may be none; one too many; in a fault that allows none though the next one does; before anything broke."""
    assert not no_needless_election(history(*faults), {"a": entries}).holds


def test_after_many_elections_the_next_one_waits():
    quick = [evolve(ELECTED, epoch=number, at_ms=1000 * number) for number in range(3)]
    after = [evolve(ELECTED, epoch=9, at_ms=7000), evolve(ELECTED, epoch=10, at_ms=17_000)]
    assert not too_soon([*quick, *after])
    assert len(too_soon([*quick, evolve(after[0], at_ms=5000), after[1]])) == 1
    assert len(too_soon([*quick, after[0], evolve(after[1], at_ms=16_000)])) == 1


def goes_on(at_s, node, *, after_s=0.0, told="old", seconds=10):
    promise = Event(ns=NS, kind="note", id=0, text=f"{GOES_ON} {seconds}", node=told)
    begin, end = round((1 + after_s) * NS), round((1 + at_s) * NS)
    return history(fault(0, NS // 2), [promise], send("p-0", begin, end, 0, node=node))


def test_another_one_acknowledges_in_time():
    told = goes_on_in_time(goes_on(9.9, "new"))
    assert told.holds
    assert told.facts == "1 times, slowest 9.90 s"
    assert goes_on_in_time(goes_on(2, "old", told=ANYBODY)).holds


def test_another_one_acknowledges_late_or_only_the_old_one_or_what_was_sent_before():
    assert not goes_on_in_time(goes_on(10.1, "new")).holds
    assert not goes_on_in_time(goes_on(2, "old")).holds
    assert not goes_on_in_time(goes_on(2, "new", after_s=-0.5)).holds


def test_where_nothing_is_promised_nothing_is_wrong():
    """A fault that leaves the master where it is: oracle J speaks of it."""
    assert goes_on_in_time(history(fault(0, 1, 2))).holds


def going_on(*ends_s):
    """No pause of more than 3 s from 1 s to 10 s; acknowledgements at these times."""
    known = {"kind": "note", "id": 0}
    notes = [Event(ns=NS, text=f"{NEVER_PAUSED} 3", **known), Event(ns=10 * NS, text=f"{NEVER_PAUSED_ENDS} 3", **known)]
    sent = [send(f"p-{at}", 0, round(at * NS), at) for at in ends_s]
    return history(fault(0, NS // 2), notes, *sent)


def test_acknowledgements_never_pause():
    told = never_paused(going_on(2, 5, 7.9))
    assert told.holds, told.wrong
    assert told.facts == "1 spans, longest pause 3.00 s"
    assert never_paused(history(fault(0, 1, 2))).holds, "where nothing is promised, nothing is wrong"


@pytest.mark.parametrize("ends_s", [(2, 5.1, 8), (4.1, 7, 9), (2, 4, 6.9), (0.5,), ()])
def test_acknowledgements_pause_in_the_middle_at_the_begin_at_the_end_or_altogether(ends_s):
    told = never_paused(going_on(*ends_s))
    assert not told.holds
    assert "3 s at most are promised" in told.wrong[0]
