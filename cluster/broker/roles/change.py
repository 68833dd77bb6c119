"""One role change, carried out by its candidate: the steps of ha/election/role_change.py, each only if it is not done yet.

Votes stay given when it ends in the middle; a change that is started again, here or elsewhere, continues from there.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType

import structlog
import trio
from attrs import define, evolve, field

from twinlog.cluster.broker.peers.role_messages import (
    ChangeRequest,
    ChangeResult,
    ChangeState,
    RoleRefusedError,
    StepState,
    StepWord,
)
from twinlog.cluster.broker.roles.candidate import (
    CandidateSurvey,
    RoleStepError,
    SwitchoverPause,
    become_master,
    refusal_line,
)
from twinlog.cluster.broker.roles.lease import LeaseRounds
from twinlog.cluster.broker.roles.locks import hand_on
from twinlog.cluster.broker.roles.member import Member, pause_text
from twinlog.cluster.broker.roles.voter import Voter
from twinlog.ha.election.commit import KeeperError
from twinlog.ha.election.role_change import ChangeSnapshot, Step, StepName, check_invariants, next_step, plan
from twinlog.ha.election.voter import VoteReply, VoteRequest
from twinlog.ha.election.votes import Judgement, LostRange, group_of, may_take
from twinlog.ha.errors import HAPeerError
from twinlog.store.epoch_file import EpochEntry
from twinlog.store.role_file import Change

log = structlog.get_logger(__name__)

NUMBERS_MAX = 5  # Attempts with higher epoch numbers, while others promise meanwhile.
# Epoch numbers that a forced change leaves free, for an unreachable master that acknowledges alone: one for each of its restarts.
NUMBERS_FREE = 10
FOLLOW_SECONDS = 3.0
EXPECTED = RoleStepError, HAPeerError, KeeperError, OSError  # Their messages say enough; a traceback would not help.


@define(eq=False)
class RoleChange:
    """`ask.candidate` is this member."""

    member: Member
    voter: Voter
    leases: LeaseRounds
    ask: ChangeRequest
    epoch: int = field(default=0, init=False)
    survey: CandidateSurvey = field(init=False)
    pause: SwitchoverPause = field(init=False)
    judgement: Judgement | None = field(default=None, init=False)
    result: ChangeResult | None = field(default=None, init=False)
    error: str = field(default="", init=False)
    is_refused: bool = field(default=False, init=False)
    is_running: bool = field(default=True, init=False)
    _elected: bool = field(default=False, init=False)
    _served: bool = field(default=False, init=False)
    _doing: Step | None = field(default=None, init=False)
    _done: set[int] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.survey = CandidateSurvey(self.member, self.voter, self.leases.outside)
        self.pause = SwitchoverPause(self.member, self.survey)

    async def run(self) -> None:
        """Run all steps. Failures are in `error`."""
        try:
            while (step := next_step(self._snapshot())) is not None:
                self._doing = step
                await self._steps[step.name]()
                check_invariants(self._snapshot())
                self._done.add(step.number)
                if self.ask.dry_run:
                    return
            pause_ms = self.pause.pause_ms
            log.info("this member is the master now", epoch=self.epoch, verb=self.ask.verb, pause_ms=pause_ms)
        except RoleRefusedError as error:
            self.error, self.is_refused = str(error), True
        except Exception as error:  # A background task must not end the broker.
            self.error = f"{self._doing.name if self._doing else 'check'}: {error}"
            log.warning(
                "role change failed", verb=self.ask.verb, why=self.error, exc_info=not isinstance(error, EXPECTED)
            )
        finally:
            self.is_running = False
            with trio.CancelScope(shield=True), trio.move_on_after(1):
                await self.pause.release()

    @property
    def _steps(self) -> Mapping[StepName, Callable[[], Awaitable[None]]]:
        return {
            "check": self._check,
            "hold": partial(self.pause.begin, self.epoch),
            "level": self.pause.catch_up,
            "promise": self._promise,
            "take": self._take,
            "serve": self._serve,
            "register": trio.lowlevel.checkpoint,  # serve_as_master() has started it.
            "report": self._report,
        }

    def _snapshot(self) -> ChangeSnapshot:
        member = self.member
        return ChangeSnapshot(
            verb=self.ask.verb,
            own=member.own,
            old_master=self.survey.old_master,
            members=self._members,
            epoch=self.epoch,
            state=member.state_or_first(),
            entries=member.durable.entries,
            max_offset=member.store.max_offset,
            dispatched_offset=member.store.dispatched_offset,
            held_end=self.pause.held.end_offset if self.pause.held is not None else None,
            caught_up=self.pause.has_caught_up,
            answers=self.survey.answers,
            elected=self._elected,
            serving=self._served,
            registered=self._served,
            following=self.leases.followers,
            reported=self.result is not None,
        )

    @property
    def _members(self) -> tuple[str, ...]:
        group = self.survey.group
        return (self.member.own,) if group is None else tuple(each.id for each in group.members)

    def state(self) -> ChangeState:
        """Report of the change."""
        address_of, old_master = self.survey.address_of, self.survey.old_master
        members = tuple(map(address_of, self._members))
        steps = plan(self.ask.verb, self.member.address, address_of(old_master) if old_master else "", members)
        return ChangeState(
            running=self.is_running,
            steps=tuple(StepState(number=s.number, name=s.name, text=s.text, state=self._word(s)) for s in steps),
            judgements=(self._shown(self.judgement),) if self.judgement is not None else (),
            result=self.result,
            error=self.error,
            refused=self.is_refused,
        )

    def _shown(self, judgement: Judgement) -> Judgement:
        """With addresses instead of ids, for people."""
        lost, address_of = judgement.lost, self.survey.address_of
        if lost is not None:
            lost = evolve(lost, holders=tuple(sorted(map(address_of, lost.holders))))
        return evolve(judgement, candidate=address_of(judgement.candidate), lost=lost)

    def _word(self, step: Step) -> StepWord:
        if self.result is not None or step.number in self._done:
            return "done"
        if self._doing is None or step.number > self._doing.number or self.ask.dry_run:
            return "to do"
        return "done" if step.number < self._doing.number else "failed" if self.error else "doing"

    # Before anything is changed

    async def _check(self) -> None:
        """Survey the members, and judge this candidate."""
        member = self.member
        epoch = await self.survey.run(self._is_heard)
        self._require_may_change()
        if self.ask.verb == "switchover" and self.survey.has_resigned:
            self.ask = evolve(self.ask, verb="failover")  # It was begun before; there is no master left to pause.
        if member.durable.last.id != (epoch, member.own):  # Else it was elected, and continues.
            self.judgement = await self.survey.judge(self.ask)
            if not self.judgement.may:
                raise RoleRefusedError(refusal_line(self._shown(self.judgement)))
            if self.judgement.forced and self._may_begin_again():
                epoch += NUMBERS_FREE
        self.epoch = epoch

    @property
    def _is_in_etcd(self) -> bool:
        """True if the newest record of all that answered says so."""
        group = group_of(self.survey.group, self.survey.answers)
        return group is not None and group.is_in_etcd

    def _is_heard(self) -> bool:
        """True if the members that answer at once can decide. A switchover needs the master."""
        survey = self.survey
        return survey.has_enough and (self.ask.verb != "switchover" or survey.old_master in survey.answers)

    def _may_begin_again(self) -> bool:
        """True if a silent master may begin new epochs by itself meanwhile; see StartRules."""
        group = self.survey.group
        return bool(self.survey.silent) and group is not None and group.acks_needed <= 1

    # From here on older epochs are fenced

    async def _promise(self) -> None:
        """Collect so many votes that nothing can be acknowledged in an older epoch any more."""
        self._require_may_change()
        for _ in range(NUMBERS_MAX):
            await self.survey.begin(self.epoch, alone=self._is_forced)
            highest = await self._collect()
            if highest < self.epoch:
                break
            # Two that nobody ordered would outbid each other until both have given away their votes.
            if self.ask.decided_by == "group":
                raise RoleStepError(f"another member has begun, too: epoch {highest} is promised")
            self.epoch = highest + 1
        else:
            raise RoleStepError(f"others promise higher numbers meanwhile, {highest} now: run the command again")
        # No epoch begins without its record there.
        if self._is_in_etcd and self.survey.kept is None and not self._is_forced:
            raise RoleStepError("the group's record was handed to etcd meanwhile: run the command again")
        resigned = self.survey.old_master if self.pause.resigned else None
        accepted = self.judgement
        self.judgement = may_take(
            self.survey.group, self.member.own, self.survey.answers, resigned, self.ask.accept_data_loss
        )
        if accepted is not None and accepted.forced and self.judgement.may:  # In etcd the set is this member by now.
            self.judgement = accepted
        if not self.judgement.may:
            raise RoleRefusedError(
                refusal_line(self._shown(self.judgement)),
                f"{self.member.address} has promised epoch {self.epoch}: choose another, or run this again",
            )
        self._elected = True

    def _require_may_change(self) -> None:
        paused = pause_text(self.survey.group, self.member.group_ms())
        if paused and not self.ask.dry_run:
            raise RoleRefusedError(paused)

    async def _collect(self) -> int:
        """Ask votes for one epoch number. Returns the highest promised number that refuses it; 0 without any."""
        own, survey = self.member.own, self.survey
        ask = VoteRequest(epoch=self.epoch, candidate=own, codes=self.member.me().codes)
        survey.answers = {}
        if self.ask.verb == "switchover" and not self.pause.resigned:
            await self.pause.resign(self.epoch)
        survey.answers[own] = await self.voter.vote(ask, self._change())
        if survey.answers[own].granted and not (self.pause.resigned and self._is_enough()):
            survey.answers |= await survey.ask_all(
                ask, but=survey.silent | survey.answers.keys(), enough=self._is_enough
            )
        refused = [answer.promised.epoch for answer in survey.answers.values() if not answer.granted]
        if not refused and survey.silent and not self._is_enough():  # Then ask silent voters again.
            survey.answers |= await survey.ask_all(ask, but=frozenset(survey.answers), patient=True)
            refused = [answer.promised.epoch for answer in survey.answers.values() if not answer.granted]
        return max(refused, default=0)

    def _is_enough(self, more: Mapping[str, VoteReply] = MappingProxyType({})) -> bool:
        """True if the votes suffice, so that the others need not be asked, or waited for: the lease informs them."""
        resigned = self.survey.old_master if self.pause.resigned else None
        return may_take(self.survey.group, self.member.own, {**self.survey.answers, **more}, resigned).may

    def _change(self) -> Change:
        """The change as it is saved, for reports and for a start after a crash."""
        return Change(
            verb=self.ask.verb,
            epoch=self.epoch,
            candidate=self.member.address,
            reason=self.ask.reason,
            forced=self._is_forced,
            started_ms=self.member.now_ms(),
            step="promise",
        )

    async def _take(self) -> None:
        """Begin the epoch, and become its master: each durable before the next."""
        async with self.member.lock:
            self._require_promise()
            await become_master(self.member, self.survey, self._entry())

    def _require_promise(self) -> None:
        promised = self.member.promised()
        if promised != (self.epoch, self.member.own):
            raise RoleStepError(f"it has promised epoch {promised.epoch} meanwhile: run the command again")

    @property
    def _is_forced(self) -> bool:
        return self.judgement is not None and self.judgement.forced

    @property
    def _lost(self) -> LostRange | None:
        """Bytes that a forced change gives up."""
        return self.judgement.lost if self.judgement is not None and self._is_forced else None

    def _entry(self) -> EpochEntry:
        """The epoch that begins at the end of the log; an accepted loss is named in it."""
        lost = self._lost
        lost_bytes: int | None = 0
        if lost is not None:
            lost_bytes = lost.end - lost.first if lost.end is not None else None
        return EpochEntry(
            epoch=self.epoch,
            winner=self.member.own,
            winner_label=self.member.me().label,
            start_offset=self.member.store.max_offset,
            at_ms=self.member.now_ms(),
            kind="forced" if self._is_forced else self.ask.verb,
            reason=self.ask.reason,
            old=self.survey.old_master,
            lost_bytes=lost_bytes,
            decided_by=self.ask.decided_by,
        )

    async def _serve(self) -> None:
        """Serve, in memory; the lease informs the others."""
        member = self.member
        if self.pause.held is None:  # Consumers committed elsewhere, too; from now on only what is known here counts.
            others = self.survey.answers.keys() - {member.own}
            await member.effects.pull_offsets(tuple(sorted(map(self.survey.address_of, others))))
        async with member.lock:
            self._require_promise()
            hand_on(member, self.survey.answers)
            await member.effects.serve_as_master(member.state_or_first())
            member.become("serving")
            self._served = True
        self.leases.begin_epoch()
        self.leases.ask_soon()

    async def _report(self) -> None:
        member, entry = self.member, self.member.durable.last
        await self.pause.wait_for_end(entry.start_offset, FOLLOW_SECONDS)
        await self.leases.wait_for_answers(self.survey.heard, FOLLOW_SECONDS)
        async with member.lock:
            await member.durable.save(evolve(member.state_or_first(), change=None))
        lost = self._lost
        self.result = ChangeResult(
            epoch=entry.epoch,
            winner=member.address,
            start_offset=entry.start_offset,
            pause_ms=self.pause.pause_ms,
            lost_bytes=entry.lost_bytes,
            kept=tuple(sorted(map(self.survey.address_of, lost.holders))) if lost is not None else (),
            not_following=tuple(sorted(map(member.address_of, self.leases.others - self.leases.followers))),
        )
