"""What the ledger calls a violation: it is what all members' words are compared with."""

import pytest

from tests.helpers import log_bytes, open_store, put
from tests.simulation.ledger import History, Holder, Ledger, Message, Violation, is_undetectable


def history(*lives: tuple[int, bytes]) -> History:
    """Each life goes on with bytes from an offset."""
    found = History()
    for offset, data in lives:
        if offset < len(found.now):
            found.came_back(0, bytes(found.now[:offset]))
        found.wrote(offset, data)
    return found


def test_a_slave_may_hold_the_beginning_of_any_life_but_no_mixture():
    past = history((0, b"aaaa"), (2, b"bbbb"))
    assert past.lives == [b"aaaa", b"aabbbb"]
    slave = Holder("s", past)
    slave.came_back(0, b"aaaa")
    assert not slave.is_of_present
    with pytest.raises(Violation, match="nothing that a master ever wrote"):
        slave.appended(4, b"bb", flipped=False)


def test_what_a_slave_held_counts_up_to_where_its_master_came_back():
    past = history((0, b"aaaa"))
    slave = Holder("s", past)
    slave.came_back(0, b"")
    slave.appended(0, b"aaaa", flipped=False)
    slave.flushed(3)
    assert (slave.held, slave.durable) == (4, 3)
    slave.new_life(past.came_back(0, b"aa"))
    assert (slave.held, slave.durable, slave.is_of_present) == (2, 2, False)


def test_a_slave_appends_at_its_end_only():
    slave = Holder("s", history((0, b"aaaa")))
    slave.came_back(0, b"a")
    with pytest.raises(Violation, match="its log ended at 1"):
        slave.appended(2, b"a", flipped=False)


def test_what_a_master_calls_damaged_is_taken_for_what_it_was():
    past = history((0, b"abcdef"))
    assert past.came_back(0, b"ab\0\0ef", [(2, 4)]) == 6
    assert past.lives == [b"abcdef"]
    assert past.came_back(0, b"ab\0\0ef") == 2


def test_two_answers_for_one_message_are_one_too_many():
    ledger = Ledger()
    message = Message(1, b"x", 0, 10, ("T", 0, 0), 0)
    ledger.messages.append(message)
    ledger.answer(message, "FLUSH_SLAVE_TIMEOUT")
    with pytest.raises(Violation, match="twice"):
        ledger.answer(message, "ok")


def test_a_flipped_bit_is_excused_only_where_no_checksum_covers_it(tmp_path):
    store = open_store(tmp_path)
    put(store, b"body")
    sent = log_bytes(store)
    excused = {at for at in range(len(sent)) if is_undetectable(sent, flip(sent, at), 0)}
    head = {*range(12, 28), *range(36, 84)}
    assert head <= excused
    assert not excused & {*range(12), *range(28, 36), *range(84, 92)}


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
