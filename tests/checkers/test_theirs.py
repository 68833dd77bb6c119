"""The rows for the real RocketMQ as data: each number of the matrix is run or has a reason, and no row is made easier."""

import pytest

from scripts.fault_matrix.history import Event, history_of
from scripts.fault_matrix.rows import ROWS, Row
from scripts.fault_matrix.theirs import LEFT_OUT, THEIRS, expected_of, their_rows
from scripts.fault_matrix.theirs_run import _while_syncs_fail


def test_each_row_is_run_or_left_out_for_a_reason():
    run = {each.row.number for each in THEIRS}
    assert not run & LEFT_OUT.keys()
    assert {row.number for row in ROWS} <= run | LEFT_OUT.keys()
    assert all(LEFT_OUT.values())


def test_rows_can_be_told_apart_and_each_says_what_is_expected():
    assert len({row.key for row in their_rows(())}) == len(THEIRS)
    assert all(expected_of(each.row) for each in THEIRS)


@pytest.mark.parametrize("each", THEIRS, ids=lambda each: each.row.key)
def test_a_row_has_its_faults_as_often_as_ours_and_is_judged_by_no_more(each):
    own = [row for row in ROWS if row.number == each.row.number]
    assert each.row.rounds >= min(map(_rounds_of_a_kind, own), default=1)
    assert not own or set(each.row.oracles) <= set("".join(row.oracles for row in own))


def _rounds_of_a_kind(row: Row) -> int:
    return max(row.rounds, len(row.faults)) // len(row.faults)


def test_who_asks_for_a_row_that_is_left_out_is_told_why():
    with pytest.raises(LookupError, match="five members"):
        their_rows((7,))
    with pytest.raises(LookupError, match="no row 99"):
        their_rows((99,))


def test_what_was_acknowledged_while_syncs_failed_is_counted():
    def append(begin: int, end: int, number: int) -> tuple[Event, Event]:
        known = {"op": "append", "process": "p", "id": number, "queue": "q", "value": str(number)}
        return Event(ns=begin, kind="invoke", **known), Event(ns=end, kind="ok", offset=number, **known)

    fault = Event(
        ns=10, kind="fault", id=0, text="every sync of the master broker-a-0 says EIO, until it is started anew"
    )
    heal = Event(ns=20, kind="heal", id=0)
    told = history_of([fault, heal, *append(1, 11, 0), *append(12, 13, 1), *append(14, 25, 2)])
    assert _while_syncs_fail(told) == {"acknowledged_while_syncs_failed": 1}
    assert _while_syncs_fail(history_of(append(1, 2, 0))) == {}
