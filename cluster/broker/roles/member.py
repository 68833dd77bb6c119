"""What every member owes to its group, whoever changes roles: promises, answers to leases, a hold, the history that it follows.

Order, always: streams of an older epoch end -> what is decided is on the disk -> the answer leaves. `turn` is held meanwhile, so
that two decisions never mix.
"""

from collections.abc import Awaitable, Callable

import structlog
import trio
from attrs import define, evolve, field, frozen

from twinlog.cluster.broker.peers.role_messages import Held, HoldAsk, RoleRefusedError
from twinlog.cluster.broker.roles.state import RoleFacts
from twinlog.cluster.broker.roles.tail import tail_digest
from twinlog.ha.election.group_record import is_newer
from twinlog.ha.election.voter import LeaseAnswer, LeaseAsk, PromiseAnswer, PromiseAsk, followed, lease, promise
from twinlog.ha.errors import HAPeerError
from twinlog.ha.peer import PeerHistory
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochId
from twinlog.store.role_file import Change, GroupRecord, RoleState

log = structlog.get_logger(__name__)

LOST = "lost"  # No machine's boot id: the next start knows, too, that a tail is gone.
CLOCKS_DIFFER_MS = 1_000  # Less is the way of the question.


@frozen
class _Hold:
    """A master's word to write nothing until `deadline`, unless it resigns for the candidate before."""

    candidate: str
    deadline: float
    end_offset: int


@define(eq=False, kw_only=True)
class RoleMember(RoleFacts):
    """Its decisions."""

    _holding: _Hold | None = field(default=None, init=False)
    _resigned: tuple[EpochId, int] | None = field(default=None, init=False)  # For which epoch, at which end of the log.

    # Promises

    async def promise(self, ask: PromiseAsk, change: Change | None = None) -> PromiseAnswer:
        """Answer a candidate. Raises RoleFileError: the promise is not durable, and does not count. `change`: what this member
        carries out itself, written down with its promise.
        """
        if ask.dry_run:
            return self._vote(ask, self._holding_end())[1]
        async with self.turn:
            held = self._holding_end()
            state, answer = self._vote(ask, held)
            if state is None:
                return answer
            serving = self.is_serving
            await self.fence(f"it has promised epoch {ask.epoch} to {ask.candidate}")
            state, answer = self._vote(ask, held if held == self.store.max_offset else None)  # The streams have ended.
            if state is not None:
                await self.book.save(evolve(state, change=change or state.change))
                self._resigned = (ask.id, self.store.max_offset) if ask.expects_end is not None else None
            elif serving:
                await self.hooks.serve_as_master(self.state_or_first())
                self.become("serving")
            return answer

    def has_resigned_for(self, master: PeerHistory) -> bool:
        """Whether this log is what that master's epoch begins behind: it was level when this member resigned, and nothing came
        since.
        """
        last = master.entries[-1]
        return (
            self._resigned == (master.id, last.start_offset)
            and last.id == master.id
            and last.start_offset == self.store.max_offset
            and master.entries[:-1] == self.book.entries
        )

    def _holding_end(self) -> int | None:
        """Where the log ends of a master that holds, and may resign."""
        held, end = self._holding, self.store.max_offset
        return end if held is not None and trio.current_time() < held.deadline and held.end_offset == end else None

    def _vote(self, ask: PromiseAsk, held: int | None) -> tuple[RoleState | None, PromiseAnswer]:
        state, entries, end = self.state_or_first(), self.book.entries, self.store.max_offset
        after, answer = promise(state, entries, self.store.commit_log.min_offset, end, held, ask, self.address)
        why = self.book.failure or (
            "" if self.book.state is not None else "it has never belonged to a group with a record"
        )
        if why:  # No higher number helps: it has not promised this one.
            return None, evolve(answer, granted=False, why=why, promised=state.promised)
        return after, answer

    async def fence(self, why: str) -> None:
        """Nothing of an older epoch is served, followed or acknowledged any more when this returns."""
        self.become("fenced", why)
        self._holding = None
        self.ha.lease.give_up(why)
        self.master = None
        await self.hooks.fence(why)
        await self.ha.leave_master()

    async def fence_older(self, why: str) -> None:
        """Somebody newer may be there: serve no longer. Nothing is promised by that."""
        async with self.turn:
            if self.is_serving:
                await self.fence(why)

    async def lose_tail(self, why: str) -> None:
        """Its disk lost what it wrote in its epoch, without a start of its machine: as after one, it never writes there again.
        The start rules go on from here. Raises RoleFileError.
        """
        epoch_id, self.book.lacks_tail = self.id, True
        async with self.turn:
            if (
                self.id == epoch_id and self.book.lacks_tail
            ):  # Else a new epoch has begun meanwhile, or it has promised one.
                log.warning(
                    "this member's log lacks an end that others have", max_offset=self.store.max_offset, why=why
                )
                await self.fence(f"its log lacks an end that others have: {why}")
                state = self.state_or_first()
                whole = state.whole and self._acknowledged_is_on_disk(state.role)
                await self.book.save(evolve(state, boot_id=LOST, whole=whole))

    # Leases

    async def lease(self, ask: LeaseAsk) -> LeaseAnswer:
        """Answer a master. Raises RoleFileError."""
        async with self.turn:
            before, me = self.state_or_first(), self.address
            own = (self.book.entries, self.store.max_offset, self.store.flusher.flushed_offset, me)
            state, answer = lease(before, ask, *own)
            if answer.accepted and (why := self._must_hear_others(ask.group) or self._is_unproven(ask)):
                if self.strangers_record is not None and self.store.config.broker_role is not BrokerRole.SLAVE:
                    await self.fence(why)  # Master by broker.conf, and another one may have been elected.
                return evolve(answer, accepted=False, why=why)
            if not answer.accepted:
                return answer
            if self.book.failure:
                return evolve(answer, accepted=False, why=self.book.failure)
            is_new = self.master is None or self.master.id != ask.id or self.master.address != ask.address
            other = self.ha.client.master_address not in (None, ask.ha_address) or ask.id != before.promised
            if self.is_serving or (other and self.phase != "fenced"):
                await self.fence(f"{ask.address} is master of epoch {ask.id.epoch}")
            now = state or before
            if not now.whole and not is_new and self._is_level_with(ask):
                now = evolve(now, whole=True)
            if now != before or self.book.state is None:
                await self.book.save(now)
            if now.whole and not before.whole:
                self.store.accept_end()
            self._heard(ask)
            return evolve(answer, whole=now.whole)

    def _is_level_with(self, ask: LeaseAsk) -> bool:
        return self._follows(ask) and self.store.max_offset >= ask.max_offset

    def _follows(self, ask: LeaseAsk) -> bool:
        client = self.ha.client
        return client.state == "streaming" and client.master_address == ask.ha_address

    def _is_unproven(self, ask: LeaseAsk) -> str:
        """Why a member without files may not promise yet: its log may be no beginning of the group's."""
        return "" if self.book.state is not None or self._follows(ask) else "its log was not compared with the master's"

    def _heard(self, ask: LeaseAsk) -> None:
        self.silence.heard(ask.address, trio.current_time())
        self.confirmed_offset = ask.confirmed_offset
        pause = ask.group.paused
        if pause is not None and pause.until_ms is not None and ask.pause_remaining_ms is not None:
            ahead = self.now_ms() - (pause.until_ms - ask.pause_remaining_ms)
            self.clock_ahead_ms = ahead if abs(ahead) >= CLOCKS_DIFFER_MS else 0
        self.master = PeerHistory(
            id=ask.id,
            entries=ask.entries,
            promised=ask.id,
            role=ask.group.master_role,
            group=ask.group,
            min_offset=0,
            max_offset=ask.max_offset,
            boot_ms=ask.boot_ms,
            address=ask.address,
            ha_address=ask.ha_address,
        )
        if self.phase != "following":
            self.changed.set()

    # The history that is followed

    async def adopt(self, master: PeerHistory) -> None:
        """Take over a master's history, after our log was cut to it and before it is followed. Raises HAPeerError: not this one,
        or not yet; RoleFileError.
        """
        async with self.turn:
            if master.group is None and self.book.state is None:
                self.joins = True
                return
            if why := self._must_hear_others(master.group):
                raise HAPeerError(why)
            state = self.state_or_first()
            if master.id.epoch <= state.promised.epoch and master.id != state.promised:
                promised = f"epoch {state.promised.epoch} to {state.promised.winner or 'nobody'}"
                raise HAPeerError(
                    f"this member has promised {promised}, and {master.address} is of epoch {master.id.epoch}"
                )
            await self.book.save(followed(state, master.id, master.group, self.address))
            if master.entries != self.book.entries:
                await self.book.save_entries(master.entries)
                self.ha.end_slaves("this log has another history now")  # Who copies from here has to take it up, too.

    async def suspect_tail(self, why: str) -> None:
        """Note, before it is so, that bytes go that this member may have acknowledged: Raises RoleFileError."""
        async with self.turn:
            if self.book.state is not None:
                log.warning("this member may lack what it acknowledged, until it is level again", why=why)
                await self.book.save(evolve(self.book.state, whole=False))

    def heard(self, master: PeerHistory) -> None:
        """A master said this when asked. Who is not in its record joins; who is, and does not know it, lost its files."""
        if self.book.state is None and (master.group is None or master.group.member(self.address) is None):
            self.joins = True

    async def hear_group(self, registered: Callable[[], Awaitable[str | None]]) -> None:
        """Before a master that has no files serves: it may have been emptied, and another one chosen since, whose id it would
        take. `registered` asks name servers who is their master. If that one says that this is a member of its group, this is no
        master. Else, or without an answer, broker.conf holds, as with RocketMQ.
        """
        if self.book.state is not None or not self.is_serving:
            return
        address = await registered()
        if address is None or address == self.address:
            return
        try:
            found = await self.calls.history(address)
        except HAPeerError as error:
            log.warning("another member is registered as master, and does not answer", peer=address, why=str(error))
            return
        async with self.turn:
            if found is not None and (why := self._must_hear_others(found.group)):
                await self.fence(why)

    def _must_hear_others(self, group: GroupRecord | None) -> str:
        """Why a member whose directory was emptied may not follow yet: nobody else knows what it promised."""
        if self.book.state is not None or self.joins or group is None or group.member(self.address) is None:
            return ""
        why = "it is in the group's record, and its own files do not know: every other voter has to be heard first"
        if self.strangers_record is None:
            self.become("waiting", why)
        if is_newer(group, self.strangers_record):  # Somebody may have been forgotten, see haMembers.
            self.strangers_record = group
        return why

    # A hold

    async def hold(self, ask: HoldAsk) -> Held:
        """Write nothing until the candidate asks to resign, or releases, or the time is over. Raises RoleRefusedError."""
        async with self.turn:
            if self.phase != "serving" or not self.is_serving:
                raise RoleRefusedError((f"{self.address} is no master that serves: {self.phase} {self.why}".strip(),))
            if self.group is None or ask.candidate not in self.group.voters:
                raise RoleRefusedError((f"{ask.candidate} is no member of this group that votes",))
            if paused := self.paused():
                raise RoleRefusedError((paused,))
            deadline = trio.current_time() + min(ask.ms, self.config.switchover_pause_max_ms) / 1000
            self.become("holding", f"writes wait for {ask.candidate} to become master of epoch {ask.epoch}")
            try:
                held = await self.hooks.hold(deadline)
                start, digest = await tail_digest(self.store, held.end_offset)
                held = evolve(held, tail_start=start, tail_digest=digest)
            except BaseException as error:
                self._let_go()
                if isinstance(error, TimeoutError):
                    raise RoleRefusedError((f"{self.address} could not hold in time: {error}",)) from error
                raise
            self._holding = _Hold(ask.candidate, deadline, held.end_offset)
            self.hold_begun.set()
            return held

    async def release(self, candidate: str) -> None:
        """Go on as before, unless this member has resigned or holds for somebody else."""
        async with self.turn:
            if self._holding is not None and self._holding.candidate == candidate:
                self._let_go()

    async def end_hold_in_time(self) -> float:
        """Go on if a hold's time is over. Returns when to call again, in trio's time."""
        async with self.turn:
            if self._holding is None:
                return float("inf")
            if trio.current_time() >= self._holding.deadline:
                log.warning(
                    "a switchover was not finished in time: this member goes on", candidate=self._holding.candidate
                )
                self._let_go()
                return float("inf")
            return self._holding.deadline

    def _let_go(self) -> None:
        self._holding = None
        self.hooks.release()
        self.become("serving")
