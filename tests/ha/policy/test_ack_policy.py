"""How many members must hold a message, and what becomes of it: the whole table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.ha.policy.ack_policy import (
    AckDecision,
    AckPolicy,
    AckRule,
    AckVerdict,
    MasterSide,
    SlaveSide,
    configured_warnings,
    decide,
    effective_policy,
)

ANSWER, WAIT, NOT_AVAILABLE, REFUSE = AckVerdict.ANSWER, AckVerdict.WAIT, AckVerdict.NOT_AVAILABLE, AckVerdict.REFUSE


@pytest.mark.parametrize(
    ("rule", "eligible", "in_sync", "decision"),
    [
        # RocketMQ 4.9's meaning, and what holds unless something is said: one slave.
        ({}, 0, 0, AckDecision(2, 1, NOT_AVAILABLE)),
        ({}, 1, 0, AckDecision(2, 1, WAIT)),  # It catches up, and is near enough to be waited for.
        ({}, 1, 1, AckDecision(2, 2, WAIT)),
        ({}, 2, 2, AckDecision(2, 3, WAIT)),
        # 5.3.3's default, which has to be said here.
        ({"in_sync_replicas": 1}, 0, 0, AckDecision(1, 1, ANSWER)),
        ({"in_sync_replicas": 1}, 2, 2, AckDecision(1, 3, ANSWER)),
        ({"in_sync_replicas": 3}, 1, 1, AckDecision(3, 2, NOT_AVAILABLE)),
        ({"in_sync_replicas": 3}, 2, 1, AckDecision(3, 2, WAIT)),
        # Strict: refused before it is stored, whoever could be waited for.
        ({"min_in_sync_replicas": 2}, 0, 0, AckDecision(2, 1, REFUSE)),
        ({"min_in_sync_replicas": 2}, 1, 0, AckDecision(2, 1, REFUSE)),
        ({"min_in_sync_replicas": 2}, 1, 1, AckDecision(2, 2, WAIT)),
        ({"in_sync_replicas": 1, "min_in_sync_replicas": 2}, 0, 0, AckDecision(1, 1, REFUSE)),
        ({"in_sync_replicas": 1, "min_in_sync_replicas": 2}, 1, 1, AckDecision(1, 2, ANSWER)),
        ({"in_sync_replicas": 2, "min_in_sync_replicas": 3}, 1, 1, AckDecision(2, 2, REFUSE)),
        # Lowered to who is in sync, never below the minimum.
        ({"in_sync_replicas": 3, "auto": True}, 2, 2, AckDecision(3, 3, WAIT)),
        ({"in_sync_replicas": 3, "auto": True}, 2, 1, AckDecision(2, 2, WAIT)),
        ({"in_sync_replicas": 3, "auto": True}, 0, 0, AckDecision(1, 1, ANSWER)),
        ({"in_sync_replicas": 3, "min_in_sync_replicas": 2, "auto": True}, 1, 1, AckDecision(2, 2, WAIT)),
        ({"in_sync_replicas": 3, "min_in_sync_replicas": 2, "auto": True}, 0, 0, AckDecision(2, 1, REFUSE)),
        ({"in_sync_replicas": 2, "auto": True}, 5, 5, AckDecision(2, 6, WAIT)),  # It never raises.
        # All that are in sync.
        ({"all_ack": True}, 3, 3, AckDecision(4, 4, WAIT)),
        ({"all_ack": True}, 0, 0, AckDecision(2, 1, NOT_AVAILABLE)),
        ({"all_ack": True, "auto": True}, 0, 0, AckDecision(1, 1, ANSWER)),
        ({"all_ack": True, "in_sync_replicas": 1}, 2, 2, AckDecision(3, 3, WAIT)),
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


SYNC, ASYNC = MasterSide(synchronous=True), MasterSide(synchronous=False)
GOOD = SlaveSide(in_sync=True, verified=True)
ROCKETMQ = SlaveSide(in_sync=True)
BEHIND = SlaveSide(in_sync=False, verified=True)
FLUSHED = SlaveSide(in_sync=True, verified=True, flushed=True)


def in_etcd(master: MasterSide, *slaves: SlaveSide, names: tuple[str, ...], replicas: int = 2) -> AckPolicy:
    """Of a set that etcd keeps: no more have to hold a message than are in it."""
    decision = decide(AckRule(in_sync_replicas=min(replicas, len(names))), eligible=len(slaves), in_sync=len(slaves))
    rule = AckRule(in_sync_replicas=replicas)
    return effective_policy(master, rule, decision, slaves, registered=len(names) - 1, in_sync_set=names)


def test_the_last_copy_is_a_level_of_its_own():
    found = in_etcd(MasterSide(synchronous=True, sync_flush=True), names=("m1",))
    assert found.level == "L1 sync flush, one copy"
    assert found.words == "on the master's disk alone, as nobody else is in the in-sync set"
    assert found.warnings == (
        "one copy instead of inSyncReplicas=2: the in-sync set is m1, and the loss of its disk loses what it acknowledges alone. "
        "Bring another member back",
    )


def test_fewer_copies_than_promised_are_told():
    found = in_etcd(SYNC, GOOD, names=("m1", "m2"), replicas=3)
    assert found.level == "L2 replicas, written"
    assert found.warnings[0].startswith("2 copies instead of inSyncReplicas=3: the in-sync set is m1, m2")
    assert in_etcd(SYNC, GOOD, names=("m1", "m2")).warnings == ()


def policy(master: MasterSide, *slaves: SlaveSide, registered: int = 1, **rule: int | bool) -> AckPolicy:
    ack_rule = AckRule(**rule)
    decision = decide(ack_rule, eligible=len(slaves), in_sync=sum(slave.in_sync for slave in slaves))
    return effective_policy(master, ack_rule, decision, slaves, registered=registered)


@pytest.mark.parametrize(
    ("found", "words", "level"),
    [
        (policy(ASYNC), "in the master's memory", "L0 async"),
        (policy(MasterSide(synchronous=False, write_buffers=True)), "in the master's write buffers", "L0 async"),
        (policy(MasterSide(synchronous=False, sync_flush=True), GOOD), "on the master's disk", "L1 sync flush"),
        (
            policy(SYNC, GOOD),
            "in the master's memory and verified by one slave (2 of 2 in sync)",
            "L2 replicas, written",
        ),
        (
            policy(SYNC, ROCKETMQ),
            "in the master's memory and held by one slave (2 of 2 in sync)",
            "L2 replicas, written",
        ),
        (
            policy(SYNC, GOOD, ROCKETMQ, registered=3, in_sync_replicas=3),
            "in the master's memory and held by two slaves (3 of 4 in sync)",
            "L2 replicas, written",
        ),
        (
            policy(MasterSide(synchronous=True, sync_flush=True), FLUSHED, min_in_sync_replicas=2),
            "on the master's disk and on the disk of one slave (2 of 2 in sync)",
            "L3 replicas, flushed, strict",
        ),
        (
            policy(SYNC, FLUSHED, GOOD, registered=2),
            "in the master's memory and verified by one slave (3 of 3 in sync)",
            "L2 replicas, written",
        ),
        (
            policy(SYNC, GOOD, in_sync_replicas=1),
            "in the master's memory, and no slave is asked (2 of 2 in sync)",
            "L0 async",
        ),
        (
            policy(SYNC),
            "in the master's memory and held by one slave, who cannot be had now (1 of 2 in sync)",
            "L2 replicas, written",
        ),
        (
            policy(SYNC, BEHIND, min_in_sync_replicas=2),
            "never: messages are refused, minInSyncReplicas=2 (1 of 2 in sync)",
            "L2 replicas, written, strict",
        ),
        (
            policy(SYNC, BEHIND, auto=True),
            "in the master's memory, and no slave is asked (1 of 2 in sync)",
            "L0 async",
        ),
    ],
)
def test_words_and_level(found, words, level):
    assert (found.words, found.level) == (words, level)


@pytest.mark.parametrize(
    ("found", "warning"),
    [
        (policy(SYNC, GOOD), None),
        (policy(ASYNC), None),
        (policy(SYNC, GOOD, in_sync_replicas=1), "without asking any slave"),
        (policy(SYNC, BEHIND, auto=True), "enableAutoInSyncReplicas has lowered inSyncReplicas=2 to 1"),
        (policy(SYNC, GOOD, registered=2, in_sync_replicas=3, auto=True), "inSyncReplicas=3 to 2, with 2 in sync"),
        (policy(SYNC, min_in_sync_replicas=2), "messages are refused: 1 in sync"),
        (policy(SYNC), "SLAVE_NOT_AVAILABLE"),
        (policy(ASYNC, min_in_sync_replicas=2), "no effect on an ASYNC_MASTER"),
    ],
)
def test_synchronous_replication_never_becomes_asynchronous_in_silence(found, warning):
    assert [warning in each for each in found.warnings] == [True] if warning else found.warnings == ()


def test_what_is_said_at_the_start_is_what_was_configured():
    assert configured_warnings(AckRule(), synchronous=True) == []
    assert len(configured_warnings(AckRule(in_sync_replicas=1), synchronous=True)) == 1
    assert configured_warnings(AckRule(in_sync_replicas=1), synchronous=False) == []
