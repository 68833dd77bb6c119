"""Rewind and reinit of a slave: it cuts what its master's log lacks, or all that it has. What is cut stays in twinlog/divergent.

Bytes that the master's history proves to be given up are cut once the digests of all below them were compared; all others may
have been acknowledged, so the member first saves that it is not whole.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from attrs import evolve, frozen

from twinlog.cluster.broker.peers.role_messages import ReinitRequest, RewindRequest, RoleRefusedError
from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.roles.startup import StartRules
from twinlog.ha.compare.comparison import LogComparison
from twinlog.ha.compare.own_log import OwnReader
from twinlog.ha.compare.preflight import Verdict
from twinlog.ha.election.epochs import compare_histories
from twinlog.ha.errors import HAError, HAPeerError
from twinlog.ha.peer import PeerHistory
from twinlog.ha.policy.auto_resync import Cut
from twinlog.ha.slave.follow_history import given_up_cut, why_given_up

log = structlog.get_logger(__name__)


@frozen
class _Cut:
    """The new end of the log. `is_proven`, by history: nothing behind it is acknowledged, or its loss was accepted."""

    offset: int
    why: str
    is_proven: bool


async def rewind(member: Member, rules: StartRules, ask: RewindRequest) -> None:
    """Cut what the master lacks. Raises RoleRefusedError, RoleFileError, StoreError, OSError, HAPeerError."""
    master = await _master_of(member, "rewind")
    verdict = await _compared(member, master)
    end, cut = verdict.own.max_offset, _cut_of(member, master, verdict)
    if cut is None:
        raise RoleRefusedError(f"{member.address} has nothing to give up: its log fits {master.address}'s, or is newer")
    size = end - cut.offset
    if not cut.is_proven and (ask.accept_data_loss is None or ask.accept_data_loss < size):
        line = f"bytes {cut.offset} to {end} on {member.address} would be given up; they are kept in twinlog/divergent"
        raise RoleRefusedError(cut.why, line, f"run it with --accept-data-loss {size}")
    if ask.dry_run:
        return
    if not cut.is_proven:
        await member.suspect_tail(cut.why)
    async with _alone(member, rules, master):
        if member.store.max_offset != end:
            raise HAPeerError("this log got longer while it was compared: run it again")
        if cut.offset > verdict.own.min_offset:
            await member.store.truncate(cut.offset, cut.why)
        else:
            await member.store.reset(cut.why)


async def reinit(member: Member, rules: StartRules, ask: ReinitRequest) -> None:
    """Replace the whole log. Raises RoleRefusedError, RoleFileError, StoreError, OSError, HAPeerError."""
    if member.wiped_record is not None and not ask.dry_run:  # Its promises are lost; an operator gives these voters up.
        rules.gone |= member.wiped_record.voters
        member.changed.set()
        return
    master = await _master_of(member, "reinit")
    if (found := member.ha.client.finding) is not None and found.is_lost_there:
        me, lost_by = member.me().name or member.address, master.address
        raise RoleRefusedError(
            f"{me} has a record at {found.offset} that the log of its master, {lost_by}, has lost: it may be the last copy",
            f"stop {lost_by}, and then: twinlog failover --candidate {me}; after that {lost_by} can begin anew, with reinit",
        )
    if ask.dry_run:
        return
    why = f"reinit with the log of {master.address}"
    await member.suspect_tail(why)
    async with _alone(member, rules, master):
        if member.durable.state is not None:  # A lease may have marked it whole meanwhile, as it had caught up.
            await member.durable.save(evolve(member.durable.state, whole=False))
        await member.store.reset(why)


async def _compared(member: Member, master: PeerHistory) -> Verdict:
    """The bytes of both logs, whatever the histories say. Raises RoleRefusedError, HAPeerError."""
    peer = member.ha.peer_of(master.ha_address)
    if peer is None:
        raise HAPeerError(f"the logs cannot be compared: nobody knows the remoting port behind {master.ha_address}")
    try:
        return await LogComparison(OwnReader(member.store), peer).run(None)
    except HAError as error:
        raise HAPeerError(f"the logs cannot be compared, and nothing is cut: {error}") from error


def _cut_of(member: Member, master: PeerHistory, verdict: Verdict) -> _Cut | None:
    """None: there is nothing to cut. Raises RoleRefusedError where no cut is a cure."""
    end = verdict.own.max_offset
    found = compare_histories(member.durable.entries, end, master.entries, master.max_offset)
    given_up = given_up_cut(found, verdict, why_given_up(found))
    if given_up is not None:
        offset = given_up.offset if isinstance(given_up, Cut) else verdict.own.min_offset
        return _Cut(offset, given_up.why, is_proven=True)
    if verdict.finding is None or verdict.kind == "follow":
        return None
    if verdict.common_offset is None:
        raise RoleRefusedError(
            verdict.finding.text, f"no cut makes it fit; next: twinlog reinit {member.me().name or member.address}"
        )
    return _Cut(verdict.common_offset, verdict.finding.text, is_proven=False)


async def _master_of(member: Member, what: str) -> PeerHistory:
    if paused := member.paused():
        raise RoleRefusedError(paused)
    if member.is_serving or member.master is None:
        word, why = member.status()
        says = f"only a slave that knows its master can {what}: {member.address} is {word} {why}".rstrip()
        if member.durable.state is None and member.store.config.is_slave:
            next_step = "no record of a group names it yet: stop it, move its store directory away, and start it again"
            raise RoleRefusedError(says, next_step)
        raise RoleRefusedError(says)
    master = member.master
    found = await member.calls.history(master.address)
    if found is None or found.id != master.id:
        raise HAPeerError(f"{master.address} is not the master of epoch {master.id.epoch} any more")
    return found


@asynccontextmanager
async def _alone(member: Member, rules: StartRules, master: PeerHistory) -> AsyncIterator[None]:
    """Let the body cut the log while nothing is promised or followed, then follow again; a failed cut leaves it unchanged."""
    try:
        async with member.lock:
            if member.master is None or member.master.id != master.id or member.phase != "following":
                raise RoleRefusedError(f"{member.address} does not follow {master.address} any more")
            await member.ha.leave_master()
            yield
            log.warning("log truncated on request", ends_at=member.store.max_offset, peer=master.address)
    finally:
        if member.master is not None and member.master.id == master.id:
            await rules.follow(master)  # Like a new slave: leave_master() forgot the master.
