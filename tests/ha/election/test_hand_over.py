"""When a master that cannot store hands over: the clock of its disk, and the decision."""

import math

import pytest
from attrs import evolve

from twinlog.ha.election.hand_over import AGAIN_SECONDS, Follower, HandOverFacts, StoreHealth, why_stays

FULL = "writing the commit log failed: No space left on device"
FACTS = HandOverFacts(
    mode="members",
    unable=FULL,
    paused="",
    needed=2,
    confirmed=1000,
    followers=(Follower(can_store=True, held=1000), Follower(can_store=True, held=900)),
)


def looked(*looks: tuple[float, str, float | None]) -> StoreHealth:
    health = StoreHealth()
    for look in looks:
        health.look(*look)
    return health


def every(
    start: float, end: float, refused: str = "", sync: float | None = None
) -> list[tuple[float, str, float | None]]:
    return [(start + number * 0.25, refused, sync) for number in range(round((end - start) * 4))]


def test_it_hands_over_to_followers_that_could_store():
    assert why_stays(FACTS) == ""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"unable": ""}, "can store"),
        ({"mode": "off"}, "a person decides"),
        ({"paused": "the group is paused"}, "paused"),
        ({"tried_seconds": AGAIN_SECONDS - 1}, "nobody took over"),
        ({"followers": FACTS.followers[:1]}, "only 1 of its followers could store, and 2 have to vote"),
        ({"followers": (FACTS.followers[0], Follower(can_store=False, held=1000))}, "only 1"),
        ({"confirmed": 1001}, "holds all"),
        ({"needed": 1, "followers": (FACTS.followers[1], Follower(can_store=False, held=1000))}, "holds all"),
        ({"needed": 3}, "only 2"),  # Of an ASYNC_MASTER's group all have to vote, this member too.
    ],
)
def test_otherwise_nothing_changes(changed, why):
    assert why in why_stays(evolve(FACTS, **changed))


def test_in_a_pair_the_slave_is_enough():
    assert why_stays(evolve(FACTS, needed=1, followers=FACTS.followers[:1])) == ""


def test_a_refusal_counts_from_when_it_was_seen():
    health = looked(*every(0, 5, FULL))
    assert health.why_unable(4.5) == FULL
    assert health.why_unable(5) == ""
    assert not health.is_able


def test_a_write_now_and_then_is_no_disk_in_order():
    """The store takes one message, and refuses the next one."""
    health = looked(*every(0, 2, FULL), *every(2, 3), *every(3, 6, FULL))
    assert health.why_unable(4) == FULL
    health = looked(*every(0, 6, FULL), *every(6, 9))
    assert health.is_able
    assert (health.why_unable(1), health.refused_seconds) == ("", 0)


def test_a_sync_that_hangs_is_one_that_goes_on():
    """Many that take long are slow, and none of them hangs."""
    assert "hangs for 6 s" in looked(*every(0, 6.25, sync=3.0)).why_unable(5)
    slow = [look for second in range(20) for look in every(second, second + 1, sync=float(second))]
    assert looked(*slow).why_unable(1) == ""
    health = looked(*every(0, 6, sync=3.0))
    assert not health.is_able
    for look in every(6, 9):
        health.look(*look)
    assert health.is_able


def test_the_time_that_this_process_stood_still_does_not_count():
    health = looked((0, FULL, 1.0), (0.25, FULL, 1.0), (30, FULL, 1.0))
    assert health.why_unable(1) == ""
    assert (health.refused_seconds, health.sync_seconds) == (0.75, 0.75)


def test_a_member_that_has_just_started_is_able():
    assert StoreHealth().is_able
    assert StoreHealth().why_unable(0.1) == ""
    assert FACTS.tried_seconds == math.inf
