"""Role changes for users: plan, start, watch and report them; the candidate carries them out.

An interrupted command interrupts nothing: the same command again finds the running change and waits for it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import anyio
from attrs import asdict, evolve, field, frozen

from twinlog.cluster.broker.peers.role_messages import (
    NOT_ALLOWED,
    AutoFailoverRequest,
    ChangeRequest,
    ChangeResult,
    ChangeState,
    Op,
    PauseRequest,
    ScheduleRequest,
    read_history,
)
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.observe.gather import ask_members
from twinlog.cluster.observe.members import Member, MemberFacts, NoMemberError, is_master
from twinlog.cluster.observe.role_views import id_of, name_of, newest_record
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import MemberAuthError, RemotingError, RemotingProtocolError, RequestError
from twinlog.cluster.remoting.member_auth import NOT_PROVEN
from twinlog.cluster.user_errors import REFUSED, TIMED_OUT, USAGE, ErrorReport, UserError
from twinlog.ha.election.votes import LostRange
from twinlog.ha.peer import PeerHistory
from twinlog.store.epoch_file import EpochEntry
from twinlog.store.role_file import AutoFailover, GroupRecord
from twinlog.store.util.plain import from_plain, to_plain

POLL_SECONDS = 0.05
HOW_TO_SIGN = (
    "Run the command on the member's machine, or give it the file of the group secret: --secret-file FILE, "
    "TWINLOG_HA_SECRET_FILE, or in a context: twinlog context add --secret-file FILE"
)
SILENT_SECONDS_MAX = 5.0  # Whoever does not answer for so long is gone, or stands still.
DataLoss = int | Literal["unknown"] | None
OnChange = Callable[[ChangeState], None]


class RoleError(UserError):
    """A role change that failed or is not done yet; one sentence a line."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines

    def report(self) -> ErrorReport:
        """The first line is what failed, the rest why."""
        first, *rest = self.lines
        return ErrorReport(first, "\n".join(rest), exit_status=self.exit_status)


class RoleRefusedError(RoleError):
    """The change could lose data, or break a rule. Nothing was changed, unless the lines say so."""

    exit_status = REFUSED


class RoleTimeoutError(RoleError):
    """The change is not finished in time, and goes on."""

    exit_status = TIMED_OUT


class RoleChoiceError(RoleError):
    """The order names no member or group that is clear."""

    exit_status = USAGE


@frozen(kw_only=True)
class RoleGroup:
    """One broker group: its members and its record."""

    name: str
    members: tuple[MemberFacts, ...]
    record: GroupRecord | None

    @property
    def master(self) -> MemberFacts | None:
        """The member that serves as master."""
        return next((each for each in self.members if is_master(each.member)), None)

    def candidates(self) -> list[MemberFacts]:
        """Slaves of ours, the best candidate first: newest epoch, then following, then lowest id."""
        found = [each for each in self.members if each.is_twinlog and each.member.role == "slave"]
        return sorted(
            found, key=lambda each: (-(each.member.epoch or 0), each.member.state != "streaming", each.member.broker_id)
        )

    def in_names(self, text: str) -> str:
        """The text with members' names for their addresses and ids."""
        for each in self.members:
            text = text.replace(each.member.address, each.member.name)
        for each in self.members:  # An id may be an address that another member has now.
            text = text.replace(id_of(each), each.member.name)
        return text

    def named(self, members: Sequence[str]) -> str:
        """Names of members, given by address or id, joined."""
        return ", ".join(name_of(each, self.members) for each in members)


@frozen(kw_only=True)
class RoleOrder:
    """Order for a role change. `member`: the candidate, by name or address; None: the best one, where that may be left open."""

    verb: Literal["switchover", "failover"]
    member: str | None = None
    group: str | None = None
    reason: str = ""
    accept_data_loss: DataLoss = None
    timeout_seconds: float = 30.0


@frozen(kw_only=True)
class ChangeOutcome(ChangeResult):
    """Outcome of a role change. `absent`: those of `not_following` that did not answer before it, and follow once back."""

    absent: tuple[str, ...] = ()

    @property
    def late(self) -> tuple[str, ...]:
        """Members that answered before it began and do not follow yet: then the change is done in part only."""
        return tuple(each for each in self.not_following if each not in self.absent)


@frozen(kw_only=True)
class PlannedSwitchover:
    """A switchover scheduled at a group's master. `at_ms`: ms since 1970 by its clock; null: none is scheduled any more."""

    group: str
    at_ms: int | None
    candidate: str | None  # As it was asked for; null: whoever is best then.


@frozen(kw_only=True)
class Prepared:
    """A role change that may be begun, with the plan that it follows."""

    group: RoleGroup
    candidate: Member
    ask: ChangeRequest
    state: ChangeState


async def choose_group(api: ClientApi, name: str | None, member: str | None = None) -> RoleGroup:
    """The group called so, or the member's, or the only one there is: with a member, others than it are not waited for long, as a
    master that hangs. Raises RoleChoiceError, NoMemberError, RemotingError.
    """
    facts = await ask_members(api, await api.cluster(), wanted=member)
    if member is not None:
        found = next((each for each in facts if member in (each.member.name, each.member.address)), None)
        if found is None:
            raise NoMemberError(member)
        name = found.member.group
    names = sorted({each.member.group for each in facts})
    if name is None and len(names) == 1:
        (name,) = names
    if name is None or name not in names:
        what = f"There is no group {name}." if name is not None else "There are several groups."
        raise RoleChoiceError(what, f"Name one with --group: {', '.join(names) or 'none is registered'}.")
    members = tuple(each for each in facts if each.member.group == name)
    return RoleGroup(name=name, members=members, record=newest_record(members))


def find_in(group: RoleGroup, member: str) -> MemberFacts:
    """A member of the group that may be asked for a role. Raises RoleRefusedError."""
    found = next(each for each in group.members if member in (each.member.name, each.member.address))
    if not found.is_twinlog:
        why = found.member.reason or "it does not answer"
        what = "a RocketMQ broker cannot change its role" if found.runtime else why
        raise RoleRefusedError(f"{found.member.name} may not be chosen: {what}")
    return found


async def unsettled(api: ClientApi, group: str) -> list[str]:
    """Reasons why a failover of the group might be refused yet, whoever is chosen: each member's record has to name all of them,
    to be in force, and to say from where on only members' acknowledgements count. None for a member alone. Raises
    RoleChoiceError, RemotingError.
    """
    reasons: list[str] = []
    members = (await choose_group(api, group)).members
    if len(members) == 1:
        return reasons
    for each in members:
        record = each.status.group_record
        if record is None:
            reasons.append(f"{each.member.name} has no record of its group")
        elif absent := [other.member.name for other in members if record.member(id_of(other)) is None]:
            reasons.append(f"{each.member.name} does not count {', '.join(absent)} as a member")
        elif record.before is not None or record.loss_free_from is None:
            reasons.append(f"{each.member.name} has a record of its group that is not in force")
    return reasons


def refusal_lines(group: RoleGroup, member: Member, state: ChangeState) -> list[str]:
    """Reasons why the member may not be chosen, and the cost; empty when it may."""
    lines, rest = [], state.error if state.refused else ""
    for each in state.judgements:
        if not each.may:
            fix = f"; fix: {each.fix}" if each.fix else ""
            line = f"{each.candidate}: may not be chosen: {each.rule}; needed {each.needed}; actual {each.actual}{fix}"
            rest = rest.removeprefix(line).removeprefix("; ")
            lines.append(group.in_names(line))
            if each.lost is not None:
                lines += [lost_text(each.lost, group), how_to_accept(each.lost)]
    if rest:
        lines.append(group.in_names(rest if rest.startswith(member.address) else f"{member.name}: {rest}"))
    return lines


def lost_text(lost: LostRange, group: RoleGroup) -> str:
    """Bytes that would be given up, and the place where they are kept."""
    holders = group.named(lost.holders)
    kept = "they are kept in twinlog/divergent on each of them"
    if lost.end is None:
        first = f"bytes from {lost.first} on, nobody knows how many, "
        return f"{first}on {holders or 'members that do not answer'} would be given up; {kept}"
    return f"bytes {lost.first} to {lost.end} on {holders} would be given up; {kept}"


def how_to_accept(lost: LostRange) -> str:
    """The option that accepts the loss."""
    size = "unknown" if lost.end is None else str(lost.end - lost.first)
    return f"to go on all the same, and give them up: --accept-data-loss {size}"


async def watched(
    api: ClientApi, group: RoleGroup, member: Member, state: ChangeState, seconds: float, on_change: OnChange
) -> ChangeResult:
    on_change(state)
    heard_at = anyio.current_time()
    deadline = heard_at + seconds
    while state.running:
        if anyio.current_time() > deadline:
            raise RoleTimeoutError(
                f"Not within {seconds:g} s; what was begun goes on.",
                f"{member.name} is at {doing(state)}.",
                "Look with: twinlog list. The same command again waits for it, or finishes it.",
            )
        await anyio.sleep(POLL_SECONDS)
        try:
            now = await call(api, group, member.address, "state")
        except RemotingError as error:
            if anyio.current_time() - heard_at > SILENT_SECONDS_MAX:
                raise RoleError(
                    f"{member.name} does not answer any more.",
                    f"It was at {doing(state)} ({error}).",
                    "Look with: twinlog list. The same command again finishes what was begun.",
                ) from error
            continue
        heard_at = anyio.current_time()
        if now != state:
            on_change(now)
        state = now
    if lines := refusal_lines(group, member, state):
        raise RoleRefusedError(*lines)
    if state.result is None:
        raise RoleError(
            "The role change was not finished.",
            f"{member.name}: {state.error or 'it was interrupted'}",
            "Look with: twinlog list. The same command again finishes what was begun.",
        )
    return state.result


def doing(state: ChangeState) -> str:
    """The current step, as text."""
    step = next((step for step in state.steps if step.state in ("doing", "failed")), None)
    return f"step {step.number}, {step.text}" if step is not None else "its end"


async def call(
    api: ClientApi, group: RoleGroup, address: str, op: Op, ask: Any = None, *, timeout_seconds: float | None = None
) -> ChangeState:
    """Ask a member for a part of a role change. Raises RoleRefusedError when it may not be asked from here, or refuses."""
    body = {"op": op, **(to_plain(ask) if ask is not None else {})}
    try:
        timeout_ms = round(timeout_seconds * 1000) if timeout_seconds is not None else None
        answer = await api.role_change(address, body, timeout_ms=timeout_ms)
    except RequestError as error:
        raise refused(group, address, error) from error
    except MemberAuthError as error:
        why = str(error).rpartition(f"{NOT_PROVEN}: ")[2].partition(". Next: ")[0]
        raise RoleRefusedError(
            f"{group.named([address])} takes no role changes from here: {why}", HOW_TO_SIGN
        ) from error
    try:
        return from_plain(ChangeState, answer) if "running" in answer else ChangeState(running=False)
    except ValueError as error:
        raise RemotingProtocolError(f"{address} answered {op} in an unknown form: {error}") from error


def refused(group: RoleGroup, address: str, error: RequestError) -> RoleError:
    """The error for an answer other than success."""
    name = group.named([address])
    if error.code == ResponseCode.NO_PERMISSION and NOT_PROVEN in error.remark:
        return RoleRefusedError(f"{name} takes no role changes from here: it requires its group's secret", HOW_TO_SIGN)
    if error.code == ResponseCode.NO_PERMISSION and error.remark.endswith(NOT_ALLOWED):
        return RoleRefusedError(
            f"{name} takes no role changes from here: {error.remark}",
            "Run the command on a member's machine, or list this one in haAllowedSlaves there.",
        )
    if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return RoleRefusedError(f"{name} cannot change roles: it is no twinlog broker, or an older one")
    return RoleRefusedError(*group.in_names(error.remark).splitlines())


def _master_of(group: RoleGroup) -> str:
    if group.master is None:
        raise RoleRefusedError(
            f"{group.name} has no master that could take this down for the others.", "See more with: twinlog doctor"
        )
    return group.master.member.address


@frozen(kw_only=True)
class Reign:
    """One epoch. Members by their name now; by name and address of that time when they are no members any more."""

    epoch: int
    start_offset: int
    old: str = field(metadata={"doc": "the master before"})
    new: str
    winner: str = field(metadata={"doc": "id of the new master"})
    winner_label: str = field(metadata={"doc": 'its name and address then; "": not known'})
    kind: str
    reason: str
    decided_by: str = field(metadata={"doc": 'person, group (an automatic failover); "": not known, or nobody had to'})
    at_ms: int = field(metadata={"doc": "0: not known"})
    lost_bytes: int | None = field(metadata={"doc": "of what was acknowledged; null: not known"})


@frozen(kw_only=True)
class AutoFailoverState:
    """Beginner of failovers in a group: a person (`off`), or the members by themselves, with their record in etcd or not."""

    group: str
    mode: AutoFailover = field(metadata={"doc": "of the newest record"})
    members: Mapping[str, AutoFailover] = field(
        factory=dict,
        metadata={"doc": "by name, what the record of each member that answers says; {}: it was just changed"},
    )

    @property
    def is_agreed(self) -> bool:
        """True if no member's record says otherwise."""
        return set(self.members.values()) <= {self.mode}


@frozen(kw_only=True)
class History:
    """History of a group's log, as reported by the member with the newest epoch; oldest epoch first."""

    group: str
    told_by: str
    reigns: tuple[Reign, ...]


async def log_history(api: ClientApi, address: str) -> PeerHistory | None:
    """The epochs of a member's log; None when it does not answer, or in a form that is not known."""
    try:
        return read_history(await api.epochs(address))
    except (RemotingError, ValueError):
        return None


def _reign(group: RoleGroup, entry: EpochEntry, labels: Mapping[str, str]) -> Reign:
    """`labels`: of members that won this epoch or an earlier one, by id."""

    def name(id: str) -> str:
        found = name_of(id, group.members)
        return labels.get(id) or id if found == id else found

    return Reign(
        epoch=entry.epoch,
        start_offset=entry.start_offset,
        old=name(entry.old),
        new=name(entry.winner),
        winner=entry.winner,
        winner_label=entry.winner_label,
        kind=entry.kind,
        reason=entry.reason,
        decided_by=entry.decided_by,
        at_ms=entry.at_ms,
        lost_bytes=entry.lost_bytes,
    )


@frozen
class RoleAdmin:
    """The operations on roles."""

    api: ClientApi

    async def prepare(self, order: RoleOrder) -> Prepared:
        """Plan a change, with its candidate. Raises RoleRefusedError with a line for each member that may not be chosen."""
        group = await choose_group(self.api, order.group, order.member)
        candidates = [find_in(group, order.member)] if order.member is not None else group.candidates()
        if not candidates:
            raise RoleRefusedError(
                f"{group.name} has no slave that could become its master.", "See who is there with: twinlog list"
            )
        refusals: list[str] = []
        for each in candidates:
            ask = ChangeRequest(
                verb=order.verb,
                candidate=each.member.address,
                reason=order.reason,
                accept_data_loss=order.accept_data_loss,
                timeout_ms=round(order.timeout_seconds * 1000),
            )
            check = evolve(ask, dry_run=True)  # It waits for members that hang, and asks them more than once.
            state = await call(
                self.api, group, each.member.address, "check", check, timeout_seconds=order.timeout_seconds
            )
            if not (lines := refusal_lines(group, each.member, state)):
                return Prepared(group=group, candidate=each.member, ask=ask, state=state)
            refusals += lines
        raise RoleRefusedError(*refusals)

    async def carry_out(self, prepared: Prepared, on_change: OnChange) -> ChangeOutcome:
        """Begin it, or find it begun, and wait for its end; `on_change` is called with each change. Raises RoleError."""
        address = prepared.candidate.address
        state = await call(self.api, prepared.group, address, "start", prepared.ask)
        result = await watched(
            self.api, prepared.group, prepared.candidate, state, prepared.ask.timeout_ms / 1000, on_change
        )
        silent = {each.member.address for each in prepared.group.members if each.member.state == "unreachable"}
        absent = tuple(each for each in result.not_following if each in silent)
        return ChangeOutcome(**asdict(result, recurse=False), absent=absent)

    async def schedule(self, order: RoleOrder, at_ms: int | None) -> RoleGroup:
        """Let the master switch over at a time of the wall clock; None: not any more. Raises RoleError."""
        group = await choose_group(self.api, order.group, order.member)
        candidate = find_in(group, order.member).member.address if order.member is not None else ""
        ask = ScheduleRequest(at_ms=at_ms, candidate=candidate, reason=order.reason)
        await call(self.api, group, _master_of(group), "schedule", ask)
        return group

    async def pause(self, group: str | None, *, for_seconds: float | None, reason: str) -> RoleGroup:
        """No role changes, and no automatic ones, until resume() or for so long. Raises RoleError."""
        found = await choose_group(self.api, group)
        for_ms = round(for_seconds * 1000) if for_seconds is not None else None
        await call(self.api, found, _master_of(found), "pause", PauseRequest(for_ms=for_ms, reason=reason))
        return found

    async def resume(self, group: str | None) -> RoleGroup:
        """Take a pause back. Raises RoleError."""
        found = await choose_group(self.api, group)
        await call(self.api, found, _master_of(found), "resume")
        return found

    async def auto_failover(self, group: str | None) -> AutoFailoverState:
        """Report who begins a failover in a group, as its members' records say. Raises RoleError."""
        found = await choose_group(self.api, group)
        if found.record is None:
            raise RoleError(
                f"{found.name} has no record of its members yet.",
                "It gets one from its master once a slave of twinlog follows: twinlog list",
            )
        records = ((each.member.name, each.status.group_record) for each in found.members)
        modes = {name: record.auto_failover or "off" for name, record in records if record is not None}
        return AutoFailoverState(group=found.name, mode=found.record.auto_failover or "off", members=modes)

    async def set_auto_failover(self, group: str | None, mode: AutoFailover) -> AutoFailoverState:
        """Change it for all members. Raises RoleError."""
        found = await choose_group(self.api, group)
        await call(self.api, found, _master_of(found), "auto-failover", AutoFailoverRequest(mode=mode))
        return AutoFailoverState(group=found.name, mode=mode)

    async def history(self, group: str | None) -> History:
        """Masters of a group, since when, why and at what cost, by all members. Raises RoleError when none answers."""
        found = await choose_group(self.api, group)
        ours = [each.member for each in found.members if each.is_twinlog]
        reported = await in_parallel(partial(log_history, self.api, member.address) for member in ours)
        # The longest log of the newest epoch: whoever lags may not have heard of the last master yet.
        known = [
            (log.entries[-1].epoch, log.max_offset, member.name, log.entries)
            for member, log in zip(ours, reported, strict=True)
            if log is not None
        ]
        if not known:
            raise RoleError(f"No member of {found.name} tells its history.", "See who is there with: twinlog list")
        _, _, name, epochs = max(known)
        labels, reigns = dict[str, str](), list[Reign]()
        for entry in epochs:
            if entry.winner_label:
                labels[entry.winner] = entry.winner_label
            reigns.append(_reign(found, entry, labels))
        return History(group=found.name, told_by=name, reigns=tuple(reigns))
