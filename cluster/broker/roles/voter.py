"""Voter side of a role change: votes for candidates and lease renewals for masters. The rules are in ha/election/voter.py.

The answers of a member that is master, or follows one, are the same: fence first, save, then answer (see member.py).
"""

from collections.abc import Callable

import structlog
import trio
from attrs import define, evolve, field

from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.roles.write_pause import WritePause
from twinlog.ha.election.commit import KeeperView
from twinlog.ha.election.election import Elections
from twinlog.ha.election.epochs import common_end
from twinlog.ha.election.hearing import Hearing, Patience
from twinlog.ha.election.voter import (
    LeaseReply,
    LeaseRequest,
    VoteReply,
    VoteRequest,
    decide_lease,
    decide_vote,
    why_older,
)
from twinlog.ha.peer import PeerHistory
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochId
from twinlog.store.role_file import Change, RoleState

log = structlog.get_logger(__name__)

CLOCKS_DIFFER_MS = 1_000  # A smaller difference is the time that the request took.
KEPT_SECONDS = 30.0  # After that a member that did not answer is waited for again.


@define(eq=False)
class SilentMaster:
    """Reports a followed master that has not asked for its lease for `seconds`. Only a member of the record is asked again and
    again. Nothing is decided by it: its stream ends when the network says so, or after haHousekeepingInterval.
    """

    seconds: float
    _heard_at: float | None = field(default=None, init=False)  # Monotonic.
    is_silent: bool = field(default=False, init=False)

    def heard(self, address: str, now: float) -> None:
        """Note that the master asked for the lease."""
        if self.is_silent:
            log.info("master heard again", peer=address)
        self._heard_at, self.is_silent = now, False

    def check(self, address: str | None, now: float) -> None:
        """Log once that the master at `address` is silent; None: no master is followed."""
        if address is None or self._heard_at is None:
            self._heard_at, self.is_silent = None, False
        elif now - self._heard_at > self.seconds and not self.is_silent:
            self.is_silent = True
            log.warning("master not heard", peer=address, seconds=round(now - self._heard_at, 1))


@define(eq=False)
class SilentMembers:
    """Members that did not answer lately, by id: nobody waits for one as long as for others. Nothing is decided by it."""

    _missed_at: dict[str, float] = field(factory=dict, init=False)

    def answered(self, id: str) -> None:
        """Note an answer."""
        self._missed_at.pop(id, None)

    def missed(self, id: str, now: float) -> None:
        """Note that an answer did not come."""
        self._missed_at[id] = now

    def __contains__(self, id: str) -> bool:
        return id in self._missed_at

    def forget(self, now: float) -> None:
        """Forget who did not answer long ago: it may be there again."""
        self._missed_at = {id: at for id, at in self._missed_at.items() if now < at + KEPT_SECONDS}


@define(eq=False)
class Voter:
    """Answers 20005 (vote) and 20004 (lease)."""

    member: Member
    write_pause: WritePause
    silence: SilentMaster = field(init=False)
    hearing: Hearing = field(init=False)
    elections: Elections = field(factory=Elections, init=False)
    is_changing: Callable[[], bool] = field(default=lambda: False, init=False)  # A role change runs here.
    keeper_view: Callable[[], KeeperView | None] = field(default=lambda: None, init=False)
    unanswered: SilentMembers = field(factory=SilentMembers, init=False)
    confirmed_offset: int = field(default=0, init=False)  # Of the master that is followed, as last reported.
    _resigned: tuple[EpochId, int] | None = field(default=None, init=False)  # For this epoch, at this end of the log.

    def __attrs_post_init__(self) -> None:
        config = self.member.config
        self.silence = SilentMaster(config.lease_ms / 1000)
        after = max(config.auto_failover_after_ms, config.lease_ms) / 1000
        restart = config.auto_failover_restart_ms / 1000
        self.hearing = Hearing(Patience(silence=after, restart=restart))

    @property
    def confirmed_here(self) -> int:
        """Up to where this member's log is confirmed: as far as its master said last, where it is equal to the master's log.

        A former master that follows has bytes that the new one has not, until it has cut them off.
        """
        master, durable = self.member.master, self.member.durable
        if master is None or durable.last.id == master.id:
            return self.confirmed_offset
        end = common_end(durable.entries, self.member.store.max_offset, master.entries, master.max_offset)
        return min(self.confirmed_offset, end)

    # Votes

    async def vote(self, ask: VoteRequest, change: Change | None = None) -> VoteReply:
        """Answer a candidate. `change`: a change that this member carries out itself, saved with its vote.

        Raises RoleFileError: the vote is not durable, and does not count.
        """
        member, durable = self.member, self.member.durable
        if ask.dry_run:
            return self._decide(ask, self.write_pause.end_offset)[1]
        async with member.lock:
            paused_end = self.write_pause.end_offset
            state, answer = self._decide(ask, paused_end)
            if state is None:
                return evolve(answer, locks=member.locks.table()) if answer.granted else answer
            serving = member.is_serving
            await member.fence(f"it has promised epoch {ask.epoch} to {member.address_of(ask.candidate)}")
            # The streams have ended, and may have brought more until then.
            state, answer = self._decide(ask, paused_end if paused_end == member.store.max_offset else None)
            if state is not None:
                assert state.promised == ask.id
                assert ask.epoch > durable.promised.epoch, "a second vote in one epoch"
                await durable.save(evolve(state, change=change or state.change))
                self._resigned = (ask.id, member.store.max_offset) if ask.expects_end is not None else None
                if ask.candidate != member.own:
                    self.hearing.serves(trio.current_time())  # Who has its vote has time to take over.
            elif serving:
                await member.effects.serve_as_master(member.state_or_first())
                member.become("serving")
            assert not answer.granted or durable.promised == ask.id, "a vote that is not saved"
            return evolve(answer, locks=member.locks.table()) if answer.granted else answer

    def _decide(self, ask: VoteRequest, paused_end: int | None) -> tuple[RoleState | None, VoteReply]:
        member, durable, store = self.member, self.member.durable, self.member.store
        state, entries = member.state_or_first(), durable.entries
        min_offset, end = store.commit_log.min_offset, store.max_offset
        after, answer = decide_vote(state, entries, min_offset, end, paused_end, ask, member.me())
        why = durable.failure
        if not why and durable.state is None:
            why = "it has never belonged to a group with a record"
        if why:  # No higher number helps: it has not promised this one.
            return None, self._with_hearing(evolve(answer, granted=False, why=why, promised=state.promised), ask)
        return after, self._with_hearing(answer, ask)

    def _with_hearing(self, answer: VoteReply, ask: VoteRequest) -> VoteReply:
        """With what a candidate asks before it begins by itself."""
        serving, now = self.member.is_serving, trio.current_time()
        hears = not self.hearing.is_suspected and not self._waits_for(ask.candidate)
        return evolve(
            answer,
            hears=serving or self.is_changing() or hears,
            heard_ms=0 if serving else round(self.hearing.silent_seconds * 1000),
            holds_off_ms=self.elections.held_off_ms(now),
            can_store=not self.member.why_no_candidate,
        )

    def _waits_for(self, candidate: str) -> bool:
        """True if that candidate has this member's vote and is not known to have taken over: if it asks again, it has not."""
        promised = self.member.promised()
        return promised.winner == candidate and promised != self.member.durable.last.id and self.member.master is None

    def has_resigned_for(self, master: PeerHistory) -> bool:
        """True if that master's epoch begins exactly where this log ends: it had caught up when this member resigned for it, and
        nothing was written since.
        """
        last = master.entries[-1]
        return (
            self._resigned == (master.id, last.start_offset)
            and last.id == master.id
            and last.start_offset == self.member.store.max_offset
            and master.entries[:-1] == self.member.durable.entries
        )

    # Leases

    async def renew_lease(self, ask: LeaseRequest) -> LeaseReply:
        """Answer a master. Raises RoleFileError."""
        member, durable, store = self.member, self.member.durable, self.member.store
        async with member.lock:
            before, end = member.state_or_first(), store.max_offset
            named = member.named_in(ask.group) if durable.state is None else None
            own = named.id if named is not None else member.own
            state, answer = decide_lease(before, ask, durable.entries, end, store.flusher.flushed_offset, own)
            if not answer.accepted:
                return answer
            is_member = durable.state is not None  # Else it is only to take this member's place.
            if is_member and (why := why_older(ask.group, own, member.me().codes)):
                return evolve(answer, accepted=False, why=why)
            if why := self._why_other_process(ask):
                return evolve(answer, accepted=False, why=why, is_copy=True)
            why = member.must_hear_others(ask.group)
            if not why and durable.state is None and not self._follows(ask):  # It may be no prefix of the group's log.
                why = "its log was not compared with the master's"
            if why:
                if member.wiped_record is not None and store.config.broker_role is not BrokerRole.SLAVE:
                    await member.fence(why)  # Master by broker.conf, and another one may have been elected.
                return evolve(answer, accepted=False, why=why)
            if durable.failure:
                return evolve(answer, accepted=False, why=durable.failure)
            known = member.master
            is_new = known is None or (known.id, known.address) != (ask.id, ask.address)
            other = member.ha.client.master_address not in (None, ask.ha_address) or ask.id != before.promised
            if member.is_serving or (other and (member.phase != "fenced" or not member.store.config.is_slave)):
                await member.fence(f"{ask.address} is master of epoch {ask.id.epoch}")
            now = state or before
            if not now.whole and not is_new and self._follows(ask) and store.max_offset >= ask.max_offset:
                now = evolve(now, whole=True)
            if now != before or durable.state is None:
                await member.take_place(ask.group)
                await durable.save(now)
            if now.whole and not before.whole:
                store.accept_end()
            self._note_master(ask)
            assert durable.promised == ask.id, "a lease of another epoch than the promised one"
            version = member.locks.take(ask.locks) if ask.locks is not None else 0
            wanted = member.locks.table() if ask.wants_locks else None
            return evolve(
                answer,
                whole=now.whole,
                locks_version=version,
                locks=wanted,
                can_store=not member.why_unable,
                keeper=self.keeper_view(),
            )

    def _follows(self, ask: LeaseRequest) -> bool:
        client = self.member.ha.client
        return client.state == "streaming" and client.master_address == ask.ha_address

    def _why_other_process(self, ask: LeaseRequest) -> str:
        """Reason why this is not the process that is followed, although it has its id: that one still sends. "" where it is."""
        known = self.member.master
        if known is None or known.member != ask.member or not ask.codes or not known.codes:
            return ""
        is_same = known.codes[-1] == ask.codes[-1] or (known.address, known.boot_ms) == (ask.address, ask.boot_ms)
        if is_same or self.member.ha.client.state != "streaming":
            return ""
        return f"another process is member {ask.member}, at {known.address}, and is alive: one directory is a copy of the other"

    def _note_master(self, ask: LeaseRequest) -> None:
        member = self.member
        self.silence.heard(ask.address, trio.current_time())
        if ask.serves:
            self.hearing.serves(trio.current_time())
        else:
            self.hearing.gave_up(
                f"{ask.address} says that it does not serve" + (f": {ask.why_not}" if ask.why_not else "")
            )
        self.confirmed_offset = ask.confirmed_offset
        pause = ask.group.paused
        if pause is not None and pause.until_ms is not None and ask.pause_remaining_ms is not None:
            ahead = member.now_ms() - (pause.until_ms - ask.pause_remaining_ms)
            member.clock_ahead_ms = ahead if abs(ahead) >= CLOCKS_DIFFER_MS else 0
        member.master = PeerHistory(
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
            member_address=ask.member_address,
            member=ask.member,
            codes=ask.codes,
        )
        if member.phase != "following":
            member.changed.set()
