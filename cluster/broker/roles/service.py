"""Role changes while the process runs: the parts of a member that take part in them, and the requests for a change.

    member, durable state    member.py, durable_state.py
    votes, lease renewals    voter.py (voter side), lease.py (the master asks, and changes the group's record)
    write pause              write_pause.py (master), candidate.py (candidate)
    a change that was asked  change.py
    at start, by itself      startup.py
    failover, by itself      elector.py; hand_over.py (a master that cannot store)
    the record in etcd       kept_record.py; hand_to_etcd.py (a running group begins with it)
    new members              joining.py
    locks of queues          locks.py

Decisions are pure and in ha/election: votes.py, voter.py, epochs.py, group_record.py, role_change.py. Safety never relies on a
clock.
"""

from collections.abc import Awaitable, Callable, Iterator

import structlog
import trio
from attrs import define, evolve, field

from twinlog.cluster.broker.peers.role_messages import (
    AutoFailoverRequest,
    ChangeRequest,
    ChangeState,
    Op,
    PauseRequest,
    Plain,
    ReinitRequest,
    RewindRequest,
    RoleRefusedError,
    ScheduleRequest,
    WritePauseRequest,
)
from twinlog.cluster.broker.roles import repair as role_repair
from twinlog.cluster.broker.roles.change import RoleChange
from twinlog.cluster.broker.roles.elector import Elector
from twinlog.cluster.broker.roles.hand_over import HandOver
from twinlog.cluster.broker.roles.hand_to_etcd import HandToEtcd, why_no_place
from twinlog.cluster.broker.roles.joining import JoinRequests
from twinlog.cluster.broker.roles.kept_record import EtcdRecord
from twinlog.cluster.broker.roles.lease import LeaseRounds
from twinlog.cluster.broker.roles.locks import QueueLocks
from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.roles.startup import StartRules
from twinlog.cluster.broker.roles.voter import Voter
from twinlog.cluster.broker.roles.write_pause import WritePause
from twinlog.ha.election.commit import RecordKeeper
from twinlog.ha.election.group_record import with_auto_failover, with_pause
from twinlog.ha.election.in_sync_set import why_not_by_members
from twinlog.ha.election.voter import LeaseReply, LeaseRequest
from twinlog.ha.errors import HAError
from twinlog.ha.peer import PeerHistory
from twinlog.store.role_file import AutoFailover, GroupMember, GroupRecord, Pause, Scheduled
from twinlog.store.util.plain import from_plain, to_plain
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

RETRY_SECONDS = 0.05
CLOCK_SECONDS = 1.0  # The wall clock may be set.


@define(eq=False)
class ScheduledSwitchover:
    """Keeps it on the master's disk, and asks the candidate once the wall clock says so; `leases` choose one if none is named."""

    member: Member
    leases: LeaseRounds
    _changed: Wakeup = field(factory=Wakeup, init=False)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._next() is None:
                await self._changed.wait()
                continue
            with trio.move_on_after(CLOCK_SECONDS):
                await self._changed.wait()
            if (due := self._next()) is not None and self.member.is_serving and due.at_ms <= self.member.now_ms():
                try:
                    await self._begin(due)
                except (HAError, RoleRefusedError) as error:
                    log.warning("scheduled switchover did not begin", why=str(error))

    def _next(self) -> Scheduled | None:
        return self.member.durable.state.scheduled if self.member.durable.state is not None else None

    async def set(self, ask: ScheduleRequest) -> None:
        """Save it, instead of an earlier one. Raises RoleRefusedError, RoleFileError."""
        member = self.member
        async with member.lock:
            if not member.is_serving or member.durable.state is None:
                raise RoleRefusedError(f"{member.address} is not the master of a group with a record")
            scheduled = None
            if ask.at_ms is not None:
                scheduled = Scheduled(at_ms=ask.at_ms, candidate=ask.candidate, reason=ask.reason)
            await member.durable.save(evolve(member.durable.state, scheduled=scheduled))
        self._changed.set()

    async def _begin(self, due: Scheduled) -> None:
        await self.set(ScheduleRequest(at_ms=None))
        if paused := self.member.paused():
            raise RoleRefusedError(paused)
        group = self.member.group
        named = group.find(due.candidate) if group is not None and due.candidate else None
        candidate = named.address if named is not None else due.candidate or self._best()
        ask = ChangeRequest(verb="switchover", candidate=candidate, reason=due.reason)
        await self.member.calls.role_change(candidate, "start", to_plain(ask))

    def _best(self) -> str:
        """The follower that holds most, and of these the lowest id. Raises RoleRefusedError."""
        group, found = self.member.group, list[tuple[LeaseReply, int, str]]()
        for id, (_, answer) in self.leases.answers.items():
            known = group.member(id) if group is not None else None
            if answer.accepted and answer.whole and known is not None:
                found.append((answer, known.broker_id, known.address))
        if not found:
            raise RoleRefusedError("no slave follows that could become master")
        return min(found, key=lambda each: (-each[0].max_offset, each[1]))[2]


@define(eq=False)
class RoleService:
    """`has_name_servers`: a master that starts waits for their answer."""

    member: Member
    has_name_servers: bool = field(default=False, kw_only=True)
    keeper: RecordKeeper | None = field(default=None, kw_only=True)
    outside: EtcdRecord = field(init=False)
    write_pause: WritePause = field(init=False)
    voter: Voter = field(init=False)
    joining: JoinRequests = field(init=False)
    leases: LeaseRounds = field(init=False)
    locks: QueueLocks = field(init=False)
    rules: StartRules = field(init=False)
    scheduled: ScheduledSwitchover = field(init=False)
    elector: Elector = field(init=False)
    hand_over: HandOver = field(init=False)
    hand_to_etcd: HandToEtcd = field(init=False)
    _change: RoleChange | None = field(default=None, init=False)
    _nursery: trio.Nursery | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.write_pause = WritePause(self.member)
        self.voter = Voter(self.member, self.write_pause)
        self.voter.is_changing = lambda: self.rules.is_changing
        self.joining = JoinRequests(self.member, Wakeup())
        self.outside = EtcdRecord(self.member, self.keeper, why_no_place(self.member.config))
        self.voter.keeper_view = self.outside.view
        self.leases = LeaseRounds(self.member, self.joining, self.outside)
        self.locks = QueueLocks(self.member, self.leases)
        self.rules = StartRules(self.member, self.voter, self.leases, self.joining, self.has_name_servers)
        self.scheduled = ScheduledSwitchover(self.member, self.leases)
        self.hand_over = HandOver(self.member, self.voter, self.leases)
        self.hand_to_etcd = HandToEtcd(self.member, self.leases, self.outside)
        self.rules.hands_over = lambda: self.hand_over.why != ""
        self.elector = Elector(self.member, self.voter, self.leases, self._elect, why_not=self._why_no_election)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; load() came before."""
        self.rules.elect_again = self._elect_again
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.leases.run)
            nursery.start_soon(self.outside.run)
            nursery.start_soon(self.hand_to_etcd.run)
            nursery.start_soon(self.locks.run)
            nursery.start_soon(self.rules.run)
            nursery.start_soon(self.scheduled.run)
            nursery.start_soon(self.elector.run)
            nursery.start_soon(self.hand_over.run)
            self._nursery = nursery
            task_status.started()
            try:
                await self.write_pause.run()
            finally:
                self._nursery = None

    async def _elect_again(self) -> None:
        reason = "its machine was restarted"
        ask = ChangeRequest(verb="restart", candidate=self.member.address, reason=reason, decided_by="")
        change = self._begin(ask)
        await self._carry_out(change)
        if change.error and not self.member.is_serving:
            died, gone = "its machine died, or its disk failed", "its log ends before its last durable end"
            why = gone if self.member.store.lost_bytes else died
            self.member.become("fenced", f"{why}, and it may lack bytes that others have: {change.error}")

    def _why_no_election(self) -> str:
        if self.rules.is_refused:
            return "its group takes it for a copy of another directory"
        return "a role change is under way" if self.rules.is_changing else ""

    async def _elect(self, ask: ChangeRequest) -> RoleChange:
        change = self._begin(ask)
        await self._carry_out(change)
        return change

    # The group

    def history(self, asker: GroupMember | None = None) -> PeerHistory:
        """The answer to 1007; a slave that asks in order to follow this member joins the group."""
        if asker is not None:
            self.joining.ask(asker)
        return self.member.own_history()

    async def renew_lease(self, ask: LeaseRequest, may_join: Callable[[GroupMember], Awaitable[bool]]) -> LeaseReply:
        """The answer to 20004. `may_join`: whether a member may say that it is at another address now. Raises RoleFileError."""
        answer = await self.voter.renew_lease(ask)
        rival = self.joining.rival(ask)
        if rival is not None and await may_join(rival) and not await self.joining.why_not(rival):
            self.joining.ask(rival)
        return answer

    def known_addresses(self) -> Iterator[tuple[str, str]]:
        """Of members of the group, each with the one for other members: as last told."""
        if (master := self.member.master) is not None:
            yield master.address, master.member_address
        group = self.member.group
        for each in (*self.joining.pending.values(), *(group.members if group is not None else ())):
            yield each.address, each.member_address

    def counted_members(self) -> frozenset[str] | None:
        """Ids of those whose acknowledgements count; None: all that are registered."""
        return self.leases.counted_members()

    def acks_required(self) -> int | None:
        """Number of members that must hold a message, by the in-sync set in etcd; None: inSyncReplicas says so."""
        quorum = self.leases.quorum
        return quorum.acks if quorum is not None else None

    # Role changes

    @property
    def last_pause_ms(self) -> float | None:
        """Length of the write pause of the last switchover to this member."""
        return self._change.pause.pause_ms if self._change is not None else None

    async def check(self, ask: ChangeRequest) -> ChangeState:
        """Dry run of a role change: nothing changes."""
        run = RoleChange(self.member, self.voter, self.leases, evolve(ask, dry_run=True))
        await run.run()
        return run.state()

    async def start(self, ask: ChangeRequest) -> ChangeState:
        """Start a role change in the background, or find it started. Raises RoleRefusedError."""
        if self._nursery is None:
            raise RoleRefusedError(f"{self.member.address} has only just started, or is about to stop")
        if ask.candidate not in (self.member.address, self.member.own):
            raise RoleRefusedError(f"{ask.candidate} is another member: this one is {self.member.address}")
        if self._change is None or not self._change.is_running:
            self._nursery.start_soon(self._carry_out, self._begin(ask))
        elif self._change.ask.verb != ask.verb:
            raise RoleRefusedError(f"a {self._change.ask.verb} to {self.member.address} is under way")
        return self.state()

    def _begin(self, ask: ChangeRequest) -> RoleChange:
        self._change = RoleChange(self.member, self.voter, self.leases, ask)
        self.rules.is_changing = True
        return self._change

    async def _carry_out(self, run: RoleChange) -> None:
        try:
            await run.run()
        finally:
            self.rules.is_changing = False
            self.member.changed.set()

    def state(self) -> ChangeState:
        """The role change that runs here, or the last one."""
        if self._change is not None:
            return self._change.state()
        change = self.member.durable.state.change if self.member.durable.state is not None else None
        if change is None:
            return ChangeState(running=False)
        what = f"a {change.verb} to {change.candidate}, epoch {change.epoch}, was interrupted at its step {change.step}"
        return ChangeState(running=False, error=f"{what}: the same command again finishes it")

    # The group's pause, and a switchover for later

    async def pause(self, ask: PauseRequest) -> None:
        """Pause role changes and automatic actions of the group. Raises RoleRefusedError, RoleFileError."""
        until = self.member.now_ms() + ask.for_ms if ask.for_ms is not None else None
        await self._set_pause(Pause(until_ms=until, reason=ask.reason))

    async def resume(self) -> None:
        """Resume them. Raises RoleRefusedError, RoleFileError."""
        await self._set_pause(None)

    async def set_auto_failover(self, ask: AutoFailoverRequest) -> None:
        """Change who begins a failover in this group. Raises RoleRefusedError, RoleFileError."""
        group = self.member.group
        if ask.mode == "etcd" and group is not None and self.member.is_serving:
            await self.hand_to_etcd.begin()
        else:
            await self._change_record(lambda group: self._by_members(group, ask.mode))

    def _by_members(self, group: GroupRecord, mode: AutoFailover) -> GroupRecord:
        """The record in another mode than etcd. Raises RoleRefusedError."""
        if group.is_in_etcd:
            if why := why_not_by_members(group):
                raise RoleRefusedError(why)
            if why := self.outside.why:
                raise RoleRefusedError(f"etcd keeps the group's record, and cannot be told: {why}")
        return with_auto_failover(group, mode)

    async def _set_pause(self, pause: Pause | None) -> None:
        await self._change_record(lambda group: with_pause(group, pause))

    async def _change_record(self, changed: Callable[[GroupRecord], GroupRecord]) -> None:
        """Save a new version of the record, once the last change of it is in force."""
        with trio.move_on_after(self.member.config.lease_ms / 1000):
            while True:
                async with self.member.lock:
                    group = self.member.group
                    if not self.member.is_serving or group is None:
                        raise RoleRefusedError(f"{self.member.address} is not the master of a group with a record")
                    if self.leases.is_settled:
                        record = changed(group)
                        if record is not group:
                            await self.leases.write_record(record)
                        return
                await trio.sleep(RETRY_SECONDS)
        raise RoleRefusedError("too few members answer: the last change of the group's record is not in force yet")

    # Its log

    async def rewind(self, ask: RewindRequest) -> None:
        """Cut off what the master lacks. Raises RoleRefusedError, RoleFileError, StoreError, HAPeerError."""
        await role_repair.rewind(self.member, self.rules, ask)

    async def reinit(self, ask: ReinitRequest) -> None:
        """Replace this log by the master's. Raises RoleRefusedError, RoleFileError, StoreError."""
        await role_repair.reinit(self.member, self.rules, ask)

    # 20006

    async def role_change(self, op: Op, body: Plain) -> Plain:
        """Answer a request (20006). Raises RoleRefusedError, ValueError for an invalid body, and errors of the operations."""
        answer: object = {}
        match op:
            case "check":
                answer = await self.check(from_plain(ChangeRequest, body))
            case "start":
                answer = await self.start(from_plain(ChangeRequest, body))
            case "state":
                answer = self.state()
            case "hold":
                answer = await self.write_pause.begin(from_plain(WritePauseRequest, body))
            case "release":
                await self.write_pause.release(str(body["candidate"]))
            case "rewind":
                await self.rewind(from_plain(RewindRequest, body))
            case "reinit":
                await self.reinit(from_plain(ReinitRequest, body))
            case "pause":
                await self.pause(from_plain(PauseRequest, body))
            case "resume":
                await self.resume()
            case "auto-failover":
                await self.set_auto_failover(from_plain(AutoFailoverRequest, body))
            case "schedule":
                await self.scheduled.set(from_plain(ScheduleRequest, body))
            case _:
                raise RoleRefusedError(f"{op} is no operation of this version")
        return dict(to_plain(answer))
