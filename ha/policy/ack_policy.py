"""Acknowledgement policy: the number of members that must hold a message, the answer to its producer, and their text. Pure.

`inSyncReplicas` counts the master, as RocketMQ does. Sources: CommitLog.calcNeedAckNums, asyncPutMessage (RocketMQ 5.3.3),
CommitLog.submitReplicaRequest (4.9.8). Other than in 5.3.3 the rules hold in every mode, not just with a controller, and
2 is the default: a SYNC_MASTER asks one slave, as in 4.9.
"""

import time
from collections.abc import Sequence
from enum import Enum

from attrs import frozen

from twinlog.ha.policy.in_sync import Slave


class AckVerdict(Enum):
    """Decision on a message that asks to wait."""

    ANSWER = "answer"  # Stored, and answered at once: there is nobody to ask.
    WAIT = "wait"  # Stored, and answered once enough slaves hold it.
    NOT_AVAILABLE = "not available"  # Stored, but too few slaves are there to wait for: SLAVE_NOT_AVAILABLE at once.
    REFUSE = "refuse"  # Not even stored: IN_SYNC_REPLICAS_NOT_ENOUGH.


@frozen(kw_only=True)
class AckRule:
    """Configured rule. Numbers of members, the master included."""

    in_sync_replicas: int = 2
    min_in_sync_replicas: int = 1
    auto: bool = False  # enableAutoInSyncReplicas: ask for no more than are in sync.
    all_ack: bool = False  # allAckInSyncStateSet: ask all that are in sync.


@frozen
class AckDecision:
    """`need` members must hold a message, `alive` of them are in sync; both count the master."""

    need: int
    alive: int
    verdict: AckVerdict


def decide(rule: AckRule, *, eligible: int, in_sync: int) -> AckDecision:
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
        verdict = AckVerdict.REFUSE
    elif need <= 1:
        verdict = AckVerdict.ANSWER
    elif 1 + eligible < need:
        verdict = AckVerdict.NOT_AVAILABLE
    else:
        verdict = AckVerdict.WAIT
    return AckDecision(need, alive, verdict)


ONE_COPY = "one copy"  # Part of the level: the loss of one disk loses what is acknowledged now.
OF_THE_SET = "the in-sync set is "  # In each warning about it.
NUMBERS = ("no", "one", "two", "three", "four", "five")


@frozen(kw_only=True)
class MasterSide:
    """Durability of a message on the master. `write_buffers`: transientStorePoolEnable."""

    synchronous: bool  # SYNC_MASTER.
    sync_flush: bool = False
    write_buffers: bool = False


@frozen(kw_only=True)
class SlaveSide:
    """A slave that counts, and what it does before it acknowledges; False when that is not known."""

    in_sync: bool
    verified: bool = False
    flushed: bool = False


@frozen(kw_only=True)
class AckPolicy:
    """Condition of SEND_OK. Numbers of members count the master; `members` are all that are expected."""

    words: str
    level: str
    need: int
    in_sync: int
    members: int
    warnings: tuple[str, ...]


def effective_policy(
    master: MasterSide,
    rule: AckRule,
    decision: AckDecision,
    slaves: Sequence[SlaveSide],
    *,
    registered: int,
    in_sync_set: Sequence[str] = (),
) -> AckPolicy:
    """The policy in force. `slaves`: those that count; `registered`: the number that the name server knows. `in_sync_set`: names
    of those who have to hold a message where etcd keeps them; (): elsewhere.
    """
    members = 1 + max(registered, len(slaves))
    if not master.synchronous:
        decision = AckDecision(1, 1, AckVerdict.ANSWER)
    in_sync = [slave for slave in slaves if slave.in_sync]
    alive = 1 + len(in_sync)
    words = _words(master, decision, in_sync, f"({alive} of {members} in sync)", rule)
    level = _level(master, rule, decision, in_sync)
    if len(in_sync_set) == 1 and master.synchronous and decision.need == 1:
        words = f"{_place(master)} alone, as nobody else is in the in-sync set"
        level = f"{level}, {ONE_COPY}"
    return AckPolicy(
        words=words,
        level=level,
        need=decision.need,
        in_sync=alive,
        members=members,
        warnings=tuple(_warnings(master, rule, decision, alive, in_sync_set)),
    )


def _words(master: MasterSide, decision: AckDecision, in_sync: Sequence[SlaveSide], ratio: str, rule: AckRule) -> str:
    place = _place(master)
    if not master.synchronous:
        return place
    if decision.verdict is AckVerdict.REFUSE:
        return f"never: messages are refused, minInSyncReplicas={rule.min_in_sync_replicas} {ratio}"
    if decision.need == 1:
        return f"{place}, and no slave is asked {ratio}"
    needed = decision.need - 1
    slaves = f"{_number(needed)} slave{'s' if needed > 1 else ''}"
    if in_sync and all(slave.flushed for slave in in_sync):
        slaves = f"on the disk{'s' if needed > 1 else ''} of {slaves}"
    else:
        verified = in_sync and all(slave.verified for slave in in_sync)
        slaves = f"{'verified' if verified else 'held'} by {slaves}"
    lacking = ", who cannot be had now" if decision.verdict is AckVerdict.NOT_AVAILABLE else ""
    return f"{place} and {slaves}{lacking} {ratio}"


def _place(master: MasterSide) -> str:
    if master.sync_flush:
        return "on the master's disk"
    return "in the master's write buffers" if master.write_buffers else "in the master's memory"


def _number(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else str(count)


def _level(master: MasterSide, rule: AckRule, decision: AckDecision, in_sync: Sequence[SlaveSide]) -> str:
    if decision.need == 1:
        return "L1 sync flush" if master.sync_flush else "L0 async"
    flushed = bool(in_sync) and all(slave.flushed for slave in in_sync)
    level = "L3 replicas, flushed" if flushed else "L2 replicas, written"
    return f"{level}, strict" if rule.min_in_sync_replicas >= decision.need else level


def configured_warnings(rule: AckRule, *, synchronous: bool) -> list[str]:
    """Warnings about the configuration alone; logged at the start, too."""
    if not synchronous:
        if rule.min_in_sync_replicas > 1:
            return ["minInSyncReplicas has no effect on an ASYNC_MASTER: no slave is asked. Set brokerRole=SYNC_MASTER"]
        return []
    if rule.in_sync_replicas == 1 and not rule.all_ack:
        return [
            "inSyncReplicas=1: this SYNC_MASTER answers producers without asking any slave. "
            "For a copy on a slave before SEND_OK set inSyncReplicas=2, or leave it out"
        ]
    return []


def _warnings(
    master: MasterSide, rule: AckRule, decision: AckDecision, alive: int, in_sync_set: Sequence[str]
) -> list[str]:
    warnings = configured_warnings(rule, synchronous=master.synchronous)
    if not master.synchronous:
        return warnings
    if decision.verdict is AckVerdict.REFUSE:
        warnings.append(
            f"messages are refused: {alive} in sync, the master included, and "
            f"minInSyncReplicas={rule.min_in_sync_replicas}. Bring a slave back"
        )
    elif decision.need < rule.in_sync_replicas and in_sync_set:
        copies = "one copy" if decision.need == 1 else f"{decision.need} copies"
        lost = (
            "the loss of its disk loses what it acknowledges alone" if decision.need == 1 else "so many hold a message"
        )
        warnings.append(
            f"{copies} instead of inSyncReplicas={rule.in_sync_replicas}: {OF_THE_SET}{', '.join(in_sync_set)}, and "
            f"{lost}. Bring another member back"
        )
    elif decision.need < rule.in_sync_replicas:
        asked = "no slave is asked" if decision.need == 1 else f"{_number(decision.need - 1)} must hold a message"
        warnings.append(
            f"enableAutoInSyncReplicas has lowered inSyncReplicas={rule.in_sync_replicas} to {decision.need}, "
            f"with {alive} in sync: {asked}. Bring a slave back, or set minInSyncReplicas"
        )
    elif decision.verdict is AckVerdict.NOT_AVAILABLE:
        warnings.append(
            f"producers hear SLAVE_NOT_AVAILABLE: {decision.need} members must hold a message, and too few slaves "
            "can be waited for. Bring a slave back"
        )
    return warnings


@frozen(kw_only=True)
class Standing:
    """State of the slaves that could acknowledge. Offsets in bytes."""

    slaves: tuple[Slave, ...]
    registered: tuple[str, ...]  # IPs.
    needed: int  # So many slaves.
    end_offset: int  # Of the newest message that asked.
    gap_max: int
    alone_since: float  # Wall clock; since when no slave counts.

    @property
    def counted(self) -> int:
        """Number of slaves that count."""
        return sum(slave.counted for slave in self.slaves)

    @property
    def eligible(self) -> int:
        """Number of these that are not suspended."""
        return sum(slave.counted and not slave.suspended for slave in self.slaves)


def describe(standing: Standing) -> str:
    """All slaves, how far each is behind, and the next step."""
    parts = []
    if not standing.counted:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(standing.alone_since))
        parts.append(f"no slave connected since {since}")
    for slave in standing.slaves:
        behind = max(standing.end_offset - slave.ack_offset, 0)
        why = f"; {slave.reason}" if slave.reason else ""
        parts.append(f"slave {slave.address} has acknowledged {slave.ack_offset}, {behind} bytes behind{why}")
    parts.append(f"registered slaves: {', '.join(standing.registered) or 'none'}")
    return f"{'; '.join(parts)}. {_advice(standing)}"


def describe_missing(standing: Standing) -> str:
    """Reason why no slave is waited for, and the same as describe()."""
    if standing.eligible >= standing.needed:
        why = f"all slaves are {standing.gap_max} bytes or more behind"
    elif standing.counted >= standing.needed:
        why = "the slaves that are there are suspended"
    else:
        why = f"{standing.needed} needed, {standing.eligible} there to wait for"
    return f"{why}. {describe(standing)}"


def _advice(standing: Standing) -> str:
    if not standing.registered:
        return "Start a slave under this broker's brokerName, and see that it reaches the name server"
    if standing.counted < standing.needed:
        return "See that the registered slaves run, and reach this master's HA port"
    return "Look at the slaves' logs and disks, and at the network between"
