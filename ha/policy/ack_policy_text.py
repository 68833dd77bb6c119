"""The acknowledgement policy that is in force now, in words. Pure.

Levels: L0, a message is in the master's memory; L1, on its disk; L2, held by other members, too; L3, on their disks.
"Strict" is said when a message that cannot be made so safe is refused rather than stored.
"""

from collections.abc import Sequence

from attrs import frozen

from twinlog.ha.policy.ack_policy import AckRule, Decision, Verdict

NUMBERS = ("no", "one", "two", "three", "four", "five")


@frozen(kw_only=True)
class MasterSide:
    """What the master does with a message. `write_buffers`: transientStorePoolEnable."""

    synchronous: bool  # SYNC_MASTER.
    sync_flush: bool = False
    write_buffers: bool = False


@frozen(kw_only=True)
class SlaveSide:
    """A slave that counts. What it does before it acknowledges; False when that is not known."""

    in_sync: bool
    verified: bool = False
    flushed: bool = False


@frozen(kw_only=True)
class AckPolicy:
    """When a producer hears SEND_OK. Numbers of members count the master; `members` are all that are expected."""

    words: str
    level: str
    need: int
    in_sync: int
    members: int
    warnings: tuple[str, ...]


def effective_policy(
    master: MasterSide, rule: AckRule, decision: Decision, slaves: Sequence[SlaveSide], *, registered: int
) -> AckPolicy:
    """What holds now, with `slaves` those that count and `registered` the number that the name server knows."""
    members = 1 + max(registered, len(slaves))
    if not master.synchronous:
        decision = Decision(1, 1, Verdict.ANSWER)
    in_sync = [slave for slave in slaves if slave.in_sync]
    alive = 1 + len(in_sync)
    return AckPolicy(
        words=_words(master, decision, in_sync, f"({alive} of {members} in sync)", rule),
        level=_level(master, rule, decision, in_sync),
        need=decision.need,
        in_sync=alive,
        members=members,
        warnings=tuple(_warnings(master, rule, decision, alive)),
    )


def _words(master: MasterSide, decision: Decision, in_sync: Sequence[SlaveSide], ratio: str, rule: AckRule) -> str:
    if master.sync_flush:
        place = "on the master's disk"
    else:
        place = "in the master's write buffers" if master.write_buffers else "in the master's memory"
    if not master.synchronous:
        return place
    if decision.verdict is Verdict.REFUSE:
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
    lacking = ", who cannot be had now" if decision.verdict is Verdict.NOT_AVAILABLE else ""
    return f"{place} and {slaves}{lacking} {ratio}"


def _number(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else str(count)


def _level(master: MasterSide, rule: AckRule, decision: Decision, in_sync: Sequence[SlaveSide]) -> str:
    if decision.need == 1:
        return "L1 sync flush" if master.sync_flush else "L0 async"
    flushed = bool(in_sync) and all(slave.flushed for slave in in_sync)
    level = "L3 replicas, flushed" if flushed else "L2 replicas, written"
    return f"{level}, strict" if rule.min_in_sync_replicas >= decision.need else level


def configured_warnings(rule: AckRule, *, synchronous: bool) -> list[str]:
    """What is questionable whoever is in sync: to be said at the start, too."""
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


def _warnings(master: MasterSide, rule: AckRule, decision: Decision, alive: int) -> list[str]:
    warnings = configured_warnings(rule, synchronous=master.synchronous)
    if not master.synchronous:
        return warnings
    if decision.verdict is Verdict.REFUSE:
        warnings.append(
            f"messages are refused: {alive} in sync, the master included, and "
            f"minInSyncReplicas={rule.min_in_sync_replicas}. Bring a slave back"
        )
    elif decision.need < rule.in_sync_replicas:
        asked = "no slave is asked" if decision.need == 1 else f"{_number(decision.need - 1)} must hold a message"
        warnings.append(
            f"enableAutoInSyncReplicas has lowered inSyncReplicas={rule.in_sync_replicas} to {decision.need}, "
            f"with {alive} in sync: {asked}. Bring a slave back, or set minInSyncReplicas"
        )
    elif decision.verdict is Verdict.NOT_AVAILABLE:
        warnings.append(
            f"producers hear SLAVE_NOT_AVAILABLE: {decision.need} members must hold a message, and too few slaves "
            "can be waited for. Bring a slave back"
        )
    return warnings
