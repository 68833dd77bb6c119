"""How many members must hold a message, and what becomes of it: the whole table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.ha.policy.ack_policy import AckRule, Decision, Verdict, decide

ANSWER, WAIT, NOT_AVAILABLE, REFUSE = Verdict.ANSWER, Verdict.WAIT, Verdict.NOT_AVAILABLE, Verdict.REFUSE


@pytest.mark.parametrize(
    ("rule", "eligible", "in_sync", "decision"),
    [
        # RocketMQ 4.9's meaning, and what holds unless something is said: one slave.
        ({}, 0, 0, Decision(2, 1, NOT_AVAILABLE)),
        ({}, 1, 0, Decision(2, 1, WAIT)),  # It catches up, and is near enough to be waited for.
        ({}, 1, 1, Decision(2, 2, WAIT)),
        ({}, 2, 2, Decision(2, 3, WAIT)),
        # 5.3.3's default, which has to be said here.
        ({"in_sync_replicas": 1}, 0, 0, Decision(1, 1, ANSWER)),
        ({"in_sync_replicas": 1}, 2, 2, Decision(1, 3, ANSWER)),
        ({"in_sync_replicas": 3}, 1, 1, Decision(3, 2, NOT_AVAILABLE)),
        ({"in_sync_replicas": 3}, 2, 1, Decision(3, 2, WAIT)),
        # Strict: refused before it is stored, whoever could be waited for.
        ({"min_in_sync_replicas": 2}, 0, 0, Decision(2, 1, REFUSE)),
        ({"min_in_sync_replicas": 2}, 1, 0, Decision(2, 1, REFUSE)),
        ({"min_in_sync_replicas": 2}, 1, 1, Decision(2, 2, WAIT)),
        ({"in_sync_replicas": 1, "min_in_sync_replicas": 2}, 0, 0, Decision(1, 1, REFUSE)),
        ({"in_sync_replicas": 1, "min_in_sync_replicas": 2}, 1, 1, Decision(1, 2, ANSWER)),
        ({"in_sync_replicas": 2, "min_in_sync_replicas": 3}, 1, 1, Decision(2, 2, REFUSE)),
        # Lowered to who is in sync, never below the minimum.
        ({"in_sync_replicas": 3, "auto": True}, 2, 2, Decision(3, 3, WAIT)),
        ({"in_sync_replicas": 3, "auto": True}, 2, 1, Decision(2, 2, WAIT)),
        ({"in_sync_replicas": 3, "auto": True}, 0, 0, Decision(1, 1, ANSWER)),
        ({"in_sync_replicas": 3, "min_in_sync_replicas": 2, "auto": True}, 1, 1, Decision(2, 2, WAIT)),
        ({"in_sync_replicas": 3, "min_in_sync_replicas": 2, "auto": True}, 0, 0, Decision(2, 1, REFUSE)),
        ({"in_sync_replicas": 2, "auto": True}, 5, 5, Decision(2, 6, WAIT)),  # It never raises.
        # All that are in sync.
        ({"all_ack": True}, 3, 3, Decision(4, 4, WAIT)),
        ({"all_ack": True}, 0, 0, Decision(2, 1, NOT_AVAILABLE)),
        ({"all_ack": True, "auto": True}, 0, 0, Decision(1, 1, ANSWER)),
        ({"all_ack": True, "in_sync_replicas": 1}, 2, 2, Decision(3, 3, WAIT)),
    ],
)
def test_table(rule, eligible, in_sync, decision):
    assert decide(AckRule(**rule), eligible=eligible, in_sync=in_sync) == decision


RULES = st.builds(
    AckRule,
    in_sync_replicas=st.integers(1, 6),
    min_in_sync_replicas=st.integers(1, 6),
    auto=st.booleans(),
    all_ack=st.booleans(),
)


@given(rule=RULES, in_sync=st.integers(0, 6), more=st.integers(0, 3))
def test_what_holds_for_every_rule(rule, in_sync, more):
    decision = decide(rule, eligible=in_sync + more, in_sync=in_sync)
    assert decision.alive == 1 + in_sync
    assert (decision.verdict is REFUSE) == (decision.alive < rule.min_in_sync_replicas)
    assert decision.need >= rule.in_sync_replicas or rule.auto, "it is lowered by enableAutoInSyncReplicas only"
    assert decision.need >= min(rule.in_sync_replicas, rule.min_in_sync_replicas)
    if decision.verdict is ANSWER:
        assert decision.need == 1
    if decision.verdict is WAIT:
        assert 2 <= decision.need <= 1 + in_sync + more
