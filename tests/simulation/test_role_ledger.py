"""What the ledger of a group with changing roles calls a violation."""

import pytest

from tests.simulation.ledger import Violation
from tests.simulation.role_ledger import Line, Lines, Log, RoleLedger, RoleMessage
from twinlog.store.epoch_file import EpochId

A, B = EpochId(1, "a"), EpochId(2, "b")


def line_of(lines: Lines, epoch_id: EpochId, base: Line, start: int, data: bytes) -> Line:
    line = lines.begin(epoch_id, base, start)
    line.data.extend(data)
    return line


def message(line: Line, start: int, end: int) -> RoleMessage:
    return RoleMessage(number=1, body=b"x", phy_offset=start, end=end, queue=("T", 0, 0), life=0, line=line, by="m")


def test_a_log_that_goes_on_where_two_winners_began_is_of_one_of_them_only():
    """Two elections without a write between them: the same start, other bytes."""
    lines = Lines()
    one = line_of(lines, A, lines.lines[0], 0, b"aaaa")
    two = line_of(lines, B, lines.lines[0], 0, b"aabb")
    log = Log("s", lines)
    log.came_back(0, b"aa")
    assert log.is_of(A)
    assert log.is_of(B)
    log.appended(2, b"aa")
    assert log.is_of(A)
    assert not log.is_of(B)
    assert (log.held[one], log.held[two]) == (4, 2)
    with pytest.raises(Violation, match="nothing that a master ever wrote"):
        log.appended(4, b"bb")


def test_who_wins_without_force_has_what_was_acknowledged():
    book = RoleLedger()
    first = line_of(book.lines, A, book.lines.lines[0], 0, b"aaaa")
    book.answer(message(first, 2, 4), "ok")
    book.began(book.lines.begin(B, first, 4), may_lose="")
    with pytest.raises(Violation, match="began without 1 acknowledged messages"):
        book.began(book.lines.begin(B, first, 2), may_lose="")


def test_what_an_operator_gave_up_is_missed_by_nobody_afterwards():
    book = RoleLedger()
    first = line_of(book.lines, A, book.lines.lines[0], 0, b"aaaa")
    book.answer(message(first, 2, 4), "ok")
    forced = book.lines.begin(B, first, 2)
    assert len(book.began(forced, may_lose="forced")) == 1
    book.began(book.lines.begin(EpochId(3, "c"), forced, 2), may_lose="")
    late = message(first, 0, 4)  # Acknowledged by those whom the new master has not reached yet.
    book.answer(late, "ok")
    assert late.given_up


def test_a_line_that_begins_is_held_by_those_who_hold_what_it_begins_with():
    lines = Lines()
    first = line_of(lines, A, lines.lines[0], 0, b"aaaa")
    behind, ahead = Log("s1", lines), Log("s2", lines)
    behind.came_back(0, b"aa")
    ahead.came_back(0, b"aaaa")
    second = lines.begin(B, first, 2)
    for log in (behind, ahead):
        log.line_began(second, first)
    assert behind.is_of(B)
    assert not ahead.is_of(B)
    assert ahead.held[second] == 2
