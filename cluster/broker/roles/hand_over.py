"""A master that cannot store stops serving, so that the others elect one that can. The decision is in ha/election/hand_over.py.

Nothing here needs the disk, which may hang, nor `lock`, whose holder may wait for it: the member is fenced in memory, its voters
hear that it does not serve, and it serves again by the start rules once it can store, or as before when nobody took over.
"""

from collections.abc import Sequence

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.roles.lease import LeaseRounds
from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.roles.voter import Voter
from twinlog.ha.election.election import mode_of
from twinlog.ha.election.group_record import needed
from twinlog.ha.election.hand_over import WAIT_SECONDS, Follower, HandOverFacts, why_stays

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.25


@define(eq=False, repr=False)
class HandOver:
    """`why`: why this member does not serve, while it waits for another master; ""."""

    member: Member
    voter: Voter
    leases: LeaseRounds
    why: str = field(default="", init=False)
    count: int = field(default=0, init=False)
    why_stays: str = field(default="", init=False)  # Why it goes on, although it cannot store.
    _began_at: float = field(default=float("-inf"), init=False)
    _in_vain_at: float = field(default=float("-inf"), init=False)  # When nobody had taken over.

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._look()
            await trio.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        member, store, now = self.member, self.member.store, trio.current_time()
        member.health.look(now, store.why_not_writable, store.flusher.busy_since)
        if self.why:
            self._wait(now)
        elif member.phase == "serving" and member.is_serving and not self.voter.is_changing():
            self._consider(now)

    def _consider(self, now: float) -> None:
        unable = self.member.health.why_unable(self.member.config.auto_failover_after_ms / 1000)
        stays = why_stays(self._facts(now, unable)) if unable else ""
        if stays and stays != self.why_stays:
            log.warning("this master cannot store, and does not hand over", cause=unable, why=stays)
        self.why_stays = stays
        if unable and not stays:
            self._begin(now, f"it cannot store, and others can: {unable}")

    def _facts(self, now: float, unable: str) -> HandOverFacts:
        member, group = self.member, self.member.group
        may_elect = group is not None and self.leases.is_settled
        return HandOverFacts(
            mode=mode_of(group),
            unable=unable,
            paused=member.paused(),
            needed=needed(group) if group is not None else 1,
            confirmed=min(member.ha.group_transfer.confirmed_offset, member.store.max_offset),
            followers=self._followers(now) if may_elect else (),
            tried_seconds=now - self._in_vain_at,
        )

    def _followers(self, now: float) -> Sequence[Follower]:
        """Those that answered within the lease, and have a stream."""
        held = {each.member: each.ack_offset for each in self.member.ha.statistics().connections if each.counted}
        fresh = now - self.member.config.lease_ms / 1000
        answers = ((id, answer) for id, (at, answer) in self.leases.answers.items() if at >= fresh)
        return [
            Follower(can_store=answer.can_store, held=held[id])
            for id, answer in answers
            if answer.accepted and answer.whole and id in held
        ]

    def _begin(self, now: float, why: str) -> None:
        member = self.member
        self.why, self._began_at, self.count = why, now, self.count + 1
        log.error("this master hands over", why=why)
        member.become("fenced", why)
        member.ha.lease.give_up(why)
        member.effects.stand_aside(why)
        self.voter.hearing.gave_up(why)  # Whoever asks this member hears that there is no master.
        self.leases.ask_soon()

    def _wait(self, now: float) -> None:
        """Until another one is master, or may be; until it can store again; or until nobody took over for long."""
        member = self.member
        is_own = member.phase == "fenced" and member.why == self.why and self.leases.leads
        if not is_own or member.durable.failure or self.leases.newer_promise():
            self._end()
        elif member.health.is_able:
            log.info("the store of this master is in order again, and nobody took over yet")
            self._end()
        elif now >= self._began_at + WAIT_SECONDS and not member.lock.locked():  # Else it is about to give its vote.
            log.error("nobody took over from this master, which cannot store: it serves what it can", why=self.why)
            self._in_vain_at = now
            self._end()
            member.effects.serve_again()
            member.become("serving")
            self.voter.hearing.serves(now)
            self.leases.ask_soon()

    def _end(self) -> None:
        """The start rules go on from here."""
        self.why = ""
        self.member.changed.set()
