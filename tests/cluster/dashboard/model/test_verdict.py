"""The first line of the page."""

import pytest
from attrs import evolve

from tests.cluster.dashboard.helpers import END, MB, diverged, facts, member, silent, snapshot_of, with_member, with_set
from twinlog.cluster.dashboard.model.snapshot import DIVERGED, SILENT, ClusterSnapshot
from twinlog.cluster.dashboard.model.verdict import verdict_of
from twinlog.cluster.observe.members import STATE_ISSUES
from twinlog.cluster.observe.rules import examine


def test_all_is_well():
    verdict = verdict_of(snapshot_of(member(), member(1), member(2)))
    assert (verdict.mark, verdict.headline) == ("ok", "All data is safe: 2 of 2 slaves hold every acknowledged message")


def test_what_is_always_under_way_does_not_make_a_slave_late():
    """Under load the last bytes of a moment are not acknowledged yet: safe, but `every` would be a lie."""
    verdict = verdict_of(snapshot_of(member(), member(1, lag_bytes=3_000, lag_seconds=0.2), member(2)))
    assert (verdict.mark, verdict.headline) == ("ok", "All data is safe: 2 of 2 slaves follow within 0.2 s")


def test_a_slave_is_behind_with_the_end_of_it():
    snapshot = snapshot_of(member(), member(1), member(2, state="catching up", lag_bytes=34 * MB, lag_seconds=12.0))
    verdict = verdict_of(with_member(snapshot, "broker-a-2", catch_up_seconds=41.0))
    assert verdict.mark == "warn"
    assert verdict.headline == "One slave is behind: broker-a-2 by 34.0 MB, 12 s; caught up in about 40 s"
    assert verdict.since == pytest.approx(988.0)


def test_a_slave_that_falls_further_behind_says_so():
    snapshot = snapshot_of(member(), member(1), member(2, lag_bytes=34 * MB, lag_seconds=12.0))
    verdict = verdict_of(with_member(snapshot, "broker-a-2", is_growing=True))
    assert verdict.headline.endswith("; and it falls further behind")


def test_a_slave_that_is_silent_leaves_the_data_safe_with_the_other():
    snapshot = snapshot_of(member(), member(1), silent(2))
    snapshot = with_member(snapshot, "broker-a-2", lag_bytes=3 * MB, lag_seconds=9.0, is_last_word=True)
    verdict = verdict_of(snapshot)
    assert verdict.mark == "warn"
    assert verdict.headline == "One slave is away: broker-a-2 does not answer, at most 3.0 MB behind"
    assert "1 of 2 slaves holds every acknowledged message." in verdict.details


def test_no_slave_left_is_not_safe():
    verdict = verdict_of(snapshot_of(member(), silent(1)))
    assert verdict.mark == "bad"
    assert verdict.headline.startswith("NOT SAFE: new messages are on one member only: broker-a-1 does not answer")


def test_a_dead_master_whose_slaves_hold_everything():
    verdict = verdict_of(snapshot_of(silent(0), member(1), member(2)))
    assert verdict.mark == "bad"
    assert verdict.headline == "NO MASTER: broker-a takes no messages: broker-a-0 does not answer"
    assert "nothing is lost so far" in verdict.details[0]


def test_a_dead_master_that_acknowledged_alone_is_not_safe():
    verdict = verdict_of(snapshot_of(silent(0), member(1), acks_needed=1))
    assert verdict.headline.startswith("NOT SAFE: broker-a has no master")


def test_a_slave_that_has_parted():
    slave, ranges = diverged(2, END - 4096)
    snapshot = with_member(snapshot_of(member(), member(1), slave), "broker-a-2", diverged=ranges)
    verdict = verdict_of(snapshot)
    assert verdict.mark == "bad"
    assert "broker-a-2 holds other bytes than its master from byte 39\u202f995\u202f904 on" in verdict.headline
    assert verdict.headline.startswith("One slave is no copy")


def test_the_only_slave_has_parted():
    slave, ranges = diverged(1, 0)
    verdict = verdict_of(with_member(snapshot_of(member(), slave), "broker-a-1", diverged=ranges))
    assert verdict.headline.startswith("NOT SAFE: broker-a-1 holds other bytes")


def test_two_masters():
    verdict = verdict_of(snapshot_of(member(), member(1, role="master", state="serving")))
    assert verdict.headline == "NOT SAFE: broker-a has 2 masters, broker-a-0 and broker-a-1"


def test_no_slave_at_all_is_one_copy():
    assert verdict_of(snapshot_of(member())).headline == "One copy only: broker-a has no slave"


def test_nobody_could_be_asked():
    verdict = verdict_of(evolve(snapshot_of(member(), member(1)), problem="no name server answers"))
    assert (verdict.mark, verdict.headline) == ("bad", "Not known: no name server answers")


def test_an_empty_cluster():
    assert verdict_of(ClusterSnapshot(at=0.0)).headline.startswith("Nobody here yet")


def test_a_slave_of_rocketmq_is_not_called_safe():
    verdict = verdict_of(snapshot_of(member(), member(1, state="answering", confirmed_offset=None)))
    assert verdict.mark == "none"


def test_the_worst_of_several_groups_speaks():
    fine = snapshot_of(member(), member(1)).groups[0]
    late = snapshot_of(member(), member(1, lag_bytes=20 * MB, lag_seconds=3.0)).groups[0]
    verdict = verdict_of(ClusterSnapshot(at=1000.0, groups=(fine, evolve(late, name="broker-b"))))
    assert verdict.headline.startswith("One slave is behind")
    assert "1 of 2 groups is fine." in verdict.details
    both = verdict_of(ClusterSnapshot(at=1000.0, groups=(fine, evolve(fine, name="broker-b"))))
    assert both.headline == "All data is safe: 2 of 2 slaves of 2 groups hold every acknowledged message"


def test_a_master_that_waits_for_nobody_is_not_called_safe():
    """What it acknowledged a moment ago may be nowhere else."""
    under_way = member(1, lag_bytes=3_000, lag_seconds=0.1)
    verdict = verdict_of(snapshot_of(member(), under_way, acks_needed=1))
    assert verdict.mark == "none"
    assert (
        verdict.headline == "Copied within 0.1 s; the newest 3.0 kB are on the master only: SEND_OK waits for no slave"
    )
    assert verdict_of(snapshot_of(member(), member(1), acks_needed=1)).mark == "ok"


STATES = [*STATE_ISSUES, "serving", "streaming", "catching up", "answering", "preflight", "holding", "unknown", ""]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_whatever_state_a_member_is_in(state, number):
    """There is one line for it, and `safe` only where two slaves follow a master that serves."""
    members = [member(), member(1), member(2)]
    members[number] = evolve(members[number], state=state, lag_bytes=None if number == 0 else 5, lag_seconds=None)
    verdict = verdict_of(snapshot_of(*members))
    assert verdict.headline
    if verdict.mark == "ok":
        assert state in (("streaming", "catching up") if number else ("serving",))
    if state in (*DIVERGED, *SILENT, "failed"):
        assert verdict.mark in ("bad", "warn")


def test_who_is_behind_is_told_also_when_another_is_away():
    snapshot = snapshot_of(member(), member(1), member(2, lag_bytes=34 * MB, lag_seconds=12.0), silent(3))
    verdict = verdict_of(snapshot)
    assert verdict.headline.startswith("One slave is away: broker-a-3")
    assert any(each.startswith("One slave is behind: broker-a-2 by 34.0 MB") for each in verdict.details)


@pytest.mark.parametrize("acks_needed", [1, 2, None])
def test_a_slave_whose_lag_is_not_known_is_not_called_safe(acks_needed):
    """It may be anywhere: `within 0 B` would be invented."""
    verdict = verdict_of(snapshot_of(member(), member(1, lag_bytes=None, lag_seconds=None), acks_needed=acks_needed))
    assert verdict.mark == "none"
    assert "how far behind is not known" in verdict.headline


def test_a_master_that_does_not_tell_for_whom_it_waits_is_not_called_safe():
    """One of RocketMQ's, with slaves that are ours."""
    verdict = verdict_of(snapshot_of(member(), member(1, lag_bytes=3_000, lag_seconds=0.1), acks_needed=None))
    assert (verdict.mark, verdict.headline.startswith("Copied within")) == ("none", True)


def test_what_others_hold_beside_one_that_is_away_is_not_made_up():
    """A slave that lags may lack what only the one that is away has confirmed."""
    verdict = verdict_of(snapshot_of(member(), member(1, lag_bytes=3_000, lag_seconds=0.1), silent(2)))
    assert verdict.details[0] == "1 of 2 slaves follows, the last within 0.1 s."


def test_with_two_slaves_a_message_may_be_on_either():
    verdict = verdict_of(snapshot_of(silent(0), member(1), member(2)))
    assert verdict.details[0].startswith("Every acknowledged message is on at least one of broker-a-1 and broker-a-2")


def test_a_group_of_which_nobody_is_left_is_not_forgotten_beside_one_that_is_well():
    snapshot = evolve(snapshot_of(member(), member(1)), gone=("broker-b-0", "broker-b-1"))
    verdict = verdict_of(snapshot)
    assert (verdict.mark, verdict.headline) == (
        "bad",
        "NOT RUNNING: nobody is registered any more of the group of broker-b-0, broker-b-1",
    )
    assert "1 of 2 groups is fine." in verdict.details


def test_damage_is_not_safe():
    """By what a member says of itself in each look."""
    snapshot = snapshot_of(member(), member(1), member(2))
    found = examine(facts(member(), member(1), member(2), status={"broker-a-0": {"damagedBytes": 17}}))
    verdict = verdict_of(evolve(snapshot, findings=found))
    assert (verdict.mark, "17 damaged bytes" in verdict.headline) == ("bad", True)


def test_one_copy_is_not_safe_whatever_the_slaves_states_look_like():
    """A slave that streams and is not in the set yet may lack what was acknowledged."""
    for slave in (silent(1), member(1), member(1, state="catching up", lag_bytes=34 * MB, lag_seconds=12.0)):
        verdict = verdict_of(with_set(snapshot_of(member(), slave), 0, of=2))
        assert verdict.mark == "bad"
        assert verdict.headline == "NOT SAFE: one copy only: what broker-a acknowledges is on broker-a-0 alone"
        assert verdict.since == 900.0
        assert "The loss of that disk loses it. Do: bring broker-a-1 back." in verdict.details


def test_a_dead_master_that_was_the_last_copy():
    verdict = verdict_of(with_set(snapshot_of(silent(0), member(1)), 0, of=2))
    assert verdict.headline.startswith("NOT SAFE: broker-a has no master")
    assert verdict.details[0] == "Its newest messages are on broker-a-0 only: bring that member back."


def test_a_dead_master_whose_messages_are_on_the_members_in_sync():
    verdict = verdict_of(with_set(snapshot_of(silent(0), member(1), member(2)), 0, 2))
    assert "is on broker-a-2: nothing is lost" in verdict.details[0], "broker-a-1 may lack some"


def test_etcd_away_is_a_warning_and_nothing_worse():
    verdict = verdict_of(with_set(snapshot_of(member(), member(1), member(2)), 0, 1, 2, etcd_why="no connection"))
    assert verdict.mark == "warn"
    assert verdict.headline.startswith("broker-a goes on, and no member can rely on etcd since")
    assert verdict_of(with_set(snapshot_of(member(), member(1), member(2)), 0, 1, 2)).mark == "ok"
