"""When a slave that is far behind receives, and when it verifies."""

import pytest

from twinlog.ha.policy import deferred_plan as deferred_plan
from twinlog.ha.policy.deferred_plan import DeferredPlan, Leave, Onset, Receive, Verify

MB = 1_000_000
FULL = Receive(1000 * MB, deferred_plan.RECEIVE_SECONDS, deferred_plan.GAP_SECONDS)
LOOK = Receive(1000 * MB, deferred_plan.CHECK_SECONDS, deferred_plan.CHECK_GAP_SECONDS)


def step(plan, *, room=1000 * MB, verifiable=True):
    return plan.next(room=room, verifiable=verifiable)


def test_it_begins_when_much_came_some_times_in_a_row():
    onset, much = Onset(), deferred_plan.FULL_BYTES
    assert [onset.took(much, is_far=False) for _ in range(5)] == [False, False, False, True, False]
    onset = Onset()
    assert not any(onset.took(size, is_far=False) for size in (much, much, much, much - 1, much, much, much))


def test_it_begins_sooner_when_the_master_is_known_to_have_much_more():
    onset, much = Onset(), deferred_plan.FULL_BYTES_FAR
    assert [onset.took(much, is_far=True) for _ in range(3)] == [False, True, False]


@pytest.mark.parametrize("is_far", [False, True])
def test_of_two_that_are_about_as_fast_the_stream_goes_first_only_far_behind(is_far):
    plan = DeferredPlan()
    plan.received(500 * MB, 0.5, "more", is_far=is_far)
    plan.verified(8 * MB, 0.02)  # 400 MB/s
    plan.received(150 * MB, 0.5, "more", is_far=is_far)
    plan.verified(8 * MB, 0.02)
    assert step(plan) == (FULL if is_far else Verify())


def test_one_stretch_is_verified_for_each_long_turn_of_a_fast_stream():
    plan = DeferredPlan()
    for _ in range(5):
        assert step(plan) == FULL
        plan.received(500 * MB, 0.5, "more", is_far=True)
        assert step(plan) == Verify()
        plan.verified(8 * MB, 0.02)


def test_a_full_trail_is_received_into_as_fast_as_it_is_verified():
    plan = DeferredPlan()
    plan.received(500 * MB, 0.5, "more", is_far=True)
    assert step(plan, room=0) == Verify()
    plan.verified(8 * MB, 0.02)
    assert step(plan, room=0) == Verify()
    plan.verified(8 * MB, 0.02)
    assert step(plan, room=8 * MB) == Receive(8 * MB, FULL.seconds_max, FULL.gap_seconds)


@pytest.mark.parametrize(("size", "stream"), [(500 * MB, "gap"), (50 * MB, "more")])
def test_what_came_is_verified_for_a_while_when_the_stream_is_slow_and_then_it_is_looked_again(size, stream):
    plan = DeferredPlan()
    plan.received(500 * MB, 0.5, "more", is_far=True)
    plan.verified(8 * MB, 0.02)  # 400 MB/s
    plan.received(size, 0.5, stream, is_far=True)
    verified = 0
    while step(plan) == Verify():
        plan.verified(8 * MB, 0.02)
        verified += 1
    assert verified == pytest.approx(deferred_plan.VERIFY_SECONDS / 0.02, abs=1)
    assert step(plan) == LOOK
    plan.received(50 * MB, 0.05, "more", is_far=True)  # It is fast again.
    plan.verified(8 * MB, 0.02)
    assert step(plan) == FULL


def test_it_ends_when_the_stream_is_slow_and_nothing_is_left_to_verify():
    plan = DeferredPlan()
    plan.received(8 * MB, 0.5, "gap", is_far=True)
    assert step(plan) == Verify()
    plan.verified(8 * MB, 0.02)
    assert step(plan, verifiable=False) == Leave()


def test_more_is_received_while_there_is_only_the_beginning_of_a_record():
    plan = DeferredPlan()
    assert step(plan, verifiable=False) == FULL
    plan.received(1 * MB, 0.001, "more", is_far=True)
    assert step(plan, verifiable=False) == FULL
    assert step(plan, verifiable=False, room=0) == Leave()


def test_a_stream_that_has_ended_is_verified_to_its_end():
    plan = DeferredPlan()
    plan.received(100 * MB, 0.1, "ended", is_far=True)
    for _ in range(20):
        assert step(plan) == Verify()
        plan.verified(8 * MB, 0.02)
    assert step(plan, verifiable=False) == Leave()
