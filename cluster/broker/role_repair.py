"""A slave gives up what its master's log lacks, or all that it has. What is cut stays in twinlog/divergent.

What the master's history proves to be given up is cut as it is; everything else may have been acknowledged, and the member says
first, durably, that it is not whole.
"""

from collections.abc import Awaitable, Callable

import structlog
from attrs import frozen

from cluster.broker.role_member import RoleMember
from cluster.broker.role_messages import ReinitAsk, RewindAsk, RoleRefusedError
from cluster.broker.role_start import StartRules
from ha.epochs import compare_histories
from ha.errors import HAPeerError
from ha.peer import PeerHistory

log = structlog.get_logger(__name__)


@frozen
class _Cut:
    """Where the log is to end. `is_proven`: nothing behind it is acknowledged, or somebody accepted the loss before."""

    offset: int
    why: str
    is_proven: bool


async def rewind(member: RoleMember, rules: StartRules, ask: RewindAsk) -> None:
    """Raises RoleRefusedError, RoleFileError, StoreError, OSError, HAPeerError."""
    master = await _master_of(member, "rewind")
    end, cut = member.store.max_offset, _cut_of(member, master)
    if cut is None:
        raise RoleRefusedError(
            (f"{member.address} has nothing to give up: its log fits {master.address}'s, or is newer",)
        )
    size = end - cut.offset
    if not cut.is_proven and (ask.accept_data_loss is None or ask.accept_data_loss < size):
        line = f"bytes {cut.offset} to {end} on {member.address} would be given up; they are kept in twinlog/divergent"
        raise RoleRefusedError((cut.why, line, f"run it with --accept-data-loss {size}"))
    if ask.dry_run:
        return
    if not cut.is_proven:
        await member.doubt(cut.why)
    await _alone(member, rules, master, lambda: member.store.truncate(cut.offset, cut.why))


async def reinit(member: RoleMember, rules: StartRules, ask: ReinitAsk) -> None:
    """Raises RoleRefusedError, RoleFileError, StoreError, OSError, HAPeerError."""
    if (
        member.strangers_record is not None and not ask.dry_run
    ):  # What it promised is lost, and somebody says: forget it.
        rules.gone |= member.strangers_record.voters
        member.changed.set()
        return
    master = await _master_of(member, "reinit")
    if ask.dry_run:
        return
    why = f"begun anew with the log of {master.address}"
    await member.doubt(why)
    await _alone(member, rules, master, lambda: member.store.reset(why))


def _cut_of(member: RoleMember, master: PeerHistory) -> _Cut | None:
    found = compare_histories(member.book.entries, member.store.max_offset, master.entries, master.max_offset)
    if found.kind == "given up":
        assert found.cut_offset is not None
        by = found.given_up_by
        who = f", when {by.winner} became master" if by is not None else ""
        return _Cut(found.cut_offset, f"given up in epoch {by.epoch if by else master.id.epoch}{who}", True)
    finding = member.ha.client.finding
    if finding is not None and finding.kind == "diverged" and finding.offset is not None:
        return _Cut(finding.offset, finding.text, False)
    if found.kind == "ahead":
        why = f"the log of {master.address} ends at {master.max_offset}, and nothing proves that more was given up"
        return _Cut(master.max_offset, why, False)
    return None


async def _master_of(member: RoleMember, what: str) -> PeerHistory:
    if paused := member.paused():
        raise RoleRefusedError((paused,))
    if member.is_serving or member.master is None:
        word, why = member.words()
        raise RoleRefusedError(
            (f"only a slave that knows its master can {what}: {member.address} is {word} {why}".rstrip(),)
        )
    found = await member.calls.history(member.master.address)
    if found is None or found.id != member.master.id:
        raise HAPeerError(f"{member.master.address} is not the master of epoch {member.master.id.epoch} any more")
    return found


async def _alone(
    member: RoleMember, rules: StartRules, master: PeerHistory, repair: Callable[[], Awaitable[None]]
) -> None:
    """Cut the log while nothing is promised or followed, then follow again: what failed left the log as it was."""
    try:
        async with member.turn:
            if member.master is None or member.master.id != master.id or member.phase != "following":
                raise RoleRefusedError((f"{member.address} does not follow {master.address} any more",))
            await member.ha.leave_master()
            await repair()
            log.warning("this log was cut by a person", ends_at=member.store.max_offset, master=master.address)
    finally:
        if member.master is not None and member.master.id == master.id:
            await rules.follow(master)  # As a slave that knows nothing of it yet: leave_master() forgot it.
