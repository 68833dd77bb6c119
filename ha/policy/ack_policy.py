"""What an acknowledgement means: how many members must hold a message, and what a producer is told. Pure.

`inSyncReplicas` counts the master, as RocketMQ does. Sources: CommitLog.calcNeedAckNums, asyncPutMessage (RocketMQ 5.3.3),
CommitLog.submitReplicaRequest (4.9.8). Other than in 5.3.3 the rules hold in every mode, not just with a controller, and
2 is the default: a SYNC_MASTER asks one slave, as in 4.9.
"""

from enum import Enum

from attrs import frozen


class Verdict(Enum):
    """What becomes of a message that asks to wait."""

    ANSWER = "answer"  # Stored, and answered at once: there is nobody to ask.
    WAIT = "wait"  # Stored, and answered once enough slaves hold it.
    NOT_AVAILABLE = "not available"  # Stored, but too few slaves are there to wait for: SLAVE_NOT_AVAILABLE at once.
    REFUSE = "refuse"  # Not even stored: IN_SYNC_REPLICAS_NOT_ENOUGH.


@frozen(kw_only=True)
class AckRule:
    """What is configured. Numbers of members, the master included."""

    in_sync_replicas: int = 2
    min_in_sync_replicas: int = 1
    auto: bool = False  # enableAutoInSyncReplicas: ask for no more than are in sync.
    all_ack: bool = False  # allAckInSyncStateSet: ask all that are in sync.


@frozen
class Decision:
    """`need` members must hold a message, `alive` of them are in sync; both count the master."""

    need: int
    alive: int
    verdict: Verdict


def decide(rule: AckRule, *, eligible: int, in_sync: int) -> Decision:
    """The one decision for a message: `eligible` slaves can be waited for, `in_sync` of them are in sync.

    Fewer in sync than minInSyncReplicas is refused whatever is needed; `need` never falls below minInSyncReplicas.
    """
    alive = 1 + in_sync
    need = rule.in_sync_replicas
    if rule.auto:
        need = max(min(need, alive), rule.min_in_sync_replicas)
    if rule.all_ack:
        need = max(need, alive)
    if alive < rule.min_in_sync_replicas:
        verdict = Verdict.REFUSE
    elif need <= 1:
        verdict = Verdict.ANSWER
    elif 1 + eligible < need:
        verdict = Verdict.NOT_AVAILABLE
    else:
        verdict = Verdict.WAIT
    return Decision(need, alive, verdict)
