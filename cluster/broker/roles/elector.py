"""Begins a failover by itself where the group's record says so: gathers the facts, and carries out what ha/election decides.

Every member looks a few times a second. What it decided last, and why, is in its status.
"""

import random
import re
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.peers.role_messages import ChangeRequest
from twinlog.cluster.broker.roles.candidate import CandidateSurvey
from twinlog.cluster.broker.roles.change import RoleChange
from twinlog.cluster.broker.roles.lease import LeaseRounds
from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.roles.voter import Voter
from twinlog.ha.election.election import Asked, Decision, Facts, Standing, accepted_loss, decide, mode_of, standings
from twinlog.ha.election.group_record import needed
from twinlog.ha.election.witness import WitnessReply
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

LOOK_SECONDS, IDLE_SECONDS = 0.25, 1.0
SECONDS = re.compile(r"\d+(\.\d+)? s\b")  # They change with each look.
MOMENT_SECONDS = 0.02
ASK_SECONDS_MAX = 4.0  # Who does not answer is waited for for a shorter time.


class Witnesses(Protocol):
    """Others than the voters that may hear the master, such as name servers."""

    async def ask(self) -> tuple[WitnessReply, ...]:
        """Return their replies, within a second."""


class NoWitnesses:
    """Nobody to ask."""

    async def ask(self) -> tuple[WitnessReply, ...]:
        """Nothing."""
        return ()


@define(eq=False, repr=False)
class Elector:
    """`begin` begins a role change of this member, and returns it when it has ended."""

    member: Member
    voter: Voter
    leases: LeaseRounds
    begin: Callable[[ChangeRequest], Awaitable[RoleChange]]
    witnesses: Witnesses = field(factory=NoWitnesses)
    why_not: Callable[[], str] = lambda: ""  # What else goes on here that forbids it.
    decision: Decision = field(default=Decision(kind="stay", why="it has only just started"), init=False)
    asked: Asked | None = field(default=None, init=False)
    tried: int = field(default=0, init=False)
    won: int = field(default=0, init=False)
    given_up: int = field(default=0, init=False)
    why_given_up: str = field(default="", init=False)
    suspected_at: float | None = field(default=None, init=False)
    _suspected: Wakeup = field(factory=Wakeup, init=False)
    _outpromised_at: float | None = field(default=None, init=False)  # Of a master: when a voter said so first.
    _held_back_at: float = field(default=float("-inf"), init=False)
    _tries: int = field(default=0, init=False)  # Failed, since a master was heard.
    _tried_at: float = field(default=float("-inf"), init=False)
    _jitter: float = field(default=0.0, init=False)

    async def run(self) -> None:
        """Until cancelled."""
        self._log_other_mode()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen_task)
            while True:
                decision = decide(self.facts())
                self._note(decision)
                if decision.kind in ("stay", "wait") and not decision.is_turn:
                    self._held_back_at = trio.current_time()
                if decision.kind == "ask":
                    await self._ask()
                elif decision.kind == "run":
                    await self._elect(decision.why)
                else:
                    # What is decided while nobody is suspected is only shown.
                    longest = LOOK_SECONDS if self.suspected_at is not None else IDLE_SECONDS
                    with trio.move_on_after(min(max(decision.at - trio.current_time(), MOMENT_SECONDS), longest)):
                        await self._suspected.wait()

    async def _listen_task(self) -> None:
        while True:
            await self._listen()
            with trio.move_on_after(LOOK_SECONDS):
                await self.member.ha.client.lost.wait()
                await trio.sleep(MOMENT_SECONDS)  # Of a process that ends, one connection goes after the other.

    def _log_other_mode(self) -> None:
        """broker.conf says only what a group begins with."""
        group, configured = self.member.group, self.member.config.auto_failover.value
        if group is not None and group.auto_failover is not None and group.auto_failover != configured:
            log.info(
                "autoFailover of broker.conf is not its group's", configured=configured, in_force=group.auto_failover
            )

    async def _listen(self) -> None:
        """Note what was heard since the last look."""
        member, hearing, now = self.member, self.voter.hearing, trio.current_time()
        self.voter.elections.note(member.durable.entries, now, member.now_ms())
        client = member.ha.client
        hearing.heard(now if member.is_serving else client.heard_at)
        hearing.look(now)
        if client.state != "streaming" and not member.is_serving:
            await self._probe()
            hearing.look(trio.current_time())
        if member.is_serving:
            self._look_for_promises(now)
            return
        self._outpromised_at = None
        if not hearing.is_suspected:
            self.suspected_at, self._tries = None, 0
        elif self.suspected_at is None:
            self.suspected_at, self._jitter = now, random.random()
            self._suspected.set()
            if mode_of(member.group) != "off":
                log.warning("master suspected", peer=self._master_address() or None, why=self._heard())

    def _look_for_promises(self, now: float) -> None:
        """A master: see whether a voter can follow it no more, for so long that nobody is going to begin what was promised."""
        if not self.leases.outpromised():
            self._outpromised_at = self.suspected_at = None
            self._tries = 0
            return
        if self._outpromised_at is None:
            self._outpromised_at = now
        due = now >= self._outpromised_at + self.voter.hearing.patience.silence
        if due and self.suspected_at is None:
            self.suspected_at, self._jitter = now, random.random()
            self._suspected.set()

    async def _probe(self) -> None:
        """See whether a process is where the master was: if not, it need not be waited for as long."""
        address = self._master_address()
        if mode_of(self.member.group) == "off" or not address:
            return
        if await self.member.calls.is_refused(address):
            self.voter.hearing.refused()
        else:
            self.voter.hearing.accepted()

    def _master_address(self) -> str:
        """Address, present or last, of the member that is waited for; "" when that is not known, or this member."""
        id = self._master_id()
        return self.member.address_of(id) if id not in ("", self.member.own) else ""

    def facts(self) -> Facts:
        """All that the decision depends on."""
        member, voter = self.member, self.voter
        lost, patience = self.leases.outpromised() if member.is_serving else "", voter.hearing.patience.silence
        left = voter.hearing.seconds_left
        if member.is_serving and self._outpromised_at is not None:
            left = self._outpromised_at + patience - trio.current_time()
        leads = self.leases.leads and not self.leases.newer_promise()
        why_not = self.why_not() or member.durable.failure
        if not why_not and leads and not member.is_serving:
            why_not = "it was the master, and asks whether it still is"
        return Facts(
            now=trio.current_time(),
            own=member.own,
            master=self._master_id(),
            group=member.group,
            is_serving=member.is_serving,
            paused=member.paused(),
            cannot_store=member.why_no_candidate,
            why_not=why_not,
            seconds_left=left,
            heard=lost or self._heard(),
            is_gone=voter.hearing.gone_seconds is not None,
            outpromised=bool(lost),
            asked=self.asked,
            suspected_at=self.suspected_at,
            held_back_at=self._held_back_at,
            held_off_until=voter.elections.held_off_until,
            tried_at=self._tried_at,
            tries=self._tries,
            jitter=self._jitter,
            deposed=voter.elections.deposed,
            loss_max=member.config.auto_failover_max_loss_bytes,
        )

    def _heard(self) -> str:
        hearing, address = self.voter.hearing, self._master_address()
        name = self.member.group.label(self._master_id()) if self.member.group is not None else address
        if hearing.why_given_up:
            return hearing.why_given_up
        gone = ", and its process is gone" if hearing.gone_seconds is not None else ""
        return f"{name or 'the master'} was not heard for {hearing.silent_seconds:.1f} s{gone}"

    def _master_id(self) -> str:
        """Id of the member that this one waits for: its master, or a candidate that has its vote; else the record's master."""
        member = self.member
        if member.master is not None:
            return member.master.member
        if member.promised().winner not in ("", member.own):
            return member.promised().winner
        return next((each.id for each in member.group.members if each.broker_id == 0), "") if member.group else ""

    def _note(self, decision: Decision) -> None:
        """Log what is new about a suspected master, once."""
        if decision.kind == "ask" and self.suspected_at is not None and self.asked is not None:
            return  # What the last answers said goes on to be told.
        before, self.decision = self.decision, decision
        is_new = SECONDS.sub("", decision.why) != SECONDS.sub("", before.why)
        if self.suspected_at is not None and decision.kind in ("stay", "wait") and is_new:
            log.info("no automatic failover yet", why=decision.why)

    async def _ask(self) -> None:
        """Ask the other voters, and witnesses, without any effect."""
        at, moved = trio.current_time(), {id: asker.address for id, asker in self.leases.joining.pending.items()}
        survey = CandidateSurvey(self.member, self.voter, self.leases.outside, moved)
        replies: tuple[WitnessReply, ...] = ()

        async def ask_witnesses() -> None:
            nonlocal replies
            replies = await self.witnesses.ask()

        async with trio.open_nursery() as nursery:
            group = self.member.group
            if group is not None and needed(group) <= 1 and not group.is_in_etcd:
                nursery.start_soon(ask_witnesses)
            await survey.run()
        now = trio.current_time()
        is_old = now > at + ASK_SECONDS_MAX  # This process stood still meanwhile: the master may be heard again.
        self.asked = None
        if not is_old:
            self.asked = Asked(
                at=now,
                answers=dict(survey.answers),
                witnesses=replies,
                group=survey.group,
                why_no_record=survey.why_not_kept,
                announced=survey.kept.master if survey.kept is not None else "",
            )

    async def _elect(self, why: str) -> None:
        """Run the failover that a person would begin; a master begins a new epoch of its own."""
        log.warning("automatic failover begins", why=why)
        self.tried += 1
        group, loss_max = self.member.group, self.member.config.auto_failover_max_loss_bytes
        ask = ChangeRequest(
            verb="restart" if self.member.is_serving else "failover",
            candidate=self.member.address,
            reason=why,
            accept_data_loss=accepted_loss(group, loss_max) if group is not None else None,
            decided_by="group",
        )
        change = await self.begin(ask)
        self._tried_at, self._jitter = trio.current_time(), random.random()
        if change.error:
            self._tries += 1
            self.given_up += 1
            self.why_given_up = change.error
            log.warning("automatic failover given up", why=change.error, tries=self._tries)
        else:
            self._tries, self.won = 0, self.won + 1

    def standings(self) -> tuple[Standing, ...]:
        """Standings of the members as the next master, by answers to this member: as a master, or since it suspects its own. ()
        while it has none.
        """
        member, deposed, group = self.member, self.voter.elections.deposed, self.member.group
        if group is None:
            return ()
        if member.is_serving:
            since = trio.current_time() - member.config.lease_ms / 1000
            answers = {id: answer for id, (asked_at, answer) in self.leases.answers.items() if asked_at > since}
            return standings(group, answers, deposed, master=member.own)
        if self.asked is None or self.suspected_at is None or self.asked.at < self.suspected_at:
            return ()
        return standings(group, self.asked.answers, deposed)
