"""When a master is suspected: by silence that was listened to, by a process that is gone, or by its own word."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.ha.election.hearing import LOOK_SECONDS_MAX, Hearing, Patience

PATIENCE = Patience(silence=5.0, restart=0.5)


def looked(hearing: Hearing, start: float, end: float, step: float = 0.25) -> Hearing:
    """A look every so often."""
    for number in range(round((end - start) / step) + 1):
        hearing.look(start + number * step)
    return hearing


def heard_at(at: float) -> Hearing:
    hearing = Hearing(PATIENCE)
    hearing.look(at)
    hearing.heard(at)
    return hearing


def test_silence_is_suspicious_after_its_time():
    hearing = looked(heard_at(100.0), 100.0, 104.75)
    assert (hearing.is_suspected, hearing.seconds_left) == (False, pytest.approx(0.25))
    assert looked(hearing, 105.0, 105.0).is_suspected


def test_whoever_starts_waits_for_the_first_word_as_for_any_other():
    """A process that was never heard is not gone: it may be about to be started, like this one."""
    hearing = Hearing(PATIENCE)
    hearing.look(100.0)
    hearing.refused()
    assert not looked(hearing, 100.0, 104.75).is_suspected
    assert looked(hearing, 105.0, 105.0).is_suspected


def test_what_was_heard_between_two_looks_counts_from_then():
    hearing = looked(heard_at(100.0), 100.0, 103.0)
    hearing.heard(103.2)
    hearing.look(103.25)
    assert hearing.silent_seconds == pytest.approx(0.05)


def test_what_was_heard_once_is_not_heard_again():
    """The last bytes of a stream keep their time: asking for it again is no new sign of life."""
    hearing = heard_at(100.0)
    for number in range(21):
        hearing.heard(100.0)
        hearing.look(100.0 + number * 0.25)
    assert hearing.is_suspected


def test_a_process_that_stood_still_takes_its_own_absence_for_nobodys():
    hearing = looked(heard_at(100.0), 100.0, 101.0)
    hearing.look(131.0)
    assert hearing.silent_seconds == pytest.approx(1.0 + LOOK_SECONDS_MAX)
    hearing.look(90.0)  # No clock of ours goes back; if one does, nothing follows from it.
    assert hearing.silent_seconds == pytest.approx(1.5)


@pytest.mark.parametrize("silent", [0.0, 3.0])
def test_a_process_that_is_gone_is_suspected_sooner(silent):
    hearing = looked(heard_at(100.0), 100.0, 100.0 + silent)
    hearing.refused()
    hearing.refused()
    looked(hearing, 100.25 + silent, 100.25 + silent)
    assert not hearing.is_suspected
    assert looked(hearing, 100.5 + silent, 100.5 + silent).is_suspected


def test_a_process_that_is_back_in_time_is_waited_for():
    hearing = looked(heard_at(100.0), 100.0, 101.0)
    hearing.refused()
    looked(hearing, 101.25, 101.25)
    hearing.accepted()
    assert not looked(hearing, 101.5, 104.75).is_suspected
    assert looked(hearing, 105.0, 105.0).is_suspected  # It says nothing.
    hearing.heard(105.1)
    assert not hearing.is_suspected


def test_a_restart_takes_no_longer_than_silence():
    hearing = Hearing(Patience(silence=1.0, restart=9.0))
    hearing.look(0.0)
    hearing.heard(0.0)
    hearing.refused()
    assert looked(hearing, 0.25, 1.0).is_suspected


def test_a_master_that_says_that_it_does_not_serve_is_suspected_at_once():
    """Its stream may go on: bytes do not take that back, only its own word does."""
    hearing = heard_at(100.0)
    hearing.gave_up("a says that it does not serve")
    hearing.heard(101.0)
    assert (hearing.is_suspected, hearing.why_given_up) == (True, "a says that it does not serve")
    hearing.serves(102.0)
    assert (hearing.is_suspected, hearing.why_given_up) == (False, "")


def test_who_is_waited_for_anew_is_no_process_that_was_gone():
    hearing = looked(heard_at(100.0), 100.0, 102.0)
    hearing.refused()
    hearing.serves(102.0)
    assert (hearing.gone_seconds, hearing.silent_seconds) == (None, 0.0)


moves = st.lists(
    st.tuples(st.floats(0.0, 40.0), st.sampled_from(("look", "heard", "refused", "accepted", "late"))), max_size=40
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(moves)
def test_silence_is_at_most_what_passed_and_what_was_listened_to(steps):
    hearing, now, last, looks = heard_at(0.0), 0.0, 0.0, 0
    for pause, what in steps:
        before = now
        now += pause
        match what:
            case "heard":
                hearing.heard(now)
                last, looks = now, 0
            case "late":  # Something in the past is noted now.
                hearing.heard(before)
            case "refused":
                hearing.refused()
            case "accepted":
                hearing.accepted()
        hearing.look(now)
        looks += 1
        assert 0.0 <= hearing.silent_seconds <= now - last + 1e-9
        assert hearing.silent_seconds <= looks * LOOK_SECONDS_MAX + 1e-9
        assert hearing.seconds_left <= PATIENCE.silence - hearing.silent_seconds
        assert math.isfinite(hearing.seconds_left)
