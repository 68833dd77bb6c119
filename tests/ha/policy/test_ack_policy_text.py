"""The acknowledgement policy that is in force, as people read it."""

import pytest

from twinlog.ha.policy.ack_policy import AckRule, decide
from twinlog.ha.policy.ack_policy_text import AckPolicy, MasterSide, SlaveSide, configured_warnings, effective_policy

SYNC, ASYNC = MasterSide(synchronous=True), MasterSide(synchronous=False)
GOOD = SlaveSide(in_sync=True, verified=True)
ROCKETMQ = SlaveSide(in_sync=True)
BEHIND = SlaveSide(in_sync=False, verified=True)
FLUSHED = SlaveSide(in_sync=True, verified=True, flushed=True)


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
