"""A member that does not fit its master: cut its log to what fits (rewind), or let it begin anew (reinit).

The member carries both out, even if the caller goes away. The bytes that it puts aside stay in its store, in twinlog/divergent.
"""

from typing import Literal

import anyio
from attrs import field, frozen

from twinlog.cluster.admin.roles import (
    POLL_SECONDS,
    SILENT_SECONDS_MAX,
    RoleError,
    RoleGroup,
    RoleRefusedError,
    RoleTimeoutError,
    call,
    choose_group,
    find_in,
    log_history,
)
from twinlog.cluster.broker.peers.role_messages import ReinitRequest, RewindRequest
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.observe.members import MemberFacts
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.member_status import NO_STATUS, DivergentStatus, MemberStatus
from twinlog.ha.election.epochs import compare_histories
from twinlog.store.util.progress import Progress, no_progress

NEAR_BYTES = 1 << 20
FILLING = ("preflight", "connecting", "streaming", "catching up")  # In these a log goes on by itself.
ORDER_SECONDS_MAX = 60.0  # A large log is moved and a cut made durable before the answer.


@frozen(kw_only=True)
class RepairPlan:
    """Bytes that a repair puts aside, by the current answers of member and master."""

    verb: Literal["rewind", "reinit"]
    member: str
    first_offset: int | None = field(metadata={"doc": "of the bytes that are put aside; null: there are none"})
    end_offset: int = field(metadata={"doc": "of its log"})
    why: str


@frozen(kw_only=True)
class KeptPart:
    """Bytes that were cut from a log, and the path where they are kept."""

    path: str
    first_offset: int
    size: int
    why: str


@frozen(kw_only=True)
class RepairResult:
    """The member follows again."""

    member: str
    written_offset: int
    kept: tuple[KeptPart, ...]


@frozen(kw_only=True)
class PreparedRepair:
    """A repair for a member to carry out. `accept_data_loss`: bytes that may go without proof that they were given up."""

    group: RoleGroup
    facts: MemberFacts
    plan: RepairPlan
    accept_data_loss: int | None = None


async def _planned_rewind(api: ClientApi, group: RoleGroup, facts: MemberFacts) -> RepairPlan:
    """The plan that the member will find, if nothing changes meanwhile; the member itself decides what is cut."""
    if group.master is None:
        raise RoleRefusedError(
            f"{group.name} has no master that a log could be cut to.", "See more with: twinlog doctor"
        )
    name, master = facts.member.name, group.master.member
    if facts.member == master:
        raise RoleRefusedError(
            f"{name} is the master: only a slave's log is cut, to fit its master's.",
            "See who is what with: twinlog list",
        )
    own, other = await log_history(api, facts.member.address), await log_history(api, master.address)
    if own is None or other is None:
        silent = name if own is None else master.name
        raise RoleError(f"{silent} does not report its history.", "See more with: twinlog explain")
    finding = facts.link.finding
    found = compare_histories(own.entries, own.max_offset, other.entries, other.max_offset)
    first, why = None, f"it fits the log of {master.name}"
    if finding is not None and finding.kind == "diverged":  # Bytes that differ, whatever the histories say.
        first, why = finding.offset, finding.text
    elif found.cut_offset is not None and found.given_up_by is not None:
        winner = group.named([found.given_up_by.winner])
        first, why = found.cut_offset, f"given up in epoch {found.given_up_by.epoch}, when {winner} became master"
    elif found.kind == "ahead" and own.max_offset > other.max_offset:
        first, why = other.max_offset, f"the log of {master.name} ends there; nothing proves that more was given up"
    return RepairPlan(verb="rewind", member=name, first_offset=first, end_offset=own.max_offset, why=why)


async def _order(api: ClientApi, prepared: PreparedRepair, *, dry_run: bool) -> None:
    address = prepared.facts.member.address
    ask: RewindRequest | ReinitRequest = ReinitRequest(dry_run=dry_run)
    if prepared.plan.verb == "rewind":
        ask = RewindRequest(accept_data_loss=prepared.accept_data_loss, dry_run=dry_run)
    await call(api, prepared.group, address, prepared.plan.verb, ask, timeout_seconds=ORDER_SECONDS_MAX)


async def _master_offset(api: ClientApi, status: MemberStatus) -> int | None:
    """End of its master's log; None: it has no master yet."""
    address = status.master.address if status.master is not None else None
    master = await api.member_status(address) if address else None
    return None if master is None else master.max_offset


def _has_caught_up(status: MemberStatus, total: int | None) -> bool:
    """True if it follows, lacks nothing that it acknowledged, and is within NEAR_BYTES: under load no lag stays 0."""
    return (
        status.state == "streaming"
        and status.whole is not False
        and total is not None
        and total - (status.max_offset or 0) <= NEAR_BYTES
    )


def _kept(cut: DivergentStatus, group: RoleGroup) -> KeptPart:
    return KeptPart(path=cut.path, first_offset=cut.first, size=cut.size, why=group.in_names(cut.why))


@frozen
class RepairAdmin:
    """The repairs of members."""

    api: ClientApi

    async def prepare_rewind(self, member: str, accept_data_loss: int | None) -> PreparedRepair:
        """Plan a cut of its log. Raises RoleRefusedError, also when it is not proven that the bytes may go."""
        group = await choose_group(self.api, None, member)
        facts = find_in(group, member)
        plan = await _planned_rewind(self.api, group, facts)
        prepared = PreparedRepair(group=group, facts=facts, plan=plan, accept_data_loss=accept_data_loss)
        if prepared.plan.first_offset is not None:
            await _order(self.api, prepared, dry_run=True)
        return prepared

    async def prepare_reinit(self, member: str) -> PreparedRepair:
        """Plan a new start with an empty log. Raises RoleRefusedError."""
        group = await choose_group(self.api, None, member)
        facts = find_in(group, member)
        found = facts.member
        is_under_way = facts.status.whole is False and found.state in FILLING
        plan = RepairPlan(
            verb="reinit",
            member=found.name,
            first_offset=None if is_under_way else found.min_offset or 0,
            end_offset=found.written_offset or 0,
            why="it is being filled already" if is_under_way else "it copies its master's log from the beginning",
        )
        prepared = PreparedRepair(group=group, facts=facts, plan=plan)
        if not is_under_way:
            await _order(self.api, prepared, dry_run=True)
        return prepared

    async def carry_out(
        self, prepared: PreparedRepair, *, timeout_seconds: float, progress: Progress = no_progress
    ) -> RepairResult:
        """Start the repair, if anything is to do, and wait until the member has caught up with its master. Raises RoleError."""
        member, address = prepared.facts.member, prepared.facts.member.address
        before = {cut.path for cut in prepared.facts.status.divergent}
        if prepared.plan.first_offset is not None:
            await _order(self.api, prepared, dry_run=False)
        heard_at = anyio.current_time()
        deadline = heard_at + timeout_seconds
        while True:
            await anyio.sleep(POLL_SECONDS)
            try:
                status = await self.api.member_status(address) or NO_STATUS
                total = await _master_offset(self.api, status)
            except RemotingError as error:
                if anyio.current_time() - heard_at > SILENT_SECONDS_MAX:
                    raise RoleError(
                        f"{member.name} or its master does not answer any more ({error}).",
                        "It goes on when both are there again. The same command again goes on watching.",
                    ) from error
                continue
            heard_at = anyio.current_time()
            written = status.max_offset or 0
            if total is not None:
                progress(min(written, total), total)
            if _has_caught_up(status, total):
                new = [cut for cut in status.divergent if cut.path not in before]
                kept = tuple(_kept(cut, prepared.group) for cut in new)
                return RepairResult(member=member.name, written_offset=written, kept=kept)
            if heard_at > deadline:
                raise RoleTimeoutError(
                    f"{member.name} has not caught up with its master within {timeout_seconds:g} s; it goes on.",
                    f"It is {status.role_state or status.state}: {status.role_why or 'it follows'}.",
                    f"See its progress with: twinlog list. To go on watching: twinlog {prepared.plan.verb} {member.name} --yes",
                )
