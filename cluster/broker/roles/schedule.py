"""A switchover for later: the master keeps it on its disk, and asks the candidate when the wall clock says so; once."""

import structlog
import trio
from attrs import define, evolve, field

from twinlog.cluster.broker.peers.role_messages import ChangeAsk, RoleRefusedError, ScheduleAsk
from twinlog.cluster.broker.roles.lease import LeaseRounds
from twinlog.cluster.broker.roles.member import RoleMember
from twinlog.ha.election.voter import LeaseAnswer
from twinlog.ha.errors import HAError
from twinlog.store.role_file import Scheduled
from twinlog.store.util.plain import to_plain
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0  # The wall clock may be set.


@define(eq=False)
class Schedule:
    """`leases` says who is level, for one that names nobody."""

    member: RoleMember
    leases: LeaseRounds
    _changed: Wakeup = field(factory=Wakeup, init=False)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._next() is None:
                await self._changed.wait()
                continue
            with trio.move_on_after(LOOK_SECONDS):
                await self._changed.wait()
            if (due := self._next()) is not None and self.member.is_serving and due.at_ms <= self.member.now_ms():
                try:
                    await self._begin(due)
                except (HAError, RoleRefusedError) as error:
                    log.warning("a switchover that was set for now did not begin", why=str(error))

    def _next(self) -> Scheduled | None:
        return self.member.book.state.scheduled if self.member.book.state is not None else None

    async def set(self, ask: ScheduleAsk) -> None:
        """Keep it, in the place of another. Raises RoleRefusedError, RoleFileError."""
        member = self.member
        async with member.turn:
            if not member.is_serving or member.book.state is None:
                raise RoleRefusedError((f"{member.address} is not the master of a group with a record",))
            scheduled = None
            if ask.at_ms is not None:
                scheduled = Scheduled(at_ms=ask.at_ms, candidate=ask.candidate, reason=ask.reason)
            await member.book.save(evolve(member.book.state, scheduled=scheduled))
        self._changed.set()

    async def _begin(self, due: Scheduled) -> None:
        await self.set(ScheduleAsk(at_ms=None))
        if paused := self.member.paused():
            raise RoleRefusedError((paused,))
        candidate = due.candidate or self._best()
        ask = ChangeAsk(verb="switchover", candidate=candidate, reason=due.reason)
        await self.member.calls.role_change(candidate, "start", to_plain(ask))

    def _best(self) -> str:
        """Who holds most, and of these the lowest id. Raises RoleRefusedError."""
        group, found = self.member.group, list[tuple[LeaseAnswer, int, str]]()
        for address, (_, answer) in self.leases.answers.items():
            known = group.member(address) if group is not None else None
            if answer.accepted and answer.whole and known is not None:
                found.append((answer, known.broker_id, address))
        if not found:
            raise RoleRefusedError(("no slave follows that could become master",))
        return min(found, key=lambda each: (-each[0].max_offset, each[1]))[2]
