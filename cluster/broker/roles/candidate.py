"""Candidate side of a role change: the candidate survey, the old master's write pause, and becoming master.

The survey finds the group's members, its old master, and the log of each, before and while votes are collected. It ends a moment
after all have answered that are not known to be silent: neither a master that was not heard for haLeaseMs, nor a member that did
not answer lately, is waited for again, unless the others do not suffice.

The write pause is measured here and reported once: from when the old master was asked to pause until the first message of the new
epoch is as safe as producers are promised, or could be if nobody sends. A producer waits that long for its SEND_OK, plus the way.
"""

import math
from collections.abc import Callable, Mapping

import structlog
import trio
from attrs import define, evolve, field

from twinlog.cluster.broker.peers.role_messages import ChangeRequest, PausedMaster, RoleRefusedError, WritePauseRequest
from twinlog.cluster.broker.roles.kept_record import EtcdRecord
from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.roles.voter import Voter
from twinlog.cluster.broker.roles.write_pause import digest_of
from twinlog.ha.election.commit import KeeperError, KeeperRefusedError, KeptRecord, why_refused
from twinlog.ha.election.epochs import with_entry
from twinlog.ha.election.group_record import needed, with_auto_failover, with_ids_swapped, won_at
from twinlog.ha.election.in_sync_set import begun
from twinlog.ha.election.role_change import next_epoch
from twinlog.ha.election.voter import VoteReply, VoteRequest, why_older
from twinlog.ha.election.votes import (
    Judgement,
    LostRange,
    SwitchoverFacts,
    group_of,
    judge_failover,
    judge_switchover,
    without_records,
)
from twinlog.ha.errors import HAPeerError
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochEntry
from twinlog.store.role_file import GroupRecord
from twinlog.store.util.plain import from_plain, to_plain

log = structlog.get_logger(__name__)

LAG_MAX = 16 << 20  # Bytes: a switchover's write pause is over before clients notice.
POLL_SECONDS = 0.002
MOMENT_SECONDS = 0.3  # What a member gets, after the others, whose answer is not waited for.
CATCH_UP_SECONDS = 30.0


@define(eq=False)
class CandidateSurvey:
    """`answers`: to a dry run at first, then to requests for votes."""

    member: Member
    voter: Voter
    outside: EtcdRecord
    # By id: where members ask from that the record has elsewhere. For a dry run: what is promised there may be a copy's word.
    moved: Mapping[str, str] = field(factory=dict)
    group: GroupRecord | None = field(default=None, init=False)
    kept: KeptRecord | None = field(default=None, init=False)  # Where etcd keeps the record.
    why_not_kept: str = field(default="", init=False)  # Why it is not known there.
    answers: dict[str, VoteReply] = field(factory=dict, init=False)
    heard: set[str] = field(factory=set, init=False)  # Voters that answered at least once.
    silent: frozenset[str] = field(default=frozenset(), init=False)  # Voters that were asked and never answered.
    old_master: str = field(default="", init=False)  # Its id; "": unknown.

    async def run(self, suffices: Callable[[], bool] = lambda: True) -> int:
        """Ask all voters; nothing changes. Returns the epoch number to ask votes for. Silent voters are waited for unless what is
        heard `suffices`.
        """
        self.group, self.kept, self.why_not_kept = self.member.group, None, ""
        epoch = await self._ask_twice(self.member.promised().epoch + 1, patient=False)
        await self._read_kept()
        if self.silent and not suffices():
            self.silent = frozenset()
            epoch = await self._ask_twice(epoch, patient=True)
        return self._above_kept(epoch)

    def _above_kept(self, epoch: int) -> int:
        """The number, or one that nobody else has begun in etcd."""
        kept = self.kept.record if self.kept is not None else None
        if kept is None or kept.epoch < epoch:
            return epoch
        return kept.epoch if kept.candidate == self.member.own else kept.epoch + 1

    async def _read_kept(self) -> None:
        """Read the record in etcd, if the members' say that etcd keeps it: theirs may be older, or not in force."""
        if self.group is None or not self.group.is_in_etcd:
            return
        try:
            kept = await self.outside.read()
            answered = (why_refused(kept, answer.group) for answer in self.answers.values())
            if why := next(filter(None, answered), ""):
                raise KeeperRefusedError(why)
        except KeeperError as error:
            self.why_not_kept = str(error)
            return
        assert kept.record is not None
        self.group = kept.record
        if kept.record.is_in_etcd:
            self.kept = kept
            self.answers = without_records(self.answers)
        else:  # The group went back to its members; they may have gone on since.
            self.group = group_of(kept.record, self.answers)

    async def begin(self, epoch: int, *, alone: bool) -> None:
        """Begin the epoch in etcd: from here on the old master changes no in-sync set. Raises RoleStepError, KeeperError."""
        if self.kept is None or self.kept.record is None:
            return
        before = self.kept.record
        if (before.epoch, before.candidate) == (epoch, self.member.own):
            return  # An earlier attempt.
        record = begun(before, epoch, self.member.own, alone=alone)
        after = await self.outside.swap(self.kept, record)
        if after.record != record:
            raise RoleStepError("the group's record in etcd was changed meanwhile, by the master or another candidate")
        self.kept, self.group = after, record

    async def _ask_twice(self, epoch: int, *, patient: bool) -> int:
        """Again with a number above all promised ones, and all members that the first answers named."""
        member = self.member
        for _ in range(2):
            ask = VoteRequest(epoch=epoch, candidate=member.own, dry_run=True, codes=member.me().codes)
            self.answers = await self.ask_all(ask, but=self.silent, patient=patient)
            epoch = next_epoch(member.state_or_first(), member.durable.entries, self.answers, member.own)
        self.old_master = self._find_master()
        return epoch

    @property
    def has_enough(self) -> bool:
        """True if so many answer that their votes could elect."""
        return self.group is None or len(self.answers) >= needed(self.group)

    async def ask_all(
        self,
        ask: VoteRequest,
        *,
        but: frozenset[str] = frozenset(),
        patient: bool = False,
        enough: Callable[[Mapping[str, VoteReply]], bool] = lambda _answers: False,
    ) -> dict[str, VoteReply]:
        """Ask every voter, all at once; silent ones are left out.

        `patient`: wait for those, too, that are known to be silent. `enough`: whether these answers suffice, so that the others
        get only a moment.
        """
        answers: dict[str, VoteReply] = {}
        began, unanswered = trio.current_time(), self.voter.unanswered
        unanswered.forget(began)

        async def put(id: str) -> None:
            try:
                answers[id] = await self.ask(id, ask)
                self.heard.add(id)
                unanswered.answered(id)
            except HAPeerError as error:
                log.info("voter does not answer", peer=self.address_of(id), why=str(error))
            finally:
                ended[id].set()
            if enough(answers):
                for each in ended.values():
                    each.set()

        voters = self.group.voters if self.group is not None else frozenset()
        asked = (voters | {self.member.own}) - but
        ended = {id: trio.Event() for id in asked}
        async with trio.open_nursery() as nursery:
            for id in asked:
                nursery.start_soon(put, id)
            for id in asked:
                with trio.move_on_at(began + (math.inf if patient else self._patience(id))):
                    await ended[id].wait()
            nursery.cancel_scope.deadline = trio.current_time() + MOMENT_SECONDS
        for id in asked - answers.keys():
            unanswered.missed(id, trio.current_time())
        self.silent = (self.silent | asked) - self.heard
        if self.kept is not None:
            return without_records(answers)
        self.group = group_of(self.group, answers)
        return answers

    def _patience(self, id: str) -> float:
        """Seconds for which a member's answer is waited for; after that it gets a moment."""
        if id in self.voter.unanswered:
            return 0.0
        master, hearing = self.member.master, self.voter.hearing
        if master is not None and master.member == id and not hearing.why_given_up:
            return max(self.member.config.lease_ms / 1000 - hearing.silent_seconds, 0.0)
        return math.inf

    def address_of(self, id: str) -> str:
        """The address of a member, as far as it is known."""
        if id in self.moved:
            return self.moved[id]
        member = self.group.member(id) if self.group is not None else None
        return member.address if member is not None and id != self.member.own else self.member.address_of(id)

    async def ask(self, id: str, ask: VoteRequest) -> VoteReply:
        """Ask one voter. Raises HAPeerError, RoleFileError."""
        if id == self.member.own:
            return await self.voter.vote(ask)
        answer = await self.member.calls.promise(self.address_of(id), ask)
        if answer.member != id:
            raise HAPeerError(f"another member, {answer.member}, answers at {self.address_of(id)}")
        if why := why_older(self.group, id, answer.codes):  # What it promised and acknowledged since, it does not know.
            raise HAPeerError(f"{self.address_of(id)}: {why}")
        return answer

    def _find_master(self) -> str:
        """Id of the present or last master: that of the newest epoch in all answers."""
        living = [answer for answer in self.answers.values() if answer.is_master]
        if living:
            return max(living, key=lambda answer: answer.entries[-1].id).member
        if self.member.master is not None:
            return self.member.master.member
        members = self.group.members if self.group is not None else ()
        return next((each.id for each in members if each.broker_id == 0), "")

    @property
    def has_resigned(self) -> bool:
        """True if the old master has resigned for a candidate that has not become master yet."""
        answer = self.answers.get(self.old_master)
        return answer is not None and not answer.is_master and answer.promised.epoch > answer.entries[-1].epoch

    async def judge(self, asked: ChangeRequest) -> Judgement:
        """Judge whether this member may become master, before votes are given."""
        member = self.member
        if self.why_not_kept:
            refusal = Judgement(
                member.own,
                False,
                "knows the in-sync set",
                "etcd's record",
                self.why_not_kept,
                "bring etcd back, or accept the loss",
            )
            if asked.verb != "failover" or asked.accept_data_loss != "unknown" or self.group is None:
                return refusal
            # A person decides without it, and the group goes on without it: etcd's record is older from now on.
            self.group = evolve(with_auto_failover(self.group, "off"), before=None)
            self.answers = without_records(self.answers)
            return evolve(refusal, may=True, forced=True, lost=LostRange(member.store.max_offset, None, ()))
        if asked.verb == "switchover":
            return judge_switchover(self.group, member.own, self.answers, self._facts())
        if not member.is_serving and self.old_master != member.own and await self._is_serving(self.old_master):
            fix = f"twinlog switchover --candidate {member.address}"
            actual = f"{self.address_of(self.old_master)} serves"
            return Judgement(member.own, False, "the master is gone", "no master", actual, fix)
        return judge_failover(self.group, member.own, self.answers, asked.accept_data_loss)

    async def _is_serving(self, id: str) -> bool:
        if id not in self.answers:
            return False
        try:
            found = await self.member.calls.history(self.address_of(id))
        except HAPeerError:
            return False
        return found is not None and found.member == id and found.role is not BrokerRole.SLAVE

    def _facts(self) -> SwitchoverFacts:
        member, master = self.member, self.answers.get(self.old_master)
        client, known = member.ha.client, member.master
        finding = client.finding
        return SwitchoverFacts(
            master=self.old_master,
            master_address=self.address_of(self.old_master),
            master_answers=master is not None,
            following=known is not None
            and known.member == self.old_master
            and client.state == "streaming"
            and client.master_address == known.ha_address,
            lag_bytes=max(master.max_offset - member.store.max_offset, 0) if master is not None else 0,
            lag_max=LAG_MAX,
            differs_at=finding.offset if finding is not None and finding.kind == "damaged" else None,
            no_room=member.store.flags.why_not_appendable or "",
        )


def refusal_line(judged: Judgement) -> str:
    """Reason why a candidate may not be chosen, as text."""
    fix = f"; fix: {judged.fix}" if judged.fix else ""
    return f"{judged.candidate}: may not be chosen: {judged.rule}; needed {judged.needed}; actual {judged.actual}{fix}"


class RoleStepError(Exception):
    """A step failed; the steps before it stay done."""


@define(eq=False)
class SwitchoverPause:
    """Write pause of the old master, which begin() starts. A failover has none: catch_up() only fills its own queues."""

    member: Member
    survey: CandidateSurvey
    held: PausedMaster | None = field(default=None, init=False)
    has_caught_up: bool = field(default=False, init=False)
    resigned: bool = field(default=False, init=False)  # The old master has resigned, or may have.
    pause_ms: float | None = field(default=None, init=False)  # Once it is over.
    _begun_at: float | None = field(default=None, init=False)

    @property
    def master_address(self) -> str:
        """Address of the old master."""
        return self.survey.address_of(self.survey.old_master)

    @property
    def seconds_left(self) -> float:
        """Seconds until the old master resumes writes by itself."""
        assert self._begun_at is not None
        return max(self._begun_at + self.member.config.switchover_pause_max_ms / 1000 - trio.current_time(), 0.0)

    async def begin(self, epoch: int) -> None:
        """Ask the old master to pause writes. Raises HAPeerError, RoleRefusedError, RoleStepError."""
        ms = self.member.config.switchover_pause_max_ms
        ask = WritePauseRequest(epoch=epoch, candidate=self.member.own, ms=ms)
        self._begun_at = trio.current_time()
        try:
            answer = await self.member.calls.role_change(self.master_address, "hold", to_plain(ask), timeout_ms=ms)
            self.held = from_plain(PausedMaster, answer)
        except ValueError as error:
            raise RoleStepError(f"{self.master_address} gave no usable answer: {error}") from error

    async def release(self) -> None:
        """Let the old master resume writes, unless it has resigned."""
        if self._begun_at is None or self.resigned:
            return
        try:
            ask = {"candidate": self.member.own}
            await self.member.calls.role_change(self.master_address, "release", ask, timeout_ms=1_000)
        except (HAPeerError, RoleRefusedError) as error:
            log.warning("ending the write pause failed: the master resumes by itself", why=str(error))

    async def catch_up(self) -> None:
        """Wait until this log and its queues have all that the master has, and take its tables. Raises RoleStepError."""
        store, held = self.member.store, self.held
        end = held.end_offset if held is not None else store.max_offset
        deadline = trio.current_time() + (CATCH_UP_SECONDS if held is None else self.seconds_left)
        while store.max_offset < end or store.dispatched_offset < store.max_offset:
            if trio.current_time() < deadline:
                await trio.sleep(POLL_SECONDS)
                continue
            raise RoleStepError(
                f"this log ends at {store.max_offset}, its queues at {store.dispatched_offset}, not at {end}"
            )
        if held is None:
            return
        if store.max_offset > end:
            raise RoleStepError(f"this log ends at {store.max_offset}, behind the master's, {end}")
        await self._require_equal(held)
        await self.member.effects.take_tables(held)
        self.has_caught_up = True

    async def _require_equal(self, held: PausedMaster) -> None:
        """Compare the last bytes; see write_pause.py."""
        start, end = held.tail_start, held.end_offset
        if not held.tail_digest or not self.member.store.commit_log.min_offset <= start < end:
            return
        if await digest_of(self.member.store, start, end) != held.tail_digest:
            why = f"bytes {start} to {end} here are not the master's"
            raise RoleStepError(f"{why}. Compare them with: twinlog log diff --live")

    async def resign(self, epoch: int) -> None:
        """Get the master's vote, the point of no return. Raises HAPeerError, RoleStepError."""
        assert self.held is not None
        assert self.has_caught_up, "asks the master to resign before it has caught up"
        if self.seconds_left <= 0:
            raise RoleStepError(
                f"it took longer than {self.member.config.switchover_pause_max_ms} ms: run the command again"
            )
        own, codes = self.member.own, self.member.me().codes
        ask = VoteRequest(epoch=epoch, candidate=own, expects_end=self.held.end_offset, codes=codes)
        self.resigned = True  # It may have, even if its answer is lost; if not, it resumes by itself.
        answer = await self.survey.ask(self.survey.old_master, ask)
        if not answer.granted:
            self.resigned = False
            raise RoleStepError(f"{self.master_address} does not resign: {answer.why}. Run the command again")
        self.survey.answers[self.survey.old_master] = answer

    async def wait_for_end(self, start: int, seconds: float) -> None:
        """Wait until the write pause is over, or `seconds`; `start`: of the new epoch. Returns at once where none began."""
        if self._begun_at is None:
            return
        deadline = trio.current_time() + seconds
        while not self._is_over(start):
            if trio.current_time() >= deadline:
                break
            await trio.sleep(POLL_SECONDS)
        self.pause_ms = (trio.current_time() - self._begun_at) * 1000

    def _is_over(self, start: int) -> bool:
        ha, end = self.member.ha, self.member.store.max_offset
        confirmed = ha.group_transfer.confirmed_offset
        return ha.group_transfer.gate(trio.current_time()) is None and (confirmed > start or confirmed >= end)


async def become_master(member: Member, survey: CandidateSurvey, entry: EpochEntry) -> None:
    """Save the epoch's entry, then the role. Holding `lock`, and with this member's vote for the epoch. May be repeated after
    a crash in between. Raises RoleFileError.
    """
    state = member.state_or_first()
    assert state.promised == entry.id
    if member.durable.last.id != entry.id:
        await member.durable.save_entries(with_entry(member.durable.entries, entry))
    assert member.durable.last.start_offset <= member.store.max_offset, "an epoch begins behind the log's end"
    group = survey.group or state.group
    assert group is not None
    member.durable.lacks_tail = False  # From now on it writes in an epoch of its own.
    record = won_at(with_ids_swapped(group, member.own, entry.epoch), member.durable.last.start_offset)
    await member.durable.save(
        evolve(state, role=group.master_role, broker_id=0, group=record, before=group, whole=True)
    )
    member.store.accept_end()
