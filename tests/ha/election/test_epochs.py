"""Where two logs part: a cut is proven by the histories, or there is none."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ha.group_model import Limits, walk
from twinlog.ha.election.epochs import (
    common_end,
    compare_histories,
    confirmed_in,
    effective,
    epoch_at,
    in_memory_end,
    key_of,
    last_of,
    with_entry,
)
from twinlog.store.epoch_file import ENTRIES_MAX, FIRST, EpochEntry, EpochId, decode_epochs, encode_epochs


def entry(epoch: int, winner: str, start: int, kind: str = "failover") -> EpochEntry:
    return EpochEntry(epoch=epoch, winner=winner, start_offset=start, kind=kind)  # type: ignore[arg-type]


A1 = entry(1, "A", 0)


@pytest.mark.parametrize(
    ("own", "own_max", "peer", "peer_max", "kind", "cut"),
    [
        ([FIRST], 0, [FIRST], 0, "same", None),
        ([FIRST], 70, [FIRST], 90, "same", None),
        ([A1], 100, [A1, entry(2, "B", 100)], 130, "behind", None),
        ([A1], 60, [A1, entry(2, "B", 100)], 130, "behind", None),
        ([A1], 120, [A1, entry(2, "B", 100)], 130, "given up", 100),
        ([A1], 120, [A1, entry(2, "B", 100)], 100, "given up", 100),
        # Two elections without a message between them: both begin at 100, and only one of them goes on.
        ([A1, entry(2, "B", 100)], 150, [A1, entry(3, "C", 100)], 150, "given up", 100),
        ([A1, entry(2, "B", 100)], 100, [A1, entry(3, "C", 100)], 150, "behind", None),
        # The other one began earlier, or later.
        ([A1, entry(2, "B", 100)], 150, [A1, entry(3, "C", 80)], 150, "given up", 80),
        ([A1, entry(2, "B", 80)], 150, [A1, entry(3, "C", 100)], 150, "given up", 80),
        # Nobody has shown that ours is given up.
        ([A1], 120, [A1], 100, "ahead", None),
        ([A1, entry(2, "B", 50)], 120, [A1, entry(2, "B", 50)], 100, "ahead", None),
        # A master of an older epoch, or of the same number, is none for us.
        ([A1, entry(2, "B", 100)], 100, [A1], 150, "newer", None),
        ([A1, entry(2, "B", 100)], 150, [A1], 100, "newer", None),
        ([A1, entry(5, "B", 100)], 150, [A1, entry(3, "C", 80)], 150, "newer", None),
        ([A1, entry(3, "B", 100)], 150, [A1, entry(3, "C", 80)], 150, "newer", None),
        # An older one that was elected anew, by those that knew of ours: proven.
        ([A1, entry(5, "B", 100)], 150, [A1, entry(3, "C", 80), entry(6, "C", 90)], 150, "given up", 80),
        # It lost the place where its own epoch began: nobody can say what it holds there.
        ([A1, entry(2, "B", 100)], 30, [A1, entry(2, "B", 100)], 50, "newer", None),
        ([A1], 80, [A1, entry(2, "B", 100)], 50, "ahead", None),
        # A crash between cut and list: what begins behind the end does not count.
        ([A1, entry(2, "B", 100)], 80, [A1, entry(3, "C", 80)], 150, "behind", None),
        ([FIRST], 10, [entry(7, "A", 0)], 10, "unrelated", None),
        ([], 0, [FIRST], 0, "unrelated", None),
    ],
)
def test_each_case(own, own_max, peer, peer_max, kind, cut):
    found = compare_histories(own, own_max, peer, peer_max)
    assert (found.kind, found.cut_offset) == (kind, cut)
    assert (found.given_up_by is not None) == (kind == "given up")


def test_what_gave_bytes_up_is_named():
    """The first epoch that is newer than all of ours: whoever won it had heard of ours."""
    mine = [A1, entry(5, "B", 100)]
    theirs = [A1, entry(3, "C", 80), entry(6, "C", 90), entry(7, "D", 95)]
    found = compare_histories(mine, 150, theirs, 150)
    assert (found.common, found.given_up_by) == (A1, theirs[2])


def test_a_forgotten_beginning_is_no_difference():
    """Of a long history the oldest epochs go; those that both still have decide."""
    long = (FIRST, *(entry(n, "A", n) for n in range(1, ENTRIES_MAX + 50)))
    short = decode_epochs(encode_epochs(long))
    newer = decode_epochs(encode_epochs((*long, entry(5000, "B", 9000))))
    assert compare_histories(long, 9000, short, 9000).kind == "same"
    assert compare_histories(short, 9000, newer, 9100).kind == "behind"
    found = compare_histories(long, 9500, newer, 9100)
    assert (found.kind, found.cut_offset) == ("given up", 9000)
    assert compare_histories((FIRST, entry(1, "A", 1)), 500, newer, 9100).kind == "unrelated"  # Too long away.


def test_an_epoch_whose_beginning_is_lost_does_not_count():
    """A log cut short says no more than what it still holds, and what begins just there."""
    history = (A1, entry(2, "B", 100), entry(3, "C", 150))
    assert effective(history, 99) == (A1,)
    assert effective(history, 100) == history[:2]
    assert last_of(history, 99) == A1
    assert key_of(history, 99) < key_of((A1,), 100) < key_of(history, 100) < key_of(history, 150)


def test_a_forced_election_ranks_below_another_of_its_number():
    assert key_of((A1, entry(2, "Z", 100, "forced")), 900) < key_of((A1, entry(2, "B", 100)), 100)


def test_a_winner_forgets_what_its_log_lost():
    history = (A1, entry(2, "B", 100))
    assert with_entry(history, entry(4, "C", 60)) == (A1, entry(4, "C", 60))
    assert with_entry(history, entry(4, "C", 100)) == (*history, entry(4, "C", 100))
    with pytest.raises(AssertionError):
        with_entry(history, entry(2, "C", 100))


def test_the_epoch_of_a_byte():
    """Of two that begin at one place the later one has the byte there."""
    history = (A1, entry(2, "B", 100), entry(3, "C", 100), entry(4, "A", 150))
    assert [epoch_at(history, at).epoch for at in (0, 99, 100, 149, 150, 900)] == [1, 1, 3, 3, 4, 4]
    assert epoch_at((entry(7, "B", 100),), 5).epoch == 7


def test_what_a_new_master_found_in_its_log_is_safe_with_its_own_epoch():
    """A slave that holds less than where the epoch began does not speak for it in an election."""
    history = (A1, entry(2, "B", 100))
    assert [confirmed_in(history, held, 130) for held in (0, 99, 100, 120, 1 << 60)] == [0, 0, 100, 120, 130]
    assert confirmed_in((FIRST,), 70, 130) == 70


epochs = st.tuples(st.integers(1, 3), st.sampled_from("ABC"), st.integers(0, 3))


@st.composite
def logs(draw):
    """Any list of epochs at all, with any end: no rule of elections is kept."""
    number, start, entries = 0, 0, [FIRST]
    for more, winner, further in draw(st.lists(epochs, max_size=4)):
        number, start = number + more, start + further
        entries.append(entry(number, winner, start))
    return entries, draw(st.integers(0, 14))


@given(logs(), logs())
def test_a_cut_is_where_both_lists_say_the_same(own, peer):
    """Never below what the common epochs hold, never at or behind our end; and after it we are behind."""
    found = compare_histories(*own, *peer)
    if found.kind == "given up":
        assert found.cut_offset == common_end(*own, *peer) < own[1]
        again = compare_histories(own[0], found.cut_offset, *peer)
        assert again.kind == "behind"
        assert compare_histories(effective(own[0], found.cut_offset), found.cut_offset, *peer).kind == "behind"
    if found.kind in ("same", "behind"):
        assert common_end(*own, *peer) == own[1]


@given(logs(), logs())
def test_nobody_gives_up_what_an_older_master_lacks(own, peer):
    """Of two logs at most one is cut, and not the one with the newer epoch."""
    found, other = compare_histories(*own, *peer), compare_histories(*peer, *own)
    assert not {found.kind, other.kind} <= {"given up", "behind"} or found.kind == other.kind == "same"
    if found.kind == "given up":
        assert own[0][-1].epoch < last_of(*peer).epoch


@given(logs(), st.integers(0, 14))
def test_a_log_is_what_it_is(own, peer_max):
    assert compare_histories(*own, own[0], peer_max).kind in ("same", "ahead", "newer")
    assert compare_histories(*own, *own).kind == ("same" if own[0][-1].start_offset <= own[1] else "newer")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(2, 4), st.data())
def test_random_elections_never_cut_an_acknowledged_byte(seed, size, data):
    """Long histories of elections, crashes, lost tails and members cut off; the model asserts, at every step."""
    acks_needed = data.draw(st.integers(1, size))
    crashes = 3 if acks_needed > 1 else 0
    walk(seed, size, acks_needed, Limits(writes=9, commands=7, crashes=crashes, forced=data.draw(st.booleans())))


def passed(epoch: int, winner: str, start: int, old: str) -> EpochEntry:
    return EpochEntry(epoch=epoch, winner=winner, start_offset=start, old=old, kind="switchover")


@pytest.mark.parametrize(
    ("entries", "own", "promised", "is_slave", "master", "slave"),
    [
        ([FIRST], "B", FIRST.id, True, 0, math.inf),
        ([FIRST], "A", FIRST.id, False, math.inf, 0),
        ([FIRST], "A", EpochId(1, "B"), True, math.inf, math.inf),  # Maybe its master: what comes next was not saved.
        ([FIRST, passed(1, "B", 100, "A")], "A", EpochId(1, "B"), True, 100, math.inf),
        ([FIRST, passed(1, "B", 100, "")], "A", EpochId(1, "B"), True, 100, math.inf),  # Nobody knew who it was.
        ([FIRST, passed(1, "B", 100, "A")], "B", EpochId(1, "B"), False, math.inf, 100),
        ([FIRST, passed(1, "B", 100, "A")], "C", EpochId(1, "B"), True, 0, math.inf),
        ([A1], "A", EpochId(2, "B"), True, math.inf, 0),
        ([A1, entry(2, "B", 70)], "A", EpochId(2, "B"), True, 70, math.inf),
        ([A1, entry(2, "B", 70), entry(3, "A", 90), entry(4, "C", 120)], "A", EpochId(4, "C"), True, 120, math.inf),
        ([A1, entry(2, "B", 70), entry(3, "A", 90), entry(4, "C", 120)], "C", EpochId(4, "C"), False, math.inf, 120),
    ],
)
def test_how_far_a_member_acknowledged_what_only_its_memory_had(entries, own, promised, is_slave, master, slave):
    """`master`, `slave`: where it does not flush in that role."""

    def end(*, as_master: bool, as_slave: bool) -> float:
        return in_memory_end(entries, own, promised, is_slave=is_slave, as_master=as_master, as_slave=as_slave)

    assert end(as_master=True, as_slave=True) == 0
    assert end(as_master=False, as_slave=True) == master
    assert end(as_master=True, as_slave=False) == slave
    assert end(as_master=False, as_slave=False) == math.inf
