"""Roles that change while the process runs: who a member is in its group, and every way to become another.

    promise, lease, hold     what it owes to others                  member.py
    rounds, record           what a master asks of others            lease.py
    start rules              what it does by itself                  startup.py
    start                    a role change that somebody asked for   change.py

Decisions are pure and lie in ha/: votes.py, voter.py, epochs.py, group_record.py, role_change.py.
Nobody's safety rests on a clock.
"""

from collections.abc import Mapping

import structlog
import trio
from attrs import define, evolve, field

from twinlog.cluster.broker.peers.role_messages import (
    Calls,
    ChangeAsk,
    ChangeResult,
    ChangeState,
    Held,
    HoldAsk,
    Hooks,
    Op,
    PauseAsk,
    Plain,
    ReinitAsk,
    RewindAsk,
    RoleRefusedError,
    ScheduleAsk,
)
from twinlog.cluster.broker.roles import repair as role_repair
from twinlog.cluster.broker.roles.change import RoleRun
from twinlog.cluster.broker.roles.lease import LeaseRounds
from twinlog.cluster.broker.roles.member import RoleMember
from twinlog.cluster.broker.roles.schedule import Schedule
from twinlog.cluster.broker.roles.startup import StartRules
from twinlog.ha.election.group_record import with_pause
from twinlog.ha.peer import PeerHistory
from twinlog.store.role_file import GroupMember, Pause, save_role
from twinlog.store.util.plain import from_plain, to_plain

__all__ = ["Calls", "ChangeAsk", "ChangeResult", "ChangeState", "Held", "Hooks", "RoleRefusedError", "RoleService"]

log = structlog.get_logger(__name__)

RETRY_SECONDS = 0.05
EARLY_MAX = 64


@define(eq=False, kw_only=True)
class RoleService(RoleMember):
    """`has_name_servers`: a master that starts waits for what they say."""

    has_name_servers: bool = False
    leases: LeaseRounds = field(init=False)
    rules: StartRules = field(init=False)
    later: Schedule = field(init=False)
    _early: dict[str, GroupMember] = field(factory=dict, init=False)
    _others_ips: set[tuple[str, str]] = field(factory=set, init=False)
    _run: RoleRun | None = field(default=None, init=False)
    _nursery: trio.Nursery | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.leases = LeaseRounds(self)
        self.rules = StartRules(self, self.leases, self.has_name_servers)
        self.later = Schedule(self, self.leases)
        self.ha.use_role(self)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; load() came before."""
        self.rules.elect_again = self._elect_again
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self.leases.run)
            self._nursery.start_soon(self.rules.run)
            self._nursery.start_soon(self.later.run)
            task_status.started()
            await self._watch_holds()

    async def _watch_holds(self) -> None:
        while True:
            with trio.move_on_at(await self.end_hold_in_time()):
                await self.hold_begun.wait()

    async def _elect_again(self) -> None:
        self._run = RoleRun(
            self, self.leases, ChangeAsk(verb="restart", candidate=self.address, reason="its machine was restarted")
        )
        self.rules.is_changing = True
        await self._carry_out(self._run)
        if self._run.error:
            died, gone = "its machine died, or its disk failed", "its log ends before where it is known to have ended"
            why = gone if self.store.lost_bytes else died
            self.become("fenced", f"{why}, and it may lack bytes that others have: {self._run.error}")

    def note_clean_stop(self) -> None:
        """All that this member has is on its disk: call it last. It may raise OSError: the next start takes it for a crash."""
        if self.book.state is not None and not self.book.failure and not self.book.lacks_tail:
            state = evolve(self.book.state, clean=True, boot_id=self.boot_id(), told_confirmed=self.told_confirmed())
            save_role(self.side, state)

    # What others know of the group

    def history(self, asker: GroupMember | None = None) -> PeerHistory:
        """The answer to 1007; who asks to follow us belongs to the group soon."""
        if asker is not None and asker.address != self.address and self.is_serving:
            self.leases.joining[asker.address] = asker
            self.leases.ask_soon()
        return self.own_history()

    def asked_early(self, asker: GroupMember) -> None:
        """Who follows, and is not known to be registered. A slave asks as soon as it has registered, and only once: it belongs to
        the group when a name server names it, too.
        """
        self._early.pop(asker.address, None)
        self._early[asker.address] = asker
        if len(self._early) > EARLY_MAX:  # Anybody may ask.
            del self._early[next(iter(self._early))]

    def asked_as_another(self, asker: GroupMember, ip: str) -> None:
        """Who follows from an IP that it does not announce, and so does not join: told once. Anybody may ask."""
        if (asker.address, ip) not in self._others_ips and len(self._others_ips) < EARLY_MAX:
            self._others_ips.add((asker.address, ip))
            log.warning(
                "a slave that does not come from the address it announces does not join the group",
                peer=asker.address,
                announced_ha=asker.ha_address,
                comes_from=ip,
            )

    def registered(self, addresses: Mapping[int, str]) -> None:
        """Who is registered under our name, by id, as a name server said."""
        self.rules.registered = dict(addresses)
        for address in self._early.keys() & set(addresses.values()):
            self.history(self._early.pop(address))

    def counted_members(self) -> frozenset[str] | None:
        """By address, whose acknowledgements count; None: all that are registered."""
        return self.leases.counted_members()

    # Role changes

    @property
    def is_changing(self) -> bool:
        """Whether this member carries a role change out now."""
        return self._run is not None and self._run.is_running

    @property
    def last_pause_ms(self) -> float | None:
        """How long the last switchover to this member kept writers waiting."""
        return self._run.hold.pause_ms if self._run is not None else None

    async def check(self, ask: ChangeAsk) -> ChangeState:
        """What would come of it. Nothing is changed, nobody is held."""
        run = RoleRun(self, self.leases, evolve(ask, dry_run=True))
        await run.run()
        return run.state()

    async def start(self, ask: ChangeAsk) -> ChangeState:
        """Begin it, or find it begun; it goes on by itself. Raises RoleRefusedError."""
        if self._nursery is None:
            raise RoleRefusedError((f"{self.address} has only just started",))
        if ask.candidate != self.address:
            raise RoleRefusedError((f"{ask.candidate} is another member: this one is {self.address}",))
        if self._run is None or not self._run.is_running:
            self._run = RoleRun(self, self.leases, ask)
            self.rules.is_changing = True
            self._nursery.start_soon(self._carry_out, self._run)
        elif self._run.ask.verb != ask.verb:
            raise RoleRefusedError((f"a {self._run.ask.verb} to {self.address} is under way",))
        return self._run.state()

    async def _carry_out(self, run: RoleRun) -> None:
        try:
            await run.run()
        finally:
            self.rules.is_changing = False
            self.changed.set()

    def state(self) -> ChangeState:
        """The role change that runs here, or the last one."""
        if self._run is not None:
            return self._run.state()
        change = self.book.state.change if self.book.state is not None else None
        if change is None:
            return ChangeState(running=False)
        what = f"a {change.verb} to {change.candidate}, epoch {change.epoch}, was interrupted at its step {change.step}"
        return ChangeState(running=False, error=f"{what}: the same command again finishes it")

    # The group's pause, and a switchover for later

    async def pause(self, ask: PauseAsk) -> None:
        """No role changes, and nothing automatic. Raises RoleRefusedError, RoleFileError."""
        until = self.now_ms() + ask.for_ms if ask.for_ms is not None else None
        await self._set_pause(Pause(until_ms=until, reason=ask.reason))

    async def resume(self) -> None:
        """Take it back. Raises RoleRefusedError, RoleFileError."""
        await self._set_pause(None)

    async def _set_pause(self, pause: Pause | None) -> None:
        """Once the last change of the record is in force."""
        with trio.move_on_after(self.config.lease_ms / 1000):
            while True:
                async with self.turn:
                    group = self.group
                    if not self.is_serving or group is None:
                        raise RoleRefusedError((f"{self.address} is not the master of a group with a record",))
                    if self.leases.is_settled:
                        record = with_pause(group, pause)
                        if record is not group:
                            await self.leases.write_record(record)
                        return
                await trio.sleep(RETRY_SECONDS)
        raise RoleRefusedError(("too few members answer: the last change of the group's record is not in force yet",))

    # Its log

    async def rewind(self, ask: RewindAsk) -> None:
        """Cut off what the master lacks. Raises RoleRefusedError, RoleFileError, StoreError, HAPeerError."""
        await role_repair.rewind(self, self.rules, ask)

    async def reinit(self, ask: ReinitAsk) -> None:
        """Begin anew with the master's log. Raises RoleRefusedError, RoleFileError, StoreError."""
        await role_repair.reinit(self, self.rules, ask)

    # 20006

    async def role_change(self, op: Op, body: Plain) -> Plain:
        """Answer a request. Raises RoleRefusedError, ValueError for a body that is none, and what the parts raise."""
        answer: object = {}
        match op:
            case "check":
                answer = await self.check(from_plain(ChangeAsk, body))
            case "start":
                answer = await self.start(from_plain(ChangeAsk, body))
            case "state":
                answer = self.state()
            case "hold":
                answer = await self.hold(from_plain(HoldAsk, body))
            case "release":
                await self.release(str(body["candidate"]))
            case "rewind":
                await self.rewind(from_plain(RewindAsk, body))
            case "reinit":
                await self.reinit(from_plain(ReinitAsk, body))
            case "pause":
                await self.pause(from_plain(PauseAsk, body))
            case "resume":
                await self.resume()
            case "schedule":
                await self.later.set(from_plain(ScheduleAsk, body))
            case _:
                raise RoleRefusedError((f"{op} is not there",))
        return dict(to_plain(answer))
